"""What comes back (design 4, step 4): entries of consumers that left, negative acknowledgements, timeouts, redeliver requests.

An entry pending at a consumer becomes replay when its consumer left (count unchanged), when a redeliver request names it or all of that consumer's entries (count + 1), or
when the due time set by a negative acknowledgement has come (count + 1). A request for an entry that is pending elsewhere or not at all is ignored. On Exclusive and
Failover any counted return brings everything back (2.12, 4.14). Source: Consumer.redeliverUnacknowledgedMessages, InMemoryRedeliveryTracker;
semantics 2.12, 2.19, 4.14-4.21 with 0.20: counts outlive disconnects and partial acknowledgements.
"""
from pyspark.sql import Column, DataFrame, Window, functions as F

from pulsar_spark.transforms.acknowledge import KEYS, PASSES


def give_back(segments: DataFrame) -> DataFrame:
    """Apply the returns. One row per segment as before; pending entries that come back are replay, due at once; others may have a new due time."""
    is_pending = F.col("status") == "pending"
    names_holder = is_pending & (F.col("back.consumer_id") == F.col("consumer_id"))
    whole_cursor = Window.partitionBy("cursor")
    spread = segments.select("*", F.max("limits").over(whole_cursor).alias("cursor_limits")).drop("limits")
    now = F.col("cursor_limits.now")
    is_counted = is_pending & (
        F.coalesce(F.array_contains("cursor_limits.redelivered", F.col("consumer_id")), F.lit(False))
        | F.coalesce(F.when(names_holder, F.col("back.due_time")) <= now, F.lit(False))
        | F.coalesce(F.col("due_time") <= now, F.lit(False)))
    counted = spread.select("*", F.coalesce(is_counted, F.lit(False)).alias("is_counted"))
    comes_back_counted = F.col("is_counted") | (F.col("cursor_limits.is_single_active") & F.max("is_counted").over(whole_cursor) & is_pending)
    judged = counted.select("*", F.coalesce(comes_back_counted, F.lit(False)).alias("is_redelivered"),
                            F.coalesce(is_pending & F.array_contains("cursor_limits.left", F.col("consumer_id")), F.lit(False)).alias("is_left"))
    is_back = F.col("is_redelivered") | F.col("is_left")

    def kept(column: str) -> Column:
        return F.when(~is_back & (F.col("status") != "acknowledged"), F.col(column)).alias(column)

    due_time = F.when(is_back | (F.col("status") == "acknowledged"), F.lit(None)).otherwise(
        F.when(names_holder, F.col("back.due_time")).otherwise(F.col("due_time")))
    return judged.select(
        *KEYS, "turn", "cursor_limits", "first", "last", F.when(is_back, F.lit("replay")).otherwise(F.col("status")).alias("status"),
        kept("consumer_id"), kept("delivery_round"),
        F.when(F.col("status") != "acknowledged", F.col("redelivery_count") + F.col("is_redelivered").cast("int")).alias("redelivery_count"),
        due_time.alias("due_time"), F.when(F.col("status") != "acknowledged", F.col("ack_set")).alias("ack_set"),
        F.when(F.col("status") != "acknowledged", F.col("batch_size")).alias("batch_size"))
