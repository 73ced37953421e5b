"""Rows of ranges that name positions, cut into stretches of these, for views about single positions."""

from collections.abc import Iterable, Iterator

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from pulsar_spark.storage.cursor_ledger.due_rows import by_position


def with_positions(ranges: DataFrame) -> DataFrame:
    """Rows of kind ``range``, each of all entries between its ends."""
    has_positions = F.col("positions").isNotNull()

    def cut(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from map(by_position, batches)

    return ranges.filter(~has_positions).unionByName(ranges.filter(has_positions).mapInArrow(cut, ranges.schema))
