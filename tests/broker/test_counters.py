"""What counts as acknowledged, dead, delivered or returned, message by message; random histories are in
``tests/differential``."""

import pytest

from tests.support.requests import On
from tests.support.spark_engine import new_engine

TOPIC = "persistent://public/default/t"
ON = On(TOPIC)


@pytest.fixture
def engine(tmp_path):
    """Four entries: a batch of 3 messages, single ones, a batch of 2; all are delivered to ``a``."""
    engine = new_engine(None, tmp_path / "root")
    engine.create_topic(TOPIC)
    engine.publish(TOPIC, -1, [3, 1, 1, 2])
    policy = {"max_redeliver_count": 1}
    engine.round([ON.subscribe("a", **policy), ON.flow("a", 100)], 0)
    return engine


def counted(engine, *requests: dict, at_ms: int) -> tuple[int, int]:
    """Messages acknowledged and dead so far, after one more round."""
    engine.round(list(requests), at_ms)
    engine.committed()
    (row,) = engine.latest.cursors.values()
    return row["msg_ack_counter"], row["msg_dead_counter"]


def counts(engine) -> dict:
    return dict(engine.latest.round_row["counts"])


def test_each_message_of_a_batch_counts_once(engine):
    assert counted(engine, ON.ack(0, ack_set=[0b110]), at_ms=1) == (1, 0)
    assert counted(engine, ON.ack(0, ack_set=[0b110]), ON.ack(1), at_ms=2) == (2, 0), "the same again"
    assert counted(engine, ON.ack(0, ack_set=[0b011]), ON.ack(0), at_ms=3) == (4, 0), "a part, and all"
    assert counted(engine, ON.ack(0, 3), at_ms=4) == (7, 0), "only those that were left"
    assert counts(engine)["acknowledged"] == 3


def test_a_restart_keeps_the_counters(engine):
    counted(engine, ON.ack(0), at_ms=1)
    engine.restart(2)
    assert counted(engine, ON.ack(1), at_ms=3) == (4, 0)


def test_what_is_skipped_counts_and_what_a_seek_passes_does_not(engine):
    assert counted(engine, ON.skip(2), at_ms=1) == (4, 0)
    assert counted(engine, ON.seek("latest"), at_ms=2) == (4, 0)
    assert counted(engine, ON.seek(0), at_ms=3) == (4, 0)
    assert counted(engine, ON.ack(0), at_ms=4) == (7, 0), "acknowledged again"


def test_dead_messages_are_not_acknowledged_ones(engine):
    counted(engine, ON.ack(0, ack_set=[0b110]), ON.negative_ack("a", 0), ON.flow("a", 10), at_ms=1)
    assert counts(engine)["returned"] == 1 and counts(engine)["redelivered"] == 2
    assert counted(engine, ON.ack(0, ack_set=[0b100]), ON.negative_ack("a", 0), at_ms=2) == (2, 1)
    assert counts(engine) | {"acknowledged": 1, "dead": 1, "returned": 1} == counts(engine)


def test_messages_put_off_are_acknowledged_or_dead(engine):
    assert counted(engine, ON.reconsume_later(1, consumer="a"), at_ms=1) == (1, 0)
    assert counted(engine, ON.reconsume_later(2, consumer="a", is_dead=True, times=3), at_ms=2) == (1, 1)
    assert counts(engine)["dead"] == 1 and counts(engine)["acknowledged"] == 0


def test_a_round_says_what_came_in_and_how_long_it_took(engine):
    engine.publish(TOPIC, -1, [1, 5])
    counted(engine, ON.flow("a", 10), at_ms=1)
    found = counts(engine)
    assert (found["published"], found["requests"], found["delivered"]) == (2, 1, 6)
    steps = ("number_us", "requests_us", "gather_us", "plan_us", "write_us")
    assert all(found[name] >= 0 for name in steps)
    counted(engine, ON.close("a"), at_ms=2)
    assert counts(engine)["returned"] == 6, "entries, left by a consumer that went away"
