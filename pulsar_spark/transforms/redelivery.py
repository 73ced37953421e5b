"""Entries that come back (design 4, step 4): after a consumer left, a negative acknowledgement, a timeout, or a
redeliver request.

A pending entry becomes replay when its consumer left (count unchanged), when a request names it or its consumer (count
+ 1), or when a negative acknowledgement is due (count + 1 unless unseen). On Exclusive and Failover any of these brings
everything back, without a count for entries that were not named. A count above the dead letter policy's limit makes the
entry dead. An unread entry met before its deliver time waits as replay (trackDelayedDelivery).

Source: Consumer.redeliverUnacknowledgedMessages, InMemoryRedeliveryTracker, ConsumerImpl.processPossibleToDLQ;
semantics 2.12, 2.19, 4.14-4.21, 4.26 with 0.20."""

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from pulsar_spark.protocol.acknowledgement.cursor import DEAD, PENDING, REPLAY, UNREAD
from pulsar_spark.protocol.redelivery.letters import is_too_often
from pulsar_spark.transforms.acknowledge import KEYS, OFFERED_AS


def give_back(segments: DataFrame) -> DataFrame:
    """Apply the returns, one row per segment: pending entries that come back are replay, due at once, or dead; others
    may get a new due time. Every row gets its cursor's ``limits``."""
    judged = _judge(segments)
    is_dead, is_back, is_delayed = F.col("is_dead"), F.col("is_back"), F.col("is_delayed")
    stays = ~is_back | is_dead
    return judged.select(
        *KEYS,
        "turn",
        "limits",
        "first",
        "last",
        F.when(is_dead, F.lit(DEAD))
        .when(is_back | is_delayed, F.lit(REPLAY))
        .otherwise(F.col("status"))
        .alias("status"),
        F.when(stays, F.col("consumer_id")).alias("consumer_id"),
        F.when(stays, F.col("delivery_round")).alias("delivery_round"),
        (F.col("redelivery_count") + F.col("is_counted").cast("int")).alias("redelivery_count"),
        F.when(~is_back, F.col("due_time")).alias("due_time"),
        "ack_set",
        "batch_size",
        *OFFERED_AS,
    )


def _judge(segments: DataFrame) -> DataFrame:
    """Mark each segment: whether it comes back, whether that counts, whether it dies, and whether it is delayed."""
    whole_cursor = Window.partitionBy("cursor")
    is_pending = F.col("status") == PENDING
    is_named = is_pending & F.col("return_time").isNotNull()
    due_time = F.when(is_named, F.col("return_time")).otherwise(F.col("due_time"))
    spread = segments.select(
        "*", F.max("limits").over(whole_cursor).alias("cursor_limits"), due_time.alias("new_due_time")
    ).drop("limits", "due_time")
    timed = spread.withColumnsRenamed({"cursor_limits": "limits", "new_due_time": "due_time"})
    is_requested = _is_true(F.array_contains("limits.redelivered", F.col("consumer_id")))
    has_fallen_due = _is_true(F.col("due_time") <= F.col("limits.now"))
    is_unseen = _is_true(is_named & F.col("is_unseen"))
    counted = timed.select(
        "*",
        _is_true(is_pending & (is_requested | has_fallen_due)).alias("is_returned"),
        _is_true(is_pending & (is_requested | (has_fallen_due & ~is_unseen))).alias("is_counted"),
    )
    is_single_active, is_counted = F.col("limits.is_single_active"), F.col("is_counted")
    is_returned = F.col("is_returned")
    is_rewound = is_single_active & F.max("is_returned").over(whole_cursor)
    has_left = F.array_contains("limits.left", F.col("consumer_id"))
    most = F.col("limits.max_redeliver_count")
    is_early = (F.col("status") == UNREAD) & (F.col("due_time") > F.col("limits.wall"))
    return counted.select(
        "*",
        _is_true(is_pending & (is_returned | is_rewound | has_left)).alias("is_back"),
        _is_true(is_counted & is_too_often(F.col("redelivery_count") + 1, most)).alias("is_dead"),
        _is_true(is_early & ~is_single_active).alias("is_delayed"),
    )


def _is_true(condition: Column) -> Column:
    """*condition*, with null as false."""
    return F.coalesce(condition, F.lit(False))
