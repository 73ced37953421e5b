"""Convert rows of lane ranges to exact ranges, for views about single positions.

Tasks read the entries' hashes when the view is queried (see storage.cursor_ledger.lane_ranges). Deleted entries that
may have been sent are included (protocol.keys.lanes). Rows of deleted or recreated topics stay unchanged.
"""

import contextlib
from collections.abc import Callable, Iterable, Iterator

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from pulsar_spark.errors import CorruptState, TopicNotFound
from pulsar_spark.protocol.acknowledgement.positions import ranges_of
from pulsar_spark.protocol.delays.delays import DUE_LANE
from pulsar_spark.storage.cursor_ledger.cursor_ledger import KEYS, lane_hashes
from pulsar_spark.storage.cursor_ledger.due_rows import by_position
from pulsar_spark.storage.entries.key_hashes import sent_by_lane
from pulsar_spark.storage.layout import Layout
from pulsar_spark.storage.ledgers.ledger_index import LedgerIndex
from pulsar_spark.storage.topics.topics import read_topic

_PAGE = [*KEYS["page"], "round"]


def exact_rows(ranges: DataFrame, rounds: DataFrame, root: str) -> DataFrame:
    """Rows of kind ``range``, those of lanes cut into exact stretches. *rounds* are all rows of *root*'s
    ``cursor_ledger``."""
    pages = rounds.filter((F.col("kind") == "page") & F.col("lane").isNotNull())
    hashes = pages.select(*_PAGE, F.struct("hash_ranges", "properties").alias("lane_hashes"))
    is_due = F.col("lane").eqNullSafe(DUE_LANE)
    of_lanes = ranges.filter(F.col("lane").isNotNull() & ~is_due).join(hashes, on=_PAGE, how="inner")
    cut = of_lanes.select(*ranges.columns, "lane_hashes").mapInArrow(_cut(root), ranges.schema)
    return with_positions(ranges.filter(F.col("lane").isNull() | is_due)).unionByName(cut)


def with_positions(ranges: DataFrame) -> DataFrame:
    """Rows of kind ``range``, deliveries of the due lane cut into stretches of their positions."""
    has_positions = F.col("positions").isNotNull()

    def cut(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from map(by_position, batches)

    return ranges.filter(~has_positions).unionByName(ranges.filter(has_positions).mapInArrow(cut, ranges.schema))


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
