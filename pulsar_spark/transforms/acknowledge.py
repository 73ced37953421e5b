"""Apply acknowledgements to ranges (design 4, step 3).

An acknowledged position is acknowledged whatever its state. What is left of a batch arrives as its ack set after all
requests. The redelivery count stays as long as anything of the entry is left (0.20, against 3.13). Source:
ManagedCursorImpl.asyncDelete, PersistentSubscription.acknowledgeMessage; semantics 3.11-3.20."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from pulsar_spark.protocol.acknowledgement.cursor import ACKNOWLEDGED, REPLAY, UNREAD
from pulsar_spark.transforms.round_inputs import KINDS, RANGE_KEY, STATE

ENTRIES, TURNS, LIMITS = 0, 1, 2
"""Values of ``axis``: a row is about positions, a consumer's turn, or the whole cursor."""

KEYS = (*RANGE_KEY, "axis")

ATTRIBUTES = STATE[2:]
"""The columns of a range after first and last."""

OFFERED_AS = ("line", "is_held")
"""Columns that say to whom an entry may be offered, and whether; they end with the round."""

_LIMITS = tuple(name for name in KINDS["cursor"] if name not in ("first", "last", "wall"))
_TURN = tuple(name for name in KINDS["consumer"] if name not in ("first", "last"))


def apply_acknowledgements(inputs: DataFrame) -> DataFrame:
    """The ranges with their acknowledgements, and the other rows.

    A range's row has first, last, status (acknowledged, pending, replay or unread), attributes, :data:`OFFERED_AS`, and
    until when it is given back. The row of a turn or cursor has only ``turn`` or ``limits``."""
    kind, status = F.col("kind"), F.col("status")
    is_acknowledged = F.coalesce("is_acked", F.lit(False)) | (status == ACKNOWLEDGED) | (F.size("left_of_batch") == 0)
    is_partly_acked_unread = F.col("left_of_batch").isNotNull() & (status == UNREAD)
    changed = {
        "status": F.when(is_partly_acked_unread, F.lit(REPLAY)).otherwise(status),
        "redelivery_count": F.when(status.isNotNull(), F.coalesce("redelivery_count", F.lit(0))),
        "ack_set": F.coalesce("left_of_batch", "ack_set"),
    }
    kept = {name: changed.get(name, F.col(name)) for name in ATTRIBUTES}
    limits = F.struct(*_LIMITS, F.coalesce("wall", "now").alias("wall"))
    return inputs.select(
        *RANGE_KEY,
        F.when(kind == "consumer", TURNS).when(kind == "cursor", LIMITS).otherwise(ENTRIES).alias("axis"),
        F.when(kind == "consumer", F.struct(*_TURN)).alias("turn"),
        F.when(kind == "cursor", limits).alias("limits"),
        "first",
        "last",
        *(
            F.when(is_acknowledged, F.lit(ACKNOWLEDGED if name == "status" else None))
            .when(kind == "range", value)
            .alias(name)
            for name, value in kept.items()
        ),
        "line",
        F.coalesce("is_held", F.lit(False)).alias("is_held"),
        "return_time",
        "is_unseen",
    )
