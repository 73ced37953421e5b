"""Rows of ranges as the exact ranges they mean, for views that are asked about single positions.

A range of a lane means the entries between its ends that have the lane's hashes (see storage.lane_ranges); the page's
row of its round says these. The hashes of entries are read in tasks, when the view is asked; what is gone and may have
been sent with a range is told of with it (protocol.lanes). A row of a topic that is gone, or was made again, stays as
it is. A delivery of the due lane says its positions itself.
"""

import contextlib
from collections.abc import Callable, Iterable, Iterator

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from pulsar_spark.errors import CorruptState, TopicNotFound
from pulsar_spark.protocol.delays import DUE_LANE
from pulsar_spark.protocol.positions import ranges_of
from pulsar_spark.storage.cursor_ledger import KEYS, lane_hashes
from pulsar_spark.storage.due_rows import by_position
from pulsar_spark.storage.key_hashes import sent_by_lane
from pulsar_spark.storage.layout import Layout
from pulsar_spark.storage.ledger_index import LedgerIndex
from pulsar_spark.storage.topics import read_topic

_PAGE = [*KEYS["page"], "round"]


def exact_rows(ranges: DataFrame, rounds: DataFrame, root: str) -> DataFrame:
    """The same rows of kind ``range``, those of lanes cut into stretches all of whose entries are meant; *rounds* are
    all rows of ``cursor_ledger`` of *root*."""
    pages = rounds.filter((F.col("kind") == "page") & F.col("lane").isNotNull())
    hashes = pages.select(*_PAGE, F.struct("hash_ranges", "properties").alias("lane_hashes"))
    is_due = F.col("lane").eqNullSafe(DUE_LANE)
    of_lanes = ranges.filter(F.col("lane").isNotNull() & ~is_due).join(hashes, on=_PAGE, how="inner")
    cut = of_lanes.select(*ranges.columns, "lane_hashes").mapInArrow(_cut(root), ranges.schema)
    return with_positions(ranges.filter(F.col("lane").isNull() | is_due)).unionByName(cut)


def with_positions(ranges: DataFrame) -> DataFrame:
    """The same rows of kind ``range``, those of deliveries of the due lane that say their positions cut into stretches
    of these."""
    says = F.col("positions").isNotNull()

    def cut(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from map(by_position, batches)

    return ranges.filter(~says).unionByName(ranges.filter(says).mapInArrow(cut, ranges.schema))


def _cut(root: str) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def read(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        layout = Layout(root)
        index = LedgerIndex(layout)
        for batch in batches:
            yield _cut_batch(layout, index, batch)

    return read


def _cut_batch(layout: Layout, index: LedgerIndex, batch: pa.RecordBatch) -> pa.RecordBatch:
    places, firsts, lasts = [], [], []
    for place, row in enumerate(batch.to_pylist()):
        stretches = [(row["first"], row["last"])]
        with contextlib.suppress(TopicNotFound, CorruptState):
            topic = read_topic(layout, row["topic"])
            if topic.topic_id == row["topic_id"]:
                stretches = _stretches(index.of(topic), topic.path, row)
        for first, last in stretches:
            places.append(place), firsts.append(first), lasts.append(last)
    cut = batch.drop_columns(["lane_hashes"]).take(pa.array(places, pa.int64()))
    for name, values in {"first": firsts, "last": lasts}.items():
        at = cut.schema.get_field_index(name)
        cut = cut.set_column(at, cut.schema.field(at), pa.array(values, pa.int64()))
    return cut


def _stretches(index: LedgerIndex, table, row: dict) -> list[tuple[int, int]]:
    place, span = (row["topic_id"], row["partition"]), (row["first"], row["last"])
    return ranges_of(sent_by_lane(index, table, place, span, lane_hashes(row["lane_hashes"]), row["entries"]))
