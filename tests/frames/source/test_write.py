"""A write that publishes other rows than ``publish`` does, or publishes them twice, or leaves files, is found here."""

import pickle
from datetime import datetime, timedelta, timezone
from unittest.mock import patch

import pyarrow as pa
import pytest
from pyspark.sql.pandas.types import from_arrow_schema

import pulsar_spark as pulsar
from pulsar_spark.errors import InvalidConfiguration, InvalidMessage, MessageTooBig, TopicNotFound
from pulsar_spark.frames.source.writing import topic_writers
from pulsar_spark.protocol.topics.routing import HashingScheme, partition_for_key
from pulsar_spark.storage.delta.staged_files import staging_folder
from pulsar_spark.storage.delta.tables import is_committed
from pulsar_spark.storage.layout import Layout
from pulsar_spark.storage.topics.topics import create_topic, read_topic
from tests.frames.source.reading import read_batch, source
from tests.payloads.keys import key_pair

SOME = pa.table({"payload": ["a", "b", None], "key": ["k1", "k2", None]})


def again(value):
    return pickle.loads(pickle.dumps(value))


class Task:
    """The context of a task of the query "query" in micro-batch 0."""

    def __init__(self, number: int):
        self._number = number

    def partitionId(self) -> int:  # noqa: N802
        return self._number

    def getLocalProperty(self, name: str) -> str | None:  # noqa: N802
        return {"sql.streaming.queryId": "query", "streaming.sql.batchId": "0"}.get(name)


def in_task(number: int):
    return patch.object(topic_writers.TaskContext, "get", lambda: Task(number))


class Write:
    """A batch write, step by step; each table is a task's rows."""

    def __init__(self, root, *tables: pa.Table, overwrite=False, **options):
        self.writer = again(source(root, **options).writer(from_arrow_schema(tables[0].schema), overwrite))
        self.messages = []
        for number, table in enumerate(tables):
            with in_task(number):
                self.messages.append(again(again(self.writer).write(iter(table.to_batches()))))

    def commit(self) -> None:
        again(self.writer).commit(self.messages)

    def abort(self) -> None:
        again(self.writer).abort([None, *self.messages])


def write(root, *tables: pa.Table, **options) -> None:
    Write(root, *tables, **options).commit()


def rows(root, topic="t") -> list[dict]:
    return read_batch(root, topic=topic).to_pylist()


def staged(root) -> list:
    folder = staging_folder(read_topic(Layout(root), "t").path)
    return list(folder.rglob("*.parquet")) if folder.exists() else []


def test_what_is_written_is_read(root):
    now = datetime(2026, 1, 31, 12, tzinfo=timezone.utc)
    given = {
        "payload": pa.array([b"a", None]),
        "partition_key": ["k", None],
        "ordering_key": pa.array([b"\x00\xff", None], pa.binary()),
        "properties": pa.array([[("x", "y")], None], pa.map_(pa.string(), pa.string())),
        "event_time": pa.array([now, None], pa.timestamp("us", tz="UTC")),
        "deliver_at": pa.array([1_800_000_000_000, None], pa.int64()),
        "sequence_id": pa.array([5, None], pa.int32()),
    }
    write(root, pa.table(given), topic="t", producerName="p")
    first, second = rows(root)
    assert (first["payload"], first["partition_key"], first["ordering_key"]) == (b"a", "k", "AP8=")
    assert (first["ordering_key_b64_encoded"], first["properties"]) == (True, [("x", "y")])
    assert (first["event_time"], first["sequence_id"], first["producer_name"]) == (now, 5, "p")
    assert first["deliver_at_time"] == datetime.fromtimestamp(1_800_000_000, timezone.utc)
    assert second["payload"] is second["partition_key"] is second["properties"] is second["ordering_key"] is None
    assert [first["entry_id"], second["entry_id"]] == [0, 1] and first["publish_id"] == second["publish_id"]
    assert (first["batch_size"], first["batch_index"], first["schema_version"]) == (1, None, None)
    assert staged(root) == []


def test_a_task_that_writes_nothing_and_no_task_publish_nothing(root):
    write(root, SOME.slice(0, 0), topic="t")
    assert rows(root) == []
    write(root, SOME.slice(0, 0), SOME, topic="t")
    assert len(rows(root)) == 3


def test_keys_go_where_the_client_sends_them(root):
    create_topic(Layout(root), "t", 5)
    keys = [f"key{number}" for number in range(50)]
    others = pa.table({"payload": ["x"] * 9, "key": pa.array([None] * 9, pa.string())})
    write(root, pa.table({"payload": keys, "key": keys}), others, topic="t")
    found = rows(root)
    of_keys = {row["partition_key"]: row["partition"] for row in found if row["partition_key"]}
    assert of_keys == {key: partition_for_key(key, 5, HashingScheme.JavaStringHash) for key in keys}
    without = [row["partition"] for row in found if not row["partition_key"]]
    assert len(without) == 9 and set(without) == {*range(5)}
    write(root, pa.table({"payload": ["to 3"]}), topic="t-partition-3")
    assert [row["partition"] for row in rows(root) if row["payload"] == b"to 3"] == [3]
    write(root, pa.table({"payload": ["to 2"], "partition": pa.array([2], pa.int32())}), topic="t")
    assert [row["partition"] for row in rows(root) if row["payload"] == b"to 2"] == [2]


def test_a_consumer_gets_what_was_written(root):
    write(root, SOME, topic="t")
    client = pulsar.Client(f"delta:{root}", operation_timeout_seconds=1)
    reader = client.create_reader("t", pulsar.MessageId.earliest)
    assert [reader.read_next(1000).data() for _ in range(3)] == [b"a", b"b", b""]
    client.shutdown()


def test_compressed_payloads_are_read(root):
    write(root, pa.table({"payload": ["a" * 5000, None]}), topic="t", compression="ZSTD")
    assert [row["payload"] for row in rows(root)] == [b"a" * 5000, None]


def test_encrypted_payloads_are_read_with_the_private_key(root, tmp_path):
    paths = [tmp_path / name for name in ("public.pem", "private.pem")]
    for path, key in zip(paths, key_pair("k")):
        path.write_bytes(key)
    write(root, SOME, topic="t", encryptionKey="k", publicKeyPath=paths[0])
    found = read_batch(root, topic="t", privateKeyPath=paths[1])
    assert found["payload"].to_pylist() == [b"a", b"b", None] and found["payload_error"].null_count == 3
    stored = read_batch(root, topic="t", cryptoFailureAction="CONSUME")["payload"].to_pylist()
    assert stored[0] != b"a" and stored[2] is None
    with pytest.raises(InvalidConfiguration):
        write(root, SOME, topic="t", encryptionKey="k")


def test_columns_become_properties(root):
    write(root, SOME.append_column("kind", pa.array(["x", None, "y"])), topic="t", propertiesFrom="kind")
    assert [row["properties"] for row in rows(root)] == [[("kind", "x")], [], [("kind", "y")]]
    with pytest.raises(InvalidMessage, match="column 'number' is a bigint: cast it to string"):
        write(root, SOME.append_column("number", pa.array([1, 2, 3])), topic="t", propertiesFrom="number")


def test_an_interval_counts_from_now(root):
    before = datetime.now(timezone.utc)
    table = pa.table({"payload": ["a"], "deliver_after": pa.array([timedelta(hours=1)], pa.duration("us"))})
    write(root, table, topic="t")
    assert before + timedelta(minutes=59) < rows(root)[0]["deliver_at_time"] < before + timedelta(minutes=62)


def test_a_transaction_is_written_once(root):
    for _ in range(2):
        write(root, SOME, topic="t", appId="job", appVersion=7)
    write(root, SOME, topic="t", appId="job", appVersion=8)
    assert len(rows(root)) == 6 and staged(root) == []
    with pytest.raises(InvalidConfiguration, match="options appId and appVersion together identify a transaction"):
        write(root, SOME, topic="t", appId="job")


def test_tasks_in_other_folders_write_to_the_same_root(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    writer = again(source("relative", topic="t").writer(from_arrow_schema(SOME.schema), False))
    (tmp_path / "other").mkdir()
    monkeypatch.chdir(tmp_path / "other")
    with in_task(0):
        writer.commit([writer.write(iter(SOME.to_batches()))])
    assert len(rows(tmp_path / "relative")) == 3


def test_what_is_aborted_leaves_nothing(root):
    aborted = Write(root, SOME, SOME, topic="t")
    assert len(staged(root)) == 2
    aborted.abort()
    assert rows(root) == [] and staged(root) == []


def test_a_stream_is_the_transaction_of_its_query(root):
    schema = from_arrow_schema(SOME.schema)
    with in_task(0):
        written = [source(root, topic="t").streamWriter(schema, False).write(iter(SOME.to_batches()))]
    source(root, topic="t").streamWriter(schema, False).commit(written, 0)
    assert is_committed(read_topic(Layout(root), "t").path, "query", 0)
    unnamed = [source(root, topic="t").streamWriter(schema, False).write(iter(SOME.to_batches()))]
    with pytest.raises(InvalidConfiguration, match="do not know the id of its query: give an appId"):
        source(root, topic="t").streamWriter(schema, False).commit(unnamed, 1)


def test_each_micro_batch_is_written_once(root):
    made = source(root, topic="t")
    schema = from_arrow_schema(SOME.schema)

    def micro_batch(batch_id: int) -> None:
        with in_task(0):
            written = [again(made.streamWriter(schema, False)).write(iter(SOME.to_batches()))]
        again(made.streamWriter(schema, False)).commit(again(written), batch_id)

    for batch_id in (0, 0, 1, 1):
        micro_batch(batch_id)
    found = rows(root)
    assert len(found) == 6 and len({row["publish_id"] for row in found}) == 2 and staged(root) == []
    with in_task(0):
        written = [made.streamWriter(schema, False).write(iter(SOME.to_batches()))]
    assert len(staged(root)) == 1
    made.streamWriter(schema, False).abort([None, *written], 2)
    assert staged(root) == [] and len(rows(root)) == 6


def test_a_micro_batch_is_written_to_one_partition(root):
    create_topic(Layout(root), "t", 2)
    made, schema = source(root, topic="t-partition-1"), from_arrow_schema(SOME.schema)
    with in_task(0):
        written = [made.streamWriter(schema, False).write(iter(SOME.to_batches()))]
    made.streamWriter(schema, False).commit(written, 0)
    assert [row["partition"] for row in rows(root)] == [1, 1, 1]


@pytest.mark.parametrize(
    "table, options, error, text",
    [
        ({"value": ["a"]}, {}, InvalidMessage, "topic 't' has no schema by which to encode column 'value'"),
        ({"payload": ["a"], "keys": ["k"]}, {}, InvalidMessage, "columns \\['keys'\\] are not columns of a message"),
        ({"payload": [1]}, {}, InvalidMessage, "column 'payload' is a bigint, not bytes or text"),
        ({"payload": ["a"], "key": [1]}, {}, InvalidMessage, "column 'key' is a bigint: cast it to string"),
        ({"payload": ["abc"]}, {"maxMessageSize": 2}, MessageTooBig, "a payload has 3 bytes, above the maximum of 2"),
        ({"payload": ["a"], "partition": [4]}, {}, InvalidMessage, "partition 4 does not exist"),
        ({"payload": ["a"]}, {"overwrite": True}, InvalidConfiguration, "mode 'overwrite' would delete the messages"),
        ({"payload": ["a"]}, {"startingPosition": "1"}, InvalidConfiguration, "does not belong to a batch write"),
        ({"payload": ["a"]}, {"create": "false"}, TopicNotFound, "'persistent://public/default/t' does not exist"),
        ({"payload": ["a"]}, {"hashingScheme": "Md5"}, InvalidConfiguration, "hashing scheme 'Md5' is unknown"),
        ({"payload": ["a"]}, {"compression": "GZIP"}, InvalidConfiguration, "GZIP"),
    ],
)
def test_a_wrong_write_is_named_and_publishes_nothing(root, table, options, error, text):
    Layout(root)
    if "create" in options:
        create_topic(Layout(root), "other")
    with pytest.raises(error, match=text):
        write(root, pa.table(table), topic="t", **options)
