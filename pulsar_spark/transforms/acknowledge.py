"""Acknowledgements folded into ranges (design 4, step 3).

Individual and cumulative acknowledgements arrive as ranges and need no rule of their own: a position under one is
acknowledged, wherever it was (pending at anybody, waiting for replay, never delivered). What is left of a batch arrives
as the entry's ack set after all requests, which depends on their order (protocol.ack_set); when nothing is left the
entry is acknowledged. Source: ManagedCursorImpl.asyncDelete, PersistentSubscription.acknowledgeMessage; semantics
3.11-3.20. The redelivery count stays (0.20, against 3.13).
"""

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from pulsar_spark.transforms.intervals import to_segments
from pulsar_spark.transforms.round_inputs import KINDS, RANGE_KEY, STATE

ENTRIES, TURNS, LIMITS = 0, 1, 2
"""What a row is about, as its ``axis`` says: positions, a place in the line of consumers, or the cursor as a whole."""

KEYS = (*RANGE_KEY, "axis")

ATTRIBUTES = STATE[2:]
"""Columns of a range beside its positions."""

OFFERED_AS = ("line", "is_held")
"""Columns that say to whom an entry may be offered, and whether; they outlive the round in no row."""

LIMIT_COLUMNS = tuple(name for name in KINDS["cursor"] if name not in ("first", "last", "wall"))
TURN_COLUMNS = tuple(name for name in KINDS["consumer"] if name not in ("first", "last"))


def fold_requests(inputs: DataFrame) -> DataFrame:
    """Cut state, unread entries and requests into segments and apply the acknowledgements.

    One row per segment of the axis of entries: first, last, status (acknowledged, pending, replay or unread), the
    entry's attributes, its line and whether it is held, and the return request over it, if any; the rows of the other
    axes carry a consumer's turn, with its line, and the cursor's limits along untouched.
    """
    segments = _cut(inputs)
    known = segments.where("points > 0 or states > 0 or unread > 0 or acks > 0").select(
        *KEYS,
        "turn",
        "limits",
        "first",
        "last",
        F.when(F.col("states") > 0, F.col("entry")).when(F.col("unread") > 0, F.col("new_entry")).alias("entry"),
        (F.col("acks") > 0).alias("is_acked"),
        F.when(F.col("ack_sets") > 0, F.col("left")).alias("left"),
        F.when(F.col("returns") > 0, F.col("back")).alias("back"),
    )
    is_acknowledged = F.col("is_acked") | (F.col("entry.status") == "acknowledged") | (F.size("left") == 0)
    is_partly_acked_unread = F.col("left").isNotNull() & (F.col("entry.status") == "unread")
    status = (
        F.when(is_acknowledged, F.lit("acknowledged"))
        .when(is_partly_acked_unread, F.lit("replay"))
        .otherwise(F.col("entry.status"))
    )
    return known.select(
        *KEYS,
        "turn",
        "limits",
        "first",
        "last",
        status.alias("status"),
        "entry.consumer_id",
        "entry.delivery_round",
        F.coalesce("entry.redelivery_count", F.lit(0)).alias("redelivery_count"),
        "entry.due_time",
        F.coalesce("left", "entry.ack_set").alias("ack_set"),
        "entry.batch_size",
        F.coalesce("turn.line", "entry.line").alias("line"),
        F.coalesce("entry.is_held", F.lit(False)).alias("is_held"),
        "back",
    )


def _cut(inputs: DataFrame) -> DataFrame:
    """The segments of all rows, each with what the rows over it say: an entry's attributes, a return, what is left of a
    batch; on their own axes a turn and the limits."""
    kind = F.col("kind")

    def only(name: str, said: Column) -> Column:
        return F.when(kind == name, said)

    never_delivered = {"status": F.lit("unread"), "redelivery_count": F.lit(0)}
    new_entry = F.struct(*(never_delivered.get(name, F.col(name)).alias(name) for name in (*ATTRIBUTES, *OFFERED_AS)))
    axis = F.when(kind == "consumer", TURNS).when(kind == "cursor", LIMITS).otherwise(ENTRIES)
    return to_segments(
        inputs.select("*", axis.alias("axis")),
        keys=KEYS,
        opens={
            "points": kind.isin("consumer", "cursor"),
            "states": kind == "range",
            "unread": kind == "unread",
            "acks": kind == "ack",
            "ack_sets": kind == "ack_set",
            "returns": kind == "return",
        },
        carries={
            "turn": only("consumer", F.struct(*TURN_COLUMNS)),
            "limits": only("cursor", F.struct(*LIMIT_COLUMNS, F.coalesce("wall", "now").alias("wall"))),
            "entry": only("range", F.struct(*ATTRIBUTES, *OFFERED_AS)),
            "new_entry": only("unread", new_entry),
            "left": only("ack_set", F.col("ack_set")),
            "back": only("return", F.struct("consumer_id", "due_time", "is_unseen")),
        },
    )
