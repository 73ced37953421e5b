"""Find consumers (4.4) and subscriptions (4.5) with too many unacknowledged messages (design 4).

They are blocked at their limit and unblocked at half of it. Source: Consumer.addAndGetUnAckedMsgs,
PersistentDispatcherMultipleConsumers.addUnAckedMessages."""

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from pulsar_spark.columns import unacked_messages
from pulsar_spark.protocol.acknowledgement.cursor import PENDING


def count_unacked(judged: DataFrame) -> DataFrame:
    """Add ``weight``, the unacknowledged messages of an entry; ``is_rewound``, whether all pending entries come back;
    and the messages that stay in flight: ``unacked`` of the cursor, ``unacked_here`` of the consumer."""
    by_consumer = Window.partitionBy("cursor").orderBy("consumer_id")  # one sort for both
    at_consumer = by_consumer.rangeBetween(Window.currentRow, Window.currentRow)
    whole_cursor = by_consumer.rowsBetween(Window.unboundedPreceding, Window.unboundedFollowing)
    weight = unacked_messages(F.col("ack_set"), F.col("batch_size"))
    entries = F.col("last") - F.col("first") + 1
    stays = (F.col("status") == PENDING) & ~F.col("is_back")
    weighed = judged.select("*", weight.alias("weight"), F.when(stays, entries * weight).otherwise(0).alias("out"))
    is_rewound = F.col("limits.is_single_active") & F.max("is_returned").over(whole_cursor)
    counted = weighed.select(
        *(name for name in weighed.columns if name != "out"),
        is_rewound.alias("is_rewound"),
        F.sum("out").over(whole_cursor).alias("unacked"),
        F.sum("out").over(at_consumer).alias("unacked_here"),
    )
    elsewhere = {"unacked": "limits.unacked_elsewhere", "unacked_here": "turn.unacked_elsewhere"}
    return counted.withColumns(
        {
            name: F.when(F.col("is_rewound"), 0).otherwise(F.col(name)) + F.col(others)
            for name, others in elsewhere.items()
        }
    )


def find_blocked(ranges: DataFrame) -> DataFrame:
    """Add to each row whether its consumer, or else its cursor, is blocked (``is_blocked``); and whether its cursor is,
    which then delivers no unread entries (``is_reading_blocked``)."""
    consumer = _is_blocked("turn", F.col("unacked_here"), is_at_half=False)
    cursor = _is_blocked("limits", F.col("unacked"), is_at_half=True)
    return ranges.select(
        "*",
        F.when(F.col("turn").isNotNull(), consumer).otherwise(cursor).alias("is_blocked"),
        cursor.alias("is_reading_blocked"),
    )


def _is_blocked(whose: str, unacked: Column, *, is_at_half: bool) -> Column:
    """Whether a consumer or subscription is blocked; *is_at_half*: also at exactly half of its limit, as in Pulsar."""
    limit = F.col(f"{whose}.limit")
    half = F.floor(limit / 2)
    stays = unacked >= half if is_at_half else unacked > half
    return (limit > 0) & F.when(F.col(f"{whose}.is_blocked"), stays).otherwise(unacked >= limit)
