"""Who gets what (design 4, steps 6 and 7): candidates in order, consumers in line, one dealt out over the other.

Candidates are entries that came back, by position, then those whose deliver time has come, by (deliver time, position),
then unread entries, by position; on Exclusive and Failover all of them by position, due or not (2.6). Of a replay range
the due time is the deliver time, and one that came back has none: what has been waited for is not waited for again
(0.21). Laid end to end they form an axis of entry counts; the consumers' turns, as wide as their permits allow, form
another from the same zero. Where a turn covers a stretch of candidates, the consumer gets it. So a round hands out
millions of entries at the price of a few ranges.

Widths follow 2.16 and 2.17: permits count messages, an entry is never split, so a turn is permits divided by the
largest entry on offer, at least one entry, and permits may end below zero; on Exclusive and Failover at least as many
entries as permits, up to one read of Pulsar's (4.6). On Shared each priority level is walked in two laps: a fair share
each, then what is left of each one's permits (0.28: run lengths are ours, permits and limits are Pulsar's). On
Exclusive and Failover the active consumer is the only one in line. Source:
PersistentDispatcherMultipleConsumers.trySendMessagesToConsumers, Consumer.sendMessages; semantics 2.14-2.18, 4.2-4.8;
BucketDelayedDeliveryTracker.getScheduledMessages, 5.3 (golden i1).
"""

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from pulsar_spark.columns import unacked_messages

SMALLEST_SHARE = 20
"""Entries a consumer may take in one go however many consumers there are (dispatcherMaxRoundRobinBatchSize)."""

READ_BATCH = 100
"""Entries that permits allow on Exclusive and Failover whatever their batch size (dispatcherMaxReadBatchSize)."""

ATTRIBUTES = ("status", "consumer_id", "delivery_round", "redelivery_count", "due_time", "ack_set", "batch_size")


def offer_candidates(segments: DataFrame) -> DataFrame:
    """Lay the candidates end to end. Adds to each segment: entries on offer (0 for none), and how many are offered
    before it."""
    in_line = Window.partitionBy("cursor", "lane").orderBy("rank", "came_due", "first")
    now = F.col("cursor_limits.wall")
    is_due = F.col("due_time").isNull() | (F.col("due_time") <= now) | F.col("cursor_limits.is_single_active")
    rank = (
        F.when((F.col("status") == "replay") & is_due, 0)
        .when(F.col("status") == "unread", F.when(F.col("cursor_limits.is_single_active"), 0).otherwise(1))
        .otherwise(2)
    )
    came_due = F.when((F.col("status") == "replay") & ~F.col("cursor_limits.is_single_active"), F.col("due_time"))
    ranked = segments.select(
        "*",
        rank.alias("rank"),
        came_due.alias("came_due"),
        unacked_messages(F.col("ack_set"), F.col("batch_size")).alias("weight"),
    )
    offered = ranked.select(
        "*", F.when(F.col("rank") < 2, F.col("last") - F.col("first") + 1).otherwise(0).alias("offered")
    )
    before = F.coalesce(F.sum("offered").over(in_line.rowsBetween(Window.unboundedPreceding, -1)), F.lit(0))
    return offered.select("*", before.alias("before"))


def line_up(candidates: DataFrame) -> DataFrame:
    """Give each turn its width and place. Adds to the rows of lane 1: from_entry (inclusive) and to_entry (exclusive)
    on the axis of candidates."""
    whole_cursor = Window.partitionBy("cursor")
    at_consumer = Window.partitionBy("cursor", "holder")
    in_line = Window.partitionBy("cursor", "lane").orderBy("first")
    held = candidates.select(
        "*",
        F.coalesce("turn.consumer_id", "consumer_id").alias("holder"),
        F.when(F.col("status") == "pending", (F.col("last") - F.col("first") + 1) * F.col("weight"))
        .otherwise(0)
        .alias("unacked"),
    )
    is_in_reach = (F.col("offered") > 0) & (F.col("before") < F.col("cursor_limits.permits"))
    summed = held.select(
        "*",
        F.coalesce(F.max(F.when(is_in_reach, F.col("weight"))).over(whole_cursor), F.lit(1)).alias("heaviest"),
        F.sum("offered").over(whole_cursor).alias("all_offered"),
        F.sum(F.when(F.col("rank") == 0, F.col("offered")).otherwise(0)).over(whole_cursor).alias("replay_offered"),
        (F.sum("unacked").over(whole_cursor) + F.col("cursor_limits.unacked_elsewhere")).alias("subscription_unacked"),
        F.sum("unacked").over(at_consumer).alias("unacked_here"),
    )
    limit, unacked = F.col("turn.limit"), F.col("unacked_here") + F.col("turn.unacked_elsewhere")
    is_blocked = (limit > 0) & F.when(F.col("turn.is_blocked"), unacked > F.floor(limit / 2)).otherwise(
        unacked >= limit
    )
    room = F.when(limit > 0, F.least(F.col("turn.permits"), limit - unacked)).otherwise(F.col("turn.permits"))
    least = F.when(F.col("cursor_limits.is_single_active"), F.least(room, F.lit(READ_BATCH))).otherwise(1)
    width = F.when(is_blocked | (room <= 0), F.lit(0)).otherwise(F.greatest(least, F.floor(room / F.col("heaviest"))))
    share = F.greatest(
        F.lit(SMALLEST_SHARE), F.ceil(F.least("all_offered", "cursor_limits.permits") / F.col("turn.peers"))
    )
    lap_width = F.when(F.col("turn.lap") == 0, F.least(width, share)).otherwise(F.greatest(width - share, F.lit(0)))
    subscription_limit = F.col("cursor_limits.limit")
    is_reading_blocked = F.when(
        F.col("cursor_limits.is_blocked"), F.col("subscription_unacked") >= F.floor(subscription_limit / 2)
    ).otherwise(F.col("subscription_unacked") >= subscription_limit)
    unread_allowed = F.when(is_reading_blocked, F.lit(0)).otherwise(
        F.greatest(F.lit(1), F.floor((subscription_limit - F.col("subscription_unacked")) / F.col("heaviest")))
    )
    cap = F.when(subscription_limit > 0, F.col("replay_offered") + unread_allowed).otherwise(F.col("all_offered"))
    widths = summed.select(
        "*",
        F.when(F.col("lane") == 1, lap_width).otherwise(0).cast("bigint").alias("width"),
        cap.cast("bigint").alias("cap"),
    )
    reach = F.sum("width").over(in_line.rowsBetween(Window.unboundedPreceding, Window.currentRow))
    placed = widths.select("*", reach.alias("reach"))
    return placed.select(
        "*",
        F.least(F.col("reach") - F.col("width"), "cap").alias("from_entry"),
        F.least("reach", "cap").alias("to_entry"),
    )


def deal_out(lined_up: DataFrame) -> DataFrame:
    """Hand the candidates to the turns that cover them. One row per cursor and range of the new state (:data:`STATE`),
    in no order, not merged.

    Both axes lie end to end, so where one stretch or turn ends another begins; at such a place the end sorts first, and
    what is open behind it is what began last.
    """
    by_count = Window.partitionBy("cursor", "lane").orderBy("at", "begins")
    so_far = by_count.rowsBetween(Window.unboundedPreceding, Window.currentRow)
    facts = F.struct("first", "last", "before", *ATTRIBUTES, F.col("cursor_limits.round").alias("round"))
    nothing, nobody = F.when(F.lit(False), facts), F.lit(None).cast("string")

    def stretch(held: F.Column) -> F.Column:
        return F.struct(held.alias("held"))

    def taker(consumer_id: F.Column) -> F.Column:
        return F.struct(consumer_id.alias("consumer_id"))

    same_stretch, same_taker = F.when(F.lit(False), stretch(facts)), F.when(F.lit(False), taker(nobody))

    def point(
        lane: int, at: str, *, begins: bool, stretch: F.Column = same_stretch, taker: F.Column = same_taker
    ) -> F.Column:
        return F.struct(
            F.lit(lane).alias("lane"),
            F.col(at).alias("at"),
            F.lit(begins).alias("begins"),
            stretch.alias("stretch"),
            taker.alias("taker"),
        )

    measured = lined_up.where("lane = 0 or (lane = 1 and from_entry < to_entry)").select(
        "*", (F.col("before") + F.col("offered")).alias("behind")
    )
    points = measured.select(
        "cursor",
        F.inline(
            F.when(
                F.col("lane") == 1,
                F.array(
                    point(1, "from_entry", begins=True, taker=taker(F.col("turn.consumer_id"))),
                    point(1, "to_entry", begins=False, taker=taker(nobody)),
                ),
            )
            .when(F.col("offered") == 0, F.array(point(0, "first", begins=True, stretch=stretch(facts))))
            .otherwise(
                F.array(
                    point(1, "before", begins=True, stretch=stretch(facts)),
                    point(1, "behind", begins=False, stretch=stretch(nothing)),
                )
            )
        ),
    )
    swept = points.select(
        "cursor",
        "lane",
        "at",
        F.lead("at").over(by_count).alias("until"),
        F.last("stretch", ignorenulls=True).over(so_far).alias("stretch"),
        F.last("taker", ignorenulls=True).over(so_far).alias("taker"),
    )
    is_candidate = F.col("lane") == 1
    cut = swept.where(~is_candidate | ((F.col("until") > F.col("at")) & F.col("stretch.held").isNotNull())).select(
        "cursor",
        "stretch.held.*",
        is_candidate.alias("is_candidate"),
        "at",
        "until",
        F.when(is_candidate, F.col("taker.consumer_id")).alias("taken_by"),
    )
    is_taken = F.col("taken_by").isNotNull()
    return cut.where(is_taken | (F.col("status") != "unread")).select(
        "cursor",
        F.when(F.col("is_candidate"), F.col("first") + F.col("at") - F.col("before"))
        .otherwise(F.col("first"))
        .alias("first"),
        F.when(F.col("is_candidate"), F.col("first") + F.col("until") - 1 - F.col("before"))
        .otherwise(F.col("last"))
        .alias("last"),
        F.when(is_taken, F.lit("pending")).otherwise(F.col("status")).alias("status"),
        F.when(is_taken, F.col("taken_by")).otherwise(F.col("consumer_id")).alias("consumer_id"),
        F.when(is_taken, F.col("round")).otherwise(F.col("delivery_round")).alias("delivery_round"),
        "redelivery_count",
        F.when(~is_taken, F.col("due_time")).alias("due_time"),
        "ack_set",
        "batch_size",
    )
