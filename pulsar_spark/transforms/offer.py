"""What is on offer (design 4, step 6): the candidates of each cursor, in order.

Candidates are entries that came back, by position, then those whose deliver time has come, by (deliver time, position),
then unread entries, by position; on Exclusive and Failover all of them by position, due or not (2.6). Of a replay range
the due time is the deliver time, and one that came back has none: what has been waited for is not waited for again
(0.21). An unread entry with a due time that has come goes with those that came due. Laid end to end they form an axis
of entry counts, over which the consumers are dealt out (see turns and deal).

On Key_Shared each owner's entries form an axis of their own, in the same order, so that order per key holds and nobody
waits for another's keys. A held entry is not offered: one whose hash still has pending entries at an earlier owner
(2.41, 0.22), or that nobody owns (2.31); others go past it. Source:
PersistentDispatcherMultipleConsumers.trySendMessagesToConsumers,
PersistentStickyKeyDispatcherMultipleConsumers.filterAndGroupEntriesForDispatching; semantics 2.14-2.18, 2.31, 2.41,
4.2-4.8; BucketDelayedDeliveryTracker.getScheduledMessages, 5.3 (golden i1).
"""

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from pulsar_spark.protocol.cursor import REPLAY, UNREAD

IN_LINE = ("cursor", "line", "axis")
"""What lies end to end: the candidates of a line, and the turns of a line."""

AGAIN, NEW, NOT_OFFERED = 0, 1, 2
"""Ranks of segments: in this order they are offered. On Exclusive and Failover unread entries rank as those that come
again, so that position decides alone."""


def offer_candidates(segments: DataFrame) -> DataFrame:
    """Lay the candidates of each line end to end. Adds to each segment: its rank, how many entries are on offer (0 for
    none), and how many are offered before it."""
    is_single_active = F.col("limits.is_single_active")
    is_ripe = F.col("due_time").isNull() | (F.col("due_time") <= F.col("limits.wall")) | is_single_active
    came_due = F.col("due_time").isNotNull()
    rank = (
        F.when(F.col("is_held"), NOT_OFFERED)
        .when((F.col("status") == REPLAY) & is_ripe, AGAIN)
        .when(F.col("status") == UNREAD, F.when(is_single_active | came_due, AGAIN).otherwise(NEW))
        .otherwise(NOT_OFFERED)
    )
    offered = segments.select(
        "*",
        rank.alias("rank"),
        F.when(rank < NOT_OFFERED, F.col("last") - F.col("first") + 1).otherwise(0).alias("offered"),
        F.when(F.col("status").isin(REPLAY, UNREAD) & ~is_single_active, F.col("due_time")).alias("came_due"),
    )
    in_line = Window.partitionBy(*IN_LINE).orderBy("rank", "came_due", "first")
    before = F.sum("offered").over(in_line.rowsBetween(Window.unboundedPreceding, -1))
    return offered.select("*", F.coalesce(before, F.lit(0)).alias("before"))
