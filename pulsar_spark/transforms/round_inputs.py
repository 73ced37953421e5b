"""The frames of a round: what it is planned from, and what the plan says.

State, requests, unread entries and consumers are rows of one schema, because a round reads every input once: so it may
be one plan without join, exchange or broadcast, and such a plan may be built once and executed every round (design 4.2,
"prepared plans"). The price is this union of unlike rows, told apart by ``kind``; :data:`KINDS` says what each kind is
and which columns it has, the others are null. What comes out are rows of one schema too: :data:`RESULT`.

**Lines.** Candidates and turns are laid end to end in lines, and nobody is given an entry of another line. A cursor of
Shared, Exclusive or Failover has one, whose rows have a null ``line``. On Key_Shared each consumer stands alone in a
line named by its id, and an entry is in the line of its hash's owner; one that nobody owns is in none (2.31). What is
not to go out in this round is held (``is_held``): its hash drains, or nobody owns it (2.41, 0.22). Which hash is whose
and which ones drain are control facts, decided before (protocol.selectors); the plan takes both as they are said.
"""

import pyarrow as pa

RANGE_KEY = ("cursor",)
"""What positions are counted on. Ranges of different keys know nothing of each other until consumers are served."""

STATE = (
    "first",
    "last",
    "status",
    "consumer_id",
    "delivery_round",
    "redelivery_count",
    "due_time",
    "ack_set",
    "batch_size",
)
"""Columns of a range, beside its key."""

KINDS = {
    # One row per cursor of the round: its limits, whose entries come back (left: uncounted, redelivered: counted), and
    # the time: pending entries fall due by now, the broker's own clock, deliver times by wall, the machine's (null =
    # the same). What lies below read_position was met before, of virtual positions (protocol.delays) below due_read.
    "cursor": (
        "first",
        "last",
        "is_single_active",
        "limit",
        "unacked_elsewhere",
        "is_blocked",
        "permits",
        "max_redeliver_count",
        "left",
        "redelivered",
        "read_position",
        "round",
        "now",
        "wall",
        "due_read",
    ),
    # first..last of the cursor's state in one status, in its line
    "range": (*STATE, "line", "is_held"),
    # first..last are acknowledged
    "ack": ("first", "last"),
    # of entry first (= last) just the indexes in ack_set stay unacknowledged
    "ack_set": ("first", "last", "ack_set"),
    # first..last, which are pending at the consumer, come back at due_time, uncounted if is_unseen (null = no); none
    # overlaps another
    "return": ("first", "last", "consumer_id", "due_time", "is_unseen"),
    # first..last were never delivered; batch_size messages each, and on Shared and Key_Shared not before due_time; one
    # that has come is waited for no more, but they go before those without
    "unread": ("first", "last", "batch_size", "due_time", "line", "is_held"),
    # One lap of one consumer's turn, in order of first (= last): see protocol.shared. No two of a cursor have the same
    # first, whatever their line. One that may be given nothing has a lap all the same, so that the plan says of every
    # consumer whether it is blocked; its peers are then null.
    "consumer": (
        "first",
        "last",
        "consumer_id",
        "lap",
        "peers",
        "permits",
        "limit",
        "unacked_elsewhere",
        "is_blocked",
        "line",
    ),
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
    "due_read": pa.int64(),
    "line": pa.string(),
    "is_held": pa.bool_(),
    "is_unseen": pa.bool_(),
}

SCHEMA = pa.schema([("cursor", pa.int32()), ("kind", pa.string()), *_TYPES.items()])

RESULT = pa.schema(
    [
        ("cursor", pa.int32()),
        ("kind", pa.string()),
        *((name, _TYPES[name]) for name in STATE),
        ("permits", pa.int64()),
        ("is_blocked", pa.bool_()),
        ("delivered", pa.int64()),
        ("redelivered", pa.int64()),
    ]
)
"""A row of kind ``range`` for each range of the new state, in no order, neighbours not merged; ``consumer`` for each
consumer, with the permits it has left, whether it is blocked, the messages it was given in this round, and those of
them that were met before; ``cursor`` likewise for the cursor."""
