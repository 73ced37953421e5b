"""A backlog of very many keys to DataFrame consumers of a Key_Shared subscription, against plainly reading the same
Parquet files and against the same consumers on a Shared one.

The broker is in a process of its own, all consumers in this one, as threads of one Spark session. They subscribe to a
new topic and wait; then one commit publishes all messages. A run is timed from that commit until all are acknowledged.
Keys lie at random, with the hash stored as producers that route by it do, or are sorted by hash as
``publish(sort_by_key=True)`` does; where hash ranges are split instead of hashed consistently, rows are sorted by the
slot of the hash (:data:`SLOTS`), so that what a consumer owns lies side by side. A hot key has a fifth of all messages.
Shared, to which keys are all the same, is measured beside keys at random. Runs of full size come before, which are
not counted: a broker prepares its compiled plans meanwhile, and Java compiles what both sides do. The plain read beside
a run is the best of three, since single ones differ twofold. Of a run's parts, "functions" is the time that consumers
spent inside their functions, of all of them together.
"""

import threading
import time
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from statistics import median
from unittest.mock import patch

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from pulsar_spark.admin import Admin
from pulsar_spark.demo.broker_process import BrokerProcess
from pulsar_spark.frames import consume, publish
from pulsar_spark.frames.publishing import message_rows
from pulsar_spark.protocol.keys.hash_ranges import SLOTS
from pulsar_spark.protocol.topics.routing import HashingScheme
from pulsar_spark.storage.cursor_ledger.cursor_ledger import CursorKey, read_latest
from pulsar_spark.storage.delta.log import TableLog
from pulsar_spark.storage.layout import Layout
from pulsar_spark.storage.topics.topics import Topic, create_topic, prepare_root
from pulsar_spark.transforms.key_hashes import hash_keys
from tests.benchmarks.backlog import TIMEOUT_SECONDS, plain_sum, sum_of_lengths
from tests.benchmarks.bench import PAYLOAD_BYTES, Bench, in_turns, seconds
from tests.benchmarks.figures import BYTES, PER_SECOND, Budget, Figure

FAMILY = "keyed_backlog"
KEYS = 10**6
BUDGETS = {1: 0.3, 4: 0.3, 32: 0.15}
BUDGET_MESSAGES = 10**7
RANDOM, SORTED, SPLIT, HOT = "keys at random", "sorted by key", "sorted by slot, hash ranges split", "a hot key"
CASES = [*((RANDOM, consumers) for consumers in (4, 32, 1)), (HOT, 4), (SPLIT, 4), (SPLIT, 32)]
CASES += [(SORTED, consumers) for consumers in BUDGETS]
QUICK_CASES = [(RANDOM, 4), (SORTED, 32)]
_WARM_UP = 20_000
_PLAIN_READS = 3
_LOOK_SECONDS = 0.02


def measure(bench: Bench) -> Iterator[Figure]:
    yield from measure_cases(bench, bench.few(2 * 10**5, BUDGET_MESSAGES), QUICK_CASES if bench.is_quick else CASES)


def measure_cases(bench: Bench, messages: int, cases: list[tuple[str, int]]) -> Iterator[Figure]:
    root = bench.new_folder("keyed_backlog") / "root"
    prepare_root(Layout(root))
    with BrokerProcess(root, bench.folder / "keyed_backlog.log"):
        bench.say("starting a broker")
        admin = Admin(f"delta:{root}", timeout_seconds=TIMEOUT_SECONDS)
        admin.set_max_unacked_per_consumer("public/default", 0)
        admin.set_max_unacked_per_subscription("public/default", 0)
        topics = _Topics(bench, root, admin)
        for kind in ("Shared", "KeyShared"):
            for size in (_WARM_UP, messages):
                topics.run(size, 4, RANDOM, kind)
        for keys, consumers in cases:
            yield from _figures(topics, messages, consumers, keys)
        yield from _price_of_pages(topics, messages)


def _price_of_pages(topics: "_Topics", messages: int) -> Iterator[Figure]:
    """What it costs that rows in order of hash are written in small pages, of which a reader of some keys skips most:
    bytes, and the speed of a reader of all."""
    topics.bench.say(f"publishing {messages:,} messages sorted by key, in small pages and in Spark's")
    small = topics.publish(messages, SORTED)
    with patch.object(message_rows, "BY_KEY_OPTIONS", {}):
        usual = topics.publish(messages, SORTED)
    sizes = [file_bytes(topic) / messages for topic in (small, usual)]
    rates = in_turns(
        topics.bench.few(2, 4),
        *(
            lambda topic=topic: messages / seconds(lambda: plain_sum(topics.bench.spark, topic))
            for topic in (small, usual)
        ),
    )
    what = f"{messages:,} x {PAYLOAD_BYTES} B sorted by key, in pages of 2,000 rows"
    yield Figure(FAMILY, f"{what}: bytes a message", BYTES, sizes[:1], "in pages of 20,000", sizes[1:])
    yield Figure(FAMILY, f"{what}: read of the Parquet files", PER_SECOND, rates[0], "in pages of 20,000", rates[1])


def file_bytes(topic: Topic) -> int:
    """The bytes of a topic's data files."""
    return sum(
        (Path(topic.path) / file.path).stat().st_size
        for commit in TableLog(topic.path).commits(0)
        for file in commit.added
    )


def _figures(topics: "_Topics", messages: int, consumers: int, keys: str) -> Iterator[Figure]:
    topics.bench.say(f"{messages:,} messages to {consumers} Key_Shared DataFrame consumers, {keys}")
    topics.parts.clear()
    others = [lambda: topics.run(messages, consumers, keys, "Shared")] if keys == RANDOM else []
    ours, plain, *shared = in_turns(
        topics.bench.few(1, 2) if keys == RANDOM else 1,
        lambda: topics.run(messages, consumers, keys, "KeyShared"),
        lambda: max(messages / seconds(lambda: topics.read_plainly(messages)) for _ in range(_PLAIN_READS)),
        *others,
        warm_up=0,
    )
    what = f"consume {messages:,} x {PAYLOAD_BYTES} B as frames, {consumers} consumers, {keys}"
    budget = Budget(BUDGETS[consumers], is_most=False, is_ratio=True) if messages == BUDGET_MESSAGES else None
    parts = topics.parts["KeyShared"]
    parts = {name: median(run[name] for run in parts) for name in parts[0]}
    yield Figure(FAMILY, what, PER_SECOND, ours, "read of the Parquet files", plain, budget, parts)
    for runs in shared:
        yield Figure(FAMILY, f"{what}, by Shared", PER_SECOND, ours, "Shared", runs)


class _Topics:
    """Topics of one root, a new one for each run, where the one before is deleted; ``parts`` says by type of
    subscription where the time of each run went."""

    def __init__(self, bench: Bench, root: Path, admin: Admin):
        self.bench, self._root, self._layout, self._admin = bench, root, Layout(root), admin
        self._names = (f"t{number}" for number in count())
        self._last = None
        self.parts: dict[str, list[dict[str, float]]] = {}

    def run(self, messages: int, consumers: int, keys: str, kind: str) -> float:
        """Messages a second of one run."""
        if self._last is not None:
            self._admin.delete_topic(str(self._last.name), force=True)
        self._last = topic = create_topic(self._layout, next(self._names))
        if keys == SPLIT:
            self._admin.set_policy(str(topic.name), "subscription_key_shared_use_consistent_hashing", 0)
        calls = _Calls()
        options = {"subscription_type": kind, "timeout": TIMEOUT_SECONDS}
        running = [
            consume(
                self.bench.spark, self._root, str(topic.name), "s", calls.add, consumer_name=f"c{number}", **options
            )
            for number in range(consumers)
        ]
        self._publish(topic, messages, keys)
        began = time.perf_counter()
        self._await(calls, CursorKey(topic.topic_id, -1, "s"), messages)
        ended = time.perf_counter()
        for consumption in running:
            consumption.stop(0)
        for consumption in running:
            consumption.stop(TIMEOUT_SECONDS)
        if calls.bytes != messages * PAYLOAD_BYTES:
            raise AssertionError(f"{calls.bytes} bytes consumed of {messages} messages of {PAYLOAD_BYTES} bytes")
        self.parts.setdefault(kind, []).append(calls.parts(began, ended))
        return messages / (ended - began)

    def publish(self, messages: int, keys: str) -> Topic:
        """A topic of its own that nobody consumes."""
        topic = create_topic(self._layout, next(self._names))
        self._publish(topic, messages, keys)
        return topic

    def _publish(self, topic: Topic, messages: int, keys: str) -> None:
        """With the hash of every key."""
        rows = self._messages(messages, keys)
        if keys == SPLIT:
            hashed = hash_keys(rows, F.col("partition_key").cast("binary"), "hash")
            rows = hashed.sortWithinPartitions(F.col("hash") % SLOTS.size).drop("hash")
        options = {"sort_by_key": keys == SORTED, "hashing_scheme": HashingScheme.Murmur3_32Hash}
        publish(rows, self._root, str(topic.name), **options)

    def read_plainly(self, messages: int) -> None:
        """The files of the last run, with what its consumers do."""
        if plain_sum(self.bench.spark, self._last) != messages * PAYLOAD_BYTES:
            raise AssertionError(f"the topic has not {messages} messages of {PAYLOAD_BYTES} bytes")

    def _await(self, calls: "_Calls", key: CursorKey, messages: int) -> None:
        """Rows are read only once all was handled: to read them every few milliseconds took a third of a core of the
        two that consumers and broker share."""
        until = time.monotonic() + TIMEOUT_SECONDS
        while time.monotonic() < until:
            is_handled = calls.bytes >= messages * PAYLOAD_BYTES
            if is_handled and read_latest(self._layout).cursors[key]["mark_delete_position"] == messages - 1:
                return
            time.sleep(_LOOK_SECONDS)
        raise AssertionError(f"{messages} messages were not acknowledged in {TIMEOUT_SECONDS} s")

    def _messages(self, messages: int, keys: str) -> DataFrame:
        number = F.pmod(F.xxhash64("payload"), F.lit(KEYS))
        if keys == HOT:
            number = F.when(F.pmod(F.hash("payload"), F.lit(5)) == 0, 0).otherwise(number)
        return self.bench.messages(0, messages).withColumn("partition_key", F.concat(F.lit("key-"), number))


class _Calls:
    """What all consumers of a run did in their functions."""

    def __init__(self):
        self.bytes, self._spans, self._lock = 0, [], threading.Lock()

    def add(self, frame: DataFrame, delivery) -> None:
        entered = time.perf_counter()
        found = sum_of_lengths(frame)
        with self._lock:
            self.bytes += found
            self._spans.append((entered, time.perf_counter()))

    def parts(self, began: float, ended: float) -> dict[str, float]:
        entered, left = zip(*sorted(self._spans))
        return {
            "first delivery": entered[0] - began,
            "from the first call to the end of the last": max(left) - entered[0],
            "functions": sum(left) - sum(entered),
            "after the last": ended - max(left),
        }
