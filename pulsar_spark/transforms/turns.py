"""Whose turn it is, and how much of the offer it takes (design 4).

Turns form an axis of entry counts from the same zero as the candidates (see offer). Permits count messages and an entry
is never split (2.16, 2.17). So a turn is permits divided by the largest entry on offer, and one entry for the rest;
permits may end below zero. On Exclusive and Failover only the active consumer has a turn, of at least as many entries
as permits, up to one read of Pulsar's (4.6). On Shared each priority level has two laps: a fair share each, then the
rest of the permits (0.28).

Replay counts separately on Shared. If the first in line can take all of it within its fair share, it does, and widths
use the largest new entry. Otherwise its share is measured by the largest replay entry.

On Key_Shared each consumer has its own line, and a batch counts as one entry (2.38). A blocked consumer gets nothing
(4.4), a blocked subscription only replay (4.5). Source: Consumer.sendMessages,
PersistentStickyKeyDispatcherMultipleConsumers.trySendMessagesToConsumers."""

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from pulsar_spark.transforms.offer import AGAIN, in_line, whole_line
from pulsar_spark.transforms.round_inputs import TURNS

SMALLEST_SHARE = 20
"""The fewest entries of a consumer's turn (dispatcherMaxRoundRobinBatchSize)."""

READ_BATCH = 100
"""The entries that permits allow on Exclusive and Failover whatever their batch size (dispatcherMaxReadBatchSize)."""


def line_up(candidates: DataFrame) -> DataFrame:
    """Give each turn its place on the axis of candidates: from_entry (inclusive) to to_entry (exclusive)."""
    return _place(_measure(_sum_up(candidates)))


def _sum_up(candidates: DataFrame) -> DataFrame:
    whole, is_replay = whole_line(), F.col("rank") == AGAIN
    limit, permits = F.col("turn.limit"), F.col("turn.permits")
    room = F.when(limit > 0, F.least(permits, limit - F.col("unacked_here"))).otherwise(permits)
    may_take = (F.col("axis") == TURNS) & F.col("turn.peers").isNotNull() & ~F.col("is_blocked") & (room > 0)
    place = F.when(may_take, F.struct("consumer_id", room.alias("room"), "turn.peers"))
    is_in_reach = (F.col("offered") > 0) & (F.col("before") < F.col("limits.permits"))
    largest = {
        name: F.max(F.when(is_in_reach & (is_replay == of), F.col("weight"))).over(whole)
        for name, of in (("heaviest_again", True), ("heaviest_new", False))
    }
    return candidates.select(
        "*",
        F.when(may_take, room).otherwise(0).alias("room"),
        *(F.coalesce(weight, F.lit(1)).alias(name) for name, weight in largest.items()),
        F.first(place, ignorenulls=True).over(whole).alias("foremost"),
    ).withColumn("heaviest", F.greatest("heaviest_again", "heaviest_new"))


def _measure(found: DataFrame) -> DataFrame:
    """The width of each turn, and where its line's offer ends. A lap's turn is as wide as the consumer's share."""
    room, largest = F.col("room"), F.col("heaviest")
    is_foremost = F.col("consumer_id") == F.col("foremost.consumer_id")
    again, its_share = F.col("replay_offered"), _share(F.col("foremost.peers"))
    takes_all = (F.col("replay_messages") < F.col("foremost.room")) & (again <= its_share)
    of_shared = (
        F.when(takes_all & is_foremost, again + F.ceil((room - F.col("replay_messages")) / F.col("heaviest_new")))
        .when(takes_all, F.ceil(room / F.col("heaviest_new")))
        .when(
            is_foremost, F.greatest(F.ceil(room / largest), F.least(its_share, F.ceil(room / F.col("heaviest_again"))))
        )
        .otherwise(F.ceil(room / largest))
    )
    width = (
        F.when(room <= 0, 0)
        .when(F.col("line").isNotNull(), room)
        .when(F.col("limits.is_single_active"), F.greatest(F.least(room, F.lit(READ_BATCH)), F.ceil(room / largest)))
        .otherwise(of_shared)
    )
    share = _share(F.col("turn.peers"))
    lap_width = F.when(F.col("turn.lap") == 0, F.least(width, share)).otherwise(F.greatest(width - share, F.lit(0)))
    return found.select(
        "*",
        F.when(F.col("axis") == TURNS, lap_width).otherwise(0).cast("bigint").alias("width"),
        _offer_ends().cast("bigint").alias("offer_end"),
    )


def _share(peers: Column) -> Column:
    return F.greatest(F.lit(SMALLEST_SHARE), F.ceil(F.least("all_offered", "limits.permits") / peers))


def _offer_ends() -> Column:
    """The end of the offer: the subscription's limit applies to unread entries, never to replay."""
    limit = F.col("limits.limit")
    unread = F.when(F.col("is_reading_blocked"), F.lit(0)).otherwise(
        F.greatest(F.lit(1), F.floor((limit - F.col("unacked")) / F.col("heaviest")))
    )
    return F.when(limit > 0, F.col("replay_offered") + unread).otherwise(F.col("all_offered"))


def _place(measured: DataFrame) -> DataFrame:
    reach = F.sum("width").over(in_line().rowsBetween(Window.unboundedPreceding, Window.currentRow))
    placed = measured.select("*", reach.alias("reach"))
    return placed.select(
        "*",
        F.least(F.col("reach") - F.col("width"), "offer_end").alias("from_entry"),
        F.least("reach", "offer_end").alias("to_entry"),
    )
