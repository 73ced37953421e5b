"""``python -m tests.benchmarks.chunk_process <what> <folder> <bytes of a message> <messages> <runs>``: one measurement
of chunked messages in a process of its own, so that its peak of memory is nobody else's. Prints JSON.

With a number of runs: ``rates``, bytes a second, those of the product and of the plain way in turns, or, with
``-ours`` behind the number, of the product alone. With ``ours`` or
``plain`` in its place ``memory``: how much the process (of Spark: its JVM) grew at most while that did it with one
message, as multiples of it; null where it ended for want of memory.
"""

import json
import os
import secrets
import shutil
import subprocess
import sys
import zlib
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable, write_deltalake
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

import pulsar_spark as pulsar
from pulsar_spark.frames import publish, read_messages
from pulsar_spark.storage.layout import Layout
from pulsar_spark.storage.session import spark_session
from pulsar_spark.storage.topics.topics import create_topic
from tests.benchmarks.bench import PAYLOAD_BYTES, in_turns, seconds

TIMEOUT_SECONDS = 600
HEAP = "8g"
"""What the documentation asks for."""


class Measured:
    """*messages* of *size* bytes each, in *folder*."""

    def __init__(self, folder: Path, size: int, messages: int, runs: str):
        self.folder, self.size, self.messages = folder, size, messages
        self.whose = runs if runs in ("ours", "plain") else None
        runs, _, alone = runs.partition("-")
        self.runs, self.is_alone = 0 if self.whose else int(runs), bool(alone)
        self.counts = sorted({1, messages})
        self.heap = {"spark.driver.memory": HEAP}
        self.topics = 0

    def new_topic(self) -> str:
        self.topics += 1
        create_topic(Layout(self.folder / "root"), name := f"t{self.topics}")
        return name

    def result(self, ours: Callable[[int], object], plain: Callable[[], object], process: int | None = None) -> dict:
        """Both do all the messages in turns; of memory, one does one message."""
        moved = self.size * self.messages
        if self.whose is None:
            ways = [lambda: ours(self.messages)] + ([] if self.is_alone else [plain])
            return {"rates": in_turns(self.runs, *(lambda way=way: moved / seconds(way) for way in ways))}
        process = process or os.getpid()
        pa.default_memory_pool().release_unused()
        before = _memory(process, "VmRSS")
        Path(f"/proc/{process}/clear_refs").write_text("5")  # the peak begins anew
        try:
            ours(1) if self.whose == "ours" else plain()
        except (PySparkException, Py4JError) as failed:  # the second from a JVM that has ended
            if self.whose == "ours" or (isinstance(failed, PySparkException) and "OutOfMemoryError" not in str(failed)):
                raise
            return {"memory": None}
        return {"memory": (_memory(process, "VmHWM") - before) / self.size}

    # The client

    def send(self) -> dict:
        client = pulsar.Client(f"delta:{self.folder / 'root'}", operation_timeout_seconds=TIMEOUT_SECONDS)

        def ours(messages: int) -> None:
            producer = client.create_producer(self.new_topic(), chunking_enabled=True)
            for _ in range(messages):
                producer.send(secrets.token_bytes(self.size))

        def plain() -> None:
            path = self.folder / "plain"
            shutil.rmtree(path, ignore_errors=True)
            for _ in range(self.messages):
                rows = pa.table({"payload": pa.array([secrets.token_bytes(self.size)], pa.large_binary())})
                write_deltalake(path, rows, mode="append")

        return self.result(ours, plain)

    def publish_and_write(self) -> dict:
        """What :meth:`read` reads: a topic of one message and one of all, and the same bytes in a plain table."""
        client, path = pulsar.Client(f"delta:{self.folder / 'root'}"), self.folder / "plain"
        producers = {several: client.create_producer(f"of-{several}", chunking_enabled=True) for several in self.counts}
        for number in range(self.messages):
            payload = secrets.token_bytes(self.size)
            for several, producer in producers.items():
                if number < several:
                    producer.send(payload)
            write_deltalake(path, pa.table({"payload": pa.array([payload], pa.large_binary())}), mode="append")
        return {}

    def read(self) -> dict:
        """With a reader, which needs no broker."""
        self._run_apart("publish_and_write")
        client = pulsar.Client(f"delta:{self.folder / 'root'}", operation_timeout_seconds=TIMEOUT_SECONDS)
        path = self.folder / "plain"

        def ours(messages: int) -> None:
            reader = client.create_reader(f"of-{messages}", pulsar.MessageId.earliest)
            found = sum(zlib.crc32(reader.read_next(1000 * TIMEOUT_SECONDS).data()) > 0 for _ in range(messages))
            self._check(found, messages)
            reader.close()

        def plain() -> None:
            found = 0
            for file in DeltaTable(path).file_uris():
                (payload,) = pq.read_table(file)["payload"].to_pylist()
                found += zlib.crc32(payload) > 0
            self._check(found, self.messages)

        return self.result(ours, plain)

    # Frames

    def split(self) -> dict:
        spark = spark_session("chunks", settings=self.heap)
        source = self._source(spark)
        several = {1: source.limit(1), self.messages: source}

        def ours(messages: int) -> None:
            publish(several[messages], self.folder / "root", self.new_topic(), chunking=True)

        def plain() -> None:
            path = self.folder / "plain"
            shutil.rmtree(path, ignore_errors=True)
            source.write.format("delta").save(str(path))

        return self.result(ours, plain, _jvm())

    def among(self) -> dict:
        """One message of *size* bytes in the middle of *messages* small ones, all in one file."""
        path = self.folder / "source.parquet"
        small = pa.table({"payload": pa.array([bytes(PAYLOAD_BYTES)] * (self.messages // 2), pa.binary())})
        large = pa.table({"payload": pa.array([secrets.token_bytes(self.size)], pa.binary())})
        with pq.ParquetWriter(path, small.schema, compression="none", use_dictionary=False) as writer:
            for rows in (small, large, small):
                writer.write_table(rows)
        del large
        spark = spark_session("chunks", settings=self.heap)
        source, topic = spark.read.parquet(str(path)), self.new_topic()

        def ours(_: int) -> None:
            self._check(publish(source, self.folder / "root", topic, chunking=True).messages, self.messages + 1)

        return self.result(ours, lambda: source.write.format("delta").save(str(self.folder / "plain")), _jvm())

    def publish_by_spark(self) -> dict:
        """What :meth:`reassemble` reads: a topic of one message and one of all, and the same bytes in a plain table."""
        source = self._source(spark_session("chunks", settings=self.heap))
        for several in self.counts:
            create_topic(Layout(self.folder / "root"), f"of-{several}")
            rows = source if several == self.messages else source.limit(several)
            publish(rows, self.folder / "root", f"of-{several}", chunking=True)
        for file in sorted((self.folder / "source").glob("*.parquet")):  # to write it Spark needs more than to read it
            write_deltalake(self.folder / "plain", pq.read_table(file), mode="append")
        return {}

    def reassemble(self) -> dict:
        self._run_apart("publish_by_spark")
        spark = spark_session("chunks", settings=self.heap)

        def ours(messages: int) -> None:
            self._check(_checksums(read_messages(spark, self.folder / "root", f"of-{messages}")), messages)

        def plain() -> None:
            self._check(_checksums(spark.read.format("delta").load(str(self.folder / "plain"))), self.messages)

        return self.result(ours, plain, _jvm())

    @staticmethod
    def _run_apart(what: str) -> None:
        """In another process, so that its memory is not used again."""
        others = [sys.executable, "-m", "tests.benchmarks.chunk_process", what, *sys.argv[2:]]
        subprocess.run(others, stdout=subprocess.DEVNULL, check=True)

    def _source(self, spark) -> DataFrame:
        """The messages in Parquet files that hold nothing else; what is read is the same for both."""
        folder = self.folder / "source"
        folder.mkdir(parents=True, exist_ok=True)
        for number in range(self.messages):
            row = pa.table({"payload": pa.array([secrets.token_bytes(self.size)], pa.large_binary())})
            pq.write_table(row, folder / f"{number}.parquet", compression="none", use_dictionary=False)
        return spark.read.schema("payload binary").parquet(str(folder))

    def _check(self, found: int, messages: int) -> None:
        if found != messages:
            raise AssertionError(f"{found} messages of {messages}")


def _checksums(frame: DataFrame) -> int:
    """How many there are, of which every byte is read: once, as a filter on payloads would read them twice."""
    return frame.agg(F.sum((F.crc32("payload") > 0).cast("int"))).first()[0]


def _memory(process: int, what: str) -> int:
    (line,) = (line for line in Path(f"/proc/{process}/status").read_text().splitlines() if line.startswith(what))
    return 1024 * int(line.split()[1])


def _jvm() -> int:
    """The process that Spark started."""
    (process,) = (
        int(status.parent.name)
        for status in Path("/proc").glob("[0-9]*/status")
        if f"PPid:\t{os.getpid()}\n" in (text := status.read_text()) and "Name:\tjava\n" in text
    )
    return process


if __name__ == "__main__":
    what, folder, size, messages, runs = sys.argv[1:]
    print(json.dumps(getattr(Measured(Path(folder), int(size), int(messages), runs), what)()))
