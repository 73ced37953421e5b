"""A program as people write it for ``format("kafka")`` that does something else here once its options have our names,
or whose option without an equivalent is not answered by name, is found here."""

import json
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import NamedTuple

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming import StreamingQuery

import pulsar_spark as pulsar
from pulsar_spark.frames.source.data_source import NAME
from pulsar_spark.protocol.delays.instants import EPOCH
from pulsar_spark.storage.topics.topics import create_topic
from pulsar_spark.testing.plain_broker import PlainBroker
from tests.frames.source.reading import read_batch

ORDERS = 12
"""Messages of the topic ``orders``, four in each of its three partitions."""


class World(NamedTuple):
    spark: SparkSession
    root: str
    broker: PlainBroker
    folder: Path

    def read(self, **options: object) -> DataFrame:
        return self.spark.read.format(NAME).options(**self._texts(options)).load()

    def stream(self, **options: object) -> DataFrame:
        return self.spark.readStream.format(NAME).options(**self._texts(options)).load()

    def write(self, frame: DataFrame, **options: object) -> None:
        frame.write.format(NAME).options(**self._texts(options)).mode("append").save()

    def _texts(self, options: dict) -> dict[str, str]:
        return {"root": self.root, **{name: str(value) for name, value in options.items()}}

    def run(self, frame: DataFrame, **trigger) -> list[list]:
        """The rows of each micro-batch that a stream has with that trigger, which ends."""
        found: list[list] = []
        self.start(frame, lambda batch, _: found.append(batch.collect()), **(trigger or {"availableNow": True}))
        return [rows for rows in found if rows]

    def start(self, frame: DataFrame, function: Callable, **trigger) -> StreamingQuery:
        writer = frame.writeStream.foreachBatch(function).option("checkpointLocation", str(self.folder / "checkpoint"))
        query = writer.trigger(**trigger).start()
        if "processingTime" not in trigger:
            query.awaitTermination()
        return query

    def payloads(self, topic: str) -> list[str]:
        return sorted(each.decode() for each in read_batch(self.root, topic=topic)["payload"].to_pylist())


def texts(rows: list) -> list[str]:
    return sorted(bytes(row["payload"]).decode() for row in rows)


def numbers(*found: int) -> list[str]:
    return sorted(f"order {number}" for number in found)


def refusal(call: Callable, *arguments, **given) -> str:
    with pytest.raises(PySparkException) as failed:
        call(*arguments, **given)
    text = str(failed.value)
    assert "Traceback" not in text
    return text


def subscribe_and_cast(world: World) -> None:
    """subscribe=orders, CAST(key AS STRING), CAST(value AS STRING)"""
    frame = world.read(topic="orders", columns="connector").selectExpr(
        "CAST(__key AS STRING) AS key", "CAST(value AS STRING)"
    )
    assert sorted(map(tuple, frame.collect())) == sorted((f"key-{n % 4}", f"order {n}") for n in range(ORDERS))


def columns_of_a_record(world: World) -> None:
    """topic, partition, offset, timestamp"""
    rows = world.read(topic="orders").select("topic", "partition", "position", "publish_time").collect()
    assert {row.topic for row in rows} == {"persistent://public/default/orders"}
    assert sorted((row.partition, row.position) for row in rows) == [(at, n) for at in range(3) for n in range(4)]
    assert all(row.publish_time is not None for row in rows)


def subscribe_to_two(world: World) -> None:
    """subscribe=orders,returns"""
    assert world.read(topics="orders,returns").groupBy("topic").count().count() == 2


def subscribe_by_pattern(world: World) -> None:
    """subscribePattern=ret.*"""
    assert texts(world.read(topicsPattern="ret.*").collect()) == ["return 0", "return 1"]


def assign(world: World) -> None:
    """assign={"orders": [0, 2]}"""
    rows = world.read(topics="orders-partition-0,orders-partition-2").collect()
    assert {row.partition for row in rows} == {0, 2} and len(rows) == 8
    assert "give topic or topics, and startingPosition instead" in refusal(world.read, assign='{"orders": [0, 2]}')


def offsets_as_json(world: World) -> None:
    """startingOffsets={"orders": {"0": 1, ...}}, endingOffsets={"orders": {"0": 3, ...}}"""
    starting = json.dumps({"orders": {"0": 1, "1": "latest", "2": "earliest"}})
    ending = json.dumps({"orders": {"0": 3, "1": "latest", "2": "latest"}})
    rows = world.read(topic="orders", startingPosition=starting, endingPosition=ending).collect()
    assert sorted((row.partition, row.position) for row in rows) == [(0, 1), (0, 2), (2, 0), (2, 1), (2, 2), (2, 3)]
    special = json.dumps({"orders": {"0": -2, "1": -1}})  # Kafka's earliest and latest
    assert "give 'earliest', 'latest', a position" in refusal(
        world.read(topic="orders", startingPosition=special).collect
    )


def starting_timestamp(world: World) -> None:
    """startingTimestamp=..., endingTimestamp=..., startingOffsetsByTimestamp={...}: times as text"""
    first, *_, last = sorted(row.publish_time for row in world.read(topic="returns").collect())
    between = {"startingPosition": first.isoformat(), "endingPosition": last.isoformat()}
    assert texts(world.read(topic="returns", **between).collect()) == ["return 0"]
    by_partition = json.dumps({"returns": {"-1": last.isoformat()}})
    assert texts(world.read(topic="returns", startingPosition=by_partition).collect()) == ["return 1"]
    millis = (last.astimezone(EPOCH.tzinfo) - EPOCH) // timedelta(milliseconds=1)
    text = refusal(world.read(topic="returns", startingPosition=millis).collect)
    assert f"option 'startingPosition' is {millis}, more than any position" in text


def a_batch_from_earliest_to_latest(world: World) -> None:
    """startingOffsets=earliest, endingOffsets=latest, which a stream does not have"""
    assert world.read(topic="orders", startingPosition="earliest", endingPosition="latest").count() == ORDERS
    frame = world.stream(topic="orders", endingPosition="latest")
    assert "option 'endingPosition' does not belong to a stream" in refusal(world.run, frame)


def max_offsets_per_trigger(world: World) -> None:
    """maxOffsetsPerTrigger=5, with availableNow"""
    batches = world.run(world.stream(topic="orders", maxMessagesPerTrigger=5))
    assert [len(rows) for rows in batches] == [5, 5, 2]


def min_partitions(world: World) -> None:
    """minPartitions=10"""
    assert "give repartition() after the read instead" in refusal(world.read, topic="orders", minPartitions=10)
    spread = world.read(topic="orders").repartition(10)
    assert spread.select(F.spark_partition_id()).distinct().count() > 1 and spread.count() == ORDERS


def fail_on_data_loss(world: World) -> None:
    """failOnDataLoss=false"""
    frame = world.stream(topic="orders", failOnDataLoss="false")
    assert "option 'failOnDataLoss' does not belong to a stream without a subscription" in refusal(world.run, frame)
    rows = world.run(world.stream(topic="orders", subscription="tolerant", failOnDataLoss="false"))
    assert sum(map(len, rows)) == ORDERS


def headers(world: World) -> None:
    """includeHeaders=true, and headers in a column of a write"""
    assert "the column properties is always there" in refusal(world.read, topic="orders", includeHeaders="true")
    written = world.spark.sql("SELECT 'a' AS payload, map('trace', '17') AS properties")
    world.write(written, topic="with-headers")
    assert world.read(topic="with-headers").select("properties.trace").first()[0] == "17"


def values_in_json(world: World) -> None:
    """from_json(CAST(value AS STRING), schema)"""
    world.write(world.spark.sql("SELECT to_json(struct(id, id * 2 AS amount)) AS payload FROM range(3)"), topic="json")
    parsed = world.read(topic="json").select(F.from_json(F.expr("string(payload)"), "id INT, amount INT").alias("v"))
    assert sorted(map(tuple, parsed.select("v.*").collect())) == [(0, 0), (1, 2), (2, 4)]


def settings_of_a_cluster(world: World) -> None:
    """kafka.bootstrap.servers, kafka.security.protocol, kafka.group.id"""
    for option, answer in {
        "kafka.bootstrap.servers": "give root instead",
        "kafka.security.protocol": "there is no connection to a cluster",
        "kafka.group.id": "give subscription instead",
        "subscribe": "give topic or topics instead",
        "startingOffsets": "give startingPosition instead",
    }.items():
        assert answer in refusal(world.read, topic="orders", **{option: "x"})


def write_keys_and_values(world: World) -> None:
    """df.selectExpr("CAST(id AS STRING) AS key", "... AS value").write, option topic"""
    frame = world.spark.range(3).selectExpr("CAST(id AS STRING) AS key", "concat('v', id) AS value")
    assert "column 'value'" in refusal(world.write, frame, topic="written")
    world.write(frame.withColumnRenamed("value", "payload"), topic="written")
    rows = world.read(topic="written").selectExpr("partition_key", "string(payload)").collect()
    assert sorted(map(tuple, rows)) == [("0", "v0"), ("1", "v1"), ("2", "v2")]


def write_with_a_topic_column(world: World) -> None:
    """a column topic instead of the option: a write for each topic"""
    frame = world.spark.sql("SELECT concat('to-', id % 2) AS topic, string(id) AS payload FROM range(4)")
    assert "columns ['topic'] are not columns of a message" in refusal(world.write, frame, topic="to-0")
    for (topic,) in frame.select("topic").distinct().collect():
        world.write(frame.where(F.col("topic") == topic).drop("topic"), topic=topic)
    assert [world.payloads("to-0"), world.payloads("to-1")] == [["0", "2"], ["1", "3"]]


def write_a_stream(world: World) -> None:
    """readStream from one topic, writeStream to another, with a checkpoint"""
    frame = world.stream(topic="orders").selectExpr("partition_key AS key", "upper(string(payload)) AS payload")
    writer = frame.writeStream.format(NAME).options(root=world.root, topic="upper")
    query = writer.option("checkpointLocation", str(world.folder / "c")).trigger(availableNow=True).start()
    query.awaitTermination()
    assert world.payloads("upper") == [text.upper() for text in numbers(*range(ORDERS))]


def for_each_batch_into_two_sinks(world: World) -> None:
    """foreachBatch: persist, write twice, unpersist"""
    paths = [str(world.folder / name) for name in ("all", "even")]

    def write(batch: DataFrame, _batch_id: int) -> None:
        batch.persist()
        rows = batch.selectExpr("string(payload) AS text", "position")
        rows.write.mode("append").parquet(paths[0])
        rows.where("position % 2 = 0").write.mode("append").parquet(paths[1])
        batch.unpersist()

    world.start(world.stream(topic="orders", subscription="sinks"), write, availableNow=True)
    assert [world.spark.read.parquet(path).count() for path in paths] == [ORDERS, ORDERS // 2]
    assert not any(world.broker.cursor("orders", "sinks", at).unacked for at in range(3))


def counts_in_windows(world: World) -> None:
    """withWatermark("timestamp", ...), window, count"""
    stream = world.stream(topic="orders").withWatermark("publish_time", "10 minutes")
    counts = stream.groupBy(F.window("publish_time", "1 day"), "partition_key").count()
    query = counts.writeStream.format("memory").queryName("habits").outputMode("complete").trigger(availableNow=True)
    query.start().awaitTermination()
    assert world.spark.table("habits").agg(F.sum("count")).first()[0] == ORDERS


def once_and_again(world: World) -> None:
    """trigger(once=True), stopped and started again with the same checkpoint"""
    world.write(world.spark.sql("SELECT 'a' AS payload"), topic="again")
    assert [texts(rows) for rows in world.run(world.stream(topic="again"), once=True)] == [["a"]]
    assert world.run(world.stream(topic="again"), once=True) == []
    world.write(world.spark.sql("SELECT 'b' AS payload"), topic="again")
    other = world.stream(topic="again", startingPosition="latest")  # counts for a new checkpoint only
    assert [texts(rows) for rows in world.run(other, once=True)] == [["b"]]


def a_stream_that_runs(world: World) -> None:
    """trigger(processingTime=...), awaitTermination(timeout), stop; trigger(continuous=...) is refused"""
    world.write(world.spark.sql("SELECT 'a' AS payload"), topic="running")
    found: list[str] = []
    frame = world.stream(topic="running", subscription="s")
    query = world.start(frame, lambda batch, _: found.extend(texts(batch.collect())), processingTime="0 seconds")
    query.processAllAvailable()
    world.write(world.spark.sql("SELECT 'b' AS payload"), topic="running")
    while found != ["a", "b"]:
        assert not query.awaitTermination(1)
    assert query.lastProgress["sources"][0]["description"]
    query.stop()
    sink = frame.writeStream.format("console").trigger(continuous="1 second")
    assert "continuous" in refusal(sink.start).lower()


PROGRAMS = (
    subscribe_and_cast,
    columns_of_a_record,
    subscribe_to_two,
    subscribe_by_pattern,
    assign,
    offsets_as_json,
    starting_timestamp,
    a_batch_from_earliest_to_latest,
    max_offsets_per_trigger,
    min_partitions,
    fail_on_data_loss,
    headers,
    values_in_json,
    settings_of_a_cluster,
    write_keys_and_values,
    write_with_a_topic_column,
    write_a_stream,
    for_each_batch_into_two_sinks,
    counts_in_windows,
    once_and_again,
    a_stream_that_runs,
)


@pytest.fixture(scope="module")
def served(tmp_path_factory) -> Iterator[PlainBroker]:
    with PlainBroker(tmp_path_factory.mktemp("habits") / "root") as broker:
        create_topic(broker.layout, "orders", 3)
        client = pulsar.Client(f"delta:{broker.layout.root}")
        for number in range(ORDERS):
            producer = client.create_producer(f"orders-partition-{number % 3}")
            producer.send(f"order {number}".encode(), partition_key=f"key-{number % 4}")
        producer = client.create_producer("returns")
        for number in range(2):
            producer.send(f"return {number}".encode())
        client.close()
        yield broker


@pytest.mark.long
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
def test_a_program_for_kafka(spark, served, tmp_path, program):
    program(World(spark, str(served.layout.root), served, tmp_path))
    assert spark.streams.active == []
