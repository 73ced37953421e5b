"""Rows that a topic has already are not published again: by Spark; what is not Spark's is in test_append_new."""

import pytest

import pulsar_spark as pulsar
from pulsar_spark.frames import publish, publish_stream
from pulsar_spark.protocol.policies.policies import DEDUPLICATION
from tests.support.requests import On
from tests.support.spark_engine import new_engine

TOPIC = "persistent://public/default/t"
ON = On(TOPIC)
COLUMNS = "producer_name string, sequence_id long, payload string"


@pytest.fixture
def root(tmp_path):
    """A root on which the messages of a topic are deduplicated."""
    engine = new_engine(None, tmp_path / "root")
    engine.create_topic(TOPIC)
    engine.round([ON.policy(DEDUPLICATION, 1)], 0)
    return engine.layout.root


def stored(root, topic=TOPIC) -> list[str]:
    client = pulsar.Client(f"delta:{root}")
    reader, found = client.create_reader(topic, pulsar.MessageId.earliest), []
    while reader.has_message_available():
        found.append(reader.read_next(60_000).data().decode())
    client.close()
    return found


def rows(spark, name: str, *sequence_ids: int, tasks: int = 1):
    frame = spark.createDataFrame([(name, each, f"{name}{each}") for each in sequence_ids], COLUMNS)
    return frame.coalesce(1) if tasks == 1 else frame.repartition(tasks)


def test_what_is_stored_and_what_is_there_twice_is_left_out(spark, root):
    assert publish(rows(spark, "p", 1, 2, 2, 5, 4), root, TOPIC)[1:] == (1, 4)
    assert publish(rows(spark, "p", 2, 5, 6, 7), root, TOPIC)[1:] == (2, 2)
    assert publish(rows(spark, "p", *range(8), tasks=2), root, TOPIC)[1:] == (None, 0)
    assert publish(rows(spark, "q", 1), root, TOPIC)[1:] == (3, 1)
    assert stored(root) == ["p1", "p2", "p5", "p4", "p6", "p7", "q1"]


def test_chunked_messages_are_left_out_whole(spark, root):
    options = dict(chunking=True, chunk_max_message_size=2)
    assert publish(rows(spark, "pp", 10, 11, 11), root, TOPIC, **options)[2] == 2
    assert publish(rows(spark, "pp", 11, 12), root, TOPIC, **options)[2] == 1
    assert stored(root) == ["pp10", "pp11", "pp12"]


def test_a_stream_that_begins_again_with_a_new_checkpoint(spark, root, tmp_path):
    source = tmp_path / "source"
    rows(spark, "p", 1, 2).write.json(str(source))
    for number in range(2):
        stream = spark.readStream.schema(COLUMNS).json(str(source))
        writer = publish_stream(stream, root, TOPIC).option("checkpointLocation", str(tmp_path / f"c{number}"))
        writer.trigger(availableNow=True).start().awaitTermination()
        rows(spark, "p", 2, 3).write.mode("append").json(str(source))
    assert sorted(stored(root)) == ["p1", "p2", "p3"]


def test_who_does_not_want_it_and_who_says_no_sequence_ids(spark, root):
    for _ in range(2):
        publish(rows(spark, "p", 1), root, TOPIC, deduplicate=False)
        publish(rows(spark, "q", 1).drop("sequence_id"), root, TOPIC)
        publish(rows(spark, "r", 1).drop("producer_name"), root, TOPIC)
    assert len(stored(root)) == 6
