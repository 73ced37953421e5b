"""``python -m tests.frames.on_s3 URL FOLDER``: DataFrames on a root in an object store, as a job has them: Spark is
started for that root; a line of JSON says what came of it."""

import json
import sys
import threading
from collections.abc import Callable

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import pulsar_spark as pulsar
from pulsar_spark.admin import Admin
from pulsar_spark.broker.runner import Broker
from pulsar_spark.frames import consume, publish, publish_stream, read_messages
from pulsar_spark.storage.layout import Layout
from pulsar_spark.storage.session import spark_session
from pulsar_spark.storage.topics.topics import create_topic, read_topic
from pulsar_spark.views.catalog import register
from pulsar_spark.views.views import create_views
from tests.support.waiting import eventually, receive_values

MESSAGES, KEYS, CHUNKED = 600, 20, 3
SECONDS = 600


def numbered(spark: SparkSession, count: int) -> DataFrame:
    numbers = spark.range(0, count, 1, 2)
    return numbers.selectExpr("cast(id as string) payload", f"concat('k', id % {KEYS}) partition_key")


def stored(spark: SparkSession, root: str, topic: str) -> list[int]:
    return list(read_messages(spark, root, topic).agg(F.count("*"), F.count_distinct("payload")).first())


def published(spark: SparkSession, root: str) -> dict:
    """To a topic without partitions, where the same job publishes once, and to one with two; and chunks."""
    messages = numbered(spark, MESSAGES)
    topics = ("plain", "plain", "keys")
    done = [publish(messages, root, topic, app_id="job", app_version=1).messages for topic in topics]
    big = spark.range(0, CHUNKED, 1, 2).selectExpr("repeat('x', 2500 + cast(id as int)) payload")
    publish(big, root, "big", chunking=True, chunk_max_message_size=1000)
    sizes = [row[0] for row in read_messages(spark, root, "big").selectExpr("length(payload)").collect()]
    path = str(read_topic(Layout(root), "keys").path)
    return {
        "said": done,
        "stored": [stored(spark, root, topic) for topic in ("plain", "keys")],
        "by_spark": spark.read.format("delta").load(path).count(),
        "chunked": sorted(sizes),
    }


def deduplicated(spark: SparkSession, root: str) -> dict:
    """What two publishes of a producer's name and numbers store, the second of which has some of the first's."""
    Admin(f"delta:{root}").set_deduplication("persistent://public/default/once", True)
    messages = numbered(spark, 80).selectExpr("*", "cast(payload as bigint) sequence_id", "'p' producer_name")
    some = messages.filter("sequence_id < 50")
    return {
        "said": [publish(rows, root, "once").messages for rows in (some, messages)],
        "stored": stored(spark, root, "once"),
    }


def streamed(spark: SparkSession, root: str, checkpoint: str) -> list[int]:
    """What a stream publishes."""
    rows = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 30).load()
    query = publish_stream(rows.selectExpr("cast(value as string) payload"), root, "streamed", app_id="stream").trigger(
        availableNow=True
    )
    query.option("checkpointLocation", checkpoint).start().awaitTermination(SECONDS)
    return stored(spark, root, "streamed")


def consumed(spark: SparkSession, root: str) -> dict:
    """What two DataFrame consumers of a subscription got, by key, and a client."""
    found: dict[str, list] = {"a": [], "b": []}
    lock = threading.Lock()

    def into(name: str) -> Callable:
        def handle(messages: DataFrame, _) -> None:
            rows = messages.select("payload", "partition_key").collect()
            with lock:
                found[name] += [tuple(row) for row in rows]

        return handle

    def consumer(name: str):
        return consume(spark, root, "keys", "s", into(name), subscription_type="KeyShared", consumer_name=name)

    with consumer("a") as one, consumer("b") as other:
        eventually(lambda: len(found["a"]) + len(found["b"]) >= MESSAGES, SECONDS)
        errors = [str(each.exception()) for each in (one, other) if each.exception()]
    by_key = {name: {key for _, key in rows} for name, rows in found.items()}
    client = pulsar.Client(f"delta:{root}", operation_timeout_seconds=60)
    consumer = client.subscribe("plain", "s", initial_position=pulsar.InitialPosition.Earliest)
    values = receive_values(consumer, MESSAGES)
    client.close()
    return {
        "errors": errors,
        "different": len({payload for rows in found.values() for payload, _ in rows}),
        "deliveries": sum(map(len, found.values())),
        "keys": [len(by_key["a"] | by_key["b"]), len(by_key["a"] & by_key["b"])],
        "client": len(set(values)),
    }


def looked_at(spark: SparkSession, root: str) -> dict:
    """Views of a session, and tables by name."""
    names = create_views(spark, root)
    counts = {name: spark.table(name).count() for name in names}
    tables = register(spark, Layout(root))
    (by_name,) = (name for name, path in tables.items() if path.endswith("/plain"))
    again = register(spark, Layout(root))
    return {
        "views": [counts["cursors"], counts["rounds"] > 0, counts["history"] > 0],
        "by_name": spark.table(by_name).count(),
        "the_same": tables == again,
    }


def main(root: str, folder: str) -> dict:
    settings = {"spark.sql.shuffle.partitions": "2", "spark.sql.warehouse.dir": f"{folder}/warehouse"}
    spark = spark_session("pulsar_spark on S3", settings=settings, root=root)
    create_topic(Layout(root), "keys", 2)
    create_topic(Layout(root), "once")
    try:
        found = {"published": published(spark, root), "streamed": streamed(spark, root, f"{folder}/checkpoint")}
        with Broker(spark_session(for_rounds=True), root) as broker:
            found |= {"deduplicated": deduplicated(spark, root), "consumed": consumed(spark, root)}
            found |= {"looked_at": looked_at(spark, root)}
            found["set_aside"] = len(broker.rounds.bundle.set_aside)
        store = Layout(root).store
        left = [name for name in store.below(Layout(root).root) if "_temporary" in name or "_SUCCESS" in name]
    finally:
        spark.stop()
    return {**found, "left": left}


if __name__ == "__main__":
    print(json.dumps(main(*sys.argv[1:])), flush=True)
