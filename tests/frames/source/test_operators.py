"""A trigger of Spark's, or an operator that keeps state, that does something else over our streams than over others, is
found here."""

from datetime import datetime, timezone
from pathlib import Path
from typing import NamedTuple

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming import StreamingQuery

from pulsar_spark.admin import Admin
from pulsar_spark.frames.source.data_source import NAME
from pulsar_spark.testing.plain_broker import PlainBroker
from tests.frames.source.reading import read_batch
from tests.support.waiting import eventually

pytestmark = pytest.mark.long
START = datetime(2026, 1, 31, 12, tzinfo=timezone.utc)
TEXT = "string(payload) AS text"


class World(NamedTuple):
    """A served root; streams have the subscription ``s``, or none."""

    spark: SparkSession
    broker: PlainBroker
    folder: Path
    options: dict[str, str]

    def publish(self, topic: str, *rows: tuple[str, str, int]) -> None:
        """Messages with a key, a text, and an event time in minutes after :data:`START`."""
        frame = self.spark.createDataFrame([*rows], "key string, payload string, minutes int")
        frame = frame.withColumn("event_time", F.lit(START) + F.expr("make_dt_interval(0, 0, minutes)")).drop("minutes")
        frame.write.format(NAME).options(root=str(self.broker.layout.root), topic=topic).mode("append").save()

    def stream(self, topic: str) -> DataFrame:
        given = {"root": str(self.broker.layout.root), "topic": topic, **self.options}
        return self.spark.readStream.format(NAME).options(**given).load()

    def run(self, frame: DataFrame, name: str) -> list[tuple]:
        """The rows of a Delta table to which a stream has written all that there is."""
        path = str(self.folder / name)
        sink = frame.writeStream.format("delta").option("checkpointLocation", f"{path}-checkpoint")
        sink.trigger(availableNow=True).start(path).awaitTermination()
        return sorted(map(tuple, self.spark.read.format("delta").load(path).collect()))

    def start(self, frame: DataFrame, topic: str, **trigger: str) -> StreamingQuery:
        sink = frame.select("payload", "partition_key").writeStream.format(NAME).trigger(**trigger)
        given = {"root": str(self.broker.layout.root), "topic": topic}
        return sink.options(checkpointLocation=str(self.folder / "checkpoint"), **given).start()

    def check_acknowledged(self, *topics: str) -> None:
        for topic in topics if self.options else ():
            stats = Admin(f"delta:{self.broker.layout.root}").stats(topic)
            assert stats["subscriptions"][self.options["subscription"]]["msgBacklog"] == 0


@pytest.fixture(params=[None, "s"], ids=["no_subscription", "a_subscription"])
def world(request, spark, tmp_path):
    with PlainBroker(tmp_path / "root") as broker:
        yield World(spark, broker, tmp_path, {} if request.param is None else {"subscription": request.param})


def test_a_stream_runs_until_it_is_stopped(world):
    def copied() -> list[bytes]:
        root = world.broker.layout.root
        return sorted(read_batch(root, topicsPattern="copy")["payload"].to_pylist())

    world.publish("t", ("k", "a", 0))
    query = world.start(world.stream("t"), "copy", processingTime="100 milliseconds")
    eventually(lambda: copied() == [b"a"])
    world.publish("t", ("k", "b", 0))
    eventually(lambda: copied() == [b"a", b"b"])
    assert query.isActive
    query.stop()
    assert query.exception() is None


def test_spark_refuses_the_trigger_continuous(world):
    world.publish("t", ("k", "a", 0))
    with pytest.raises(PySparkException, match="(?i)continuous"):
        world.start(world.stream("t"), "copy", continuous="1 second").awaitTermination()


def test_windows_end_with_the_watermark(world):
    """Late messages are left out, as Spark does, and acknowledged all the same."""
    world.publish("t", ("k", "a", 0), ("k", "b", 5), ("l", "c", 20))
    counts = (
        world.stream("t")
        .withWatermark("event_time", "10 minutes")
        .groupBy(F.window("event_time", "10 minutes"))
        .count()
    )
    counts = counts.selectExpr("minute(window.start) AS minute", "count")
    assert world.run(counts, "out") == [(0, 2)]
    world.publish("t", ("k", "late", 1), ("k", "d", 60))
    assert world.run(counts, "out") == [(0, 2), (20, 1)]
    world.check_acknowledged("t")


def test_duplicates_are_dropped_across_micro_batches(world):
    world.publish("t", ("k", "a", 0), ("k", "again", 1), ("l", "b", 1))
    kept = world.stream("t").withWatermark("event_time", "1 hour").dropDuplicatesWithinWatermark(["partition_key"])
    kept = kept.select("partition_key")
    assert world.run(kept, "out") == [("k",), ("l",)]
    world.publish("t", ("k", "once more", 2), ("m", "c", 2))
    assert world.run(kept, "out") == [("k",), ("l",), ("m",)]
    world.check_acknowledged("t")


def test_streams_are_joined_with_streams_and_tables(world):
    world.publish("orders", ("k", "order", 0), ("l", "other", 0))
    orders = (
        world.stream("orders").selectExpr("partition_key", TEXT, "event_time").withWatermark("event_time", "1 hour")
    )
    paid = world.stream("payments").selectExpr("partition_key AS payer", "event_time AS paid_time")
    within = F.expr("partition_key = payer AND paid_time BETWEEN event_time AND event_time + INTERVAL 30 MINUTES")
    world.publish("payments", ("x", "nobody's", 0))
    joined = orders.join(paid.withWatermark("paid_time", "1 hour"), within).select("text")
    assert world.run(joined, "joined") == []
    world.publish("payments", ("k", "paid", 10), ("l", "too late", 50))
    assert world.run(joined, "joined") == [("order",)]
    world.check_acknowledged("orders", "payments")
    named = world._replace(options={name: "named" for name in world.options})
    names = world.spark.createDataFrame([("k", "Kim")], "partition_key string, name string")
    with_names = named.stream("orders").join(names, "partition_key").selectExpr(TEXT, "name")
    assert world.run(with_names, "named") == [("order", "Kim")]
    named.check_acknowledged("orders")
