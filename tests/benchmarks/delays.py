"""Delayed delivery of very many messages: the index that Spark makes, rounds that promote what is due out of it, what
that costs in memory and at a start, and a million messages from publish to the last acknowledgement.

Rounds run in this process and at instants that are set. Deliver times lie at random, as many milliseconds wide as there
are messages, so a step of the clock promotes about as many entries as it has milliseconds.
``delays_billion`` is the first part with 10^9 messages: it needs some 40 GB of disk, and is run when it is named.
"""

import threading
import time
from collections.abc import Iterator
from pathlib import Path

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

import pulsar_spark as pulsar
from pulsar_spark.admin import Admin
from pulsar_spark.broker.bundle.load_bundle import load_bundle
from pulsar_spark.broker.delays.delay_build import SparkBuild
from pulsar_spark.broker.delays.delay_upkeep import DelayUpkeep
from pulsar_spark.demo.broker_process import BrokerProcess
from pulsar_spark.frames import consume, publish
from pulsar_spark.storage.clock import now_micros
from pulsar_spark.storage.layout import Layout
from pulsar_spark.storage.topics.topics import create_topic
from tests.benchmarks.bench import PAYLOAD_BYTES, Bench, resident_memory, seconds
from tests.benchmarks.figures import BYTES, PER_SECOND, SECONDS, Budget, Figure
from tests.benchmarks.round_rig import RoundRig
from tests.support.requests import On

FAMILY = "delays"
STEPS = (1_000, 100_000)
COMMIT = 10**7
HOUR = 3_600_000_000
"""Microseconds until the first one is due: less than a consumer's lease, which a step of the clock must not end."""
MESSAGE_BYTES, FLAT, STATE_ROWS = Budget(10), Budget(1.3, is_ratio=True), Budget(10_000)
DRAIN_SECONDS, RESTART_SECONDS = Budget(10), Budget(15)
TIMEOUT_SECONDS = 600


def measure(bench: Bench) -> Iterator[Figure]:
    sizes = [10**5, 10**6] if bench.is_quick else [10**6, 10**7, 10**8]
    yield from _of_sizes(bench, sizes)
    yield from _many_subscriptions(bench, sizes[0])
    yield from _state(bench, bench.few(10**6, 10**7))
    yield from _from_end_to_end(bench, bench.few(10**5, 10**6))


def measure_billion(bench: Bench) -> Iterator[Figure]:
    """10^9 messages, compared with 10^6."""
    yield from _of_sizes(bench, [10**6, 10**9])


def _of_sizes(bench: Bench, sizes: list[int]) -> Iterator[Figure]:
    smallest: dict[int, list[float]] = {}
    for size in sizes:
        pending = _Pending(bench, f"pending-{size}", size)
        yield from pending.figures()
        for step in (STEPS[0], bench.few(10_000, STEPS[1])):
            rounds = [pending.promote(step) for _ in range(bench.few(3, 7))][1:]
            first = smallest.setdefault(step, rounds)
            what = f"round: {step:,} of {size:,} pending come due"
            is_first = first is rounds
            yield Figure(
                FAMILY,
                what,
                SECONDS,
                rounds,
                None if is_first else f"of {sizes[0]:,}",
                () if is_first else first,
                None if is_first else FLAT,
            )
        yield Figure(FAMILY, f"memory of the process since the publish, {size:,} pending", BYTES, [pending.grown()])
        starts = [seconds(lambda: load_bundle(pending.rig.layout)) for _ in range(bench.few(1, 3))]
        what = f"loading the state and the index at a start, {size:,} pending"
        yield Figure(FAMILY, what, SECONDS, starts, budget=RESTART_SECONDS)


class _Pending:
    """A topic with *size* delayed messages, and *subscriptions* that wait for them."""

    def __init__(self, bench: Bench, name: str, size: int, subscriptions: int = 1):
        self.size, self.now, self.taken = size, now_micros(), 0
        self.rig = RoundRig(bench.planner, bench.new_folder(name), lambda: self.now)
        self.topic = self.rig.create_topic("t")
        self.subscribed = self.rig.subscribe([self.topic], subscriptions)
        self.begin = (self.now + HOUR) // 1000 * 1000  # deliver times are whole milliseconds
        bench.say(f"publishing {size:,} delayed messages")
        for first in range(0, size, COMMIT):
            publish(self._messages(bench, first, min(first + COMMIT, size)), self.rig.layout.root, self.topic)
        index = self.rig.rounds.bundle.delay_index
        self.upkeep = DelayUpkeep(index, SparkBuild(bench.spark, index.table, index.places))
        index.is_attended = True
        self.memory = resident_memory()
        bench.say(f"indexing {size:,} delayed messages")
        self.numbered = seconds(lambda: self.rig.ask([]))
        self.built = seconds(self.upkeep.work)
        self.passing = [self.rig.timed_round()]
        while self.rig.rounds.has_work():
            self.passing.append(self.rig.timed_round())
        if index.count(self._topic_id, -1, 0) != size:
            raise AssertionError(f"the index has {index.count(self._topic_id, -1, 0)} of {size} messages")

    @property
    def _topic_id(self) -> str:
        return self.rig.rounds.bundle.topics[self.topic].topic.topic_id

    def _messages(self, bench: Bench, first: int, until: int) -> DataFrame:
        due = F.timestamp_micros(F.lit(self.begin) + 1000 * F.pmod(F.xxhash64("id"), F.lit(self.size)))
        rows = bench.spark.range(first, until, numPartitions=2)
        return rows.select(F.lit(b"x").alias("payload"), due.alias("deliver_at_time"))

    def figures(self) -> Iterator[Figure]:
        yield Figure(
            FAMILY, f"index a message, {self.size:,} pending", BYTES, [self.index_bytes()], budget=MESSAGE_BYTES
        )
        what = f"make the index of {self.size:,} messages by Spark"
        parts = {"number them": self.numbered, "make the index": self.built}
        yield Figure(FAMILY, what, PER_SECOND, [self.size / self.built], parts=parts)
        what = f"a new subscription passes over {self.size:,} pending, all told"
        yield Figure(FAMILY, what, SECONDS, [sum(self.passing)], parts={"longest round": max(self.passing)})

    def index_bytes(self) -> float:
        folder = Path(self.rig.layout.broker_table("delay_index"))
        return sum(file.stat().st_size for file in folder.rglob("*.parquet")) / self.size

    def promote(self, entries: int) -> float:
        """The seconds of a round in which about so many come due; they are acknowledged in another one."""
        self.now = self.begin + 1000 * (self.taken + entries - 1)
        due = self.rig.rounds.bundle.delay_index.count(self._topic_id, -1, self.begin + 1000 * self.taken - 1, self.now)
        self.taken += entries
        if self.taken > self.size:
            raise AssertionError(f"{self.size} messages are too few for this")
        began = time.perf_counter()
        result = self.rig.ask([])
        elapsed = time.perf_counter() - began
        if result.delivered_messages != due * len(self.subscribed):
            raise AssertionError(f"{result.delivered_messages} delivered, not {due} to each subscription")
        delivery_round = self.rig.rounds.bundle.round
        self.rig.ask([_delivered(on, self.size, delivery_round) for on in self.subscribed])
        return elapsed

    def grown(self) -> float:
        return resident_memory() - self.memory


def _delivered(on: On, messages: int, delivery_round: int) -> dict:
    """The acknowledgement of all that a round delivered."""
    return on.ack(0, messages - 1, consumer="c", delivery_round=delivery_round)


def _many_subscriptions(bench: Bench, size: int, subscriptions: int = 100) -> Iterator[Figure]:
    pending = _Pending(bench, "pending-many", size, subscriptions)
    alone = _Pending(bench, "pending-alone", size)
    what = f"index a message, {size:,} pending, {subscriptions} subscriptions"
    yield Figure(
        FAMILY, what, BYTES, [pending.index_bytes()], "one", [alone.index_bytes()], Budget(1.01, is_ratio=True)
    )
    rounds = [pending.promote(STEPS[0]) for _ in range(bench.few(3, 7))]
    what = f"round: {STEPS[0]:,} of {size:,} pending come due for {subscriptions} subscriptions"
    yield Figure(FAMILY, what, SECONDS, rounds[1:])


def _state(bench: Bench, messages: int) -> Iterator[Figure]:
    """Every second message is delayed, the others are acknowledged."""
    rig = RoundRig(bench.planner, bench.new_folder("half"))
    topic = rig.create_topic("t")
    (on,) = rig.subscribe([topic])
    bench.say(f"{messages:,} messages, every second one delayed")
    due = F.when(F.col("id") % 2 == 1, F.timestamp_micros(F.lit(now_micros() + HOUR) + 1000 * F.col("id")))
    rows = bench.spark.range(messages, numPartitions=2)
    publish(rows.select(F.lit(b"x").alias("payload"), due.alias("deliver_at_time")), rig.layout.root, topic)
    (cursor,) = rig.rounds.bundle.cursors.values()
    rounds, result = [], rig.ask([])
    while result.delivered_messages:
        began = time.perf_counter()
        result = rig.ask([_delivered(on, messages, rig.rounds.bundle.round)])
        rounds.append(time.perf_counter() - began)
    rows_of_state = cursor.entries.stretches
    waiting = sum(last - first + 1 for first, last in cursor.backlog(0, messages - 1))
    if waiting != messages // 2:
        raise AssertionError(f"{waiting} messages are left of {messages}")
    what = f"rows of state: {messages:,} messages, every second one waits, the others are acknowledged"
    yield Figure(FAMILY, what, "", [rows_of_state], budget=STATE_ROWS)
    what = f"round: take back and hand out some of {messages // 2:,} messages between as many that wait"
    yield Figure(FAMILY, what, SECONDS, rounds)


def _from_end_to_end(bench: Bench, messages: int) -> Iterator[Figure]:
    """Published, waited for, and drained: by the client and by Spark."""
    root = bench.new_folder("end_to_end") / "root"
    for topic in ("client", "spark"):
        create_topic(Layout(root), topic)
    with BrokerProcess(root, bench.folder / "end_to_end.log"):
        admin = Admin(f"delta:{root}", timeout_seconds=TIMEOUT_SECONDS)
        admin.set_max_unacked_per_consumer("public/default", 0)
        admin.set_max_unacked_per_subscription("public/default", 0)
        many = f"{messages:,} x {PAYLOAD_BYTES} B, delayed"
        for who, run in (("client", _client), ("Spark", _spark)):
            bench.say(f"{many}: {who}")
            published, drained = run(bench, root, messages)
            yield Figure(FAMILY, f"{who}: publish {many}", SECONDS, [published], budget=DRAIN_SECONDS)
            yield Figure(
                FAMILY,
                f"{who}: from the deliver time to the last one, {many}",
                SECONDS,
                [drained],
                budget=DRAIN_SECONDS,
            )


def _client(bench: Bench, root: Path, messages: int) -> tuple[float, float]:
    client = pulsar.Client(f"delta:{root}", operation_timeout_seconds=TIMEOUT_SECONDS)
    consumer = client.subscribe("client", "s", pulsar.ConsumerType.Shared, receiver_queue_size=50_000)
    producer = client.create_producer("client", max_pending_messages=50_000, block_if_queue_full=True)
    due_ms = now_micros() // 1000 + bench.few(30_000, 90_000)

    def send() -> None:
        for _ in range(messages):
            producer.send_async(b"x" * PAYLOAD_BYTES, None, deliver_at=due_ms)
        producer.flush()

    published = seconds(send)
    for _ in range(messages):
        consumer.acknowledge(consumer.receive(TIMEOUT_SECONDS * 1000))
    drained = now_micros() / 1e6 - due_ms / 1e3
    client.close()
    return published, drained


def _spark(bench: Bench, root: Path, messages: int) -> tuple[float, float]:
    counted, is_done = [0], threading.Event()

    def count(frame: DataFrame, delivery) -> None:
        counted[0] += frame.count()
        if counted[0] >= messages:
            is_done.set()

    consumption = consume(bench.spark, root, "spark", "s", count, subscription_type="Shared", timeout=TIMEOUT_SECONDS)
    due = now_micros() + bench.few(20_000_000, 40_000_000)
    frame = bench.messages(0, messages).select("payload", F.timestamp_micros(F.lit(due)).alias("deliver_at_time"))
    published = seconds(lambda: publish(frame, root, "spark"))
    if not is_done.wait(TIMEOUT_SECONDS):
        raise AssertionError(f"{counted[0]} of {messages} messages were delivered")
    drained = (now_micros() - due) / 1e6
    consumption.stop()
    return published, drained
