"""A backlog of very many keys to DataFrame consumers of a Key_Shared subscription, against plainly reading the same
Parquet files and against the same consumers on a Shared one.

The broker is in a process of its own, all consumers in this one, as threads of one Spark session. They subscribe to a
new topic and wait; then one commit publishes all messages. A run is timed from that commit until all are acknowledged.
Keys lie at random, or are sorted by hash as ``publish(sort_by_key=True)`` does; a hot key has a fifth of all messages.
"""

import threading
import time
from collections.abc import Iterator
from itertools import count
from pathlib import Path

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from pulsar_spark.admin import Admin
from pulsar_spark.demo.broker_process import BrokerProcess
from pulsar_spark.frames import consume, publish
from pulsar_spark.storage.cursor_ledger import CursorKey, read_latest
from pulsar_spark.storage.layout import Layout
from pulsar_spark.storage.topics import create_topic
from tests.benchmarks.backlog import TIMEOUT_SECONDS, plain_sum, sum_of_lengths
from tests.benchmarks.bench import PAYLOAD_BYTES, Bench, in_turns, seconds
from tests.benchmarks.figures import PER_SECOND, Budget, Figure

FAMILY = "key_shared"
KEYS = 10**6
BUDGETS = {1: 0.3, 4: 0.3, 32: 0.15}
_LOOK_SECONDS = 0.02


def measure(bench: Bench) -> Iterator[Figure]:
    root = bench.new_folder("keyed_backlog") / "root"
    messages = bench.few(10**6, 10**7)
    with BrokerProcess(root, bench.folder / "keyed_backlog.log"):
        bench.say("starting a broker")
        admin = Admin(f"delta:{root}", timeout_seconds=TIMEOUT_SECONDS)
        admin.set_max_unacked_per_consumer("public/default", 0)
        admin.set_max_unacked_per_subscription("public/default", 0)
        topics = _Topics(bench, root)
        for keys in ("keys at random", "sorted by key"):
            for consumers in BUDGETS:
                yield from _figures(topics, messages, consumers, keys)
        yield from _figures(topics, messages, 4, "a hot key")


def _figures(topics: "_Topics", messages: int, consumers: int, keys: str) -> Iterator[Figure]:
    topics.bench.say(f"{messages:,} messages to {consumers} Key_Shared DataFrame consumers, {keys}")
    ours, shared, plain = in_turns(
        topics.bench.few(1, 3),
        lambda: topics.run(messages, consumers, keys, "KeyShared"),
        lambda: topics.run(messages, consumers, keys, "Shared"),
        lambda: messages / seconds(lambda: topics.read_plainly(messages)),
        warm_up=topics.bench.few(0, 1),
    )
    what = f"consume {messages:,} x {PAYLOAD_BYTES} B as frames, {consumers} consumers, {keys}"
    budget = Budget(BUDGETS[consumers], is_most=False, is_ratio=True)
    yield Figure(FAMILY, what, PER_SECOND, ours, "read of the Parquet files", plain, budget)
    yield Figure(FAMILY, f"{what}, by Shared", PER_SECOND, ours, "Shared", shared)


class _Topics:
    """Topics of one root, a new one for each run."""

    def __init__(self, bench: Bench, root: Path):
        self.bench, self._root, self._layout = bench, root, Layout(root)
        self._names = (f"t{number}" for number in count())
        self._last = None

    def run(self, messages: int, consumers: int, keys: str, kind: str) -> float:
        """Messages a second of one run."""
        self._last = topic = create_topic(self._layout, next(self._names))
        total, lock = [0], threading.Lock()

        def add(frame: DataFrame, delivery) -> None:
            found = sum_of_lengths(frame)
            with lock:
                total[0] += found

        options = {"subscription_type": kind, "timeout": TIMEOUT_SECONDS}
        running = [
            consume(self.bench.spark, self._root, str(topic.name), "s", add, consumer_name=f"c{number}", **options)
            for number in range(consumers)
        ]
        publish(self._messages(messages, keys), self._root, str(topic.name), sort_by_key=keys == "sorted by key")
        elapsed = seconds(lambda: self._await(CursorKey(topic.topic_id, -1, "s"), messages))
        for consumption in running:
            consumption.stop(0)
        for consumption in running:
            consumption.stop(TIMEOUT_SECONDS)
        if total[0] != messages * PAYLOAD_BYTES:
            raise AssertionError(f"{total[0]} bytes consumed of {messages} messages of {PAYLOAD_BYTES} bytes")
        return messages / elapsed

    def read_plainly(self, messages: int) -> None:
        """The files of the last run, with what its consumers do."""
        if plain_sum(self.bench.spark, self._last) != messages * PAYLOAD_BYTES:
            raise AssertionError(f"the topic has not {messages} messages of {PAYLOAD_BYTES} bytes")

    def _await(self, key: CursorKey, messages: int) -> None:
        until = time.monotonic() + TIMEOUT_SECONDS
        while time.monotonic() < until:
            if read_latest(self._layout).cursors[key]["mark_delete_position"] == messages - 1:
                return
            time.sleep(_LOOK_SECONDS)
        raise AssertionError(f"{messages} messages were not acknowledged in {TIMEOUT_SECONDS} s")

    def _messages(self, messages: int, keys: str) -> DataFrame:
        number = F.pmod(F.xxhash64("payload"), F.lit(KEYS))
        if keys == "a hot key":
            number = F.when(F.pmod(F.hash("payload"), F.lit(5)) == 0, 0).otherwise(number)
        return self.bench.messages(0, messages).withColumn("partition_key", F.concat(F.lit("key-"), number))
