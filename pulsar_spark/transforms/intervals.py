"""The interval algebra: sets of positions as ranges, by sweep line.

Every operation is the same three steps: ranges become boundaries (a row where one begins, a row behind its end), one
window in order of position counts what is open at each boundary, and the stretch up to the next boundary is a segment
in which nothing changes. No row per position, no join, no function in Python. Pulsar keeps the same sets as
LongPairRangeSet and RoaringBitmap in memory.
"""

from functools import reduce
from operator import or_

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F


def boundary(position: Column, opens: dict[str, Column], carries: dict[str, Column], sign: int) -> Column:
    """One boundary struct: counters move by *sign* where they are open; what a range carries is given at its beginning
    only."""
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

    One row per key and segment: first, last, for each of *opens* how many such ranges cover it, for each of *carries*
    the value of the range that began last. A segment behind the last boundary has a null last.

    A row that has any of *points* is none but a point, of which no other row of its key has the first: its segment
    alone has what it says. So nothing is counted or carried for it, which costs every row a share.
    """
    by_position = Window.partitionBy(*keys).orderBy("at")
    so_far = by_position.rowsBetween(Window.unboundedPreceding, Window.currentRow)
    points = points or {}
    begin, end = (
        boundary(position, opens, carries | points, sign)
        for position, sign in ((F.col("first"), 1), (F.col("last") + 1, -1))
    )
    is_point = reduce(or_, (said.isNotNull() for said in points.values()), F.lit(False))
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
