"""A bucket of the delay index written by Spark."""

import numpy as np
import pytest
from deltalake import DeltaTable

from pulsar_spark.broker.bundle.topics import Topics
from pulsar_spark.broker.delays import delay_build, delay_upkeep
from pulsar_spark.broker.delays.delay_build import SparkBuild
from pulsar_spark.broker.delays.delay_index import DelayIndex
from pulsar_spark.broker.delays.delay_upkeep import DelayUpkeep
from pulsar_spark.frames import publish
from pulsar_spark.protocol.topics.routing import HashingScheme
from pulsar_spark.storage.delay_index.delay_buckets import EVER
from pulsar_spark.storage.delay_index.delayed import read_delayed
from pulsar_spark.storage.delta.scan import dataset_of
from pulsar_spark.storage.delta.tables import AppendTable
from pulsar_spark.storage.layout import Layout
from pulsar_spark.storage.topics.topics import create_topic
from pulsar_spark.table_specs import LEDGERS, MESSAGES

ENTRIES = 4000
DELAYED_AFTER = -(10**15)


@pytest.fixture
def topic(spark, root):
    """Two partitions, two publishes, one with keys, the other with some messages of three chunks; deliver times from
    290,000 years before 1970 to as many behind."""
    topic = create_topic(Layout(root), "t", 2)
    for keyed in (True, False):
        rows = spark.range(0, ENTRIES, 1, 2).selectExpr(
            "cast(id as string) payload",
            "cast(id % 2 as int) partition",
            "timestamp_micros(case id when 7 then 9223372036854775807 when 8 then -9223372036854775808 "
            "when 9 then 253402300800000000 else hash(id) * 1000L + id end) deliver_at_time",
            *(["concat('k', id % 97) partition_key"] if keyed else []),
        )
        publish(rows, root, "t", hashing_scheme=HashingScheme.Murmur3_32Hash)
    AppendTable(topic.path).append(
        MESSAGES.rows([chunk(entry, partition) for partition in (0, 1) for entry in range(90)])
    )
    return topic


def chunk(entry: int, partition: int) -> dict:
    """Three a message, and every fifth message lacks its first."""
    said = dict(publish_id="f" * 32, entry_id=entry, batch_size=1, partition=partition, payload=b"x")
    of_message = dict(uuid=f"u{entry // 3}", chunk_id=entry % 3, num_chunks_from_msg=3)
    is_missing = entry % 15 == 0
    return said | ({} if is_missing else of_message) | dict(deliver_at_time=1000 * entry, producer_name="p")


def numbered(layout: Layout, index: DelayIndex) -> tuple:
    """The topic's state when it is numbered, its runs in the tables and at the index."""
    topics = Topics(layout)
    topics.scan()
    _, rows = topics.number_new()
    AppendTable(layout.broker_table("ledgers")).append(
        LEDGERS.rows([dict(row, delayed_after=DELAYED_AFTER) for row in rows])
    )
    (state,) = topics.topics.values()
    runs = {at: [run._replace(delayed_after=DELAYED_AFTER) for run in state.ledgers(at).runs] for at in (0, 1)}
    for partition, of in runs.items():
        index.add(state, partition, of)
    return state, runs


def test_spark_indexes_what_the_driver_would(spark, topic, layout, monkeypatch):
    """Also of entries that were deleted since they were numbered."""
    monkeypatch.setattr(delay_upkeep, "BULK", ENTRIES)
    for name in ("SEGMENT_ENTRIES", "_LEAST_FILE_ENTRIES"):
        monkeypatch.setattr(delay_build, name, 500)
    monkeypatch.setitem(delay_build._WRITTEN, "parquet.block.row.count.limit", "500")
    monkeypatch.setattr("pulsar_spark.broker.delays.delay_index.AT_ONCE", 10)
    index = DelayIndex(layout)
    index.is_attended = True
    upkeep = DelayUpkeep(index, SparkBuild(spark, index.table, index.places))
    state, runs = numbered(layout, index)
    published = {at: read_delayed(state.topic.path, of, state.chunks(at)) for at, of in runs.items()}
    DeltaTable(topic.path).delete("entry_id % 3 = 1 and partition_key is not null")
    assert index.ready_until(topic.topic_id, 0) == DELAYED_AFTER and index.count(topic.topic_id, 0, -EVER) == 0
    upkeep.work()
    (bucket,) = index.buckets.buckets
    assert not index.head and len(bucket.statistics.places) >= 12 and bucket.statistics.entries.max() <= 500
    for is_again in (False, True):
        for partition, of in runs.items():
            expected, again = published[partition], read_delayed(state.topic.path, of, state.chunks(partition))
            np.testing.assert_array_equal(again.positions, expected.positions)
            found = index.due(topic.topic_id, partition, -(2**63), 2**63 - 1)
            for name, column in found._asdict().items():
                np.testing.assert_array_equal(column, getattr(expected, name), name)
            assert (
                index.count(topic.topic_id, partition, expected.times[99])
                == (expected.times > expected.times[99]).sum()
            )
        index = index if is_again else DelayIndex(layout)
    rows = dataset_of(index.table.path).to_table(columns=["kind", "position"])
    assert rows["kind"].to_pylist().count("entry") == bucket.entries
