"""Find consumers (4.4) and subscriptions (4.5) with too many unacknowledged messages (design 4, step 7).

They are blocked at their limit and unblocked at half of it. Source: Consumer.addAndGetUnAckedMsgs,
PersistentDispatcherMultipleConsumers.addUnAckedMessages."""

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from pulsar_spark.columns import unacked_messages
from pulsar_spark.protocol.acknowledgement.cursor import PENDING
from pulsar_spark.transforms.acknowledge import TURNS


def find_blocked(segments: DataFrame) -> DataFrame:
    """Mark turns and limits as blocked or not. Adds ``weight`` (unacknowledged messages of an entry) and the cursor's
    and consumer's messages in flight."""
    consumer = _is_blocked("turn", F.col("unacked_here"), is_at_half=False)
    cursor = _is_blocked("limits", F.col("unacked"), is_at_half=True)
    return _sum_up(segments).select(
        "*",
        F.when(F.col("axis") == TURNS, consumer).otherwise(cursor).alias("is_blocked"),
        cursor.alias("is_reading_blocked"),
    )


def _sum_up(segments: DataFrame) -> DataFrame:
    whole_cursor, at_consumer = Window.partitionBy("cursor"), Window.partitionBy("cursor", "holder")
    weight = unacked_messages(F.col("ack_set"), F.col("batch_size"))
    entries = F.col("last") - F.col("first") + 1
    weighed = segments.select(
        "*",
        weight.alias("weight"),
        F.coalesce("turn.consumer_id", "consumer_id").alias("holder"),
        F.when(F.col("status") == PENDING, entries * weight).otherwise(0).alias("held"),
    )
    return weighed.select(
        "*",
        (F.sum("held").over(whole_cursor) + F.col("limits.unacked_elsewhere")).alias("unacked"),
        (F.sum("held").over(at_consumer) + F.col("turn.unacked_elsewhere")).alias("unacked_here"),
    )


def _is_blocked(whose: str, unacked: Column, *, is_at_half: bool) -> Column:
    """Whether a consumer or subscription is blocked; *is_at_half*: also at exactly half of its limit, as in Pulsar."""
    limit = F.col(f"{whose}.limit")
    half = F.floor(limit / 2)
    stays = unacked >= half if is_at_half else unacked > half
    return (limit > 0) & F.when(F.col(f"{whose}.is_blocked"), stays).otherwise(unacked >= limit)
