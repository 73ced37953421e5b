"""The tables that locate topics' entries, and index those that wait for their deliver time."""

import pyarrow as pa

from pulsar_spark.table_specs.spec import TIME, table_spec

LEDGERS = table_spec(
    "ledgers",
    "a run of consecutive entries with the same batch size in one file of a publish commit",
    ("topic", pa.string(), "full name of the topic, without a partition"),
    ("topic_id", pa.string(), "Delta's id of the topic's table"),
    ("partition", pa.int32(), "partition, -1 where the topic has none"),
    ("ledger_id", pa.int64(), "version of the publish commit in the topic's Delta log"),
    ("publish_id", pa.string(), "the commit's publish id"),
    ("first_entry_id", pa.int64(), "entry id of the run's first entry; in a note on foreign rows their number"),
    (
        "first_position",
        pa.int64(),
        "position of the run's first entry: positions follow the order of commits in the partition, without gaps. -1 = "
        "the row is no run but a note: without a path, the commit removed or rewrote rows; with a path, the file has "
        "rows that are not valid messages",
    ),
    ("entries", pa.int64(), "entries in the run"),
    ("batch_size", pa.int32(), "messages in each entry of the run"),
    ("min_publish_time", TIME, "earliest publish time in the file"),
    ("max_publish_time", TIME, "latest publish time in the file"),
    ("bytes", pa.int64(), "size of the file; shared by the runs of one file"),
    ("has_delayed", pa.bool_(), "some entry of the file has a deliver-at time"),
    ("has_chunks", pa.bool_(), "some entry of the file is a chunk"),
    ("has_keys", pa.bool_(), "some entry of the file may have a key; false only if the log says that none has"),
    ("path", pa.string(), "the file, relative to the topic's table; a hint, because OPTIMIZE may have replaced it"),
    (
        "delayed_after",
        pa.int64(),
        "entries with a deliver time after this instant (microseconds since 1970) wait in the delay index, the others "
        "do not; null = none waits",
    ),
    (
        "chunks_from",
        pa.int64(),
        "the position from which to read chunks to put those of the run together; null = it has none, or an earlier "
        "release numbered it",
    ),
    (
        "has_encoded",
        pa.bool_(),
        "some payload of the file is compressed or encrypted; null = none, or an earlier release numbered it",
    ),
)

DELAY_INDEX = table_spec(
    "delay_index",
    "an entry that waits for its deliver time, or a note on a bucket of them",
    ("bucket", pa.int64(), "number of the bucket; -1 in notes on topic partitions"),
    ("kind", pa.string(), "entry, segment or indexed"),
    ("topic_id", pa.string(), "Delta's id of the topic's table"),
    ("partition", pa.int32(), "partition, -1 where the topic has none"),
    ("due_time", TIME, "entry: its deliver time; segment: that of the partition's first entry in it"),
    ("last_due_time", TIME, "segment: the deliver time of the partition's last entry in it"),
    ("position", pa.int64(), "entry: its position; indexed: the first position of a range"),
    ("last_position", pa.int64(), "indexed: the last position of the range, inclusive"),
    (
        "sticky_key_hash",
        pa.int32(),
        "entry: the hash of its sticky key, that of the first message of a batch; null = it has no key",
    ),
    ("entries", pa.int64(), "segment: entries of the topic partition in it"),
    ("path", pa.string(), "segment: the file of the bucket, by its name in the bucket's folder"),
    ("segment", pa.int32(), "segment: the row group of the file"),
    (
        "since_bucket",
        pa.int64(),
        "indexed: buckets with a lower number no longer count for the topic partition; without a topic: the number of "
        "a bucket that the table has",
    ),
)
