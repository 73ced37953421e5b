"""The broker's state as temporary SQL views over ``cursor_ledger``, in which the latest round wins.

A removed cursor also removes its ranges and consumers, a removed topic its cursors. A range counts until a later one
says another state, or a reset ends it. Snapshots only repeat rows, so earlier rounds may be trimmed.
"""

import os
from collections.abc import Callable, Iterable, Iterator
from functools import reduce

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_schema

from pulsar_spark.protocol.subscriptions.membership import KEY_SHARED
from pulsar_spark.storage.cursor_ledger.cursor_ledger import CursorKey, read_latest
from pulsar_spark.storage.delta.scan import check_opens
from pulsar_spark.storage.layout import Layout
from pulsar_spark.storage.session import local_frame
from pulsar_spark.storage.spark.spark_root import layout_for_frames
from pulsar_spark.storage.topics.bundles import bundles_of, layouts_of
from pulsar_spark.storage.topics.topics import check_layout
from pulsar_spark.table_specs import ACTIVITY, CURSOR_LEDGER, LEDGERS, REQUESTS, TableSpec
from pulsar_spark.views.chunks import all_incomplete
from pulsar_spark.views.history import all_events
from pulsar_spark.views.key_shared import KeyShared, draining_rows, range_rows, rows_of_cursors
from pulsar_spark.views.latest import cursors, is_of_bundle
from pulsar_spark.views.overview.backlog_rows import backlog_rows
from pulsar_spark.views.scheduled import all_scheduled
from pulsar_spark.views.view_specs import (
    ACTIVITY_OVER_TIME,
    ALL_VIEWS,
    BACKLOG,
    CHUNKS,
    DRAINING_HASHES,
    HASH_OWNERS,
    HISTORY,
    SCHEDULED,
    VIEWS,
)
from pulsar_spark.views.view_texts import activity_text, view_text


def create_views(spark: SparkSession, root: str | os.PathLike) -> list[str]:
    """Create or replace the temporary views of one root (``view_specs``), and return their names."""
    layout = layout_for_frames(spark, root)
    check_layout(layout)
    rows = rows_of_bundles(spark, layout, CURSOR_LEDGER)
    for view in VIEWS:
        spark.sql(view_text(view), rows=rows).createOrReplaceTempView(view.name)
    for spec, rows_of in ((HASH_OWNERS, range_rows), (DRAINING_HASHES, draining_rows)):
        of_key_shared(rows, str(layout.root), spec, rows_of).createOrReplaceTempView(spec.name)
    partitions = rows.filter("kind = 'topic'").select("topic", "topic_id", "partition").distinct()
    for spec, rows_of_topic in ((SCHEDULED, all_scheduled), (CHUNKS, all_incomplete)):
        found = partitions.mapInArrow(rows_of_topic(str(layout.root)), from_arrow_schema(spec.schema))
        found.createOrReplaceTempView(spec.name)
    samples = together(rows_by_bundle(spark, layout, ACTIVITY, is_optional=True))
    spark.sql(activity_text(), rows=samples).createOrReplaceTempView(ACTIVITY_OVER_TIME.name)
    states = spark.range(1).coalesce(1).mapInArrow(backlog_rows(str(layout.root)), from_arrow_schema(BACKLOG.schema))
    states.createOrReplaceTempView(BACKLOG.name)
    # For each bundle separately: after a split, round numbers of bundles are independent.
    rounds, requests, ledgers = (rows_by_bundle(spark, layout, spec) for spec in (CURSOR_LEDGER, REQUESTS, LEDGERS))
    events = (all_events(*of_one, str(layout.root)) for of_one in zip(rounds, requests, ledgers, strict=True))
    together(events).select(*(column.name for column in HISTORY.columns)).createOrReplaceTempView(HISTORY.name)
    return [view.name for view in ALL_VIEWS]


def rows_of_bundles(spark: SparkSession, layout: Layout, spec: TableSpec) -> DataFrame:
    return together(rows_by_bundle(spark, layout, spec))


def together(frames: Iterable[DataFrame]) -> DataFrame:
    return reduce(lambda found, more: found.unionByName(more, allowMissingColumns=True), frames)


def rows_by_bundle(
    spark: SparkSession, layout: Layout, spec: TableSpec, *, is_optional: bool = False
) -> list[DataFrame]:
    """The rows of a broker's table, by bundle of a root; each topic's rows only from its own bundle (see latest). A
    table that *is_optional* may be missing."""
    found = []
    for served, bundle in zip(bundles_of(layout).ranges, layouts_of(layout), strict=True):
        path = bundle.broker_table(spec.name)
        if is_optional and not path.exists():
            found.append(local_frame(spark, spec.schema.empty_table()))
            continue
        check_opens(path)
        rows = spark.read.format("delta").load(str(path))
        if not served.is_whole and "topic" in rows.columns:
            rows = rows.filter(is_of_bundle(served))
        found.append(rows)
    return found


def of_key_shared(
    rows: DataFrame, root: str, spec: TableSpec, rows_of: Callable[[KeyShared], Iterable[dict]]
) -> DataFrame:
    """The columns of *spec* from *rows_of* for each Key_Shared cursor with consumers."""
    there = rows.sparkSession.sql(cursors(), rows=rows)
    cursors_there = there.filter(F.col("subscription_type") == KEY_SHARED).select(*CursorKey._fields)

    def read(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        keys = [CursorKey(**row) for batch in batches for row in batch.to_pylist()]
        for layout in layouts_of(Layout(root)):
            yield from spec.rows(list(rows_of_cursors(layout, read_latest(layout), keys, rows_of))).to_batches()

    return cursors_there.coalesce(1).mapInArrow(read, from_arrow_schema(spec.schema))
