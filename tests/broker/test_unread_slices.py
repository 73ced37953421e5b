"""What a round knows of entries that were never handed out."""

from pulsar_spark.broker.unread_slices import UNREAD, delayed_unread
from tests.requests import On
from tests.spark_engine import SparkEngine

TOPIC = "persistent://public/default/t"
ON = On(TOPIC)


def unread(engine: SparkEngine, subscription: str, first: int, last: int) -> list[tuple]:
    bundle = engine.rounds.bundle
    (cursor,) = [each for key, each in bundle.cursors.items() if key.subscription == subscription]
    found = delayed_unread(bundle, cursor, bundle.topics[TOPIC].ledgers(-1).parts(first, last), 0)
    assert found.schema == UNREAD
    return list(zip(*(column.to_pylist() for column in found.columns)))


def test_neighbours_that_agree_are_one_across_publishes(engine):
    for batches, due in (([1, 1], None), ([1], None), ([1, 1], 9_000), ([1], 9_000), ([3, 3], 9_000), ([3], None)):
        engine.publish(TOPIC, -1, batches, deliver_at_ms=[due] * len(batches))
    engine.round([ON.subscribe("A"), On(TOPIC, subscription="x").subscribe("B", "Exclusive")], 0)
    due = unread(engine, "s", 3, 3)[0][3]
    assert due is not None
    assert unread(engine, "s", 0, 8) == [(0, 2, 1, None), (3, 5, 1, due), (6, 7, 3, due), (8, 8, 3, None)]
    assert unread(engine, "s", 1, 4) == [(1, 2, 1, None), (3, 4, 1, due)]
    assert unread(engine, "x", 0, 8) == [(0, 5, 1, None), (6, 8, 3, None)], "Exclusive knows no deliver times"
