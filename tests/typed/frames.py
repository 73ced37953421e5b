"""DataFrames, and a broker."""

import datetime

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import pulsar_spark as pulsar
from pulsar_spark.broker.runner import Broker
from pulsar_spark.frames import (
    Consumption,
    Delivery,
    Published,
    active_consumptions,
    consume,
    dead_letters,
    decode_values,
    publish,
    publish_stream,
    read_messages,
    reprocess_dead_letters,
    to_delta,
)
from pulsar_spark.schema import AvroSchema, Integer, Record, String
from pulsar_spark.views import create_views


class Order(Record):
    customer = String(required=True)
    items = Integer(default=1)


def handle(messages: DataFrame, delivery: Delivery) -> None:
    print(delivery.topic, delivery.messages, delivery.round)
    messages.write.format("delta").mode("append").save("/data/out")


def decide(messages: DataFrame, delivery: Delivery) -> DataFrame:
    return messages.select("position", "partition", F.lit("negative_acknowledge").alias("outcome"))


def main(spark: SparkSession, orders: DataFrame) -> None:
    published: Published = publish(
        orders, "/data/pulsar", "orders", deliver_after=datetime.timedelta(hours=8), compression="LZ4"
    )
    print(published)
    publish(
        orders, "/data/pulsar", "orders", schema=AvroSchema(Order), hashing_scheme="Murmur3_32Hash", sort_by_key=True
    )
    publish_stream(orders, "/data/pulsar", "orders").option("checkpointLocation", "/c").start().awaitTermination()
    consumption: Consumption = consume(
        spark,
        "/data/pulsar",
        "orders",
        "billing",
        handle,
        subscription_type="KeyShared",
        initial_position="Latest",
        sorted_by_key=True,
    )
    with consume(
        spark,
        "/data/pulsar",
        "orders",
        "b",
        decide,
        subscription_type="Shared",
        available_now=True,
        retry_enable=True,
        dead_letter_policy=pulsar.ConsumerDeadLetterPolicy(3),
    ) as other:
        other.await_termination()
        print(other.exception(), other.last_progress, other.totals)
    consume(spark, "/data/pulsar", "orders", "lake", to_delta("/data/raw"))
    consumption.stop()
    print([each.consumer_name for each in active_consumptions()])
    rows: DataFrame = read_messages(spark, "/data/pulsar", "orders", is_read_compacted=True)
    decode_values(rows, "/data/pulsar", "orders").show()
    dead_letters(spark, "/data/pulsar", "orders", subscription="billing").groupBy("cause").count().show()
    done = reprocess_dead_letters(
        spark, "/data/pulsar", "orders", subscription="billing", job_id="r", fix=lambda letters: letters, dry_run=True
    )
    print(done)
    create_views(spark, "/data/pulsar")
    broker = Broker(spark, "/data/pulsar")
    broker.start()
    with Broker(spark, "/data/pulsar", housekeeping=False) as again:
        print(again)
    broker.stop()


def others(spark: SparkSession, orders: DataFrame) -> None:
    consume(
        spark,
        "r",
        "t",
        "s",
        handle,
        subscription_type=pulsar.ConsumerType.Shared,
        initial_position=pulsar.InitialPosition.Latest,
        on_error="stop",
        crypto_failure_action="DISCARD",
    )
    publish(
        orders,
        "r",
        "t",
        compression=pulsar.CompressionType.ZSTD,
        hashing_scheme=pulsar.HashingScheme.BoostHash,
        max_message_size=None,
    )
