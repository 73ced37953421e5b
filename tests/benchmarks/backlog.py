"""Dispatch, consume and acknowledge a backlog, against plainly reading the same Parquet files with the same action.

The broker is in a process of its own, the DataFrame consumer in this one, so that each has its own JVM, as jobs beside
a broker have. A run consumes the whole backlog through a new subscription with *available_now*: it is timed from the
call that subscribes to the end of the run, when the last acknowledgement is in a round. The topic's limits of
unacknowledged messages are off. Of a run's parts, "function" is the time inside the consumer's function.
"""

import time
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from statistics import median

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from pulsar_spark.admin import Admin
from pulsar_spark.demo.broker_process import BrokerProcess
from pulsar_spark.frames import consume, publish
from pulsar_spark.frames.consuming.membership import MAX_MESSAGES
from pulsar_spark.storage.delta.log import TableLog
from pulsar_spark.storage.layout import Layout
from pulsar_spark.storage.topics.topics import Topic, create_topic
from tests.benchmarks.bench import PAYLOAD_BYTES, Bench, in_turns, seconds
from tests.benchmarks.figures import PER_SECOND, Budget, Figure

COMMIT = 1_000_000
SMALL_DELIVERY = 1_000_000
KINDS = ("Exclusive", "Shared")
BUDGET = Budget(0.6, is_most=False, is_ratio=True)
BUDGET_MESSAGES = 10**7
FAMILY = "backlog"
TIMEOUT_SECONDS = 120


def measure(bench: Bench) -> Iterator[Figure]:
    root = bench.new_folder("backlog") / "root"
    layout = Layout(root)
    topics = {size: create_topic(layout, f"t{size}") for size in ([10**6] if bench.is_quick else [10**5, 10**6, 10**7])}
    with BrokerProcess(root, bench.folder / "backlog.log"):
        bench.say("starting a broker")
        admin = Admin(f"delta:{root}", timeout_seconds=TIMEOUT_SECONDS)
        admin.set_max_unacked_per_consumer("public/default", 0)
        admin.set_max_unacked_per_subscription("public/default", 0)
        for size, topic in topics.items():
            bench.say(f"publishing {size:,} messages")
            for first in range(0, size, COMMIT):
                publish(bench.messages(first, min(first + COMMIT, size)), root, str(topic.name))
            for kind in KINDS:
                for max_messages in (MAX_MESSAGES, SMALL_DELIVERY):
                    if max_messages == MAX_MESSAGES or size > max_messages:
                        bench.say(f"consuming {size:,} messages, {kind}, up to {max_messages:,} a delivery")
                        yield _consumed(bench, root, topic, size, kind, max_messages)


def _consumed(bench: Bench, root: Path, topic: Topic, size: int, kind: str, max_messages: int) -> Figure:
    subscriptions, parts = count(), []

    def ours() -> float:
        run = Run(bench.spark, root, topic, f"{kind}-{max_messages}-{next(subscriptions)}", kind, max_messages)
        if run.bytes != size * PAYLOAD_BYTES:
            raise AssertionError(f"{run.bytes} bytes consumed of {size} messages of {PAYLOAD_BYTES} bytes")
        parts.append(run.parts)
        return size / run.seconds

    runs, plain = in_turns(bench.few(3, 5), ours, lambda: size / seconds(lambda: plain_sum(bench.spark, topic)))
    parts = {name: median(run[name] for run in parts[1:]) for name in parts[0]}
    budget = BUDGET if (size, max_messages) == (BUDGET_MESSAGES, MAX_MESSAGES) else None
    what = f"consume {size:,} x {PAYLOAD_BYTES} B, {kind}, deliveries of up to {max_messages:,}"
    return Figure(FAMILY, what, PER_SECOND, runs, "read of the Parquet files", plain, budget, parts)


class Run:
    """One run over the whole backlog: its payloads' bytes, the seconds it took, and where they went."""

    def __init__(self, spark: SparkSession, root: Path, topic: Topic, subscription: str, kind: str, max_messages: int):
        self.bytes, self._spans = 0, []
        began = time.perf_counter()
        consumption = consume(
            spark,
            root,
            str(topic.name),
            subscription,
            self._sum,
            subscription_type=kind,
            initial_position="Earliest",
            max_messages=max_messages,
            available_now=True,
            timeout=TIMEOUT_SECONDS,
        )
        joined = time.perf_counter()
        consumption.await_termination()
        ended = time.perf_counter()
        self.seconds = ended - began
        inside = sum(left - entered for entered, left in self._spans)
        last = self._spans[-1][1]
        self.parts = {
            "subscribe": joined - began,
            "first delivery": self._spans[0][0] - joined,
            f"function ({len(self._spans)} calls)": inside,
            "between calls": last - self._spans[0][0] - inside,
            "after the last": ended - last,
        }

    def _sum(self, messages: DataFrame, delivery) -> None:
        entered = time.perf_counter()
        self.bytes += sum_of_lengths(messages)
        self._spans.append((entered, time.perf_counter()))


def plain_sum(spark: SparkSession, topic: Topic) -> int:
    files = [f"{topic.path}/{file.path}" for commit in TableLog(topic.path).commits(0) for file in commit.added]
    return sum_of_lengths(spark.read.parquet(*files))


def sum_of_lengths(messages: DataFrame) -> int:
    return messages.agg(F.sum(F.octet_length("payload"))).first()[0]
