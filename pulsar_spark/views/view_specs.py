"""The views as data: the meaning of a row, and columns of ``cursor_ledger`` with their meanings."""

import re
from typing import NamedTuple

import pyarrow as pa

from pulsar_spark.table_specs import CURSOR_LEDGER, PROPERTIES, TIME, Column, TableSpec

_LABELS = re.compile(
    r"(?:^|; )((?:{0})(?:, (?:{0}))*): ".format(
        "round|topic|cursor|reset|range|consumer|policy|letter|waiting_letter|letterless|reply|set_aside|"
        "waiting_request|housekeeping|pending|replay"
    )
)
"""Kinds of rows, and statuses of ranges, before a part of a column's meaning."""
_KINDS_OF = {"range": {"range", "pending", "replay"}}


def meaning_for(kind: str, meaning: str) -> str:
    """The parts of a column's *meaning* that concern rows of one *kind*; statuses of its ranges stay as labels.

    >>> meaning_for("consumer", "consumer: its id; pending: the consumer that holds the entries; reply: its receiver")
    'its id'
    """
    general, *labelled = _LABELS.split(meaning)
    parts = [general] if general else []
    for label, part in zip(labelled[::2], labelled[1::2], strict=True):
        its = [name for name in label.split(", ") if name in _KINDS_OF.get(kind, {kind})]
        if its:
            parts.append(part if kind in its else f"{', '.join(its)}: {part}")
    return "; ".join(parts)


class ViewSpec(NamedTuple):
    """A view over the rows of one ``kind``; ``column_text`` has the names of its columns, after which come *computed*
    ones, each with its expression."""

    name: str
    row: str
    kind: str
    column_text: str
    computed: tuple[tuple[Column, str], ...] = ()

    @property
    def column_names(self) -> list[str]:
        return self.column_text.split()

    @property
    def columns(self) -> tuple[Column, ...]:
        by_name = {column.name: column for column in CURSOR_LEDGER.columns}
        found = (by_name[name] for name in self.column_names)
        its = tuple(column._replace(meaning=meaning_for(self.kind, column.meaning)) for column in found)
        return its + tuple(column for column, _ in self.computed)


_ROUND_COUNTS = (
    ("published", "entries published that it numbered"),
    ("requests", "requests that it executed"),
    ("delivered", "messages delivered"),
    ("redelivered", "those of them that had been delivered before"),
    ("acknowledged", "messages acknowledged, by consumers and by the broker's rules"),
    ("dead", "messages given back or put off too often"),
    ("returned", "entries given back, or left by consumers that went away"),
)
_ROUND_STEPS = (
    ("number_ms", "milliseconds to number what was published"),
    ("requests_ms", "milliseconds to execute requests and what was due"),
    ("gather_ms", "milliseconds to gather the entries to decide about"),
    ("plan_ms", "milliseconds to plan, and to take the result into memory"),
)
_LATER_ROUND = "PARTITION BY broker_id, properties['bundle_range'] ORDER BY round"
_OF_ROUNDS = (
    *((Column(name, pa.int64(), meaning), f"counts['{name}']") for name, meaning in _ROUND_COUNTS),
    *((Column(name, pa.float64(), meaning), f"counts['{name[:-2]}us'] / 1000D") for name, meaning in _ROUND_STEPS),
    (
        Column("write_ms", pa.float64(), "milliseconds to make its rows and commit them, once the next round says so"),
        f"lead(counts['write_us']) OVER ({_LATER_ROUND}) / 1000D",
    ),
)


VIEWS = (
    ViewSpec(
        "cursors",
        "the position of a subscription on one topic partition",
        "cursor",
        "topic partition subscription subscription_type mark_delete_position read_position is_blocked status "
        "round_time msg_out_counter msg_redeliver_counter msg_ack_counter msg_dead_counter properties round",
    ),
    ViewSpec(
        "pending_acks",
        "a range of entries that were delivered and not acknowledged, or wait for their redelivery",
        "range",
        "topic partition subscription first last entries status consumer_id delivery_round redelivery_count due_time "
        "ack_set batch_size",
    ),
    ViewSpec(
        "consumers",
        "a consumer connected to a subscription on one topic partition",
        "consumer",
        "topic partition subscription consumer_name consumer_id client_id priority_level permits is_active is_blocked "
        "lease_time join_order msg_out_counter msg_redeliver_counter properties round",
    ),
    ViewSpec(
        "rounds",
        "a round of the broker: one commit",
        "round",
        "round round_time requests_version epoch broker_id is_snapshot",
        _OF_ROUNDS,
    ),
    ViewSpec(
        "housekeeping",
        "what a broker did to keep a table small, as recorded in the next round",
        "housekeeping",
        "round_time topic status entries round",
    ),
)

PLACE = (
    ("topic", pa.string(), "full name of the topic, without a partition"),
    ("partition", pa.int32(), "partition, -1 where the topic has none"),
)
"""The columns that begin most tables of topic partitions."""


def view_table(name: str, row: str, *columns: tuple[str, pa.DataType, str]) -> TableSpec:
    """The spec of a view that Python makes, from the name, type and meaning of each column."""
    return TableSpec(name, row, tuple(Column(*column) for column in columns))


HASH_OWNERS = view_table(
    "hash_ranges",
    "a range of sticky-key hashes on a KeyShared subscription and the consumer that owns it, if any",
    *PLACE,
    ("subscription", pa.string(), "name of the subscription"),
    ("consumer_name", pa.string(), "name of the owner; null = no owner, so that the keys in the range wait"),
    ("consumer_id", pa.string(), "its id; null likewise"),
    ("range_start", pa.int64(), "first place of the range"),
    (
        "range_end",
        pa.int64(),
        "last place of it, inclusive; a hash lies at the place sticky_key_hash % axis_size + axis_start",
    ),
    ("axis_size", pa.int64(), "number of places: 65536 or 65535 slots, or all hashes of 31 bits"),
    ("axis_start", pa.int64(), "the first place: 0, or 1 on the ring of 4.0"),
    (
        "sharers",
        pa.int32(),
        "consumers that share the range: more than 1 only for those of one name on a ring. Each owns "
        "the hashes with sticky_key_hash % sharers = share",
    ),
    ("share", pa.int32(), "number of this consumer among the sharers, from 0"),
)

DRAINING_HASHES = view_table(
    "draining_hashes",
    "a sticky-key hash of a KeyShared subscription that waits for entries which a consumer holds",
    *PLACE,
    ("subscription", pa.string(), "name of the subscription"),
    ("sticky_key_hash", pa.int32(), "the hash, as messages have it"),
    ("owner_name", pa.string(), "the consumer that gets its next entries; null = no owner"),
    ("owner_id", pa.string(), "its id; null likewise"),
    ("consumer_name", pa.string(), "the consumer that must acknowledge or give back entries first"),
    ("consumer_id", pa.string(), "its id"),
    (
        "is_draining",
        pa.bool_(),
        "the consumer is not the owner: the hash drains; false = the owner gave an entry back, which comes first",
    ),
    ("first", pa.int64(), "lowest position among these entries"),
    ("entries", pa.int64(), "how many they are"),
    ("messages", pa.int64(), "unacknowledged messages in these entries"),
    ("due_time", TIME, "when the first of them comes back, by the broker's clock; null = it does not"),
)

SCHEDULED = view_table(
    "scheduled",
    "an entry that waits for its deliver time",
    *PLACE,
    ("position", pa.int64(), "its position"),
    ("ledger_id", pa.int64(), "ledger of its message id"),
    ("entry_id", pa.int64(), "entry of its message id, as its messages have it"),
    ("publish_id", pa.string(), "publish id of its messages; with entry id and partition it identifies them"),
    ("due_time", TIME, "when it is delivered"),
    (
        "subscriptions",
        pa.list_(pa.string()),
        "names of the subscriptions for which it waits; a subscription that moved it to another time has its own row",
    ),
)

CHUNKS = view_table(
    "chunks",
    "an incomplete chunked message, or chunks whose message had not begun",
    *PLACE,
    ("producer_name", pa.string(), "name of the producer"),
    ("uuid", pa.string(), "connects the chunks of one message, with the producer's name"),
    ("num_chunks_from_msg", pa.int32(), "number of chunks, according to the first existing one"),
    ("total_chunk_msg_size", pa.int64(), "bytes of the whole message, according to the same chunk"),
    ("chunks", pa.int64(), "number of existing chunks"),
    (
        "missing",
        pa.list_(pa.struct({"first": pa.int32(), "last": pa.int32()})),
        "missing chunk ids as ranges, both ends inclusive",
    ),
    ("first", pa.int64(), "position of the first existing chunk"),
    ("last", pa.int64(), "position of the last one"),
    ("since", TIME, "when the first of them was published, by the producer's clock"),
    ("is_open", pa.bool_(), "the missing chunks may still come; false = the message can no longer become complete"),
    ("reason", pa.string(), "why it is incomplete"),
)

HISTORY = view_table(
    "history",
    "something that happened to a range of entries on a subscription",
    ("time", TIME, "time of the event, by the clock of the broker, or of the client for a request"),
    (
        "event",
        pa.string(),
        "delivered, acknowledged, negatively_acknowledged, redelivery_asked (of all the consumer holds), "
        "reconsume_later_asked, cancelled (while it waited for its deliver time), rescheduled, "
        "retry_lettered, dead_lettered, consumer_left, deleted (from the topic's table, by SQL)",
    ),
    *PLACE,
    ("subscription", pa.string(), "name of the subscription; null for a deletion, which concerns all"),
    ("first", pa.int64(), "first position; null = everything up to the last, or no particular entries"),
    ("last", pa.int64(), "last position, inclusive"),
    (
        "ack_set",
        pa.list_(pa.int64()),
        "batch indexes of each entry that are unacknowledged then, 64 a word, low bit first; null = all of a delivery, "
        "none of an acknowledgement or a deletion; of a letter those it is of",
    ),
    ("consumer_name", pa.string(), "name of the consumer that received, requested or left"),
    ("consumer_id", pa.string(), "its id"),
    (
        "redelivery_count",
        pa.int32(),
        "delivered, retry_lettered, dead_lettered: how often the entries had been given back",
    ),
    ("delay_ms", pa.int64(), "negatively_acknowledged: how long to wait before they are delivered again"),
    ("round", pa.int64(), "the round of the event; null for a request"),
    ("request_id", pa.string(), "the request; null for what the broker did by itself"),
    ("reason", pa.string(), "consumer_left: why"),
    (
        "properties",
        PROPERTIES,
        "of an acknowledgement, as the consumer gave them; reconsume_later_asked: what the letter says, and where it "
        "goes; cancelled, rescheduled: why, if a reason is given (reason), and until when (deliver_at_ms)",
    ),
)

_SINCE = "since the row before; for the first one since it was made"
ACTIVITY_OVER_TIME = view_table(
    "activity",
    "a minute in which a subscription on a topic partition changed, or a topic partition (subscription is null); of "
    "those older than a day an hour, and of those older than 14 days a day",
    ("minute_time", TIME, "the minute, by the broker's machine; the last one that changed of an hour or a day"),
    *PLACE,
    ("subscription", pa.string(), "name of the subscription; null in rows of topic partitions"),
    ("published", pa.int64(), f"messages published to the topic partition {_SINCE}"),
    ("delivered", pa.int64(), f"messages delivered {_SINCE}; as all that follows, null in rows of topic partitions"),
    ("redelivered", pa.int64(), "those among them that had been delivered before"),
    ("acknowledged", pa.int64(), "messages acknowledged likewise, by consumers and by the broker's rules"),
    ("dead", pa.int64(), "messages given back or put off too often likewise"),
    ("backlog", pa.int64(), "entries not acknowledged at the end of the minute, a batch as one"),
    ("delayed", pa.int64(), "those among them that wait for their deliver time, or were put off"),
    ("unacked", pa.int64(), "messages delivered and not acknowledged at the end of the minute"),
    ("consumers", pa.int32(), "connected consumers at the end of the minute"),
    (
        "backlog_age_seconds",
        pa.float64(),
        "age of the oldest entry of the backlog that does not wait for its deliver time, at the end of the minute",
    ),
)

BACKLOG = view_table(
    "backlog",
    "a subscription on a topic partition as it is now",
    *PLACE,
    ("subscription", pa.string(), "name of the subscription"),
    ("subscription_type", pa.string(), "Exclusive, Failover, Shared or KeyShared while consumers are connected"),
    ("backlog", pa.int64(), "entries not acknowledged, a batch as one"),
    ("delayed", pa.int64(), "those among them that wait for their deliver time, or were put off"),
    (
        "backlog_age_seconds",
        pa.float64(),
        "time since the oldest of the others was published, by the producer's clock; null for none",
    ),
    ("oldest_publish_time", TIME, "when that was"),
    ("unacked", pa.int64(), "messages delivered and not acknowledged"),
    ("oldest_unacked_seconds", pa.float64(), "age of the oldest unacknowledged delivery; null for none"),
    ("delivered", pa.int64(), "messages delivered since the subscription was made"),
    ("redelivered", pa.int64(), "those among them that had been delivered before"),
    ("acknowledged", pa.int64(), "messages acknowledged since then, by consumers and by the broker's rules"),
    ("dead", pa.int64(), "messages given back or put off too often since then"),
    ("waiting_letters", pa.int64(), "messages whose letters could not be written yet"),
    ("letterless", pa.int64(), "messages that were deleted or trimmed before their letter was written"),
    ("rate_in", pa.float64(), "messages a second published to the topic partition in the last minute"),
    ("rate_out", pa.float64(), "messages a second delivered in the last minute"),
    ("consumers", pa.int64(), "connected consumers"),
    ("permits", pa.int64(), "messages that they may still be sent"),
    (
        "blocked",
        pa.string(),
        "why the backlog is not delivered: stopped, set_aside, no_broker, all_delayed, no_consumers, unacked_limit, "
        "no_permits or key_drains; null if nothing is left, or it is being delivered",
    ),
    (
        "error",
        pa.string(),
        "what the broker failed on, if the subscription or its topic is set aside or stopped; else why the topic's "
        "files cannot be read",
    ),
)

ALL_VIEWS: tuple[ViewSpec | TableSpec, ...] = (
    *VIEWS,
    BACKLOG,
    ACTIVITY_OVER_TIME,
    HASH_OWNERS,
    DRAINING_HASHES,
    SCHEDULED,
    CHUNKS,
    HISTORY,
)
"""Every view of a root, in the order of the reference."""
