"""Whether a run over what is there is done, round by round."""

from unittest.mock import patch

import pytest

from pulsar_spark.frames.consuming.backlog import Backlog
from pulsar_spark.storage.cursor_ledger import committed_rounds
from pulsar_spark.storage.ledgers.ledger_index import LedgerIndex
from pulsar_spark.storage.topics.topics import read_topic
from tests.support.requests import On
from tests.support.spark_engine import new_engine

TOPIC = "persistent://public/default/t"


@pytest.fixture
def engine(tmp_path):
    engine = new_engine(None, tmp_path / "root")
    engine.create_topic(TOPIC)
    return engine


def backlog_of(engine) -> Backlog:
    return Backlog(engine.layout, read_topic(engine.layout, TOPIC), [-1], "s", LedgerIndex(engine.layout))


def test_it_is_done_with_the_last_acknowledgement_of_what_was_published_before(engine):
    on = On(TOPIC)
    engine.publish(TOPIC, -1, [1, 1, 1])
    backlog = backlog_of(engine)
    engine.round([on.subscribe("A"), on.flow("A", 9)], 1)
    assert not backlog.is_handled("A")
    engine.publish(TOPIC, -1, [1])
    engine.round([on.ack(0), on.ack(2)], 2)
    assert not backlog.is_handled("A")
    later = backlog_of(engine)
    for position in (1, 3):
        later.leave(-1, position, position)
    assert later.is_handled("A"), "what is given back is left to the next run"
    engine.round([on.ack(1)], 3)
    assert backlog.is_handled("A")


def test_a_look_reads_the_rounds_behind_the_last_one(engine):
    on = On(TOPIC)
    engine.publish(TOPIC, -1, [1] * 5)
    backlog = backlog_of(engine)
    engine.round([on.subscribe("A"), on.flow("A", 9)], 1)
    assert not backlog.is_handled("A")
    with patch.object(committed_rounds, "read_parts", wraps=committed_rounds.read_parts) as read:
        for number in range(4):
            assert not backlog.is_handled("A") and read.call_count == number, "nothing new: nothing is read"
            engine.run([on.ack(number)], 2 + number)
            assert not backlog.is_handled("A") and read.call_count == number + 1
        engine.run([on.ack(4)], 9)
        assert backlog.is_handled("A")
