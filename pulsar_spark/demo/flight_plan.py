"""The demo's flight plan: one message of 12 MB, sent in chunks, which a client and a frame must read byte for byte."""

import hashlib
import time
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import pulsar_spark as pulsar
from pulsar_spark.admin import Admin
from pulsar_spark.demo.account import Account
from pulsar_spark.frames import publish, read_messages

SUBSCRIPTION = "dispatch"
PLAN_BYTES = 12_000_000
_WAIT_MS, _POLL_SECONDS = 60_000, 0.25
_MINUTE_BYTES = 35


def flight_plan(spark: SparkSession, flights: pa.Table, work: Path) -> DataFrame:
    """One row, ``payload``: a line of JSON for each flight of the busiest day, at least :data:`PLAN_BYTES`."""
    days = flights.group_by(["month", "day"]).aggregate([("id", "count")]).sort_by([("id_count", "descending")])
    busiest = days.slice(0, 1).to_pylist()[0]
    is_that_day = pc.and_(pc.equal(flights["month"], busiest["month"]), pc.equal(flights["day"], busiest["day"]))
    path = work / "flight_plan.parquet"
    pq.write_table(flights.filter(is_that_day), path)
    minutes = -(-PLAN_BYTES // (busiest["id_count"] * _MINUTE_BYTES))
    way = F.transform(
        F.sequence(F.lit(100_000), F.lit(100_000 + minutes)),
        lambda minute: F.struct(minute.alias("minute"), (minute * 7 % 90_000 + 10_000).alias("altitude")),
    )
    rows = spark.read.parquet(str(path))
    lines = rows.select("id", F.to_json(F.struct(*rows.columns, way.alias("way"))).alias("line")).coalesce(1)
    return lines.agg(F.array_sort(F.collect_list(F.struct("id", "line"))).alias("lines")).select(
        F.concat_ws("\n", F.col("lines.line")).cast("binary").alias("payload")
    )


def send_and_receive(
    spark: SparkSession, root: str, service_url: str, topic: str, flights: pa.Table, work: Path
) -> Account:
    Admin(service_url).create_subscription(topic, SUBSCRIPTION, "earliest")
    plan = flight_plan(spark, flights, work).localCheckpoint()
    (expected,) = plan.select(F.octet_length("payload"), F.sha2("payload", 256)).collect()
    publish(plan, root, topic, chunking=True, producer_name="dispatch-office")
    client = pulsar.Client(service_url)
    try:
        consumer = client.subscribe(topic, SUBSCRIPTION, consumer_type=pulsar.ConsumerType.Shared)
        message = consumer.receive(_WAIT_MS)
        data = message.data()
        consumer.acknowledge(message)
    finally:
        client.close()
    read = read_messages(spark, root, topic).select(F.octet_length("payload"), F.sha2("payload", 256)).collect()
    defects = []
    if (len(data), hashlib.sha256(data).hexdigest()) != tuple(expected):
        defects.append(f"the flight plan came with {len(data)} bytes, which are not the {expected[0]} that were sent")
    if [tuple(row) for row in read] != [tuple(expected)]:
        defects.append(f"the flight plan is read as {len(read)} messages, not as the one that was sent")
    return _account(service_url, topic, defects)


def _account(service_url: str, topic: str, defects: list[str]) -> Account:
    deadline = time.monotonic() + _WAIT_MS / 1000
    while True:
        stats = Admin(service_url).stats(topic)["subscriptions"][SUBSCRIPTION]
        if not stats["msgBacklog"] or time.monotonic() > deadline:
            break
        time.sleep(_POLL_SECONDS)
    delivered, left = stats["msgOutCounter"], stats["msgBacklog"]
    if delivered != 1 or left:
        defects = [*defects, f"the flight plan was delivered {delivered} times, {left} messages are left"]
    return Account(SUBSCRIPTION, "Shared", 1, delivered, delivered - 1, 0, 0, 1 - left, left, defects)
