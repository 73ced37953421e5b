"""Acknowledgements folded into ranges (design 4, step 3).

Individual and cumulative acknowledgements arrive as ranges and need no rule of their own: a position under one is
acknowledged, wherever it was (pending at anybody, waiting for replay, never delivered). What is left of a batch arrives
as the entry's ack set after all requests, which depends on their order (protocol.ack_set); when nothing is left the
entry is acknowledged, and nothing else is known of it any more. Source: ManagedCursorImpl.asyncDelete,
PersistentSubscription.acknowledgeMessage; semantics 3.11-3.20. The redelivery count stays as long as anything of an
entry is left (0.20, against 3.13).
"""

from collections.abc import Collection

from pyspark.sql import DataFrame
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

_OPEN = {"states": "range", "unread": "unread", "acks": "ack", "ack_sets": "ack_set", "returns": "return"}
"""What is counted of a segment, and the kind of rows that are: how many of them lie over it."""

LIMIT_COLUMNS = tuple(name for name in KINDS["cursor"] if name not in ("first", "last", "wall"))
TURN_COLUMNS = tuple(name for name in KINDS["consumer"] if name not in ("first", "last"))


def fold_requests(inputs: DataFrame, *, kinds: Collection[str] = tuple(KINDS)) -> DataFrame:
    """Cut state, unread entries and requests into segments and apply the acknowledgements.

    One row per segment of the axis of entries: first, last, status (acknowledged, pending, replay or unread), the
    entry's attributes, its line and whether it is held, and the return request over it, if any; the rows of the other
    axes carry a consumer's turn, with its line, and the cursor's limits along untouched. Only rows of these *kinds* are
    looked for: each that is left out, where there are none, makes a segment cheaper.
    """
    known = (
        _cut(inputs, kinds)
        .where("points > 0 or states > 0 or unread > 0 or acks > 0")
        .select(
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
    )
    is_acknowledged = F.col("is_acked") | (F.col("entry.status") == "acknowledged") | (F.size("left") == 0)
    is_partly_acked_unread = F.col("left").isNotNull() & (F.col("entry.status") == "unread")
    status = F.when(is_partly_acked_unread, F.lit("replay")).otherwise(F.col("entry.status"))
    said = {
        "redelivery_count": F.coalesce("entry.redelivery_count", F.lit(0)),
        "ack_set": F.coalesce("left", "entry.ack_set"),
    }
    kept = {name: said.get(name, F.col(f"entry.{name}")) for name in ATTRIBUTES if name != "status"}
    return known.select(
        *KEYS,
        "turn",
        "limits",
        "first",
        "last",
        F.when(is_acknowledged, F.lit("acknowledged")).otherwise(status).alias("status"),
        *(F.when(is_acknowledged, F.lit(None)).otherwise(value).alias(name) for name, value in kept.items()),
        F.coalesce("turn.line", "entry.line").alias("line"),
        F.coalesce("entry.is_held", F.lit(False)).alias("is_held"),
        "back",
    )


def _cut(inputs: DataFrame, kinds: Collection[str]) -> DataFrame:
    """The segments of all rows, each with what the rows over it say: an entry's attributes, a return, what is left of a
    batch; on their own axes a turn and the limits. What rows of other *kinds* would say is 0, or null."""
    kind = F.col("kind")
    never_delivered = {"status": F.lit("unread"), "redelivery_count": F.lit(0)}
    new_entry = F.struct(*(never_delivered.get(name, F.col(name)).alias(name) for name in (*ATTRIBUTES, *OFFERED_AS)))
    says = {
        "turn": ("consumer", F.struct(*TURN_COLUMNS)),
        "limits": ("cursor", F.struct(*LIMIT_COLUMNS, F.coalesce("wall", "now").alias("wall"))),
        "entry": ("range", F.struct(*ATTRIBUTES, *OFFERED_AS)),
        "new_entry": ("unread", new_entry),
        "left": ("ack_set", F.col("ack_set")),
        "back": ("return", F.struct("consumer_id", "due_time", "is_unseen")),
    }
    carries = {name: F.when(kind == of, said) for name, (of, said) in says.items()}
    axis = F.when(kind == "consumer", TURNS).when(kind == "cursor", LIMITS).otherwise(ENTRIES)
    segments = to_segments(
        inputs.select("*", axis.alias("axis")),
        keys=KEYS,
        opens={"points": kind.isin("consumer", "cursor"), **{n: kind == of for n, of in _OPEN.items() if of in kinds}},
        carries={name: carried for name, carried in carries.items() if says[name][0] in kinds},
    )
    types = inputs.select(*(carried.alias(name) for name, carried in carries.items())).schema
    return segments.select(
        "*",
        *(F.lit(0).alias(name) for name, of in _OPEN.items() if of not in kinds),
        *(F.lit(None).cast(types[name].dataType).alias(name) for name in carries if says[name][0] not in kinds),
    )
