"""The interval algebra: sets of positions as ranges, by sweep line.

Each range becomes two boundaries. A window in order of position counts what is open at each; the stretch up to the next
is a segment in which nothing changes. Pulsar keeps such sets in LongPairRangeSet and RoaringBitmap.
"""

from functools import reduce
from operator import or_

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F


def boundary(position: Column, opens: dict[str, Column], carries: dict[str, Column], sign: int) -> Column:
    """One boundary struct: open counters move by *sign*; carried values are given at the beginning only."""
    moved = [(F.when(is_open, F.lit(sign)).otherwise(F.lit(0))).alias(name) for name, is_open in opens.items()]
    carried = [(value if sign > 0 else F.when(F.lit(False), value)).alias(name) for name, value in carries.items()]
    return F.struct(position.alias("at"), *moved, *carried)


def to_segments(
    ranges: DataFrame,
    *,
    keys: tuple[str, ...],
    opens: dict[str, Column],
    carries: dict[str, Column],
    points: dict[str, Column] | None = None,
) -> DataFrame:
    """Cut ranges (keys, first, last inclusive) where any of them begins or ends.

    One row per key and segment: first and last, how many ranges of each of *opens* cover it, and each of *carries* from
    the range that began last. A segment after the last boundary has a null last.

    A row with any of *points* is a single point, whose first no other row of its key has; its segment alone has those
    values.
    """
    by_position = Window.partitionBy(*keys).orderBy("at")
    so_far = by_position.rowsBetween(Window.unboundedPreceding, Window.currentRow)
    points = points or {}
    begin, end = (
        boundary(position, opens, carries | points, sign)
        for position, sign in ((F.col("first"), 1), (F.col("last") + 1, -1))
    )
    is_point = reduce(or_, (value.isNotNull() for value in points.values()), F.lit(False))
    ends = F.inline(F.when(is_point, F.array(begin)).otherwise(F.array(begin, end)))
    swept = ranges.select(*keys, ends).select(
        *keys,
        *points,
        *[F.last(name, ignorenulls=True).over(so_far).alias(name) for name in carries],
        F.col("at").alias("first"),
        (F.lead("at").over(by_position) - 1).alias("last"),
        *[F.sum(name).over(so_far).alias(name) for name in opens],
    )
    return swept.where(F.col("last").isNull() | (F.col("last") >= F.col("first")))
