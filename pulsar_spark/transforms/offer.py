"""The candidates of each cursor, in order (design 4).

Entries that came back come first, by position, then those whose deliver time has come, by (deliver time, position),
then unread entries, by position. On Exclusive and Failover position alone decides (2.6). An entry that came back does
not wait for its deliver time again (0.21). On Key_Shared each owner's entries are a line of their own; held entries are
passed over (2.31, 2.41, 0.22).

Source: PersistentDispatcherMultipleConsumers.trySendMessagesToConsumers,
PersistentStickyKeyDispatcherMultipleConsumers.filterAndGroupEntriesForDispatching; semantics 2.14-2.18, 2.31, 2.41,
4.2-4.8; BucketDelayedDeliveryTracker.getScheduledMessages, 5.3 (golden i1)."""

from pyspark.sql import DataFrame, Window, WindowSpec
from pyspark.sql import functions as F

from pulsar_spark.protocol.acknowledgement.cursor import REPLAY, UNREAD

AGAIN, NEW, NOT_OFFERED = 0, 1, 2
"""Ranks of ranges, in the order of the offer. On Exclusive and Failover unread entries rank with replay, so that
position alone decides."""


def in_line() -> WindowSpec:
    """A line in order: candidates, other entries, turns."""
    return Window.partitionBy("cursor", "line").orderBy("axis", "rank", "came_due", "first")


def whole_line() -> WindowSpec:
    return in_line().rowsBetween(Window.unboundedPreceding, Window.unboundedFollowing)


def offer_candidates(ranges: DataFrame) -> DataFrame:
    """Lay the candidates of each line end to end. Adds to each range its rank, its entries on offer (0 for none), and
    those on offer before it; and of its line, all on offer, and the entries and messages offered again."""
    is_single_active = F.col("limits.is_single_active")
    is_ripe = F.col("due_time").isNull() | (F.col("due_time") <= F.col("limits.wall")) | is_single_active
    came_due = F.col("due_time").isNotNull()
    rank = (
        F.when(F.col("is_held"), NOT_OFFERED)
        .when((F.col("status") == REPLAY) & is_ripe, AGAIN)
        .when(F.col("status") == UNREAD, F.when(is_single_active | came_due, AGAIN).otherwise(NEW))
        .otherwise(NOT_OFFERED)
    )
    offered = ranges.select(
        "*",
        rank.alias("rank"),
        F.when(rank < NOT_OFFERED, F.col("last") - F.col("first") + 1).otherwise(0).alias("offered"),
        F.when(F.col("status").isin(REPLAY, UNREAD) & ~is_single_active, F.col("due_time")).alias("came_due"),
    )
    line, whole = in_line().rowsBetween(Window.unboundedPreceding, -1), whole_line()
    again = F.when(F.col("rank") == AGAIN, F.col("offered")).otherwise(0)
    return offered.select(
        "*",
        F.coalesce(F.sum("offered").over(line), F.lit(0)).alias("before"),
        F.sum("offered").over(whole).alias("all_offered"),
        F.sum(again).over(whole).alias("replay_offered"),
        F.coalesce(F.sum(again * F.col("weight")).over(whole), F.lit(0)).alias("replay_messages"),
    )
