"""Apply acknowledgements to ranges (design 4).

An acknowledged position is acknowledged whatever its state. What is left of a batch arrives as its ack set after all
requests. The redelivery count stays as long as anything of the entry is left (0.20, against 3.13). Source:
ManagedCursorImpl.asyncDelete, PersistentSubscription.acknowledgeMessage; semantics 3.11-3.20."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from pulsar_spark.protocol.acknowledgement.cursor import ACKNOWLEDGED, REPLAY, UNREAD
from pulsar_spark.transforms.round_inputs import ENTRIES, STATE

ATTRIBUTES = STATE[2:]
"""Columns of a range beside its positions."""


def apply_acknowledgements(inputs: DataFrame) -> DataFrame:
    """Apply ``is_acked`` and ``left_of_batch`` to the ranges: their status is acknowledged, pending, replay or unread
    afterwards. Other rows stay as they are."""
    status = F.col("status")
    is_acknowledged = F.coalesce("is_acked", F.lit(False)) | (status == ACKNOWLEDGED) | (F.size("left_of_batch") == 0)
    is_partly_acked_unread = F.col("left_of_batch").isNotNull() & (status == UNREAD)
    changed = {
        "status": F.when(is_partly_acked_unread, F.lit(REPLAY)).otherwise(status),
        "redelivery_count": F.when(F.col("axis") == ENTRIES, F.coalesce("redelivery_count", F.lit(0))),
        "ack_set": F.coalesce("left_of_batch", "ack_set"),
    }
    kept = {name: changed.get(name, F.col(name)) for name in ATTRIBUTES}
    return inputs.select(
        *(name for name in inputs.columns if name not in (*ATTRIBUTES, "is_acked", "left_of_batch")),
        *(
            F.when(is_acknowledged, F.lit(ACKNOWLEDGED if name == "status" else None)).otherwise(value).alias(name)
            for name, value in kept.items()
        ),
    )
