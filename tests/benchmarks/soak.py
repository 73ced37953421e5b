"""Does anything grow while a broker serves for long, with clients that come and go, and keeps house?

One producer sends message by message; consumers of a Shared subscription receive and acknowledge them, each for a
while, then it closes and another comes. The first thousand rounds are left out, or a third where there are fewer:
nothing is old enough yet to be put away, and housekeeping has less to do than ever after. Compared is the tenth of the
rounds behind them with the last one. Nothing is kept for its time and housekeeping takes no rests, since rounds follow
each other as quickly as they can: so what it leaves is all there is. Tables tell of files that left them for a minute:
else each checkpoint would repeat them for Delta's week, and be made the more rarely the more they are.
``PULSAR_SPARK_SOAK_ROUNDS`` says how many rounds there are.

A round's time follows what else the machine does in these minutes, so the time of a processor is told too: of the
thread that runs rounds, or with Spark of its JVM. The JVM collects what is garbage when it must, so its memory grows to
what it was given, whatever is in use: what is after a collection is told apart.
"""

import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from statistics import median
from typing import NamedTuple

from pyspark.sql import SparkSession

import pulsar_spark as pulsar
from pulsar_spark.broker.runner import Broker
from pulsar_spark.storage.session import spark_session
from pulsar_spark.testing.plain_broker import PlainBroker
from tests.benchmarks.bench import Bench, resident_memory
from tests.benchmarks.figures import BYTES, COUNT, SECONDS, Budget, Figure
from tests.benchmarks.kept_broker import quickly_old

TOPIC = "persistent://public/default/soak"
SETTLED, PARTS, SAMPLES = 1000, 10, 20
"""Rounds that are left out, parts of a run, and in each so many looks, of which the median counts: files are opened and
written all the time."""
MESSAGES_A_LIFE = 200
KEPT_SECONDS = 10
NO_DRIFT = Budget(1.1, is_ratio=True)


class State(NamedTuple):
    """What there is at a moment: memory of Python and of the JVM, open files, files under the root."""

    python: int
    jvm: int
    open_files: int
    files: int


def measure(bench: Bench) -> Iterator[Figure]:
    """With Spark."""
    bench.say("starting Spark")
    session = spark_session(for_rounds=True)  # before any other: the JVM is a broker's
    yield from _soak(bench, "soak", session, lambda root, **options: Broker(session, root, **options))


def measure_plain(bench: Bench) -> Iterator[Figure]:
    """Without."""
    yield from _soak(bench, "soak_plain", None, lambda root, **options: PlainBroker(root, housekeeping=True, **options))


def _soak(bench: Bench, family: str, session: SparkSession | None, broker: Callable) -> Iterator[Figure]:
    rounds = int(os.environ.get("PULSAR_SPARK_SOAK_ROUNDS", bench.few(1000, 10_000)))
    root, took, states, done = bench.new_folder(family) / "root", [], [], threading.Event()
    jvm = session.sparkContext._gateway.proc.pid if session else None
    worked, in_use, early = [], [], min(SETTLED, rounds // 3) + rounds // PARTS

    def note(_result, seconds: float) -> None:
        took.append(seconds)
        worked.append(_processor_seconds(jvm) if jvm else time.thread_time())
        if session and len(took) in (early, rounds):
            in_use.append(_bytes_in_use(session))
        if len(took) % max(1, rounds // PARTS // SAMPLES) == 0:
            states.append(_state(root, jvm))
            bench.say(f"{family}: {len(took):,} of {rounds:,} rounds, {states[-1]}")
        if len(took) >= rounds:
            done.set()

    with quickly_old(KEPT_SECONDS, LOOK_SECONDS=2.0, IDLE_SECONDS=10.0, REST=0), broker(root, on_round=note):
        _come_and_go(root, done)
    yield from _figures(family, rounds, took, states)
    yield from _worked(family, rounds, worked)
    if session:
        words, compared = f"in use in the JVM behind a collection, after {rounds:,} rounds", f"{early:,}"
        yield Figure(family, words, BYTES, in_use[1:], compared, in_use[:1], NO_DRIFT)


def _come_and_go(root: Path, done: threading.Event) -> None:
    """Clients, until enough rounds are *done*."""
    url, sent = f"delta:{root}", 0
    with closing(pulsar.Client(url)) as sender:
        producer = sender.create_producer(TOPIC)
        while not done.is_set():
            with closing(pulsar.Client(url)) as client:
                consumer = client.subscribe(
                    TOPIC,
                    "s",
                    consumer_type=pulsar.ConsumerType.Shared,
                    initial_position=pulsar.InitialPosition.Earliest,
                )
                for _ in range(MESSAGES_A_LIFE):
                    producer.send(b"%d" % sent)
                    sent += 1
                    consumer.acknowledge(consumer.receive(60_000))
                    if done.is_set():
                        return


def _state(root: Path, jvm: int | None) -> State:
    return State(
        resident_memory(),
        resident_memory(jvm) if jvm else 0,
        len(os.listdir("/proc/self/fd")),
        sum(len(files) for _, _, files in os.walk(root)),
    )


def _processor_seconds(pid: int) -> float:
    """A process's time of processors so far."""
    with open(f"/proc/{pid}/stat") as status:
        fields = status.read().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _bytes_in_use(session: SparkSession) -> int:
    """Of the JVM: objects that are reachable, and what lies beside the heap."""
    session._jvm.java.lang.System.gc()
    memory = session._jvm.java.lang.management.ManagementFactory.getMemoryMXBean()
    return memory.getHeapMemoryUsage().getUsed() + memory.getNonHeapMemoryUsage().getUsed()


def _worked(family: str, rounds: int, worked: list[float]) -> Iterator[Figure]:
    """What a round took of a processor, of the two tenths that are compared."""
    part, settled = rounds // PARTS, min(SETTLED, rounds // 3)
    before, after = ((worked[first + part - 1] - worked[first - 1]) / part for first in (settled, rounds - part))
    words = f"a processor's time for a round: the last {part:,} of {rounds:,} rounds"
    yield Figure(family, words, SECONDS, [after], f"the {part:,} behind the first {settled:,}", [before], NO_DRIFT)


def _figures(family: str, rounds: int, took: list[float], states: list[State]) -> Iterator[Figure]:
    part, settled = rounds // PARTS, min(SETTLED, rounds // 3)
    early, late = took[settled : settled + part], took[rounds - part : rounds]
    compared = f"the {part:,} behind the first {settled:,}"
    words = f"the last {part:,} of {rounds:,} rounds"
    yield Figure(family, f"a round: {words}", SECONDS, [median(late)], compared, [median(early)], NO_DRIFT)
    units = {"python": BYTES, "jvm": BYTES, "open_files": COUNT, "files": COUNT}
    names = {"python": "memory of Python", "jvm": "memory of the JVM", "open_files": "open files", "files": "files"}
    for name, unit in units.items():
        found = [getattr(state, name) for state in states]
        looks, first = len(found) // PARTS, settled * len(found) // rounds
        before, after = found[first : first + looks], found[-looks:]
        if any(before):
            yield Figure(family, f"{names[name]} in {words}", unit, after, compared, before, NO_DRIFT)
