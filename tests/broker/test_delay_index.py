"""What the broker asks of its delay index."""

import pytest

from pulsar_spark.broker.delay_index import EVER, DelayIndex
from pulsar_spark.protocol.sticky_key import NONE_KEY, sticky_key_hash
from tests.model_keys import Key
from tests.spark_engine import SparkEngine

TOPIC = "persistent://public/default/t"
NOBODY = sticky_key_hash(NONE_KEY)
MS = 1000


@pytest.fixture
def index() -> DelayIndex:
    return DelayIndex()


def add(engine: SparkEngine, index: DelayIndex, delayed_after: int = 0) -> None:
    """Number what was published and let the index know."""
    bundle = engine.rounds.bundle
    state, before = bundle.topic(TOPIC), bundle.topic(TOPIC).ledgers(-1).end_position
    bundle.number_new()
    runs = [run._replace(delayed_after=delayed_after) for run in state.ledgers(-1).runs if run.first_position >= before]
    index.add(state, -1, [run for run in runs if run.has_delayed])


def due(engine: SparkEngine, index: DelayIndex, after: int, until: int) -> list[tuple[int, int]]:
    found = index.due(engine.topic_ids[TOPIC], -1, after, until)
    assert index.count(engine.topic_ids[TOPIC], -1, after, until) == len(found)
    return list(zip(found.times.tolist(), found.positions.tolist()))


def test_entries_come_in_order_of_deliver_time_and_position(engine, index):
    engine.publish(TOPIC, -1, [1, 1, 1, 1], deliver_at_ms=[9, None, 3, 9])
    add(engine, index)
    engine.publish(TOPIC, -1, [1, 2, 1], deliver_at_ms=[3, 20, 1])
    add(engine, index, delayed_after=1 * MS)
    topic_id = engine.topic_ids[TOPIC]
    assert due(engine, index, 0, EVER) == [(3 * MS, 2), (3 * MS, 4), (9 * MS, 0), (9 * MS, 3), (20 * MS, 5)]
    assert due(engine, index, 3 * MS, 9 * MS) == [(9 * MS, 0), (9 * MS, 3)]
    assert due(engine, index, 9 * MS, 9 * MS) == due(engine, index, 20 * MS, 3 * MS) == []
    assert [index.next_due(topic_id, -1, after * MS) for after in (0, 3, 9, 20)] == [3 * MS, 9 * MS, 20 * MS, None]
    assert index.count(topic_id, -1, 3 * MS) == 3 and index.ready_until(topic_id, -1) == EVER
    assert index.count(topic_id, 0, 0) == 0 and index.next_due("another", -1, 0) is None


def test_a_run_is_taken_in_once_and_what_is_dropped_or_forgotten_is_gone(engine, index):
    engine.publish(TOPIC, -1, [1, 1], deliver_at_ms=[9, 3])
    add(engine, index)
    state, topic_id = engine.rounds.bundle.topic(TOPIC), engine.topic_ids[TOPIC]
    index.add(state, -1, [run._replace(delayed_after=0) for run in state.ledgers(-1).runs])
    assert due(engine, index, 0, EVER) == [(3 * MS, 1), (9 * MS, 0)]
    index.drop(topic_id, -1, 3 * MS)
    assert due(engine, index, 0, EVER) == [(9 * MS, 0)]
    index.forget(topic_id)
    assert due(engine, index, 0, EVER) == [] and index.next_due(topic_id, -1, 0) is None


def test_hashes_are_those_of_the_first_messages_keys(engine, index):
    engine.publish(TOPIC, -1, [1, 2, 1], deliver_at_ms=[5, 4, 3], keys=[(Key("a"),), (Key("b"), Key("c")), (Key(),)])
    add(engine, index)
    found = index.due(engine.topic_ids[TOPIC], -1, 0, EVER)
    assert found.hashes.tolist() == [NOBODY, sticky_key_hash(b"b"), sticky_key_hash(b"a")]
