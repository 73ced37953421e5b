"""Compaction by Spark: of random messages it keeps what the rule says, in files that do not overlap; and the view as a
frame."""

import random

import pytest

import pulsar_spark as pulsar
from pulsar_spark.admin import Admin
from pulsar_spark.broker.compaction import compaction_job, compaction_plan
from pulsar_spark.frames import read_messages
from pulsar_spark.protocol.policies.compaction import Keyed, survivors
from pulsar_spark.storage.compaction.compacted import CompactedView
from pulsar_spark.storage.layout import Layout
from pulsar_spark.storage.topics.topics import create_topic, read_topic

SEED = 1


@pytest.fixture
def root(tmp_path):
    create_topic(Layout(tmp_path / "root"), "t", 2)
    return tmp_path / "root"


def publish(client, messages: random.Random, count: int) -> None:
    producer = client.create_producer("t", batching_enabled=True, batching_max_messages=5)
    large = client.create_producer("t", chunking_enabled=True, chunk_max_message_size=300)
    for number in range(count):
        key = messages.choice([None, *(f"k{each}" for each in range(30))])
        payload = messages.choice([b"%d" % number, b"x" * 50, b"", None])
        producer.send_async(payload, None, **({} if key is None else {"partition_key": key}))
        if number % 70 == 9:
            producer.flush()
            large.send(b"y" * 1000, partition_key=f"large{number % 3}")
    producer.flush()


def stays(rows) -> dict[int, list[tuple[int, int]]]:
    """What the rule says of messages, by partition."""
    judged = {}
    for row in sorted(rows, key=lambda row: (row.partition, row.position, row.batch_index or 0)):
        keyed = Keyed(row.position, row.batch_index or 0, row.partition_key, len(row.payload or b""))
        judged.setdefault(row.partition, []).append(keyed)
    return {partition: survivors(messages) for partition, messages in judged.items()}


def test_random_messages(spark, root, monkeypatch):
    monkeypatch.setattr(compaction_plan, "SMALL_MESSAGES", 0)
    monkeypatch.setattr(compaction_job, "FILE_BYTES", 1_500)
    client, admin, messages = pulsar.Client(f"delta:{root}"), Admin(f"delta:{root}"), random.Random(SEED)
    for count in (300, 100):
        publish(client, messages, count)
        expected = stays(read_messages(spark, root, "t").collect())
        assert admin.compact("t", lambda: spark) == "SUCCESS"
        view = CompactedView(read_topic(Layout(root), "t").path)
        for partition, places in expected.items():
            rows = [row for block in view.rows_after(partition, 0) for row in block.to_pylist()]
            assert [(row["position"], row["batch_index"] or 0) for row in rows] == places
            assert all(row["uuid"] is None for row in rows)
        files = [(file.partition, file.first, file.last) for file in view._files]
        assert len(files) > 2
        for (partition, _, last), (other, first, _) in zip(files, files[1:]):
            assert partition != other or last < first
    client.close()


def test_the_view_as_a_frame(spark, root):
    client, admin = pulsar.Client(f"delta:{root}"), Admin(f"delta:{root}")
    producer = client.create_producer("t", compression_type=pulsar.CompressionType.ZLib)
    for key, value in (("a", b"1" * 99), ("b", b"1"), ("a", b"2" * 99), ("c", b"1"), ("c", None)):
        producer.send(value, partition_key=key)

    def shown():
        rows = read_messages(spark, root, "t", is_read_compacted=True).collect()
        assert all(row.payload_error is None for row in rows)
        return sorted((row.partition_key, bytes(row.payload or b"")) for row in rows)

    whole = read_messages(spark, root, "t")
    assert len(shown()) == whole.count() == 5, "what was never compacted is read as it is"
    admin.compact("t")
    assert shown() == [("a", b"2" * 99), ("b", b"1")]
    chunked = client.create_producer("t", chunking_enabled=True, chunk_max_message_size=100)
    chunked.send(b"3" * 250, partition_key="a")
    assert shown() == [("a", b"2" * 99), ("a", b"3" * 250), ("b", b"1")]
    assert read_messages(spark, root, "t", is_read_compacted=True).columns == whole.columns
    client.close()
