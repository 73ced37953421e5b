"""Publish to receive: a broker in a process of its own, a producer and three Shared consumers (clients without a JVM)
in this one.

The broker is warm: messages before the measured ones are not counted. One at a time, at irregular moments, says what a
single message waits; a steady rate says what one among many does. What a single message waited for is read off the
tables: when its publish commit appeared, when the round that delivered it began (the round's own clock) and when that
round's commit appeared.
"""

import os
import queue
import random
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import median

import pulsar_spark as pulsar
from pulsar_spark.demo.broker_process import BrokerProcess
from pulsar_spark.protocol.topics.topic_name import parse_topic_name
from pulsar_spark.storage.cursor_ledger.committed_rounds import read_round
from pulsar_spark.storage.delta.log import TableLog
from pulsar_spark.storage.layout import Layout
from tests.benchmarks.bench import Bench
from tests.benchmarks.figures import SECONDS, Budget, Figure

TOPIC = "persistent://public/default/latency"
SUBSCRIPTIONS = 3
WARM_UP = 15
RATE = 20
P50, P99 = Budget(0.15), Budget(0.3)
"""On a quiet machine; a third more on a busy one."""
FAMILY = "latency"
PATIENCE_SECONDS = 120


class Receivers:
    """Three subscriptions' listeners that note when each message came, and acknowledge it. The payload says when it was
    sent."""

    def __init__(self, root: Path):
        self._client = pulsar.Client(f"delta:{root}", operation_timeout_seconds=PATIENCE_SECONDS)
        self._arrived: queue.Queue[tuple[float, float, int]] = queue.Queue()
        self.producer = self._client.create_producer(TOPIC)
        for number in range(SUBSCRIPTIONS):
            self._client.subscribe(
                TOPIC, f"s{number}", consumer_type=pulsar.ConsumerType.Shared, message_listener=self._listen
            )

    def __enter__(self) -> "Receivers":
        return self

    def __exit__(self, *_) -> None:
        self._client.shutdown()

    def _listen(self, consumer, message) -> None:
        self._arrived.put((float(message.data()), time.time(), message.message_id().ledger_id()))
        consumer.acknowledge(message)

    def arrivals(self, messages: int) -> list[tuple[float, float, int]]:
        """(sent, received, ledger id) of the next *messages* on each of the subscriptions."""
        return [self._arrived.get(timeout=PATIENCE_SECONDS) for _ in range(messages * SUBSCRIPTIONS)]

    def send_one(self) -> list[tuple[float, float, int]]:
        self.producer.send(repr(time.time()).encode())
        return self.arrivals(1)


def measure(bench: Bench) -> Iterator[Figure]:
    root = bench.new_folder("latency") / "root"
    with BrokerProcess(root, bench.folder / "latency.log"):
        bench.say("starting a broker")
        with Receivers(root) as receivers:
            yield from _one_at_a_time(bench, root, receivers)
            yield from _steady(bench, receivers)


def _one_at_a_time(bench: Bench, root: Path, receivers: Receivers) -> Iterator[Figure]:
    bench.say("warming up")
    for _ in range(WARM_UP):
        receivers.send_one()
    bench.say("single messages")
    pause = random.Random(1)
    arrived = []
    for _ in range(bench.few(30, 200)):
        time.sleep(pause.uniform(0.2, 0.6))
        arrived += receivers.send_one()
    waited = [received - sent for sent, received, _ in arrived]
    what = f"publish to receive, one at a time, {SUBSCRIPTIONS} subscriptions"
    yield Figure(FAMILY, f"{what}, p50", SECONDS, waited, budget=P50, parts=_parts(root, arrived))
    yield Figure(FAMILY, f"{what}, p99", SECONDS, waited, budget=P99, share=0.99)


def _steady(bench: Bench, receivers: Receivers) -> Iterator[Figure]:
    messages = RATE * bench.few(8, 30)
    bench.say(f"{RATE} messages a second")
    began = time.time()
    for number in range(messages):
        time.sleep(max(0.0, began + number / RATE - time.time()))
        receivers.producer.send_async(repr(time.time()).encode(), None)
    receivers.producer.flush()
    waited = [received - sent for sent, received, _ in receivers.arrivals(messages)]
    what = f"publish to receive, {RATE} a second, {SUBSCRIPTIONS} subscriptions"
    yield Figure(FAMILY, f"{what}, p50", SECONDS, waited)
    yield Figure(FAMILY, f"{what}, p99", SECONDS, waited, share=0.99)


def _parts(root: Path, arrived: list[tuple[float, float, int]]) -> dict[str, float]:
    """Medians of what a message waited for."""
    published = TableLog(Layout(root).topic(parse_topic_name(TOPIC)))
    delivered = _rounds_by_ledger(Layout(root))
    waits: list[tuple[float, ...]] = []
    for sent, received, ledger_id in arrived:
        began, committed = delivered[ledger_id]
        commit = _appeared(published, ledger_id)
        waits.append((commit - sent, began - commit, committed - began, received - committed))
    return dict(
        zip(("publish commit", "until a round begins", "round", "round's commit to receive"), map(median, zip(*waits)))
    )


def _rounds_by_ledger(layout: Layout) -> dict[int, tuple[float, float]]:
    """When the round that numbered a publish commit began, and when its own commit appeared."""
    path = layout.broker_table("cursor_ledger")
    log = TableLog(path)
    found: dict[int, tuple[float, float]] = {}
    numbered = 0
    for version in range(1, log.latest() + 1):
        rows = read_round(path, version).select(["kind", "ledger_id", "round_time"]).to_pylist()
        began = next((row["round_time"].timestamp() for row in rows if row["kind"] == "round"), None)
        if began is None:  # no round: housekeeping has put files together
            continue
        latest = max((row["ledger_id"] for row in rows if row["kind"] == "topic"), default=0)
        for ledger_id in range(numbered + 1, latest + 1):
            found[ledger_id] = began, _appeared(log, version)
        numbered = max(numbered, latest)
    return found


def _appeared(log: TableLog, version: int) -> float:
    return os.stat(log.folder / f"{version:020d}.json").st_mtime
