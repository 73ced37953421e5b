"""The frames of a round: its plan's input and its result.

All inputs are rows of one schema, so the plan needs no join and is built once for all rounds (design 4.2, "prepared
plans"). :data:`KINDS` lists the columns of each ``kind``; others are null. :func:`leaf_of` lays them out for the plan.

**Lines.** Consumers get only entries of their line. A cursor of Shared, Exclusive or Failover has one line, null. On
Key_Shared each consumer has a line named by its id, with the entries of its hashes; an entry without an owner has none
(2.31). Held entries (``is_held``) are not delivered in this round (2.41, 0.22)."""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pulsar_spark.protocol.topics.message_id import MAX_LONG

ENTRIES, TURNS, FACTS = 0, 1, 2
"""Values of ``axis``: a row is about positions, a place in the line of consumers, or a consumer or the whole cursor."""

STATE = tuple("first last status consumer_id delivery_round redelivery_count due_time ack_set batch_size".split())
"""Columns of a range, beside its cursor."""

KINDS = {
    # One row per cursor of the round: its limits, the consumers whose entries come back (left: uncounted, redelivered:
    # counted), and the times. Pending entries fall due by now, the broker's clock; deliver times by wall, the machine's
    # (null: now). Entries below read_position were met before.
    "cursor": tuple(
        (
            "first last is_single_active limit unacked_elsewhere is_blocked permits max_redeliver_count left "
            "redelivered read_position round now wall"
        ).split()
    ),
    # Entries first..last in one status and line (unread: never delivered; on Shared, Key_Shared not before due_time).
    # Requests acknowledge them (is_acked; null: no), or leave only the indexes in left_of_batch unacknowledged, or give
    # them back, by their consumer, until return_time, uncounted if is_unseen (null: no). Ranges do not overlap.
    "range": (*STATE, "line", "is_held", "is_acked", "left_of_batch", "return_time", "is_unseen"),
    # One lap of a consumer's turn, in order of first (= last): see protocol.subscriptions.shared. All first of a cursor
    # differ, across lines too. A consumer that may get nothing has a lap with null peers, so that the plan reports
    # whether it is blocked.
    "consumer": tuple("first last consumer_id lap peers permits limit unacked_elsewhere is_blocked line".split()),
}

_TYPES = {
    "first": pa.int64(),
    "last": pa.int64(),
    "status": pa.string(),
    "consumer_id": pa.string(),
    "delivery_round": pa.int64(),
    "redelivery_count": pa.int32(),
    "due_time": pa.int64(),
    "ack_set": pa.list_(pa.int64()),
    "batch_size": pa.int32(),
    "lap": pa.int32(),
    "peers": pa.int64(),
    "permits": pa.int64(),
    "limit": pa.int64(),
    "unacked_elsewhere": pa.int64(),
    "is_blocked": pa.bool_(),
    "is_single_active": pa.bool_(),
    "max_redeliver_count": pa.int32(),
    "left": pa.list_(pa.string()),
    "redelivered": pa.list_(pa.string()),
    "read_position": pa.int64(),
    "round": pa.int64(),
    "now": pa.int64(),
    "wall": pa.int64(),
    "line": pa.string(),
    "is_held": pa.bool_(),
    "is_acked": pa.bool_(),
    "left_of_batch": pa.list_(pa.int64()),
    "return_time": pa.int64(),
    "is_unseen": pa.bool_(),
}

SCHEMA = pa.schema([("cursor", pa.int32()), ("kind", pa.string()), *_TYPES.items()])

LIMITS = tuple(name for name in KINDS["cursor"] if name not in ("first", "last", "left", "redelivered"))
TURN = tuple(name for name in KINDS["consumer"] if name not in ("first", "last", "consumer_id", "line"))
_KEPT = ("first", "last", *(name for name in KINDS["range"] if name not in ("first", "last")))

LEAF = pa.schema(
    [
        ("cursor", pa.int32()),
        ("axis", pa.int32()),
        *((name, _TYPES[name]) for name in _KEPT),
        ("has_left", pa.bool_()),
        ("is_redelivered", pa.bool_()),
        ("turn", pa.struct([(name, _TYPES[name]) for name in TURN])),
        ("limits", pa.struct([(name, _TYPES[name]) for name in LIMITS])),
    ]
)
"""What the plan reads, see :func:`leaf_of`."""
_KINDS_BY_AXIS = pa.array(["range", "consumer", "cursor"])

RESULT = pa.schema(
    [
        ("cursor", pa.int32()),
        ("kind", pa.string()),
        *((name, _TYPES[name]) for name in (*STATE, "permits", "is_blocked")),
        ("delivered", pa.int64()),
        ("redelivered", pa.int64()),
    ]
)
"""Rows of kind ``range``, one per range of the new state, unordered and not merged. ``consumer``: remaining permits,
whether it is blocked, messages given in this round, and those met before. ``cursor``: likewise."""


def leaf_of(rows: pa.Table) -> pa.Table:
    """The input *rows* as rows of :data:`LEAF`.

    Each row has its cursor's ``limits``, and whether its consumer left or gives all back. A consumer has a row for each
    ``turn``, and like the cursor one for facts. A line ends with a turn of nobody.
    """
    columns = {name: rows[name].combine_chunks() for name in rows.column_names}
    axes = np.asarray(pc.index_in(columns["kind"], _KINDS_BY_AXIS))
    turns, cursors = np.flatnonzero(axes == TURNS), np.flatnonzero(axes == FACTS)
    firsts = turns[np.asarray(pc.equal(columns["lap"].take(turns), 0))]
    lines = dict(zip(zip(columns["cursor"].take(turns).to_pylist(), columns["line"].take(turns).to_pylist()), turns))
    ends = np.fromiter(lines.values(), np.int64, len(lines))
    places = np.concatenate([np.arange(len(axes)), firsts, ends])
    of_no_end = pa.array(places, mask=np.arange(len(places)) >= len(places) - len(ends))
    limits = {name: columns[name].take(cursors) for name in KINDS["cursor"]}
    limits["wall"] = pc.coalesce(limits["wall"], limits["now"])
    of_cursor = {name: columns[name].take(places) for name in ("cursor", "line")}
    leaf = {name: columns[name].take(of_no_end) for name in (*_KEPT, *TURN)} | of_cursor
    numbers = columns["cursor"].take(cursors)
    leaf |= {
        "first": pc.coalesce(leaf["first"], MAX_LONG),
        "axis": pa.array(np.concatenate([axes, np.repeat([FACTS, TURNS], [len(firsts), len(ends)])]), pa.int32()),
        "has_left": _is_among(leaf, numbers, limits["left"]),
        "is_redelivered": _is_among(leaf, numbers, limits["redelivered"]),
        "turn": _struct(leaf, TURN, mask=pc.is_null(leaf["lap"])),
        "limits": _struct(limits, LIMITS).take(pc.index_in(leaf["cursor"], numbers)),
    }
    return pa.table([leaf[name] for name in LEAF.names], LEAF)


def _struct(columns: dict[str, pa.Array], names: tuple[str, ...], mask: pa.Array | None = None) -> pa.StructArray:
    fields = [pa.field(name, _TYPES[name]) for name in names]
    return pa.StructArray.from_arrays([columns[name] for name in names], fields=fields, mask=mask)


def _is_among(leaf: dict[str, pa.Array], cursors: pa.Array, listed: pa.ListArray) -> pa.Array:
    """Whether each row's consumer is among those *listed* for its cursor, one of *cursors*."""
    consumers = pc.list_flatten(listed)
    if not len(consumers):
        return pa.nulls(len(leaf["cursor"]), pa.bool_())
    named = _named(cursors.take(pc.list_parent_indices(listed)), consumers)
    return pc.is_in(_named(leaf["cursor"], leaf["consumer_id"]), named)


def _named(cursors: pa.Array, consumers: pa.Array) -> pa.Array:
    return pc.binary_join_element_wise(cursors.cast(pa.string()), consumers, " ")
