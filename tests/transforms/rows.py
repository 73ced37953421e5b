"""Rows of a round's inputs and of what its steps say, for drawings of single steps."""

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from pulsar_spark.transforms.acknowledge import apply_acknowledgements
from pulsar_spark.transforms.blocked import count_unacked, find_blocked
from pulsar_spark.transforms.redelivery import give_back, judge_returns
from pulsar_spark.transforms.round_inputs import SCHEMA, leaf_of
from tests.support.group_rows import grouped

NOW, ROUND = 1_000, 7
ENTRIES = (
    "cursor int, first long, last long, status string, consumer_id string, redelivery_count int, due_time long, "
    "ack_set array<long>, batch_size int"
)
COLUMNS = [column.split()[0] for column in ENTRIES.split(", ")]


def inputs(spark: SparkSession, *rows: dict) -> DataFrame:
    """A round's one input frame."""
    return spark.createDataFrame(leaf_of(pa.Table.from_pylist(grouped(rows), schema=SCHEMA)))


def limits(cursor: int, **columns) -> dict:
    """What holds for a cursor; nothing is limited, nobody has left, and all of it is of Shared, unless it is said."""
    row = dict(
        is_single_active=False,
        limit=0,
        unacked_elsewhere=0,
        is_blocked=False,
        permits=0,
        max_redeliver_count=0,
        left=[],
        redelivered=[],
        read_position=0,
        round=ROUND,
        now=NOW,
    )
    return {**row, "cursor": cursor, "kind": "cursor", "first": 0, "last": 0, **columns}


def pending(cursor: int, first: int, last: int, consumer_id: str = "a", **columns) -> dict:
    """A range that is out at a consumer, delivered for the first time in round 3."""
    return held(cursor, first, last, "pending", consumer_id=consumer_id, delivery_round=3, **columns)


def held(cursor: int, first: int, last: int, status: str, **columns) -> dict:
    """A range of the cursor's state, of entries of one message; held by the cursor, not held back."""
    row = dict(cursor=cursor, kind="range", first=first, last=last, status=status, batch_size=1, redelivery_count=0)
    return row | columns


def unread(cursor: int, first: int, last: int, **columns) -> dict:
    """Entries of one message that were never delivered, unless it is said."""
    return dict(cursor=cursor, kind="unread", first=first, last=last, batch_size=1) | columns


def turns(number: int, **permits: int) -> list[dict]:
    """Two laps of consumers of one level, by name, with so many permits."""
    names = list(permits)
    return [
        dict(
            cursor=number,
            kind="consumer",
            first=ordinal,
            last=ordinal,
            consumer_id=name,
            lap=lap,
            peers=len(names),
            permits=permits[name],
            limit=0,
            unacked_elsewhere=0,
            is_blocked=False,
        )
        for ordinal, (lap, name) in enumerate((lap, name) for lap in (0, 1) for name in names)
    ]


def ack(cursor: int, first: int, last: int) -> dict:
    return dict(cursor=cursor, kind="ack", first=first, last=last)


def left_of_batch(cursor: int, position: int, *words: int) -> dict:
    """What stays unacknowledged of an entry after all requests."""
    return dict(cursor=cursor, kind="ack_set", first=position, last=position, ack_set=list(words))


def returned(cursor: int, first: int, last: int, consumer_id: str, due_time: int, **columns) -> dict:
    return (
        dict(cursor=cursor, kind="return", first=first, last=last, consumer_id=consumer_id, due_time=due_time) | columns
    )


def entries(
    cursor: int,
    first: int,
    last: int,
    status: str,
    consumer_id: str | None = None,
    count: int | None = 0,
    due: int | None = None,
    ack_set: list[int] | None = None,
    batch_size: int | None = 1,
) -> tuple:
    """A row of :data:`ENTRIES`."""
    return (cursor, first, last, status, consumer_id, count, due, ack_set, batch_size)


def entries_of(segments: DataFrame) -> DataFrame:
    """The segments that are about entries: consumers' turns and cursors' limits ride along, without a status."""
    return segments.where("status is not null").select(*COLUMNS)


def before_the_offer(spark: SparkSession, *rows: dict) -> DataFrame:
    """The segments of a round in which requests are folded in, what comes back is back, and who is blocked is said."""
    return find_blocked(returns_applied(inputs(spark, *rows)))


def returns_applied(leaf: DataFrame) -> DataFrame:
    """Acknowledgements folded in, and what comes back is back."""
    return give_back(count_unacked(judge_returns(apply_acknowledgements(leaf))))
