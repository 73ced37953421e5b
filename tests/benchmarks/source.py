"""``format("pulsar_spark")``: its rates beside plainly reading the same Parquet and beside ``consume``, and what a read
of one hour opens.

The broker is in a process of its own. A stream is timed from its start to its end, when all is acknowledged. Each run
with a subscription has a new one, and a new checkpoint; of its parts, those with Spark's names are sums over its
micro-batches.
"""

import os
import time
from array import array
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta, timezone
from itertools import count
from pathlib import Path
from statistics import median

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql.types import BinaryType, StructField, StructType

from pulsar_spark.admin import Admin
from pulsar_spark.demo.broker_process import BrokerProcess
from pulsar_spark.frames import publish
from pulsar_spark.frames.consuming.membership import MAX_MESSAGES
from pulsar_spark.frames.source.batch_reader import BatchReader
from pulsar_spark.frames.source.data_source import NAME
from pulsar_spark.frames.source.options import parse_options
from pulsar_spark.frames.source.source_columns import source_schema
from pulsar_spark.frames.source.writing.topic_writers import BatchWriter
from pulsar_spark.storage.delta.actions import AddedFile
from pulsar_spark.storage.delta.log import TableLog
from pulsar_spark.storage.layout import Layout
from pulsar_spark.storage.store.durability import NONE, write_durability
from pulsar_spark.storage.topics.topics import Topic, create_topic, read_topic
from tests.benchmarks import source_latency
from tests.benchmarks.backlog import COMMIT, Run, plain_sum, sum_of_lengths
from tests.benchmarks.bench import PAYLOAD_BYTES, Bench, in_turns
from tests.benchmarks.figures import BYTES, PER_SECOND, Budget, Figure

FAMILY = source_latency.FAMILY
PAYLOADS = StructType([StructField("payload", BinaryType())])
STREAM, CONSUME, PLAIN = "stream with a subscription", "consume", "read of the Parquet files"
OF_PLAIN, OF_CONSUME = (Budget(limit, is_most=False, is_ratio=True) for limit in (0.5, 0.8))
OF_HOUR = Budget(1.2, is_ratio=True)
TIMEOUT_SECONDS = 120


def measure(bench: Bench) -> Iterator[Figure]:
    yield from _hour(bench)
    root = bench.new_folder("source") / "root"
    size = bench.few(10**6, 10**7)
    topic = create_topic(Layout(root), "t")
    with BrokerProcess(root, bench.folder / "source.log"):
        bench.say("starting a broker")
        admin = Admin(f"delta:{root}", timeout_seconds=TIMEOUT_SECONDS)
        admin.set_max_unacked_per_consumer("public/default", 0)
        admin.set_max_unacked_per_subscription("public/default", 0)
        for first in range(0, size, COMMIT):
            bench.say(f"publishing {size:,} messages")
            publish(bench.messages(first, min(first + COMMIT, size)), root, "t")
        yield from _rates(bench, root, topic, size)
        yield from source_latency.measure(bench, root)


def _rates(bench: Bench, root: Path, topic: Topic, size: int) -> Iterator[Figure]:
    bench.say(f"reading {size:,} messages in turns")
    reads = _Reads(bench, root, size)
    actions: dict[str, Callable[[], float]] = {
        STREAM: lambda: reads.stream(STREAM, PAYLOADS, subscription=reads.new_name()),
        f"{STREAM}, all columns": lambda: reads.stream(f"{STREAM}, all columns", None, subscription=reads.new_name()),
        "stream without a subscription": lambda: reads.stream("stream without a subscription", PAYLOADS),
        "batch read": reads.checked(lambda: sum_of_lengths(reads.frame(PAYLOADS))),
        "batch read, all columns": reads.checked(lambda: sum_of_lengths(reads.frame(None))),
        CONSUME: lambda: reads.consume(topic),
        PLAIN: reads.checked(lambda: plain_sum(bench.spark, topic)),
    }
    runs = dict(zip(actions, in_turns(bench.few(1, 3), *actions.values())))
    for name in [*actions][:-2]:
        what, budget = f"{name}, {size:,} x {PAYLOAD_BYTES} B", OF_PLAIN if name == STREAM else None
        yield Figure(FAMILY, what, PER_SECOND, runs[name], PLAIN, runs[PLAIN], budget, reads.parts(name))
    what = f"{STREAM}, {size:,} x {PAYLOAD_BYTES} B"
    yield Figure(FAMILY, what, PER_SECOND, runs[STREAM], CONSUME, runs[CONSUME], OF_CONSUME)


class _Reads:
    """Reads of all messages of the topic ``t``; each returns its rate."""

    def __init__(self, bench: Bench, root: Path, size: int):
        self._bench, self._root, self._size, self._numbers = bench, root, size, count()
        self._spent: dict[str, list[Counter]] = {}

    def new_name(self) -> str:
        return f"s{next(self._numbers)}"

    def frame(self, schema: StructType | None) -> DataFrame:
        reader = self._bench.spark.read.format(NAME).options(root=str(self._root), topic="t")
        return (reader if schema is None else reader.schema(schema)).load()

    def checked(self, action: Callable[[], int]) -> Callable[[], float]:
        def run() -> float:
            began = time.perf_counter()
            self._check(action())
            return self._size / (time.perf_counter() - began)

        return run

    def _check(self, found: int) -> None:
        if found != self._size * PAYLOAD_BYTES:
            raise AssertionError(f"{found} bytes of {self._size} messages of {PAYLOAD_BYTES} bytes")

    def consume(self, topic: Topic) -> float:
        run = Run(self._bench.spark, self._root, topic, self.new_name(), "Exclusive", MAX_MESSAGES)
        self._check(run.bytes)
        return self._size / run.seconds

    def stream(self, name: str, schema: StructType | None, **options: str) -> float:
        reader = self._bench.spark.readStream.format(NAME).options(root=str(self._root), topic="t", **options)
        frame = (reader if schema is None else reader.schema(schema)).load()
        checkpoint, sums = self._bench.folder / f"checkpoint-{self.new_name()}", list[int]()
        writer = frame.writeStream.foreachBatch(lambda batch, _: sums.append(sum_of_lengths(batch)))
        began = time.perf_counter()
        query = writer.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True).start()
        query.awaitTermination()
        elapsed = time.perf_counter() - began
        self._check(sum(sums))
        spent: Counter = Counter()
        for each in query.recentProgress:
            spent.update({name: spent_ms / 1000 for name, spent_ms in each["durationMs"].items()})
        self._spent.setdefault(name, []).append(spent)
        return self._size / elapsed

    def parts(self, name: str) -> dict[str, float]:
        """Medians of what the runs of a stream spent."""
        runs = self._spent.get(name, [])
        return {part: median(each[part] for each in runs) for part in runs[0]} if runs else {}


def _hour(bench: Bench) -> Iterator[Figure]:
    """The messages of a day, as publishes every five minutes leave them; a read of its tenth hour."""
    root, at_once = str(bench.new_folder("hour") / "root"), bench.few(5000, 10_000)
    bench.say("writing the messages of a day")
    create_topic(Layout(root), "t")
    write_durability(root, NONE)
    first = datetime.now(timezone.utc).replace(second=0, microsecond=0)
    times = [first + timedelta(minutes=minute) for minute in range(0, 24 * 60, 5)]
    for publish_time in times:
        writer = BatchWriter(PAYLOADS, parse_options({"root": root, "topic": "t"}))
        writer._now = publish_time
        texts = os.urandom(at_once * PAYLOAD_BYTES)
        ends = range(0, len(texts) + 1, PAYLOAD_BYTES)
        payloads = pa.BinaryArray.from_buffers(
            pa.binary(), at_once, [None, pa.py_buffer(array("i", ends)), pa.py_buffer(texts)]
        )
        writer.commit([writer.write(iter([pa.record_batch([payloads], ["payload"])]))])
    began, ended = times[9 * 12], times[10 * 12]
    commits = TableLog(read_topic(Layout(root), "t").path).commits(0)
    files = [file for commit in commits for file in commit.added if began <= _published(file) < ended]
    bytes_of_hour = sum(file.size for file in files)
    planned, read = _bytes_of_read(root, began, ended, 12 * at_once)
    what = (
        f"read one hour of a day, a publish every five minutes, {24 * 12 * at_once:,} x {PAYLOAD_BYTES} B: data files"
    )
    yield Figure(FAMILY, what, BYTES, [read], "the hour's files", [bytes_of_hour], OF_HOUR)
    yield Figure(FAMILY, "the same with the log and the search for times", BYTES, [planned + read])


def _published(file: AddedFile) -> datetime:
    return datetime.fromisoformat(file.min_values["publish_time"])


def _bytes_of_read(root: str, began: datetime, ended: datetime, messages: int) -> tuple[int, int]:
    """What the driver and the tasks of a batch read take from files, in this process."""
    options = {"root": root, "topic": "t", "startingPosition": began.isoformat(), "endingPosition": ended.isoformat()}
    reader = BatchReader(source_schema(parse_options(options)), parse_options(options))
    before = _bytes_read()
    slices = reader.partitions()
    planned = _bytes_read()
    rows = sum(batch.num_rows for each in slices for batch in reader.read(each))
    if rows != messages:
        raise AssertionError(f"{rows} messages in the hour, not {messages}")
    return planned - before, _bytes_read() - planned


def _bytes_read() -> int:
    """What this process has read so far, from the page cache, too."""
    return int(Path("/proc/self/io").read_text().split()[1])
