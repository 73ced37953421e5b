"""The fresh plan over slices of topics, with deliver times as its rule: it says what the columns say that a round reads
without Spark."""

from datetime import datetime, timedelta, timezone

import pyarrow as pa
from deltalake import DeltaTable

from pulsar_spark.broker.fresh_plan import Slice, run_fresh
from pulsar_spark.broker.unread_slices import UNREAD, due_stretches
from pulsar_spark.storage.log import TableLog
from pulsar_spark.storage.publishes import number_commit
from pulsar_spark.storage.tables import AppendTable
from pulsar_spark.storage.topics import create_topic
from pulsar_spark.table_specs import MESSAGES
from pulsar_spark.transforms.delayed import join_by_due_time

NOW = datetime(2026, 1, 1, tzinfo=timezone.utc)
DUE = [None, None, 5, 5, 5, None, 7, 8, 8, None]


def published(topic, due: list[int | None], batch_size: int, publish_id: str):
    """The runs of a publish of entries with these deliver times, in seconds."""
    rows = [
        dict(
            publish_id=publish_id,
            entry_id=entry,
            batch_index=index if batch_size > 1 else None,
            batch_size=batch_size,
            partition=-1,
            publish_time=NOW,
            deliver_at_time=None if seconds is None or index else NOW + timedelta(seconds=seconds),
        )
        for entry, seconds in enumerate(due)
        for index in range(batch_size)
    ]
    version = AppendTable(topic.path).append(MESSAGES.rows(rows))
    ends = {-1: len(DUE) * (version - 1)}
    (runs,) = number_commit(topic.path, TableLog(topic.path).commit(version), ends, set()).values()
    return runs


def test_deliver_times_of_several_cursors_in_one_plan(spark, layout):
    topics = [create_topic(layout, name) for name in "ab"]
    single = published(topics[0], DUE, 1, "p1")
    batches = [*published(topics[1], DUE, 1, "p1"), *published(topics[1], DUE, 3, "p2")]
    DeltaTable(str(topics[1].path)).delete("publish_id = 'p2' and entry_id = 8")
    part = [run.part(1, 6) for run in single]
    slices = [Slice(0, topics[0], -1, part), Slice(1, topics[1], -1, batches)]
    stretches = [(0, part), (1, batches)]
    work = pa.Table.from_pylist(
        [
            dict(cursor=cursor, first=run.first_position, last=run.last_position, batch_size=run.batch_size)
            for cursor, runs in stretches
            for run in runs
        ]
    )
    found = run_fresh(spark, join_by_due_time, slices, ["deliver_at_time"], work)
    base = int(NOW.timestamp()) * 1_000_000
    told = sorted(
        (row["cursor"], row["first"], row["last"], row["batch_size"], row["due_time"] and row["due_time"] - base)
        for row in found.to_pylist()
    )
    assert told == [
        (0, 1, 1, 1, None),
        (0, 2, 4, 1, 5_000_000),
        (0, 5, 5, 1, None),
        (0, 6, 6, 1, 7_000_000),
        (1, 0, 1, 1, None),
        (1, 2, 4, 1, 5_000_000),
        (1, 5, 5, 1, None),
        (1, 6, 6, 1, 7_000_000),
        (1, 7, 8, 1, 8_000_000),
        (1, 9, 9, 1, None),
        (1, 10, 11, 3, None),
        (1, 12, 14, 3, 5_000_000),
        (1, 15, 15, 3, None),
        (1, 16, 16, 3, 7_000_000),
        (1, 17, 17, 3, 8_000_000),
        (1, 19, 19, 3, None),
    ]
    in_arrow = pa.concat_tables([due_stretches(topics[0].path, run) for run in part])
    of_first = found.filter(pa.compute.equal(found["cursor"], 0)).select(UNREAD.names).sort_by("first")
    assert in_arrow.to_pylist() == of_first.to_pylist()
    (deleted,) = [
        row for row in due_stretches(topics[1].path, batches[1]).to_pylist() if row["first"] <= 18 <= row["last"]
    ]
    assert (deleted["first"], deleted["due_time"]) == (18, None), "what is deleted waits for nothing"
