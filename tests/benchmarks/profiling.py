"""Where the time of a round goes: its phases, the driver's Python, and the JVM.

Python is profiled by cProfile. The JVM is sampled from another thread: what the threads that run Spark's tasks and
answer Python are doing, by the innermost frame of Spark or, where the eight frames Java gives hold none, the innermost
of all. A plan that only reads the same input says what a Spark job costs before it does anything.
"""

import cProfile
import io
import pstats
import re
import threading
from collections import Counter
from collections.abc import Iterator
from functools import partial

from pyspark.sql import SparkSession

from pulsar_spark.broker.planning.planner import LENGTHS
from tests.benchmarks.bench import Bench, seconds, warm_up
from tests.benchmarks.figures import quantile
from tests.benchmarks.round_rig import RoundRig, median_parts
from tests.benchmarks.table import shown

CASES = ((1, 3), (1, 100), (10_000, 3))
ROUNDS = 20
SAMPLE_SECONDS = 0.005
_THREADS = re.compile(r'"(Executor task launch worker|Thread-\d+)')
_FRAME = re.compile(r"\tat (?:\S+//?)?(\S+)\((\S*)\)")


def profile_rounds(bench: Bench) -> Iterator[str]:
    """The report, for rounds of some messages and subscriptions."""
    yield f"a job that reads the same input and plans nothing: {shown(_floor(bench))}\n\n"
    for messages, subscriptions in CASES:
        bench.say(f"profiling rounds of {messages:,} messages, {subscriptions} subscriptions")
        rig = RoundRig(bench.planner, bench.new_folder(f"profile-{messages}-{subscriptions}"))
        topic = rig.create_topic("t")
        subscribed = rig.subscribe([topic], subscriptions)
        warm_up(partial(rig.timed_delivery, topic, messages, subscribed))
        with rig.phases() as phases:
            runs = [rig.timed_delivery(topic, messages, subscribed) for _ in range(ROUNDS)]
        parts = ", ".join(f"{name} {shown(value)}" for name, value in median_parts(phases).items())
        median = shown(quantile(runs, 0.5))
        yield f"== {messages:,} new messages, {subscriptions} subscriptions: median {median}; {parts}\n"
        profile = cProfile.Profile()
        with JvmSamples(bench.spark) as samples:
            for _ in range(ROUNDS):
                _profiled_delivery(rig, topic, messages, subscribed, profile)
        yield f"{_python_report(profile)}JVM, share of samples:\n"
        yield from (f"  {share:4.0%}  {frame}\n" for frame, share in samples.shares())
        yield "\n"


def _profiled_delivery(rig: RoundRig, topic: str, messages: int, subscribed: list, profile: cProfile.Profile) -> None:
    end = rig.rounds.bundle.topics[topic].end_position(-1)
    rig.publish(topic, messages)
    profile.enable()
    rig.ask([])
    profile.disable()
    rig.ask([on.ack(end, end + messages - 1) for on in subscribed])


def _python_report(profile: cProfile.Profile) -> str:
    out = io.StringIO()
    stats = pstats.Stats(profile, stream=out).strip_dirs()
    for order in ("cumulative", "tottime"):
        stats.sort_stats(order).print_stats(25)
    return out.getvalue()


def _floor(bench: Bench) -> float:
    path = bench.planner.folder / "interpreted" / f"inputs-{LENGTHS[0]}.parquet"
    frame = bench.spark.read.parquet(str(path)).coalesce(1)
    warm_up(lambda: seconds(frame.toArrow))
    return quantile([seconds(frame.toArrow) for _ in range(ROUNDS)], 0.5)


class JvmSamples:
    """A context: samples the JVM's busy threads while it is open."""

    def __init__(self, spark: SparkSession):
        jvm = spark.sparkContext._jvm
        self._threads = jvm.java.lang.management.ManagementFactory.getThreadMXBean()
        self._to_text = jvm.org.apache.commons.lang3.ArrayUtils.toString
        self._found: Counter[str] = Counter()
        self._is_over = threading.Event()
        self._sampler = threading.Thread(target=self._sample, daemon=True)

    def __enter__(self) -> "JvmSamples":
        self._sampler.start()
        return self

    def __exit__(self, *_) -> None:
        self._is_over.set()
        self._sampler.join()

    def _sample(self) -> None:
        while not self._is_over.wait(SAMPLE_SECONDS):
            for thread in self._to_text(self._threads.dumpAllThreads(False, False)).split("\n\n"):
                head, _, stack = thread.partition("\n")
                if "RUNNABLE" in head and _THREADS.search(head) and (frame := _frame(stack)):
                    self._found[frame] += 1

    def shares(self) -> list[tuple[str, float]]:
        """The most frequent frames and their share of all samples of busy threads."""
        total = self._found.total()
        return [(frame, found / total) for frame, found in self._found.most_common(25)]


def _frame(stack: str) -> str | None:
    """The frame a stack counts for; None for a thread that waits for a socket or samples."""
    frames = [match[1] for match in _FRAME.finditer(stack)]
    if not frames or any(
        "SocketDispatcher.read" in frame or "ThreadImpl.dump" in frame or "socketRead" in frame or ".accept" in frame
        for frame in frames
    ):
        return None
    return next((frame for frame in frames if frame.startswith(("org.apache.spark", "io.delta"))), frames[0])
