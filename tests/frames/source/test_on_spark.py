"""What Spark makes of the data source: found without a call, in SQL, in streams, after a crash, and with errors that a
person can read."""

import contextlib
import shutil

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException

import pulsar_spark as pulsar
from pulsar_spark.schema import AvroSchema
from pulsar_spark.storage.layout import Layout
from pulsar_spark.storage.topics.topics import create_topic, delete_topic
from tests.frames.source.reading import read_batch
from tests.frames.source.test_typed_values import Order
from tests.payloads.keys import key_pair

NAME = "pulsar_spark"


@pytest.fixture
def root(tmp_path):
    return str(tmp_path / "root")


def write(spark, root, query: str, topic: str = "t", **options) -> None:
    spark.sql(query).write.format(NAME).options(root=root, topic=topic, **options).mode("append").save()


def read(spark, root, **options):
    return spark.read.format(NAME).options(root=root, **options).load()


def payloads(rows: pa.Table) -> list[bytes]:
    return sorted(rows["payload"].to_pylist())


def first_line(failed) -> str:
    text = str(failed.value)
    assert "Traceback" not in text
    return text.splitlines()[0]


def test_what_is_written_is_read_in_sql(spark, root):
    write(spark, root, "SELECT 'hello' AS payload, 'k' AS key")
    spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW written USING {NAME} OPTIONS (root '{root}', topic 't')")
    (row,) = spark.sql("SELECT topic, position, partition_key, string(payload) AS text FROM written").collect()
    assert row.asDict() == {
        "topic": "persistent://public/default/t",
        "position": 0,
        "partition_key": "k",
        "text": "hello",
    }


@pytest.mark.long
def test_a_read_has_what_read_messages_has(spark, root):
    from pulsar_spark.frames import read_messages

    create_topic(Layout(root), "t", 3)
    write(
        spark, root, "SELECT string(id) AS payload, string(id % 7) AS key, map('a', 'b') AS properties FROM range(99)"
    )
    client = pulsar.Client(f"delta:{root}")
    producer = client.create_producer("t", chunking_enabled=True, chunk_max_message_size=10)
    producer.send(b"0123456789" * 5, deliver_after=None)
    client.shutdown()
    ours = read(spark, root, topic="t")
    theirs = read_messages(spark, root, "t")
    in_order = [*theirs.columns]
    assert {*ours.columns} == {*in_order, "topic"} and ours.count() == 100
    by = ("partition", "position")
    assert ours.select(in_order).orderBy(*by).collect() == theirs.orderBy(*by).collect()


@pytest.mark.long
def test_a_stream_of_a_topic_is_written_to_another_exactly_once(spark, root, tmp_path):
    def run() -> None:
        source = spark.readStream.format(NAME).options(root=root, topic="t", maxMessagesPerTrigger=4).load()
        sink = source.select("payload", "partition_key").writeStream.format(NAME).options(root=root, topic="copy")
        query = sink.option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(availableNow=True).start()
        query.awaitTermination()

    write(spark, root, "SELECT string(id) AS payload, string(id % 3) AS key FROM range(10)")
    run()
    write(spark, root, "SELECT 'later' AS payload")
    run()
    expected = payloads(read_batch(root, topic="t"))
    assert payloads(read_batch(root, topic="copy")) == expected and len(expected) == 11
    commits = sorted((tmp_path / "checkpoint" / "commits").glob("[0-9]*"), key=lambda path: int(path.name))
    commits[-1].unlink()  # as if the driver had ended between the sink's commit and the checkpoint's
    (tmp_path / "checkpoint" / "commits" / f".{commits[-1].name}.crc").unlink(missing_ok=True)
    run()
    assert payloads(read_batch(root, topic="copy")) == expected


@pytest.mark.long
def test_a_stream_that_stopped_goes_on_where_it_was(spark, root, tmp_path):
    def run():
        source = spark.readStream.format(NAME).options(root=root, topic="t").load()
        sink = source.writeStream.format("parquet").option("checkpointLocation", str(tmp_path / "checkpoint"))
        query = sink.trigger(availableNow=True).start(str(tmp_path / "out"))
        query.awaitTermination()
        return query

    write(spark, root, "SELECT string(id) AS payload FROM range(5)")
    run()
    write(spark, root, "SELECT 'later' AS payload")
    query = run()
    (place,) = query.lastProgress["sources"]
    assert '"partitions":{"-1":6}' in place["endOffset"].replace(" ", "") and place["numInputRows"] == 1
    assert spark.read.parquet(str(tmp_path / "out")).count() == 6
    delete_topic(Layout(root), "t")
    create_topic(Layout(root), "t")
    with pytest.raises(PySparkException) as failed:
        run()
    assert "TopicNotFound: topic 'persistent://public/default/t' was deleted and created again" in str(failed.value)


@pytest.mark.long
def test_errors_are_one_line_that_is_ours(spark, root):
    write(spark, root, "SELECT 'a' AS payload")
    with pytest.raises(PySparkException) as failed:
        read(spark, root, toopic="t")
    assert first_line(failed).endswith(
        "InvalidConfiguration: option 'toopic' is unknown; did you mean 'topic' or 'topics'?"
    )
    with pytest.raises(PySparkException) as failed:
        read(spark, root, topic="t", **{"service.url": "pulsar://localhost:6650"})
    assert "option 'service.url' belongs to another source: give root instead" in first_line(failed)
    with pytest.raises(PySparkException) as failed:
        read(spark, root, topic="nowhere").collect()
    assert "TopicNotFound: topic 'persistent://public/default/nowhere' does not exist" in first_line(failed)
    with pytest.raises(PySparkException) as failed:
        spark.read.format("pulsar").option("topic", "t").load()
    assert "format('pulsar') is not a source of pulsar_spark: write format('pulsar_spark')" in first_line(failed)
    with pytest.raises(PySparkException) as failed:
        write(spark, root, "SELECT 'a' AS payloads")
    assert "InvalidMessage: the frame has no column 'payload', only ['payloads']" in first_line(failed)
    with pytest.raises(PySparkException) as failed:
        spark.sql("SELECT 'a' AS payload").write.format(NAME).options(root=root, topic="t").mode("overwrite").save()
    assert "mode 'overwrite' would delete the messages of the topic" in first_line(failed)
    with pytest.raises(PySparkException, match='cannot be written in the "ErrorIfExists" mode.*"Append"'):
        spark.sql("SELECT 'a' AS payload").write.format(NAME).options(root=root, topic="t").save()
    with pytest.raises(PySparkException) as failed:
        write(spark, root, "SELECT 'abc' AS payload", maxMessageSize=2)
    assert "MessageTooBig: a payload has 3 bytes, above the maximum of 2" in str(failed.value)
    assert payloads(read_batch(root, topic="t")) == [b"a"]


@pytest.mark.long
def test_the_connector_s_columns_and_few_columns(spark, root):
    shutil.rmtree(root, ignore_errors=True)
    write(spark, root, "SELECT 'v' AS payload, 'k' AS key, map('a', 'b') AS properties")
    (row,) = read(spark, root, topic="t", columns="connector").collect()
    assert (row["value"], row["__key"], row["__messageProperties"]) == (b"v", b"k", {"a": "b"})
    few = spark.read.format(NAME).schema("position bigint, topic string").options(root=root, topic="t").load()
    assert few.collect() == [(0, "persistent://public/default/t")]


@pytest.mark.long
def test_typed_values_and_encryption_on_spark(spark, root, tmp_path):
    """Also through tasks of a stream; what a value may not be is the first line of the error."""
    with contextlib.closing(pulsar.Client(f"delta:{root}")) as client:
        producer = client.create_producer("t", schema=AvroSchema(Order))
        producer.send(Order(customer="a", items=1))
    paths = [tmp_path / name for name in ("public.pem", "private.pem")]
    for path, key in zip(paths, key_pair("k")):
        path.write_bytes(key)
    values = "SELECT struct('b' AS customer, int(id) AS items) AS value FROM range(2, 4)"
    write(spark, root, values, encryptionKey="k", publicKeyPath=str(paths[0]))
    options = {"topic": "t", "valueSchema": "topic", "privateKeyPath": str(paths[1])}
    rows = read(spark, root, **options).select("value.*", "value_error").orderBy("items").collect()
    assert [tuple(row) for row in rows] == [("a", 1, None), ("b", 2, None), ("b", 3, None)]
    stream = spark.readStream.format(NAME).options(root=root, **options).load().select("value", "partition_key")
    sink = stream.writeStream.format(NAME).options(root=root, topic="copy", checkpointLocation=str(tmp_path / "c"))
    with contextlib.closing(pulsar.Client(f"delta:{root}")) as client:
        client.create_producer("copy", schema=AvroSchema(Order)).close()
    sink.trigger(availableNow=True).start().awaitTermination()
    assert read(spark, root, topic="copy", valueSchema="topic").select("value.items").count() == 3
    with pytest.raises(PySparkException) as failed:
        write(spark, root, "SELECT struct('b' AS customer, 1.5D AS items) AS value")
    assert "InvalidMessage: field 'items' of column 'value' is a double" in first_line(failed)
    with pytest.raises(PySparkException) as failed:
        write(spark, root, "SELECT struct(string(null) AS customer, 1 AS items) AS value")
    assert "InvalidMessage: " in str(failed.value) and "null, which the schema does not allow" in str(failed.value)
