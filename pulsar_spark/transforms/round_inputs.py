"""The frames of a round: its plan's input and its result.

All inputs are rows of one schema, so the plan needs no join and is built once for all rounds (design 4.2, "prepared
plans"). :data:`KINDS` lists the columns of each ``kind``; others are null.

**Lines.** Consumers get only entries of their line. A cursor of Shared, Exclusive or Failover has one line, null. On
Key_Shared each consumer has a line named by its id, with the entries of its hashes; an entry without an owner has none
(2.31). Held entries (``is_held``) are not delivered in this round (2.41, 0.22)."""

import pyarrow as pa

RANGE_KEY = ("cursor",)
"""The key of an axis of positions; ranges with different keys are independent."""

STATE = tuple("first last status consumer_id delivery_round redelivery_count due_time ack_set batch_size".split())
"""Columns of a range, beside its key."""

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
