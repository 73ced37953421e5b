"""Brokers that share the bundles of one root, without Spark: 1, 2 and 4 processes serve four bundles of a topic each,
beside one client process that sends to all of them, receives and acknowledges.

The numbers of brokers are measured in turns: as many more are started, and end. A run is a while in which every topic's
next message is sent when the one before has come. What brokers use of the processors says what limits them: where it
is all there is, more of them bring nothing.
"""

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import NamedTuple

import pulsar_spark as pulsar
from pulsar_spark.admin import Admin
from pulsar_spark.broker.bundle.split import split_bundle
from pulsar_spark.protocol.topics.bundles import topic_hash
from pulsar_spark.storage.layout import Layout
from pulsar_spark.storage.topics.bundles import bundles_of, layouts_of
from pulsar_spark.storage.topics.topics import prepare_root
from tests.benchmarks.bench import Bench
from tests.benchmarks.figures import PER_SECOND, SECONDS, Figure

FAMILY = "bundles"
BROKERS = (1, 2, 4)
DEADLINE_SECONDS, LOOK_SECONDS = 60, 0.1
TICKS = os.sysconf("SC_CLK_TCK")


def measure(bench: Bench) -> Iterator[Figure]:
    root = bench.new_folder(FAMILY) / "root"
    topics = _split(root)
    admin = Admin(f"delta:{root}")
    found: dict[int, list[_Rate]] = {count: [] for count in BROKERS}
    with closing(pulsar.Client(f"delta:{root}", operation_timeout_seconds=DEADLINE_SECONDS)) as client:
        trips: list[_Trips] = []
        for run in range(bench.few(2, 4)):
            with ExitStack() as ending:
                brokers: list[subprocess.Popen] = []
                for count in BROKERS:
                    bench.say(f"bundles: run {run + 1}, {count} brokers")
                    while len(brokers) < count:
                        brokers.append(ending.enter_context(_broker(root)))
                    _await_share(admin, count)
                    trips = trips or [_Trips(client, topic) for topic in topics]
                    found[count].append(_measure(trips, brokers, bench.few(3, 10)))
    for count in BROKERS:
        what = f"messages sent, received and acknowledged one at a time on 4 topics, 4 bundles, {count} plain brokers"
        rates, of_brokers, of_client = zip(*found[count], strict=True)
        yield Figure(FAMILY, what, PER_SECOND, rates, "1 broker", [each.a_second for each in found[1]])
        what = f"processor's time of the brokers for each, {count} plain brokers"
        yield Figure(FAMILY, what, SECONDS, of_brokers, "of the client", of_client)


def _split(root: Path) -> list[str]:
    """A root of four bundles; a topic of each."""
    prepare_root(Layout(root))
    for _ in range(2):
        for layout in layouts_of(Layout(root)):
            split_bundle(layout)
    names = [f"persistent://public/default/t{number}" for number in range(100)]
    ranges = bundles_of(Layout(root)).ranges
    return [next(name for name in names if served.lower <= topic_hash(name) < served.upper) for served in ranges]


@contextmanager
def _broker(root: Path) -> Iterator[subprocess.Popen]:
    command = [sys.executable, "-m", "tests.broker.sharing_broker", str(root)]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as process:
        try:
            yield process
        finally:
            process.kill()


def _await_share(admin: Admin, count: int) -> None:
    """Until so many brokers serve as many bundles each as the others."""
    deadline = time.monotonic() + DEADLINE_SECONDS
    while time.monotonic() < deadline:
        served = [each["broker"] for each in admin.bundles()]
        if None not in served and {served.count(each) for each in served} == {len(served) // count}:
            return
        time.sleep(LOOK_SECONDS)
    raise TimeoutError(f"{count} brokers do not share {admin.bundles()}")


class _Trips:
    """A producer and a consumer of one topic."""

    def __init__(self, client: pulsar.Client, topic: str):
        self._producer = client.create_producer(topic)
        self._consumer = client.subscribe(topic, "s", pulsar.ConsumerType.Shared)

    def go(self, until: float) -> int:
        """How many messages came and went."""
        count = 0
        while time.monotonic() < until:
            self._producer.send(b"x")
            self._consumer.acknowledge(self._consumer.receive(DEADLINE_SECONDS * 1000))
            count += 1
        return count


class _Rate(NamedTuple):
    """Messages a second, and seconds of a processor that brokers and the client used for one."""

    a_second: float
    of_brokers: float
    of_client: float


def _measure(trips: list[_Trips], brokers: list[subprocess.Popen], seconds: float) -> _Rate:
    with ThreadPoolExecutor(len(trips)) as pool:
        began, used, own = time.monotonic(), _used(brokers), time.process_time()
        count = sum(pool.map(lambda each: each.go(began + seconds), trips))
        rate = count / (time.monotonic() - began)
        return _Rate(rate, (_used(brokers) - used) / count, (time.process_time() - own) / count)


def _used(brokers: list[subprocess.Popen]) -> float:
    fields = [Path(f"/proc/{each.pid}/stat").read_text().rpartition(")")[2].split() for each in brokers]
    return sum(int(each[11]) + int(each[12]) for each in fields) / TICKS
