"""Chunked messages: splitting and reassembling against plainly writing and reading the same bytes, by the client and by
Spark, what memory that takes; and what a topic's small messages pay for chunked ones between them.

A process of its own for each (:mod:`tests.benchmarks.chunk_process`). What is plain is a Delta append of the same
payloads in one piece, and a read of it; every byte that is read is looked at.
"""

import json
import secrets
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
from pyspark.sql import functions as F

from pulsar_spark.admin import Admin
from pulsar_spark.demo.broker_process import BrokerProcess
from pulsar_spark.frames import publish
from pulsar_spark.frames.consuming.consumer import MAX_MESSAGES
from pulsar_spark.storage.layout import Layout
from pulsar_spark.storage.topics.topics import Topic, create_topic
from tests.benchmarks.backlog import TIMEOUT_SECONDS, Run
from tests.benchmarks.bench import PAYLOAD_BYTES, Bench, in_turns, peak_memory, resident_memory, seconds
from tests.benchmarks.figures import BYTES, COUNT, PER_SECOND, SECONDS, Budget, Figure
from tests.benchmarks.round_rig import RoundRig
from tests.support.orphans import incomplete, orphans

FAMILY = "chunks"
MB = 10**6
SIZES = {"6 MB": (6 * MB, 64), "64 MB": (64 * MB, 7), "1 GiB": (1 << 30, 1)}
"""Bytes of a message, and how many are sent in a run: 400 MB and more, so that what a run takes whatever its bytes does
not decide."""

LARGE = 1 << 30
"""Of smaller ones a process's memory holds more than three at no harm: row groups take it 200 MB."""

WAYS = {
    "send": "client: send, in chunks",
    "read": "client: read and put together",
    "split": "Spark: publish, in chunks",
    "reassemble": "Spark: read and put together",
}
ALONE = {("split", LARGE)}
"""Of which the plain way is not measured: a Delta append of 1 GiB in one row takes Java 17 GB, of which 12 are heap,
beside Python's 7, more than a machine of 24 GB has."""
HALF, THREE_TIMES = Budget(0.5, is_most=False, is_ratio=True), Budget(3)
EVERY, CHUNKS = 1_000, 3
INCOMPLETE, CHUNK_BYTES, CHUNKS_OF_LARGE = 100, 5 * MB, 20
NEARLY_AS_QUICK = Budget(1 / 1.3, is_most=False, is_ratio=True)


def measure(bench: Bench) -> Iterator[Figure]:
    """Splitting and reassembling, by size."""
    for size in ("6 MB", "64 MB") if bench.is_quick else SIZES:
        for way in WAYS:
            yield from _of_size(bench, way, size)


def measure_between(bench: Bench) -> Iterator[Figure]:
    """What a topic's other messages pay."""
    yield from _between_small_ones(bench, bench.few(10**5, 10**6))
    yield from _among_small_ones(bench)
    yield from _orphans(bench, bench.few(10**5, 10**6))
    yield from _incomplete(bench)


def _of_size(bench: Bench, way: str, size: str) -> Iterator[Figure]:
    message, messages = SIZES[size]
    bench.say(f"{WAYS[way]}: {messages} x {size}")
    runs = 2 if bench.is_quick or message == LARGE else 5
    asked = f"{runs}-ours" if (way, message) in ALONE else str(runs)
    ours, *plain = ([rate / MB for rate in rates] for rates in _measured(bench, way, message, messages, asked)["rates"])
    other = "Delta append of the same bytes" if way in ("send", "split") else "read of the same bytes"
    rate = f"{WAYS[way]}, messages of {size}: MB a second"
    if plain:
        yield Figure(FAMILY, rate, COUNT, ours, other, *plain, HALF)
    else:
        yield Figure(FAMILY, f"{rate} (a {other} ends for want of memory)", COUNT, ours)
    what = f"{WAYS[way]}: memory that a message of {size} takes at most, in messages"
    memory = _measured(bench, way, message, 1, "ours")["memory"]
    if message < LARGE:
        yield Figure(FAMILY, what, COUNT, [memory])
        return
    plainly = _measured(bench, way, message, 1, "plain")["memory"]
    if plainly is None:
        yield Figure(FAMILY, f"{what} (a {other} ends for want of memory)", COUNT, [memory], None, (), THREE_TIMES)
    else:
        yield Figure(FAMILY, what, COUNT, [memory], other, [plainly], THREE_TIMES)


def _measured(bench: Bench, way: str, message: int, messages: int, runs: str) -> dict:
    folder = bench.new_folder(f"chunks-{way}")
    arguments = [way, str(folder), str(message), str(messages), runs]
    command = [sys.executable, "-m", "tests.benchmarks.chunk_process", *arguments]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    bench.new_folder(folder.name)
    return json.loads(done.stdout.splitlines()[-1])


def _orphans(bench: Bench, count: int) -> Iterator[Figure]:
    """Chunks of as many messages that are never complete: the round that numbers them, and what stays in memory."""
    for chunk_id, what in ((0, "without a second one"), (1, "without a first one")):
        bench.say(f"{count:,} chunks {what}")
        rig = RoundRig(bench.planner, bench.new_folder("chunks-orphans"))
        topic = rig.create_topic("t")
        rig.subscribe([topic])
        rig.append(topic, orphans(count, chunk_id))
        before = resident_memory()
        result = []
        elapsed = seconds(lambda: result.append(rig.ask([])))
        if result[0].delivered_messages != 1:
            raise AssertionError(f"{result[0].delivered_messages} messages delivered instead of the one behind them")
        yield Figure(FAMILY, f"round: number {count:,} chunks {what}", SECONDS, [elapsed])
        grown = (resident_memory() - before) / count
        yield Figure(FAMILY, f"memory of the process since, a chunk of {count:,} {what}", BYTES, [grown])


def _incomplete(bench: Bench) -> Iterator[Figure]:
    """Large messages that lack their last chunk: the round that numbers them, beside that of as many small chunks. The
    bytes are zeros, which take little of the disk."""
    rounds, memory = {}, {}
    for chunk_bytes in (1, CHUNK_BYTES):
        bench.say(f"{INCOMPLETE} messages of {CHUNKS_OF_LARGE} chunks of {chunk_bytes:,} bytes, without their last one")
        rig = RoundRig(bench.planner, bench.new_folder("chunks-incomplete"))
        topic = rig.create_topic("t")
        rig.subscribe([topic])
        for number in range(INCOMPLETE):
            rig.append(topic, incomplete(number, CHUNKS_OF_LARGE, chunk_bytes))
        pa.default_memory_pool().release_unused()
        Path("/proc/self/clear_refs").write_text("5")  # the peak begins anew
        before = resident_memory()
        rounds[chunk_bytes] = rig.timed_round()
        memory[chunk_bytes] = peak_memory() - before
    what = f"{INCOMPLETE} incomplete messages of {CHUNKS_OF_LARGE * CHUNK_BYTES // MB} MB"
    small = "chunks of one byte"
    yield Figure(FAMILY, f"round: number {what}", SECONDS, [rounds[CHUNK_BYTES]], small, [rounds[1]])
    yield Figure(FAMILY, f"memory at most in the round: {what}", BYTES, [memory[CHUNK_BYTES]], small, [memory[1]])


def _among_small_ones(bench: Bench) -> Iterator[Figure]:
    """A frame with one large row among very many small ones is published."""
    small = bench.few(10**5, 10**6)
    bench.say(f"publishing a message of 1 GiB among {small:,} of {PAYLOAD_BYTES} B")
    memory = _measured(bench, "among", LARGE, small, "ours")["memory"]
    what = f"Spark: publish, in chunks: memory that a message of 1 GiB among {small:,} small ones takes, in messages"
    yield Figure(FAMILY, what, COUNT, [memory])


def _between_small_ones(bench: Bench, size: int) -> Iterator[Figure]:
    """A topic of small messages, every so many of which is in chunks, each as small as the others; and one without."""
    root = bench.new_folder("chunks-between") / "root"
    with BrokerProcess(root, bench.folder / "chunks.log"):
        bench.say("starting a broker")
        admin = Admin(f"delta:{root}", timeout_seconds=TIMEOUT_SECONDS)
        admin.set_max_unacked_per_consumer("public/default", 0)
        admin.set_max_unacked_per_subscription("public/default", 0)
        bench.say(f"publishing {size:,} messages, one in {EVERY:,} in chunks")
        chunked, small = (_published(bench, root, size, is_chunked) for is_chunked in (True, False))
        for kind in ("Exclusive", "Shared"):
            bench.say(f"consuming {size:,} messages, one in {EVERY:,} in chunks, {kind}")
            ours, plain = in_turns(
                bench.few(2, 5),
                lambda: size / _consumed(bench, root, chunked, kind, _bytes(size, True)),
                lambda: size / _consumed(bench, root, small, kind, _bytes(size, False)),
            )
            what = f"consume {size:,} x {PAYLOAD_BYTES} B, one in {EVERY:,} in {CHUNKS} chunks, {kind}"
            yield Figure(FAMILY, what, PER_SECOND, ours, "the same without chunks", plain, NEARLY_AS_QUICK)


def _consumed(bench: Bench, root: Path, topic: Topic, kind: str, expected: int) -> float:
    run = Run(bench.spark, root, topic, secrets.token_hex(4), kind, MAX_MESSAGES)
    if run.bytes != expected:
        raise AssertionError(f"{run.bytes} bytes consumed instead of {expected}")
    return run.seconds


def _published(bench: Bench, root: Path, size: int, is_chunked: bool) -> Topic:
    topic = create_topic(Layout(root), "chunked" if is_chunked else "small")
    messages = bench.messages(0, size).select("payload")
    if not is_chunked:
        publish(messages, root, str(topic.name))
        return topic
    number = F.monotonically_increasing_id() % EVERY
    long = F.when(number == 0, F.concat(*[F.col("payload")] * CHUNKS)).otherwise(F.col("payload"))
    publish(
        messages.select(long.alias("payload")),
        root,
        str(topic.name),
        chunking=True,
        chunk_max_message_size=PAYLOAD_BYTES,
    )
    return topic


def _bytes(size: int, is_chunked: bool) -> int:
    return PAYLOAD_BYTES * (size + (CHUNKS - 1) * (size // EVERY) * is_chunked)
