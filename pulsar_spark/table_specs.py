"""The tables, as data: one :class:`TableSpec` per table, from which tables are created, rows are written and
documentation is made.

Arrow is the common ground of both sides: ``deltalake`` writes Arrow without a JVM, Spark reads the same table. Column
names are Pulsar's wire names in snake case; instants end in ``_time`` and are UTC; durations end in ``_ms``.
"""

from typing import NamedTuple

import numpy as np
import pyarrow as pa

LAYOUT_VERSION = 2
"""Version of the tables' layout that this release makes. A root of a higher one is refused, one of a lower one brought
up by its next broker (storage.migrations)."""

TIME = pa.timestamp("us", tz="UTC")
PROPERTIES = pa.map_(pa.string(), pa.string())
ENCRYPTION_KEYS = pa.list_(pa.struct({"key": pa.string(), "value": pa.binary(), "metadata": PROPERTIES}))
HASH_RANGES = pa.list_(pa.struct({name: pa.int32() for name in ("start", "end", "modulus", "remainder")}))


_MANY = 1000


class Column(NamedTuple):
    """``since`` is the layout version that brought the column; in rows written before it is null."""

    name: str
    type: pa.DataType
    meaning: str
    since: int = 1


class TableSpec(NamedTuple):
    name: str
    row: str
    columns: tuple[Column, ...]

    @property
    def schema(self) -> pa.Schema:
        """The Arrow schema; every column may be null, because kinds of rows share a table."""
        return self.schema_at(LAYOUT_VERSION)

    def schema_at(self, version: int) -> pa.Schema:
        """The schema in that layout version."""
        return pa.schema([(column.name, column.type) for column in self.columns if column.since <= version])

    def rows(self, rows: list[dict]) -> pa.Table:
        """*rows* as an Arrow table of this spec; a missing key is null, an unknown one is an error."""
        known, schema = set().union(*rows), self.schema
        if unknown := known - set(schema.names):
            raise KeyError(f"{self.name} has no column {sorted(unknown)}")
        return pa.Table.from_arrays(
            [
                _array([row.get(name) for row in rows], kind) if name in known else pa.nulls(len(rows), kind)
                for name, kind in zip(schema.names, schema.types)  # a field makes its name anew whenever it is asked
            ],
            schema=schema,
        )


def _array(values: list, kind: pa.DataType) -> pa.Array:
    """*values* as Arrow; many that are all the same, as most columns of letters are, of one of them."""
    if len(values) > _MANY and values.count(values[0]) == len(values):
        return pa.array(values[:1], kind).take(pa.array(np.zeros(len(values), np.int32)))
    return pa.array(values, kind)


KEY_FLAGS = ("partition_key_b64_encoded", "ordering_key_b64_encoded")
"""Columns of messages that say whether a key is base64 of bytes."""

MESSAGES = TableSpec(
    "messages",
    "a message",
    tuple(
        Column(*c)
        for c in (
            (
                "publish_id",
                pa.string(),
                "UUIDv7 of the publish commit: constant in it, ordered by time; a retried publish keeps it",
            ),
            ("entry_id", pa.int64(), "write task << 33 plus a number dense within task and partition"),
            ("batch_index", pa.int32(), "place in the entry's batch; null outside a batch"),
            ("batch_size", pa.int32(), "messages in the entry: 1 outside a batch"),
            ("partition", pa.int32(), "partition of the topic; -1 where the topic has none"),
            ("partition_key", pa.string(), "key for routing, Key_Shared and compaction"),
            ("ordering_key", pa.string(), "key for Key_Shared that goes before the partition key"),
            ("payload", pa.binary(), "the bytes; null is Pulsar's null value"),
            ("properties", PROPERTIES, "the application's own names and values"),
            ("event_time", TIME, "the application's time; null where it gave none"),
            ("publish_time", TIME, "the producer's clock at publishing"),
            ("deliver_at_time", TIME, "not to be delivered before; null = at once"),
            ("producer_name", pa.string(), "name of the producer, unique among those connected"),
            ("sequence_id", pa.int64(), "the producer's own number of the message"),
            ("uuid", pa.string(), "joins the chunks of one message; null for a message in one piece"),
            ("chunk_id", pa.int32(), "0..num_chunks_from_msg - 1"),
            ("num_chunks_from_msg", pa.int32(), "chunks of the message"),
            ("total_chunk_msg_size", pa.int64(), "bytes of the whole message"),
            ("schema_version", pa.int32(), "version of the topic's schema the payload was written with"),
            (
                "sticky_key_hash",
                pa.int32(),
                "Murmur3 of the sticky key of the entry's first message, sign bit cleared: 31 bits, where the producer "
                "computed it (its slot is the hash modulo 65536; selectors before 4.0 use the whole hash); null: "
                "whoever needs it computes it",
                2,
            ),
            ("partition_key_b64_encoded", pa.bool_(), "partition_key is base64 of bytes; null = it is text", 2),
            ("ordering_key_b64_encoded", pa.bool_(), "ordering_key is base64 of bytes; null = it is text", 2),
            ("compression", pa.string(), "LZ4, ZLIB, ZSTD or SNAPPY, of the whole message; null = not compressed", 2),
            ("uncompressed_size", pa.int64(), "bytes of the message before compression; null = not compressed", 2),
            ("encryption_keys", ENCRYPTION_KEYS, "the data key, encrypted for each reader; null = not encrypted", 2),
            ("encryption_algo", pa.string(), "what the data key was encrypted with, as the client names it", 2),
            ("encryption_param", pa.binary(), "initialization vector of the encrypted payload", 2),
        )
    ),
)

VALID_UNTIL = "valid_until_ms"
"""Property of a request: until when it holds, in milliseconds since 1970 by the clock of who asks."""

REQUESTS = TableSpec(
    "requests",
    "something a client asks of the broker",
    tuple(
        Column(*c)
        for c in (
            ("request_id", pa.string(), "names the request; its reply carries it"),
            (
                "kind",
                pa.string(),
                "subscribe, flow, ack, cumulative_ack, negative_ack, reconsume_later, redeliver_all, seek, "
                "unsubscribe, keep_alive, close, "
                "create_subscription, skip, clear_backlog, expire, reschedule, policy, unload, retry_set_aside, "
                "drop_set_aside, retry_waiting_letters, drop_waiting_letters, rebuild_delay_index",
            ),
            ("client_id", pa.string(), "the client process; any request of it renews the leases of all its consumers"),
            ("consumer_id", pa.string(), "one consumer of the client, on all partitions of its topics"),
            ("topic", pa.string(), "full name of the topic, without a partition"),
            ("partition", pa.int32(), "partition, -1 where the topic has none"),
            ("subscription", pa.string(), "name of the subscription"),
            ("first", pa.int64(), "first position asked about"),
            ("last", pa.int64(), "last position asked about, inclusive"),
            (
                "ack_set",
                pa.list_(pa.int64()),
                "batch indexes still unacknowledged, 64 a word, low bit first; null = the whole entry",
            ),
            ("permits", pa.int64(), "messages the consumer can take on top of those asked for before (flow)"),
            ("delay_ms", pa.int64(), "how long to wait before giving back (negative_ack)"),
            ("request_time", TIME, "the client's clock"),
            (
                "properties",
                PROPERTIES,
                "what only one kind of request needs; valid_until_ms, where somebody waits for "
                "the answer: refused with Timeout from then on",
            ),
        )
    ),
)

CURSOR_LEDGER = TableSpec(
    "cursor_ledger",
    "a fact of a subscription after a round",
    tuple(
        Column(*c)
        for c in (
            ("round", pa.int64(), "number of the round: the table's fence, one commit each"),
            (
                "kind",
                pa.string(),
                "round, topic, promotion, cursor, page, range, consumer, policy, letter, waiting_letter, letterless, "
                "reply, set_aside",
            ),
            ("topic", pa.string(), "full name of the topic, without a partition"),
            ("topic_id", pa.string(), "Delta's id of the topic's table, so that a topic created again starts clean"),
            ("partition", pa.int32(), "partition, -1 where the topic has none"),
            ("subscription", pa.string(), "name of the subscription"),
            (
                "page",
                pa.int64(),
                "page, range: first position of the page; a page's rows replace all older rows of the page",
            ),
            (
                "first",
                pa.int64(),
                "page, range, letter, waiting_letter: first position; topic: the first one that was not trimmed; "
                "promotion: first number; set_aside: row of the request within its commit, null = the whole commit",
            ),
            (
                "last",
                pa.int64(),
                "page, range, letter, waiting_letter: last position, inclusive; of the last page null; promotion: last "
                "number; set_aside: the last version of several that are gone",
            ),
            (
                "status",
                pa.string(),
                "range: acknowledged, pending (delivered, not acknowledged) or replay (to be delivered "
                "again); letter, waiting_letter: retry or dead; cursor: blocked_by_broker while the broker's "
                "own limit of unacknowledged messages holds it back; set_aside: request, topic or "
                "subscription",
            ),
            ("consumer_id", pa.string(), "consumer: its id; pending: who holds the entries; reply: whom it is for"),
            (
                "delivery_round",
                pa.int64(),
                "pending: the round that delivered the entries; waiting_letter: the one behind which it was "
                "tried first, which names it with join_order",
            ),
            (
                "redelivery_count",
                pa.int32(),
                "pending, replay, letter: how often the entries were given back by a negative acknowledgement or a "
                "timeout",
            ),
            (
                "due_time",
                TIME,
                "pending: when the entries are given back unless acknowledged; replay: not to be delivered before; "
                "cursor: when a consumer that became active begins to receive; "
                "round: the broker's own clock, by which pending entries, cursors and "
                "leases fall due (null in rows of older releases, where it is the machine's); "
                "waiting_letter: when it is tried again, null: behind this round",
            ),
            (
                "ack_set",
                pa.list_(pa.int64()),
                "pending, replay: batch indexes of each entry still unacknowledged; letter: those with a letter; "
                "null = all",
            ),
            ("batch_size", pa.int32(), "pending, replay: messages in each entry of the range"),
            ("mark_delete_position", pa.int64(), "cursor: everything up to here is acknowledged; -1 = nothing"),
            (
                "read_position",
                pa.int64(),
                "cursor: first position never delivered; consumer: the first position behind everything that was "
                "handed out as it joined a KeyShared subscription, while it is one of those recently joined (classic "
                "implementation only), else null",
            ),
            (
                "subscription_type",
                pa.string(),
                "cursor: Exclusive, Failover, Shared or KeyShared while consumers are connected, else null",
            ),
            (
                "is_removed",
                pa.bool_(),
                "topic, promotion, cursor, page, consumer, policy, set_aside, waiting_letter: gone since this round",
            ),
            ("consumer_name", pa.string(), "consumer: its name"),
            ("client_id", pa.string(), "consumer: the client it belongs to"),
            ("priority_level", pa.int32(), "consumer: 0 is served first"),
            (
                "permits",
                pa.int64(),
                "consumer: messages it may still be sent; negative after a batch larger than its permits",
            ),
            (
                "is_active",
                pa.bool_(),
                "consumer: receives on an Exclusive or Failover subscription; null on the others",
            ),
            ("is_blocked", pa.bool_(), "consumer, cursor: held back by the limit of unacknowledged messages"),
            ("lease_time", TIME, "consumer: gone if nothing is heard of its client until then"),
            (
                "join_order",
                pa.int64(),
                "consumer: counts up over the subscription's life; waiting_letter: its number among those tried "
                "first behind one round",
            ),
            (
                "msg_out_counter",
                pa.int64(),
                "cursor, consumer: messages delivered; waiting_letter: how often it was tried; "
                "letterless: messages that were deleted or trimmed before their letter was written",
            ),
            (
                "msg_redeliver_counter",
                pa.int64(),
                "cursor, consumer: messages among them that had been delivered before",
            ),
            ("ledger_id", pa.int64(), "topic: the last version of its messages table that is numbered"),
            ("end_position", pa.int64(), "topic: the position the next entry of the partition gets"),
            (
                "request_id",
                pa.string(),
                "reply: the request it answers; letter: the request that asked for it, null for entries "
                "given back too often; set_aside: the request's id",
            ),
            (
                "error",
                pa.string(),
                "reply: name of the refusal; null = done; set_aside: name of the exception; waiting_letter: "
                "name of what kept it from being written",
            ),
            (
                "text",
                pa.string(),
                "reply: the refusal in words, or the result as JSON; set_aside: what the exception said; "
                "waiting_letter: what kept it, in words",
            ),
            (
                "round_time",
                TIME,
                "round: the machine's clock; cursor: when a consumer last came or left, or the cursor was "
                "created, by the broker's own clock (null in rows of older releases); set_aside: when it was; "
                "waiting_letter: since when it waits",
            ),
            (
                "requests_version",
                pa.int64(),
                "round: the last version of the requests table that is consumed; set_aside: the "
                "version that holds the request",
            ),
            ("epoch", pa.int64(), "round: counts the brokers that took the bundle"),
            ("broker_id", pa.string(), "round: the broker that committed it"),
            ("is_snapshot", pa.bool_(), "round: holds every latest row, so that readers may start here"),
            (
                "properties",
                PROPERTIES,
                "cursor, consumer, policy: settings as asked for; cursor: the Key_Shared policies that hold while its "
                "consumers are connected; page of a lane: size and start of the axis of its hashes; letter: the dead "
                "letter policy, or what the request says",
            ),
            (
                "lane",
                pa.string(),
                "page, range: the number of the lane, a set of sticky-key hashes, whose entries are meant; due = "
                "virtual positions are meant, the numbers of entries that came due; null = all entries",
                2,
            ),
            (
                "main_mark_delete_position",
                pa.int64(),
                "cursor with a due lane, or of a topic with chunks: everything up to here is acknowledged, or of the "
                "due lane, or a part of a chunked message; null = mark_delete_position",
                2,
            ),
            (
                "due_mark_delete",
                pa.int64(),
                "cursor with a due lane: up to this number all entries that came due are acknowledged",
                2,
            ),
            ("due_floor", pa.int64(), "cursor with a due lane: entries below this position are not of it", 2),
            (
                "due_since",
                TIME,
                "cursor with a due lane: entries due at or before this are not of it; promotion: the entries with the "
                "numbers first to last are due after this, and at due_time at the latest",
                2,
            ),
            ("entries", pa.int64(), "range: the entries it means, those of its lane; null = all, last - first + 1", 2),
            (
                "positions",
                pa.binary(),
                "range of the due lane, in the round that delivers it: the positions of its entries, in the order they "
                "came due, packed (protocol.delays); else null",
                2,
            ),
            (
                "chunks",
                pa.binary(),
                "range, in the round that delivers it: positions of the first and the last chunk of each chunked "
                "message whose last chunk is in it, one pair behind the other, by last, packed (protocol.delays); "
                "else null; cursor: where chunked messages begin that are not complete and count as acknowledged, as "
                "first and last position of stretches in which no other one begins, packed likewise; consumer: "
                "likewise those kept back from it",
                2,
            ),
            (
                "hash_ranges",
                HASH_RANGES,
                "consumer: what it owns on a KeyShared subscription, both ends inclusive, in order: hashes (31 bits) "
                "on the ring of consistent hashing, where several may share a range, else slots (hash modulo 65536; "
                "on the ring of 4.0 from 1 on, modulo 65535), modulus and remainder null; null where nobody has come "
                "or gone: those of its row before; page of a lane: the hashes "
                "of the lane, of which only those whose remainder by the modulus is the remainder",
                2,
            ),
            ("key_shared_mode", pa.string(), "cursor: AUTO_SPLIT or STICKY on a KeyShared subscription, else null", 2),
            (
                "allow_out_of_order_delivery",
                pa.bool_(),
                "cursor: a KeyShared subscription may deliver the entries of a key out of order; null = it may not",
                2,
            ),
        )
    ),
)

LEDGERS = TableSpec(
    "ledgers",
    "a run of entries of equal batch size in one file of a publish commit",
    tuple(
        Column(*c)
        for c in (
            ("topic", pa.string(), "full name of the topic, without a partition"),
            ("topic_id", pa.string(), "Delta's id of the topic's table"),
            ("partition", pa.int32(), "partition, -1 where the topic has none"),
            ("ledger_id", pa.int64(), "version of the publish commit in the topic's Delta log"),
            ("publish_id", pa.string(), "the commit's publish id"),
            (
                "first_entry_id",
                pa.int64(),
                "entry id of the run's first entry; of a note on foreign rows how many they are",
            ),
            (
                "first_position",
                pa.int64(),
                "its position: dense and in commit order within the partition; -1 in a note, which is no run: "
                "without a path it says that "
                "the commit removed or rewrote rows, with one that the file holds rows which are no publish",
            ),
            ("entries", pa.int64(), "entries in the run"),
            ("batch_size", pa.int32(), "messages in each entry of the run"),
            ("min_publish_time", TIME, "earliest publish time in the file"),
            ("max_publish_time", TIME, "latest publish time in the file"),
            ("bytes", pa.int64(), "size of the file; shared by the runs of one file"),
            ("has_delayed", pa.bool_(), "some entry of the file has a deliver-at time"),
            ("has_chunks", pa.bool_(), "some entry of the file is a chunk"),
            (
                "has_keys",
                pa.bool_(),
                "some entry of the file may have a key: false only where the log says that none has",
            ),
            ("path", pa.string(), "the file, relative to the topic's table; a hint, as OPTIMIZE may have replaced it"),
            (
                "delayed_after",
                pa.int64(),
                "entries with a deliver-at time behind this instant (microseconds since 1970) wait in the delay index, "
                "the others do not wait; null = none of them does, or numbered by an earlier release",
                2,
            ),
            (
                "chunks_from",
                pa.int64(),
                "to know what the chunks of the run make up, read those from this position on; null = it has none, or "
                "was numbered by an earlier release",
                2,
            ),
            (
                "has_encoded",
                pa.bool_(),
                "some payload of the file is compressed or encrypted; null = none, or numbered by an earlier release",
                2,
            ),
        )
    ),
)

REPROCESSING = TableSpec(
    "reprocessing",
    "a step of a job that sends dead letters back",
    tuple(
        Column(*c)
        for c in (
            (
                "kind",
                pa.string(),
                "job: what the job selected, once; claim: a letter the job is to send; chunk: a commit of messages "
                "is done; "
                "sent: a letter of it that was sent",
            ),
            ("job_id", pa.string(), "the job, by the name its user gave it"),
            ("topic", pa.string(), "full name of the dead letter topic"),
            ("topic_id", pa.string(), "Delta's id of the dead letter topic's table"),
            ("job_time", TIME, "when the step was recorded"),
            ("table_version", pa.int64(), "job: the version of the dead letter topic's table that the job reads"),
            ("text", pa.string(), "job: its settings and the letters it left, counted by cause, as JSON"),
            ("subscription", pa.string(), "claim, sent: subscription the letter died on"),
            ("destination", pa.string(), "claim, chunk, sent: full name of the topic the letter goes to"),
            ("chunk", pa.int64(), "claim, chunk, sent: number of the commit within job and destination"),
            (
                "number",
                pa.int64(),
                "claim, sent: number of the letter within job and destination; the sequence id of the message sent",
            ),
            ("message_id", pa.string(), "claim, sent: id of the letter, as printed"),
            ("partition", pa.int32(), "claim, sent: partition of the letter"),
            ("position", pa.int64(), "claim, sent: position of the letter"),
            ("cause", pa.string(), "claim, sent: why the letter was written"),
            ("replays", pa.int32(), "claim, sent: how often the message will have been sent back with this time"),
            ("publish_id", pa.string(), "chunk, sent: publish id of the commit"),
            ("letters", pa.int64(), "chunk: letters that were sent; the others the job's function dropped"),
        )
    ),
)

DELAY_INDEX = TableSpec(
    "delay_index",
    "an entry that waits for its deliver time, or a note on a bucket of them",
    tuple(
        Column(*c)
        for c in (
            ("bucket", pa.int64(), "number of the bucket; -1 in notes on topic partitions", 2),
            ("kind", pa.string(), "entry, segment or indexed", 2),
            ("topic_id", pa.string(), "Delta's id of the topic's table", 2),
            ("partition", pa.int32(), "partition, -1 where the topic has none", 2),
            ("due_time", TIME, "entry: its deliver time; segment: that of the partition's first entry in it", 2),
            ("last_due_time", TIME, "segment: the deliver time of the partition's last entry in it", 2),
            ("position", pa.int64(), "entry: its position; indexed: the first position of a stretch", 2),
            ("last_position", pa.int64(), "indexed: the last position of the stretch, inclusive", 2),
            (
                "sticky_key_hash",
                pa.int32(),
                "entry: the hash of its sticky key, that of the first message of a batch; null = it has no key",
                2,
            ),
            ("entries", pa.int64(), "segment: entries of the topic partition in it", 2),
            ("path", pa.string(), "segment: the file of the bucket, by its name in the bucket's folder", 2),
            ("segment", pa.int32(), "segment: the row group of the file", 2),
            (
                "since_bucket",
                pa.int64(),
                "indexed: buckets with a lower number no longer count for the topic partition; without a topic: the "
                "number of a bucket that the table has",
                2,
            ),
        )
    ),
)

TABLES = (MESSAGES, REQUESTS, CURSOR_LEDGER, LEDGERS, DELAY_INDEX, REPROCESSING)
BROKER_TABLES = (REQUESTS, CURSOR_LEDGER, LEDGERS)
