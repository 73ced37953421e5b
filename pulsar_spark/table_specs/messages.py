"""Tables of messages: a topic, its schemas, its compacted view, and jobs that send dead letters back."""

import pyarrow as pa

from pulsar_spark.table_specs.spec import ENCRYPTION_KEYS, PROPERTIES, TIME, table_spec

KEY_FLAGS = ("partition_key_b64_encoded", "ordering_key_b64_encoded")
MESSAGE_KEYS = ("partition_key", "ordering_key")
"""Columns with keys, in the order of :data:`KEY_FLAGS`."""
KEY_COLUMNS = (*MESSAGE_KEYS, *KEY_FLAGS)
"""Columns from which a missing sticky-key hash is computed."""
HASH = "sticky_key_hash"

MESSAGES = table_spec(
    "messages",
    "a message",
    (
        "publish_id",
        pa.string(),
        "UUIDv7 of the publish commit: constant in it, ordered by time; a retried publish keeps it",
    ),
    ("entry_id", pa.int64(), "(write task << 33) + a number that counts up by one within task and partition"),
    ("batch_index", pa.int32(), "place in the entry's batch; null outside a batch"),
    ("batch_size", pa.int32(), "messages in the entry: 1 outside a batch"),
    ("partition", pa.int32(), "partition of the topic; -1 where the topic has none"),
    ("partition_key", pa.string(), "key for routing, Key_Shared and compaction"),
    ("ordering_key", pa.string(), "key for Key_Shared, used instead of the partition key"),
    ("payload", pa.binary(), "the bytes; null is Pulsar's null value"),
    ("properties", PROPERTIES, "the application's own names and values"),
    ("event_time", TIME, "event time set by the application; null if there is none"),
    ("publish_time", TIME, "the producer's clock at publishing"),
    ("deliver_at_time", TIME, "delivered no earlier than this; null = at once"),
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
        "Murmur3 of the sticky key of the entry's first message, without the sign bit: 31 bits. The slot is the hash "
        "modulo 65536; selectors before 4.0 use the whole hash. null = the producer did not compute it, so readers do",
    ),
    ("partition_key_b64_encoded", pa.bool_(), "partition_key is base64 of bytes; null = it is text"),
    ("ordering_key_b64_encoded", pa.bool_(), "ordering_key is base64 of bytes; null = it is text"),
    ("compression", pa.string(), "LZ4, ZLIB, ZSTD or SNAPPY, of the whole message; null = not compressed"),
    ("uncompressed_size", pa.int64(), "bytes of the message before compression; null = not compressed"),
    ("encryption_keys", ENCRYPTION_KEYS, "the data key, encrypted for each reader; null = not encrypted"),
    ("encryption_algo", pa.string(), "algorithm that encrypted the data key, as the client names it"),
    ("encryption_param", pa.binary(), "initialization vector of the encrypted payload"),
)

DELIVERED = tuple(MESSAGES.schema.names[: MESSAGES.schema.names.index(HASH)])
"""Columns of a delivered message, unless others are named: those before the hash. Columns that releases add come after
it, so users who store deliveries in tables of their own keep the same columns."""

CHUNK_COLUMNS = ("uuid", "chunk_id", "num_chunks_from_msg", "total_chunk_msg_size")
"""Columns that mark a row as a chunk of a message."""

COMPACTED = table_spec(
    "compacted",
    "the latest message of a key, with its position and the columns of the topic's table",
    ("ledger_id", pa.int64(), "ledger of its message id: version of the publish commit"),
    ("position", pa.int64(), "position of its entry"),
    *MESSAGES.columns,
)

REPROCESSING = table_spec(
    "reprocessing",
    "a step of a job that sends dead letters back",
    (
        "kind",
        pa.string(),
        "job: what the job selected, once; claim: a letter the job is to send; chunk: a commit of messages is done; "
        "sent: a letter that was sent in such a commit",
    ),
    ("job_id", pa.string(), "the job, by the name its user gave it"),
    ("topic", pa.string(), "full name of the dead letter topic"),
    ("topic_id", pa.string(), "Delta's id of the dead letter topic's table"),
    ("job_time", TIME, "when the step was recorded"),
    ("table_version", pa.int64(), "job: the version of the dead letter topic's table that the job reads"),
    ("text", pa.string(), "job: its settings, and how many letters it does not send, by cause, as JSON"),
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
    ("replays", pa.int32(), "claim, sent: how often the message has been sent back, including this time"),
    ("publish_id", pa.string(), "chunk, sent: publish id of the commit"),
    ("letters", pa.int64(), "chunk: letters that were sent; the job's function dropped the others"),
)

SCHEMAS = table_spec(
    "schemas",
    "a version of a topic's schema",
    ("topic", pa.string(), "full name of the topic, without a partition"),
    ("topic_id", pa.string(), "Delta's id of the topic's table, so that a topic created again starts clean"),
    ("schema_version", pa.int32(), "number of the version: 0, 1, 2... of the topic, a removal included"),
    ("schema_type", pa.string(), "AVRO, JSON, STRING...; NONE in a removal"),
    ("name", pa.string(), "name of the schema"),
    ("schema", pa.string(), "the definition, as its client wrote it"),
    ("properties", PROPERTIES, "the application's own names and values"),
    ("create_time", TIME, "when it was added, by the clock of the writer"),
    (
        "is_removed",
        pa.bool_(),
        "a deletion: versions up to this one are kept for their messages, but new schemas need not fit them",
    ),
)
