"""Fold acknowledgements into ranges (design 4, step 3).

An acknowledged position counts as such whatever its state. What is left of a batch arrives as its ack set after all
requests (protocol.acknowledgement.ack_set). The redelivery count stays as long as anything of the entry is left (0.20,
against 3.13). Source: ManagedCursorImpl.asyncDelete, PersistentSubscription.acknowledgeMessage; semantics 3.11-3.20.
"""

from collections.abc import Collection, Mapping

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from pulsar_spark.protocol.acknowledgement.cursor import ACKNOWLEDGED, REPLAY, UNREAD
from pulsar_spark.transforms.intervals import to_segments
from pulsar_spark.transforms.round_inputs import KINDS, RANGE_KEY, STATE

ENTRIES, TURNS, LIMITS = 0, 1, 2
"""Values of ``axis``: a row is about positions, a place in the line of consumers, or the whole cursor."""

KEYS = (*RANGE_KEY, "axis")

ATTRIBUTES = STATE[2:]
"""Columns of a range beside its positions."""

OFFERED_AS = ("line", "is_held")
"""Columns that say to whom an entry may be offered, and whether; they end with the round."""

_OPEN = {"states": "range", "unread": "unread", "acks": "ack", "ack_sets": "ack_set", "returns": "return"}
"""Counters of a segment, and the kind of rows that each counts."""

LIMIT_COLUMNS = tuple(name for name in KINDS["cursor"] if name not in ("first", "last", "wall"))
TURN_COLUMNS = tuple(name for name in KINDS["consumer"] if name not in ("first", "last"))


def fold_requests(inputs: DataFrame, *, kinds: Mapping[str, Collection[str]] = KINDS) -> DataFrame:
    """Cut state, unread entries and requests into segments and apply the acknowledgements.

    One row per segment of entries: first, last, status (acknowledged, pending, replay or unread), attributes, line,
    whether it is held, and the return request over it. Rows of the other axes (turns, limits) pass through. Only these
    columns of these *kinds* are read; fewer columns make segments cheaper.
    """
    types = {field.name: field.dataType for field in inputs.schema}

    def column_of(source: str, kind: str, name: str) -> Column:
        return F.col(f"{source}.{name}") if name in kinds[kind] else F.lit(None).cast(types[name])

    known = (
        _cut(inputs, kinds)
        .where((F.col("axis") != ENTRIES) | (F.col("states") > 0) | (F.col("unread") > 0) | (F.col("acks") > 0))
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
    is_acknowledged = F.col("is_acked") | (F.col("entry.status") == ACKNOWLEDGED) | (F.size("left") == 0)
    is_partly_acked_unread = F.col("left").isNotNull() & (F.col("entry.status") == UNREAD)
    status = F.when(is_partly_acked_unread, F.lit(REPLAY)).otherwise(F.col("entry.status"))
    changed = {
        "redelivery_count": F.coalesce("entry.redelivery_count", F.lit(0)),
        "ack_set": F.coalesce("left", column_of("entry", "range", "ack_set")),
    }
    kept = {name: changed.get(name, column_of("entry", "range", name)) for name in ATTRIBUTES if name != "status"}
    return known.select(
        *KEYS,
        "turn",
        "limits",
        "first",
        "last",
        F.when(is_acknowledged, F.lit(ACKNOWLEDGED)).otherwise(status).alias("status"),
        *(F.when(is_acknowledged, F.lit(None)).otherwise(value).alias(name) for name, value in kept.items()),
        F.coalesce(column_of("turn", "consumer", "line"), column_of("entry", "range", "line")).alias("line"),
        F.coalesce(column_of("entry", "range", "is_held"), F.lit(False)).alias("is_held"),
        "back",
    )


def _cut(inputs: DataFrame, kinds: Mapping[str, Collection[str]]) -> DataFrame:
    """The segments of all rows, each with what the rows over it say; for kinds not in *kinds* 0 or null."""
    kind = F.col("kind")
    of_entry = [name for name in (*ATTRIBUTES, *OFFERED_AS) if name in kinds["range"]]
    never_delivered = {"status": F.lit(UNREAD), "redelivery_count": F.lit(0)}
    new_entry = F.struct(*(never_delivered.get(name, F.col(name)).alias(name) for name in of_entry))
    limits = [F.col(name) for name in LIMIT_COLUMNS if name in kinds["cursor"]]
    if "wall" in kinds["cursor"]:
        limits.append(F.coalesce("wall", "now").alias("wall"))
    alone = {
        "turn": F.when(kind == "consumer", F.struct(*(name for name in TURN_COLUMNS if name in kinds["consumer"]))),
        "limits": F.when(kind == "cursor", F.struct(*limits)),
    }
    sources = {
        "entry": ("range", F.struct(*of_entry)),
        "new_entry": ("unread", new_entry),
        "left": ("ack_set", F.col("ack_set")),
        "back": ("return", F.struct("consumer_id", "due_time", "is_unseen")),
    }
    carries = {name: F.when(kind == of, value) for name, (of, value) in sources.items()}
    axis = F.when(kind == "consumer", TURNS).when(kind == "cursor", LIMITS).otherwise(ENTRIES)
    segments = to_segments(
        inputs.select("*", axis.alias("axis")),
        keys=KEYS,
        opens={name: kind == of for name, of in _OPEN.items() if of in kinds},
        carries={name: carried for name, carried in carries.items() if sources[name][0] in kinds},
        points=alone,
    )
    types = inputs.select(*(carried.alias(name) for name, carried in carries.items())).schema
    return segments.select(
        "*",
        *(F.lit(0).alias(name) for name, of in _OPEN.items() if of not in kinds),
        *(F.lit(None).cast(types[name].dataType).alias(name) for name in carries if sources[name][0] not in kinds),
    )
