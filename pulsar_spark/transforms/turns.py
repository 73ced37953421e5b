"""Whose turn it is, and how much of what is on offer it takes (design 4, step 7).

The consumers' turns, as wide as their permits allow, form an axis of entry counts from the same zero as the candidates
(see offer). Widths follow 2.16 and 2.17: permits count messages, an entry is never split, so a turn is permits divided
by the largest entry on offer, and one entry more for what is left of them, with which they may end below zero (Pulsar
comes back to whoever has some left in the same read); on Exclusive and Failover at least as many entries as permits, up
to one read of Pulsar's (4.6). On Shared each priority level is walked in two laps: a fair
share each, then what is left of each one's permits (0.28: run lengths are ours, permits and limits are Pulsar's). On
Exclusive and Failover the active consumer is the only one in line.

On Key_Shared each consumer stands alone in a line beside the candidates of its own hashes, and permits count entries
there: a batch counts as one in the width, so that permits may go below zero (2.38).

Who has too much unacknowledged (see blocked) gets nothing: a consumer (4.4), or a subscription, which is then given no
new entries, only what comes again (4.5); on Key_Shared that holds in each line. Source: Consumer.sendMessages,
PersistentStickyKeyDispatcherMultipleConsumers.trySendMessagesToConsumers.
"""

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from pulsar_spark.transforms.acknowledge import TURNS
from pulsar_spark.transforms.offer import AGAIN, IN_LINE

SMALLEST_SHARE = 20
"""Entries a consumer may take in one go however many consumers there are (dispatcherMaxRoundRobinBatchSize)."""

READ_BATCH = 100
"""Entries that permits allow on Exclusive and Failover whatever their batch size (dispatcherMaxReadBatchSize)."""


def line_up(candidates: DataFrame) -> DataFrame:
    """Give each turn its width and place. Adds to each turn from_entry (inclusive) and to_entry (exclusive) on the axis
    of candidates."""
    return _place(_measure(_sum_up(candidates)))


def _sum_up(candidates: DataFrame) -> DataFrame:
    """What is on offer in each line: widths depend on the largest entry that may be reached, and on how many entries
    are to be shared."""
    whole_line = Window.partitionBy("cursor", "line")
    is_in_reach = (F.col("offered") > 0) & (F.col("before") < F.col("limits.permits"))
    is_replay = F.col("rank") == AGAIN
    return candidates.select(
        "*",
        F.coalesce(F.max(F.when(is_in_reach, F.col("weight"))).over(whole_line), F.lit(1)).alias("heaviest"),
        F.sum("offered").over(whole_line).alias("all_offered"),
        F.sum(F.when(is_replay, F.col("offered")).otherwise(0)).over(whole_line).alias("replay_offered"),
    )


def _measure(found: DataFrame) -> DataFrame:
    """How many entries each turn may take, and how far its line's offer goes.

    Not yet where: on Shared a lap's turn is wide as the consumer's share, whatever those before it take.
    """
    limit = F.col("turn.limit")
    room = F.when(limit > 0, F.least(F.col("turn.permits"), limit - F.col("unacked_here"))).otherwise(
        F.col("turn.permits")
    )
    least = F.when(F.col("limits.is_single_active"), F.least(room, F.lit(READ_BATCH))).otherwise(1)
    largest = F.when(F.col("line").isNull(), F.col("heaviest")).otherwise(1)
    has_none = F.col("turn.peers").isNull() | F.col("is_blocked") | (room <= 0)
    width = F.when(has_none, F.lit(0)).otherwise(F.greatest(least, F.ceil(room / largest)))
    fair = F.ceil(F.least("all_offered", "limits.permits") / F.col("turn.peers"))
    share = F.greatest(F.lit(SMALLEST_SHARE), fair)
    lap_width = F.when(F.col("turn.lap") == 0, F.least(width, share)).otherwise(F.greatest(width - share, F.lit(0)))
    return found.select(
        "*",
        F.when(F.col("axis") == TURNS, lap_width).otherwise(0).cast("bigint").alias("width"),
        _offer_ends().cast("bigint").alias("offer_end"),
    )


def _offer_ends() -> Column:
    """Behind which candidate the offer ends: the subscription's limit holds back unread entries, never replay."""
    limit = F.col("limits.limit")
    unread = F.when(F.col("is_reading_blocked"), F.lit(0)).otherwise(
        F.greatest(F.lit(1), F.floor((limit - F.col("unacked")) / F.col("heaviest")))
    )
    return F.when(limit > 0, F.col("replay_offered") + unread).otherwise(F.col("all_offered"))


def _place(measured: DataFrame) -> DataFrame:
    """Lay the turns end to end, in line: where one ends the next begins, up to the end of the offer."""
    in_line = Window.partitionBy(*IN_LINE).orderBy("first")
    reach = F.sum("width").over(in_line.rowsBetween(Window.unboundedPreceding, Window.currentRow))
    placed = measured.select("*", reach.alias("reach"))
    return placed.select(
        "*",
        F.least(F.col("reach") - F.col("width"), "offer_end").alias("from_entry"),
        F.least("reach", "offer_end").alias("to_entry"),
    )
