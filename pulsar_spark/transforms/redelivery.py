"""Entries that come back (design 4): after a consumer left, a negative acknowledgement, a timeout, or a
redeliver request.

A pending entry becomes replay when its consumer left (count unchanged), when a request names it or its consumer (count
+ 1), or when a negative acknowledgement is due (count + 1 unless unseen). On Exclusive and Failover any of these brings
everything back, without a count for entries that were not named. A count above the dead letter policy's limit makes the
entry dead. An unread entry met before its deliver time waits as replay (trackDelayedDelivery).

Source: Consumer.redeliverUnacknowledgedMessages, InMemoryRedeliveryTracker, ConsumerImpl.processPossibleToDLQ;
semantics 2.12, 2.19, 4.14-4.21, 4.26 with 0.20."""

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from pulsar_spark.protocol.acknowledgement.cursor import DEAD, PENDING, REPLAY, UNREAD
from pulsar_spark.protocol.redelivery.letters import is_too_often


def judge_returns(ranges: DataFrame) -> DataFrame:
    """Mark the ranges that come back: for any reason (``is_back``), by a request or their due time (``is_returned``),
    and so that it counts (``is_counted``)."""
    is_pending = F.col("status") == PENDING
    is_named = is_pending & F.col("return_time").isNotNull()
    due_time = F.when(is_named, F.col("return_time")).otherwise(F.col("due_time"))
    is_requested, has_fallen_due = _is_true(F.col("is_redelivered")), _is_true(due_time <= F.col("limits.now"))
    is_seen = ~_is_true(is_named & F.col("is_unseen"))
    is_returned = is_requested | has_fallen_due
    return ranges.select(
        *(name for name in ranges.columns if name not in ("due_time", "return_time", "is_unseen", "is_redelivered")),
        due_time.alias("due_time"),
        _is_true(is_pending & is_returned).alias("is_returned"),
        _is_true(is_pending & (is_requested | (has_fallen_due & is_seen))).alias("is_counted"),
        _is_true(is_pending & (is_returned | F.col("has_left"))).alias("is_back"),
    ).drop("has_left")


def give_back(judged: DataFrame) -> DataFrame:
    """Pending entries that come back become replay, due at once, or dead. Other entries may get a new due time."""
    is_single_active, is_counted, status = F.col("limits.is_single_active"), F.col("is_counted"), F.col("status")
    is_back = F.col("is_back") | _is_true(F.col("is_rewound") & (status == PENDING))
    is_dead = is_counted & is_too_often(F.col("redelivery_count") + 1, F.col("limits.max_redeliver_count"))
    is_early = _is_true((status == UNREAD) & (F.col("due_time") > F.col("limits.wall")) & ~is_single_active)
    stays = ~is_back | is_dead
    changed = {
        "status": F.when(is_dead, F.lit(DEAD)).when(is_back | is_early, F.lit(REPLAY)).otherwise(status),
        "consumer_id": F.when(stays, F.col("consumer_id")),
        "delivery_round": F.when(stays, F.col("delivery_round")),
        "redelivery_count": F.col("redelivery_count") + is_counted.cast("int"),
        "due_time": F.when(~is_back, F.col("due_time")),
    }
    gone = ("is_returned", "is_counted", "is_back", "is_rewound")
    return judged.select(*(changed.get(name, F.col(name)).alias(name) for name in judged.columns if name not in gone))


def _is_true(condition: Column) -> Column:
    """*condition*, with null as false."""
    return F.coalesce(condition, F.lit(False))
