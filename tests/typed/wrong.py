"""What a type checker finds: each line is wrong, and says so."""

from pyspark.sql import DataFrame, SparkSession

import pulsar_spark as pulsar
from pulsar_spark.admin import Admin
from pulsar_spark.frames import Delivery, consume, publish


def handle(messages: DataFrame, delivery: Delivery) -> None:
    print(delivery.count)  # type: ignore[attr-defined]


def wrong(spark: SparkSession, frame: DataFrame) -> None:
    consume(spark, "r", "t", "s", handle, subscription_type="Sharde")  # type: ignore[arg-type]
    consume(spark, "r", "t", "s", handle, initial_position="first")  # type: ignore[arg-type]
    consume(spark, "r", "t", "s", handle, on_error="ignore")  # type: ignore[arg-type]
    consume(spark, "r", "t", "s", handle, crypto_failure_action="SEND")  # type: ignore[arg-type]
    publish(frame, "r", "t", compression="GZIP")  # type: ignore[arg-type]
    publish(frame, "r", "t", hashing_scheme="Murmur3")  # type: ignore[arg-type]
    Admin("x").create_subscription("t", "s", "middle")  # type: ignore[arg-type]
    Admin("x").reset_cursor("t", "s", "first")  # type: ignore[arg-type]
    pulsar.Clientt("x")  # type: ignore[attr-defined]
    pulsar.Client(5)  # type: ignore[arg-type]
    pulsar.Client("x").subscribe("t", "s", consumer_type="Shared")  # type: ignore[arg-type]
    print(pulsar.ConsumerType.Sharde)  # type: ignore[attr-defined]
    pulsar.partition_for_key("k", "3")  # type: ignore[arg-type]
    pulsar.Client("x").create_producer("t").send("text", propertys={})  # type: ignore[call-arg]
    pulsar.Client("x").close("now")  # type: ignore[call-arg]
    pulsar.Client("x").create_reader("t", pulsar.MessageId.earliest).read_next("soon")  # type: ignore[arg-type]
