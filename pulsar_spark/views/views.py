"""The broker's state as SQL: temporary views over ``cursor_ledger`` in which the latest round wins.

A cursor's or consumer's state is its row of the latest round, gone if that row says so. A range counts as long as no
later round has rewritten its page. What goes takes along what hangs on it: a removed cursor its pages and consumers, a
removed topic its cursors. The views look at the table as it is when they are queried; a snapshot repeats rows, which
changes nothing, so rounds before one may be trimmed. Who owns which hashes, and which wait, follows from rows by rules
of their own (see key_shared): those two views work it out in one task, as the stats do.
"""

import os
from collections.abc import Callable, Iterable, Iterator

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_schema

from pulsar_spark.protocol.cursor import PENDING, REPLAY
from pulsar_spark.protocol.delays import APART_BASE, DUE_BASE
from pulsar_spark.protocol.membership import KEY_SHARED
from pulsar_spark.storage.cursor_ledger import KEYS, CursorKey, read_latest
from pulsar_spark.storage.layout import Layout, layout_for_frames
from pulsar_spark.storage.session import check_delta
from pulsar_spark.storage.topics import check_layout
from pulsar_spark.table_specs import TableSpec
from pulsar_spark.views.chunks import all_incomplete
from pulsar_spark.views.history import all_events
from pulsar_spark.views.key_shared import KeyShared, draining_rows, range_rows, rows_of_cursors
from pulsar_spark.views.lane_rows import with_positions
from pulsar_spark.views.scheduled import all_scheduled
from pulsar_spark.views.view_specs import CHUNKS, DRAINING_HASHES, HASH_OWNERS, HISTORY, SCHEDULED, VIEWS

_CURSOR = [*CursorKey._fields]


def create_views(spark: SparkSession, root: str | os.PathLike) -> list[str]:
    """Create or replace the temporary views of ``view_specs`` for one root; their names."""
    check_delta(spark)
    layout = layout_for_frames(root)
    check_layout(layout)
    rows = spark.read.format("delta").load(str(layout.broker_table("cursor_ledger")))
    frames = {
        "cursors": latest_cursors,
        "pending_acks": latest_pending_acks,
        "consumers": latest_consumers,
        "rounds": committed_rounds,
        "housekeeping": done_housekeeping,
    }
    for view in VIEWS:
        frames[view.name](rows).select(*view.column_names).createOrReplaceTempView(view.name)
    for spec, rows_of in ((HASH_OWNERS, range_rows), (DRAINING_HASHES, draining_rows)):
        of_key_shared(rows, str(layout.root), spec, rows_of).createOrReplaceTempView(spec.name)
    partitions = rows.filter("kind = 'topic'").select("topic", "topic_id", "partition").distinct()
    for spec, rows_of_topic in ((SCHEDULED, all_scheduled), (CHUNKS, all_incomplete)):
        found = partitions.mapInArrow(rows_of_topic(str(layout.root)), from_arrow_schema(spec.schema))
        found.createOrReplaceTempView(spec.name)
    requests = spark.read.format("delta").load(str(layout.broker_table("requests")))
    ledgers = spark.read.format("delta").load(str(layout.broker_table("ledgers")))
    all_events(rows, requests, ledgers, str(layout.root)).select(
        *(column.name for column in HISTORY.columns)
    ).createOrReplaceTempView(HISTORY.name)
    return [view.name for view in (*VIEWS, HASH_OWNERS, DRAINING_HASHES, SCHEDULED, CHUNKS, HISTORY)]


def committed_rounds(rows: DataFrame) -> DataFrame:
    """Every round the table still holds."""
    return rows.filter(F.col("kind") == "round")


def done_housekeeping(rows: DataFrame) -> DataFrame:
    """Everything that brokers did to keep tables small, as far back as the table goes."""
    return rows.filter(F.col("kind") == "housekeeping")


def latest_cursors(rows: DataFrame) -> DataFrame:
    """The cursors there are: the latest row of each, unless it, or later its topic, was removed."""
    cursors = _latest(rows, "cursor")
    topics = (
        rows.filter((F.col("kind") == "topic") & F.col("is_removed"))
        .groupBy("topic_id")
        .agg(F.max("round").alias("gone_round"))
    )
    left = cursors.join(topics, on="topic_id", how="left")
    return left.filter(F.col("gone_round").isNull() | (F.col("gone_round") < F.col("round"))).drop("gone_round")


def latest_consumers(rows: DataFrame) -> DataFrame:
    """The consumers connected to a cursor that is there, since it was made."""
    consumers = _latest(rows, "consumer")
    return _of_cursors_there(rows, consumers)


def latest_pending_acks(rows: DataFrame) -> DataFrame:
    """The ranges ``pending`` and ``replay`` of pages not rewritten since, all with the number of their entries. Those
    of the due lane are of positions where the latest round delivered them, or where they are kept apart; else of
    numbers, from 0 on."""
    pages = _latest(rows, "page").select(*KEYS["page"], "round")
    ranges = rows.filter((F.col("kind") == "range") & F.col("status").isin(PENDING, REPLAY))
    ranges = ranges.join(pages, on=[*KEYS["page"], "round"], how="inner")
    ranges = with_positions(ranges)
    is_apart = F.col("first") >= APART_BASE
    base = F.when(is_apart, APART_BASE).when(F.col("first") >= DUE_BASE, DUE_BASE).otherwise(0)
    named = {
        "first": F.col("first") - base,
        "last": F.col("last") - base,
        "lane": F.when(~is_apart, F.col("lane")),
        "entries": F.coalesce("entries", F.col("last") - F.col("first") + 1),
    }
    return _of_cursors_there(rows, ranges.withColumns(named))


def of_key_shared(
    rows: DataFrame, root: str, spec: TableSpec, rows_of: Callable[[KeyShared], Iterable[dict]]
) -> DataFrame:
    """The columns of *spec*: what *rows_of* says of each Key_Shared cursor with consumers."""
    cursors = latest_cursors(rows).filter(F.col("subscription_type") == KEY_SHARED).select(*_CURSOR)

    def read(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        keys = [CursorKey(**row) for batch in batches for row in batch.to_pylist()]
        found = rows_of_cursors(layout := Layout(root), read_latest(layout), keys, rows_of)
        yield from spec.rows(list(found)).to_batches()

    return cursors.coalesce(1).mapInArrow(read, from_arrow_schema(spec.schema))


def _of_cursors_there(rows: DataFrame, facts: DataFrame) -> DataFrame:
    """The facts of cursors that are there, from after their last removal: a cursor made again starts without any."""
    removed = (
        rows.filter((F.col("kind") == "cursor") & F.col("is_removed"))
        .groupBy(*_CURSOR)
        .agg(F.max("round").alias("gone_round"))
    )
    there = latest_cursors(rows).select(*_CURSOR)
    kept = facts.join(there, on=_CURSOR, how="left_semi").join(removed, on=_CURSOR, how="left")
    return kept.filter(F.col("gone_round").isNull() | (F.col("gone_round") <= F.col("round"))).drop("gone_round")


def _is_there(column: str) -> Column:
    return ~F.coalesce(F.col(column), F.lit(False))


def _latest(rows: DataFrame, kind: str) -> DataFrame:
    """The row of the latest round of each key of a kind, unless it is removed there. What is removed and made again in
    one round is there."""
    others = [name for name in rows.columns if name not in KEYS[kind]]
    newest = (
        rows.filter(F.col("kind") == kind)
        .groupBy(*KEYS[kind])
        .agg(F.max_by(F.struct(*others), F.struct("round", _is_there("is_removed"))).alias("row"))
    )
    return newest.select(*KEYS[kind], "row.*").filter(_is_there("is_removed"))
