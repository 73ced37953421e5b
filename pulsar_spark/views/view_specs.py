"""The views for people, as data: one row's meaning, and the columns taken from ``cursor_ledger`` with the meanings its
schema gives them."""

from typing import NamedTuple

import pyarrow as pa

from pulsar_spark.table_specs import CURSOR_LEDGER, PROPERTIES, TIME, Column, TableSpec


class ViewSpec(NamedTuple):
    """A view over the rows of one ``kind``."""

    name: str
    row: str
    kind: str
    column_names: tuple[str, ...]

    @property
    def columns(self) -> tuple[Column, ...]:
        """The columns with their types and meanings."""
        by_name = {column.name: column for column in CURSOR_LEDGER.columns}
        return tuple(by_name[name] for name in self.column_names)


VIEWS = (
    ViewSpec(
        "cursors",
        "where a subscription stands on one topic partition",
        "cursor",
        (
            "topic",
            "partition",
            "subscription",
            "subscription_type",
            "mark_delete_position",
            "read_position",
            "is_blocked",
            "status",
            "round_time",
            "msg_out_counter",
            "msg_redeliver_counter",
            "properties",
            "round",
        ),
    ),
    ViewSpec(
        "pending_acks",
        "a range of entries delivered to a consumer and not acknowledged, or waiting to be delivered again",
        "range",
        (
            "topic",
            "partition",
            "subscription",
            "first",
            "last",
            "entries",
            "lane",
            "status",
            "consumer_id",
            "delivery_round",
            "redelivery_count",
            "due_time",
            "ack_set",
            "batch_size",
        ),
    ),
    ViewSpec(
        "consumers",
        "a consumer connected to a subscription on one topic partition",
        "consumer",
        (
            "topic",
            "partition",
            "subscription",
            "consumer_name",
            "consumer_id",
            "client_id",
            "priority_level",
            "permits",
            "is_active",
            "is_blocked",
            "lease_time",
            "join_order",
            "msg_out_counter",
            "msg_redeliver_counter",
            "properties",
            "round",
        ),
    ),
    ViewSpec(
        "rounds",
        "a round of the broker: one commit",
        "round",
        ("round", "round_time", "requests_version", "epoch", "broker_id", "is_snapshot"),
    ),
    ViewSpec(
        "housekeeping",
        "what a broker did to keep a table small, as the round behind it says",
        "housekeeping",
        ("round_time", "topic", "status", "entries", "round"),
    ),
)

HASH_OWNERS = TableSpec(
    "hash_ranges",
    "a range of sticky-key hashes that a consumer owns on a KeyShared subscription, or that nobody does",
    tuple(
        Column(*c)
        for c in (
            ("topic", pa.string(), "full name of the topic, without a partition"),
            ("partition", pa.int32(), "partition, -1 where the topic has none"),
            ("subscription", pa.string(), "name of the subscription"),
            ("consumer_name", pa.string(), "name of the owner; null = nobody, so that the keys in the range wait"),
            ("consumer_id", pa.string(), "its id; null likewise"),
            ("range_start", pa.int64(), "first place of the range"),
            (
                "range_end",
                pa.int64(),
                "last place of it, inclusive; a hash lies at the place sticky_key_hash % axis_size + axis_start",
            ),
            ("axis_size", pa.int64(), "how many places there are: 65536 or 65535 slots, or all hashes of 31 bits"),
            ("axis_start", pa.int64(), "the first place: 0, or 1 on the ring of 4.0"),
            (
                "sharers",
                pa.int32(),
                "consumers that share the range, 1 but for those of one name on a ring: this one's are the hashes with "
                "sticky_key_hash % sharers = share",
            ),
            ("share", pa.int32(), "which of the sharers this one is, from 0"),
        )
    ),
)

DRAINING_HASHES = TableSpec(
    "draining_hashes",
    "a sticky-key hash of a KeyShared subscription that waits for entries which a consumer holds",
    tuple(
        Column(*c)
        for c in (
            ("topic", pa.string(), "full name of the topic, without a partition"),
            ("partition", pa.int32(), "partition, -1 where the topic has none"),
            ("subscription", pa.string(), "name of the subscription"),
            ("sticky_key_hash", pa.int32(), "the hash, as messages have it"),
            ("owner_name", pa.string(), "the consumer that gets the next entries of it; null = nobody owns it"),
            ("owner_id", pa.string(), "its id; null likewise"),
            ("consumer_name", pa.string(), "the consumer that is waited for"),
            ("consumer_id", pa.string(), "its id"),
            (
                "is_draining",
                pa.bool_(),
                "the consumer is not the owner: the hash drains; false = its owner gave an entry back, which is waited "
                "for",
            ),
            ("first", pa.int64(), "lowest position among the entries that are waited for"),
            ("entries", pa.int64(), "how many they are"),
            ("messages", pa.int64(), "messages of them that are not acknowledged"),
            ("due_time", TIME, "from when on the first of them comes back, by the broker's clock; null = it does not"),
        )
    ),
)

SCHEDULED = TableSpec(
    "scheduled",
    "an entry that waits for its deliver time",
    tuple(
        Column(*c)
        for c in (
            ("topic", pa.string(), "full name of the topic, without a partition"),
            ("partition", pa.int32(), "partition, -1 where the topic has none"),
            ("position", pa.int64(), "its position"),
            ("ledger_id", pa.int64(), "ledger of its message id"),
            ("entry_id", pa.int64(), "entry of its message id, as its messages have it"),
            ("publish_id", pa.string(), "publish id of its messages, which with entry id and partition names them"),
            ("due_time", TIME, "when it is delivered"),
            (
                "subscriptions",
                pa.list_(pa.string()),
                "those it waits for, by name; those that moved it to another time have a row of their own",
            ),
        )
    ),
)

CHUNKS = TableSpec(
    "chunks",
    "a chunked message that is not complete, or chunks that came when their message was not begun",
    tuple(
        Column(*c)
        for c in (
            ("topic", pa.string(), "full name of the topic, without a partition"),
            ("partition", pa.int32(), "partition, -1 where the topic has none"),
            ("producer_name", pa.string(), "name of the producer"),
            ("uuid", pa.string(), "joins the chunks of one message, with the producer's name"),
            ("num_chunks_from_msg", pa.int32(), "chunks of the message, as the first of those there says"),
            ("total_chunk_msg_size", pa.int64(), "bytes of the whole message, as it says"),
            ("chunks", pa.int64(), "how many chunks are there"),
            (
                "missing",
                pa.list_(pa.struct({"first": pa.int32(), "last": pa.int32()})),
                "the chunk ids that are not, as ranges, both ends inclusive",
            ),
            ("first", pa.int64(), "position of the first chunk that is there"),
            ("last", pa.int64(), "position of the last one"),
            ("since", TIME, "when the first of them was published, by the producer's clock"),
            ("is_open", pa.bool_(), "what is missing may still come; false = it makes no message any more"),
            ("reason", pa.string(), "why it is not complete"),
        )
    ),
)

HISTORY = TableSpec(
    "history",
    "something that happened to a range of entries on a subscription",
    tuple(
        Column(*c)
        for c in (
            ("time", TIME, "when: by the broker's clock for what it did, by the client's for what was asked"),
            (
                "event",
                pa.string(),
                "delivered, acknowledged, negatively_acknowledged, redelivery_asked (of all the consumer holds), "
                "reconsume_later_asked, cancelled (while it waited for its deliver time), rescheduled, "
                "retry_lettered, dead_lettered, consumer_left, deleted (from the topic's table, by SQL)",
            ),
            ("topic", pa.string(), "full name of the topic, without a partition"),
            ("partition", pa.int32(), "partition, -1 where the topic has none"),
            ("subscription", pa.string(), "name of the subscription; null of what was deleted, for everybody"),
            ("first", pa.int64(), "first position; null = everything up to the last, or no entries in particular"),
            ("last", pa.int64(), "last position, inclusive"),
            (
                "ack_set",
                pa.list_(pa.int64()),
                "batch indexes of each entry that are unacknowledged then, 64 a word, low bit first; null = all of "
                "a delivery, "
                "none of an acknowledgement or a deletion; of a letter those it is of",
            ),
            ("consumer_name", pa.string(), "name of the consumer that received, asked or left"),
            ("consumer_id", pa.string(), "its id"),
            (
                "redelivery_count",
                pa.int32(),
                "delivered, retry_lettered, dead_lettered: how often the entries had been given back",
            ),
            ("delay_ms", pa.int64(), "negatively_acknowledged: how long to wait before they are delivered again"),
            ("round", pa.int64(), "the round in which the broker did it; null for what was asked"),
            ("request_id", pa.string(), "the request that asked; null for what the broker did by itself"),
            ("reason", pa.string(), "consumer_left: why"),
            (
                "properties",
                PROPERTIES,
                "of an acknowledgement, as the consumer gave them; reconsume_later_asked: what the letter says, "
                "and where it goes; cancelled, rescheduled: why, if it was said (reason), and until when "
                "(deliver_at_ms)",
            ),
        )
    ),
)
