"""``python -m tests.frames.source.connect_program <url> <root> <folder>``: a client of Spark Connect that uses the data
source; it prints what it found as JSON, by name."""

import json
import sys
from collections.abc import Callable

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

NAME = "pulsar_spark"
OPERATIONS: dict[str, Callable] = {}


def operation(call: Callable) -> Callable:
    OPERATIONS[call.__name__] = call
    return call


class Client:
    def __init__(self, url: str, root: str, folder: str):
        self.spark, self.root, self.folder = SparkSession.builder.remote(url).getOrCreate(), root, folder

    def read(self, **options: str) -> DataFrame:
        return self.spark.read.format(NAME).options(root=self.root, topic="t", **options).load()

    def stream(self, **options: str) -> DataFrame:
        return self.spark.readStream.format(NAME).options(root=self.root, topic="t", **options).load()

    def run(self, writer, name: str, *path: str):
        writer = writer.option("checkpointLocation", f"{self.folder}/{name}").trigger(availableNow=True)
        query = writer.start(*path)
        query.awaitTermination()
        return query

    def delta(self, name: str) -> list[str]:
        rows = self.spark.read.format("delta").load(f"{self.folder}/{name}").collect()
        return sorted(row.text for row in rows)


@operation
def write(client: Client) -> None:
    rows = client.spark.range(3).selectExpr("string(id) AS payload", "'k' AS key")
    rows.write.format(NAME).options(root=client.root, topic="t").mode("append").save()


@operation
def read(client: Client) -> int:
    return client.read().count()


@operation
def read_two_columns(client: Client) -> list:
    few = client.spark.read.format(NAME).schema("position bigint, partition_key string")
    return [*map(list, few.options(root=client.root, topic="t", startingPosition="2").load().collect())]


@operation
def sql(client: Client) -> list:
    client.spark.sql(f"CREATE TEMPORARY VIEW v USING {NAME} OPTIONS (root '{client.root}', topic 't')")
    return [*map(list, client.spark.sql("SELECT partition_key, count(*) FROM v GROUP BY 1").collect())]


@operation
def stream_to_delta(client: Client) -> list[str]:
    texts = client.stream(maxMessagesPerTrigger="2").selectExpr("string(payload) AS text")
    client.run(texts.writeStream.format("delta"), "c1", f"{client.folder}/d1")
    return client.delta("d1")


@operation
def subscription_to_delta(client: Client) -> list:
    texts = client.stream(subscription="s").selectExpr("string(payload) AS text")
    query = client.run(texts.writeStream.format("delta"), "c2", f"{client.folder}/d2")
    return [client.delta("d2"), "topics" in query.lastProgress["sources"][0]["endOffset"]]


@operation
def subscription_that_runs(client: Client) -> list[str]:
    texts = client.stream(subscription="runs").selectExpr("string(payload) AS text").writeStream.format("delta")
    query = texts.option("checkpointLocation", f"{client.folder}/c3").start(f"{client.folder}/d3")
    query.processAllAvailable()
    query.stop()
    return client.delta("d3")


@operation
def stream_to_a_topic(client: Client) -> int:
    rows = client.stream().select("payload", "partition_key")
    client.run(rows.writeStream.format(NAME).options(root=client.root, topic="copy"), "c4")
    return client.spark.read.format(NAME).options(root=client.root, topic="copy").load().count()


@operation
def for_each_batch(client: Client) -> list[str]:
    path = f"{client.folder}/d5"

    def write(batch, _batch_id) -> None:
        batch.selectExpr("string(payload) AS text").write.format("delta").mode("append").save(path)

    client.run(client.stream(subscription="each").writeStream.foreachBatch(write), "c5")
    return client.delta("d5")


@operation
def wrong_option(client: Client) -> str:
    return _refusal(lambda: client.read(topicc="u").count())


@operation
def no_such_topic(client: Client) -> str:
    missing = client.spark.read.format(NAME).options(root=client.root, topic="nowhere").load()
    return _refusal(missing.count)


@operation
def wrong_option_of_a_stream(client: Client) -> str:
    return _refusal(lambda: client.run(client.stream(endingPosition="1").writeStream.format("noop"), "c6"))


def _refusal(call: Callable) -> str:
    try:
        call()
    except PySparkException as refused:
        return str(refused)
    return "not refused"


if __name__ == "__main__":
    client = Client(*sys.argv[1:])
    found = {}
    for name, call in OPERATIONS.items():
        try:
            found[name] = call(client)
        except PySparkException as failed:
            found[name] = f"{type(failed).__name__}: {failed}"
    print(json.dumps(found))
