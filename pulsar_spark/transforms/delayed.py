"""Deliver times of entries that were never handed out (semantics 5.1), from a slice of their topic: frames in, frames
out."""

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F


def join_by_due_time(entries: DataFrame, unread: DataFrame) -> DataFrame:
    """The entries of *unread* stretches (``cursor``, ``first``, ``last``, ``batch_size``) with the deliver times that
    the slice *entries* (``cursor``, ``position``, ``batch_index``, ``deliver_at_time``) tells of them: ``cursor``,
    ``first``, ``last``, ``batch_size``, ``due_time`` in microseconds, null without; one row for neighbours that agree.

    An entry's first message decides. Entries that the slice does not have, deleted ones, lie in no row.
    """
    of_stretch = (F.col("e.cursor") == F.col("u.cursor")) & F.col("position").between(F.col("first"), F.col("last"))
    is_first = F.coalesce("batch_index", F.lit(0)) == 0
    each = entries.filter(is_first).alias("e").join(F.broadcast(unread.alias("u")), on=of_stretch, how="inner")
    due = F.unix_micros("deliver_at_time")
    rows = each.select(F.col("u.cursor").alias("cursor"), "position", "batch_size", due.alias("due_time"))
    by_position, alike = Window.partitionBy("cursor").orderBy("position"), ("batch_size", "due_time")
    agrees = F.lag("position").over(by_position) == F.col("position") - 1
    for name in alike:
        agrees = agrees & F.lag(name).over(by_position).eqNullSafe(F.col(name))
    number = F.sum(F.when(F.coalesce(agrees, F.lit(False)), 0).otherwise(1)).over(by_position)
    stretches = rows.withColumn("stretch", number).groupBy("cursor", "stretch")
    ends = stretches.agg(
        F.min("position").alias("first"),
        F.max("position").alias("last"),
        *(F.first(name).alias(name) for name in alike),
    )
    return ends.select("cursor", "first", "last", *alike)
