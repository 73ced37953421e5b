"""Chunked messages in the broker: the unit is the entry of the last chunk, and what lies before it is passed over.

Rules: semantics 1.9-1.16 with 0.10 and 0.25 (see broker.chunked). Which chunks make up a message is in
tests/protocol/test_chunking.py.
"""

import pytest

from pulsar_spark.protocol.delays import unpacked
from pulsar_spark.storage.cursor_ledger import read_round
from tests.chunks import publish as publish_chunks
from tests.requests import On
from tests.spark_engine import SparkEngine

TOPIC = "persistent://public/default/t"
ON = On(TOPIC)
TYPES = ["Exclusive", "Failover", "Shared", "KeyShared"]
START = 1_000_000


def publish(engine: SparkEngine, *entries: str, **columns) -> None:
    publish_chunks(engine, TOPIC, *" ".join(entries).split(), **columns)


def join(subscription_type: str = "Shared", *, permits: int = 99, consumer: str = "A", **properties) -> list[dict]:
    return [ON.subscribe(consumer, subscription_type, lease_ms=86_400_000, **properties), ON.flow(consumer, permits)]


def positions(result: dict) -> list[int]:
    return [delivery.position for delivery in result["deliveries"]]


def cursor_of(engine: SparkEngine, subscription: str = "s"):
    return next(each for key, each in engine.rounds.bundle.cursors.items() if key.subscription == subscription)


def marks(engine: SparkEngine) -> tuple[int, int]:
    """The mark-delete that people see, and up to where nothing is left to do; as committed."""
    row = next(row for key, row in engine.latest.cursors.items() if key.subscription == "s")
    return row["mark_delete_position"], row["main_mark_delete_position"]


def chunks_of_round(engine: SparkEngine) -> list[list[int]]:
    """What the rows that were delivered in the latest round say of chunked messages."""
    rows = read_round(engine.layout.broker_table("cursor_ledger"), engine.rounds.bundle.version).to_pylist()
    return [unpacked(row["chunks"]).tolist() for row in rows if row["kind"] == "range" and row["chunks"]]


@pytest.mark.parametrize("subscription_type", TYPES)
def test_a_chunked_message_is_one_entry_where_its_last_chunk_lies(engine, subscription_type):
    publish(engine, "x A:0:3 A:1:3 y A:2:3 z")
    result = engine.round(join(subscription_type), START)
    assert (positions(result), sorted(chunks_of_round(engine))) == ([0, 3, 4, 5], [[1, 4]])
    state = engine.state(TOPIC, -1, "s")
    assert state["consumers"]["A"] == {
        "permits": 95,
        "unacked": 4,
        "is_active": state["consumers"]["A"]["is_active"],
        "is_blocked": False,
    }, "a chunked message takes one permit, and is one that is unacknowledged"
    engine.round([ON.ack(0), ON.ack(3), ON.ack(5)], START + 1)
    assert marks(engine) == (0, 3), "the first chunk is needed while the last is not acknowledged"
    engine.round([ON.ack(4)], START + 2)
    assert marks(engine) == (5, 5)


@pytest.mark.parametrize("subscription_type", TYPES)
def test_an_incomplete_message_waits_in_the_topic_whatever_happens_meanwhile(engine, subscription_type):
    publish(engine, "A:0:3 A:1:3 x")
    assert positions(engine.round(join(subscription_type), START)) == [2]
    engine.round([ON.ack(2)], START + 1)
    assert marks(engine) == (-1, 2)
    engine.restart(START + 2)
    engine.committed()
    engine.round([ON._ask("close", "A")], START + 3)
    publish(engine, "y")
    engine.round(join(subscription_type, consumer="B"), START + 3)
    engine.round([], START + 2_000)
    assert engine.state(TOPIC, -1, "s")["pending"] == {3: ("B", 0, None)}
    publish(engine, "A:2:3")
    engine.restart(START + 2_001)
    engine.committed()
    assert positions(engine.round([], START + 2_002)) == [4] and chunks_of_round(engine) == [[0, 4]]
    engine.round([ON.ack(3, 4)], START + 2_003)
    assert marks(engine) == (4, 4)
