"""The one frame a round is planned from: state, requests, unread entries and consumers as rows of one schema.

A round reads every input once, so that it may be one plan without join, exchange or broadcast, and such a plan may be
built once and executed every round (design 4.2, "prepared plans"). The price is this union of unlike rows, told apart
by ``kind``; what each kind carries is said in :data:`KINDS`.
"""

import pyarrow as pa

KINDS = {
    "cursor": "one row per cursor of the round: its limits, whose entries come back (left: uncounted, redelivered: "
    "counted), and the time: pending entries fall due by now, the broker's own clock, deliver times by wall, "
    "the machine's (null = the same)",
    "range": "first..last of the cursor's state in one status",
    "ack": "first..last are acknowledged",
    "batch_ack": "of entry first (= last) only the indexes in ack_set stay unacknowledged",
    "ack_set": "of entry first (= last) just the indexes in ack_set stay unacknowledged, whatever was before",
    "return": "first..last, which are pending at the consumer, come back at due_time; none overlaps another",
    "unread": "first..last were never delivered; batch_size messages each, and on Shared not before due_time",
    "consumer": "one lap of one consumer's turn: ordinal is its place in line",
}

SCHEMA = pa.schema(
    [
        ("cursor", pa.int32()),
        ("kind", pa.string()),
        ("first", pa.int64()),
        ("last", pa.int64()),
        ("status", pa.string()),
        ("consumer_id", pa.string()),
        ("delivery_round", pa.int64()),
        ("redelivery_count", pa.int32()),
        ("due_time", pa.int64()),
        ("ack_set", pa.list_(pa.int64())),
        ("batch_size", pa.int32()),
        ("ordinal", pa.int64()),
        ("lap", pa.int32()),
        ("peers", pa.int64()),
        ("permits", pa.int64()),
        ("limit", pa.int64()),
        ("unacked_elsewhere", pa.int64()),
        ("is_blocked", pa.bool_()),
        ("is_single_active", pa.bool_()),
        ("max_redeliver_count", pa.int32()),
        ("left", pa.list_(pa.string())),
        ("redelivered", pa.list_(pa.string())),
        ("round", pa.int64()),
        ("now", pa.int64()),
        ("wall", pa.int64()),
    ]
)

STATE = (
    "cursor",
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
"""Columns of the plan's result: the new state, as rows of kind ``range``."""

STATE_SCHEMA = pa.schema([SCHEMA.field(name) for name in STATE])
