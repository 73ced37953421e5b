"""How fast messages are published: frames against a plain Delta append of the same rows, and the client's batches.

The frame is in memory. A topic with partitions is routed by key, sorted and written as one file per task and partition;
what of its cost is that layout's own is said by a plain append to a table that is partitioned the same way.
"""

import itertools
import threading
from collections.abc import Callable, Iterator

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

import pulsar_spark as pulsar
from pulsar_spark.frames import publish
from pulsar_spark.storage.layout import Layout
from pulsar_spark.storage.topics.topics import create_topic
from tests.benchmarks.bench import PAYLOAD_BYTES, Bench, in_turns, seconds
from tests.benchmarks.figures import PER_SECOND, Budget, Figure

PARTITIONS = 4
ROWS = 1_000_000
BUDGET = Budget(0.85, is_most=False, is_ratio=True)
KEYED_BUDGET = Budget(0.7, is_most=False, is_ratio=True)
SEND_BUDGET = Budget(100_000, is_most=False)
FAMILY = "publish"


def measure(bench: Bench) -> Iterator[Figure]:
    yield from _frames(bench)
    yield from _client(bench)


def _frames(bench: Bench) -> Iterator[Figure]:
    folder = bench.new_folder("publish")
    root = folder / "root"
    create_topic(Layout(root), "plain")
    create_topic(Layout(root), "partitioned", PARTITIONS)
    frame = bench.messages(0, ROWS).persist()
    bench.say(f"publishing frames of {frame.count():,} messages")
    in_partitions = frame.withColumn("partition", F.expr(f"pmod(hash(partition_key), {PARTITIONS})"))
    plain, partitioned, append, append_partitioned = in_turns(
        bench.few(3, 11),
        *(
            _rate(action)
            for action in (
                lambda: publish(frame, root, "plain"),
                lambda: publish(frame, root, "partitioned"),
                lambda: _append(frame, folder / "append"),
                lambda: _append(in_partitions, folder / "append_partitioned", "partition"),
            )
        ),
        warm_up=2,
    )
    frame.unpersist()
    million = f"{ROWS:,} x {PAYLOAD_BYTES} B"
    yield Figure(FAMILY, f"publish a DataFrame, {million}", PER_SECOND, plain, "Delta append", append, BUDGET)
    yield Figure(
        FAMILY,
        f"publish a DataFrame by key to {PARTITIONS} partitions, {million}",
        PER_SECOND,
        partitioned,
        "Delta append",
        append,
        KEYED_BUDGET,
    )
    yield Figure(
        FAMILY,
        f"the same, against a table partitioned in {PARTITIONS}",
        PER_SECOND,
        partitioned,
        "partitioned Delta append",
        append_partitioned,
    )


def _append(frame: DataFrame, path, *partition_by: str) -> None:
    frame.write.format("delta").mode("append").partitionBy(*partition_by).save(str(path))


def _rate(action: Callable[[], object]) -> Callable[[], float]:
    return lambda: ROWS / seconds(action)


def _client(bench: Bench) -> Iterator[Figure]:
    """One producer, batches of up to 1,000 messages or 10 ms, no broker needed."""
    messages = bench.few(100_000, 1_000_000)
    bench.say(f"send_async of {messages:,} messages")
    client = pulsar.Client(f"delta:{bench.new_folder('send') / 'root'}")
    producer = client.create_producer(
        "t",
        batching_enabled=True,
        batching_max_messages=1000,
        batching_max_publish_delay_ms=10,
        max_pending_messages=20_000,
        block_if_queue_full=True,
    )
    (rates,) = in_turns(3, lambda: messages / seconds(lambda: _send(producer, messages)))
    client.close()
    what = f"client, send_async in batches, {messages:,} x {PAYLOAD_BYTES} B"
    yield Figure(FAMILY, what, PER_SECOND, rates, budget=SEND_BUDGET)


def _send(producer, messages: int) -> None:
    payload, done, results = b"x" * PAYLOAD_BYTES, threading.Event(), itertools.count(1)
    refused = []

    def sent(result, message_id) -> None:
        if result != pulsar.Result.Ok:
            refused.append(result)
        if next(results) == messages:
            done.set()

    for _ in range(messages):
        producer.send_async(payload, sent)
    producer.flush()
    if not done.wait(60) or refused:
        raise AssertionError(f"not all messages were sent: {refused[:3]}")
