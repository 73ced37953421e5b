"""What a round knows of entries that were never handed out."""

from datetime import datetime, timedelta, timezone

from deltalake import DeltaTable

from pulsar_spark.broker.bundle.topic_state import TopicState
from pulsar_spark.broker.cursors.state import Cursor
from pulsar_spark.broker.delays.deliver_times import delayed_ranges, unread_ranges
from pulsar_spark.storage.cursor_ledger.cursor_ledger import CursorKey
from pulsar_spark.storage.delta.log import TableLog
from pulsar_spark.storage.delta.tables import AppendTable
from pulsar_spark.storage.ledgers.publishes import number_commit
from pulsar_spark.storage.topics.topics import create_topic
from pulsar_spark.table_specs import MESSAGES
from tests.support.requests import On
from tests.support.spark_engine import SparkEngine

TOPIC = "persistent://public/default/t"
ON = On(TOPIC)


def unread(engine: SparkEngine, subscription: str, first: int, last: int) -> list[tuple]:
    bundle = engine.rounds.bundle
    (cursor,) = [each for key, each in bundle.cursors.items() if key.subscription == subscription]
    return unread_ranges(bundle, cursor, first, last, 0)


def test_neighbours_that_agree_are_one_across_publishes(engine):
    for batches, due in (([1, 1], None), ([1], None), ([1, 1], 9_000), ([1], 9_000), ([3, 3], 9_000), ([3], None)):
        engine.publish(TOPIC, -1, batches, deliver_at_ms=[due] * len(batches))
    engine.round([ON.subscribe("A"), On(TOPIC, subscription="x").subscribe("B", "Exclusive")], 0)
    due = unread(engine, "s", 3, 3)[0][3]
    assert due is not None
    assert unread(engine, "s", 0, 8) == [(0, 2, 1, None), (3, 5, 1, due), (6, 7, 3, due), (8, 8, 3, None)]
    assert unread(engine, "s", 1, 4) == [(1, 2, 1, None), (3, 4, 1, due)]
    assert unread(engine, "x", 0, 8) == [(0, 5, 1, None), (6, 8, 3, None)], "Exclusive knows no deliver times"


def test_the_first_message_of_a_batch_decides_and_what_is_deleted_waits_all_the_same(layout):
    topic, epoch = create_topic(layout, "t"), datetime(1970, 1, 1, tzinfo=timezone.utc)
    rows = [
        dict(
            publish_id="p1",
            entry_id=entry,
            batch_index=index,
            batch_size=3,
            partition=-1,
            publish_time=epoch,
            deliver_at_time=None if due is None or index else epoch + timedelta(milliseconds=due),
        )
        for entry, due in enumerate([None, 5, 5, 7, 8, 8, None])
        for index in range(3)
    ]
    version = AppendTable(topic.path).append(MESSAGES.rows(rows))
    ((run,),) = number_commit(topic.path, TableLog(topic.path).commit(version), {-1: 0}, set()).values()
    state = TopicState(topic, TableLog(topic.path), None)
    state.ledgers(-1).add(run)
    DeltaTable(str(topic.path)).delete("entry_id = 5")
    found = delayed_ranges(state, Cursor(CursorKey(topic.topic_id, -1, "s"), TOPIC, -1, 0, "Shared"), 1, 6)
    assert found == [(1, 2, 3, 5_000), (3, 3, 3, 7_000), (4, 5, 3, 8_000)]
