"""``python -m tests.cluster.on_a_cluster ROOT FOLDER``: a broker, publishers and consumers on a cluster of two
executors, which are killed, by SIGKILL, while they work. The root is on the disk or in a store, FOLDER on the disk; a
line of JSON says what came of it."""

import json
import os
import signal
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from pulsar_spark.broker.runner import Broker
from pulsar_spark.frames import consume, publish, read_messages, reprocess_dead_letters
from pulsar_spark.storage.layout import Layout
from pulsar_spark.storage.session import spark_session
from pulsar_spark.storage.topics.topics import create_topic
from tests.support.letters import SUBSCRIPTION, TOPIC, write_letters
from tests.support.waiting import eventually

MESSAGES, KEYS, LETTERS, CHUNKED = 6000, 50, 6, 4
BATCH_ROWS = 500
"""Of what Python is given at a time: a task has several."""
SECONDS = 150


def killing(once: Path) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Rows as they come. The first task that has handed some of them on kills the executor it runs in: its Python
    process is a child of a daemon, which is the executor's."""

    def rows(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            yield batch
            try:
                once.touch(exist_ok=False)
            except FileExistsError:
                continue
            status = Path(f"/proc/{os.getppid()}/status").read_text()
            (executor,) = (line.split()[1] for line in status.splitlines() if line.startswith("PPid:"))
            os.kill(int(executor), signal.SIGKILL)

    return rows


def executors(spark: SparkSession) -> list[int]:
    """The processes of the executors, which on such a cluster are the driver's children."""
    children = spark._jvm.java.lang.ProcessHandle.current().children().toArray()
    pids = [int(each.pid()) for each in children]
    return [pid for pid in pids if b"CoarseGrainedExecutorBackend" in Path(f"/proc/{pid}/cmdline").read_bytes()]


def through(messages: DataFrame, killer: Callable) -> DataFrame:
    return messages.mapInArrow(killer, messages.schema)


def published(spark: SparkSession, root: str, flag: Path) -> dict:
    """Messages of which a task was killed half-way."""
    numbers = spark.range(0, MESSAGES, 1, 2)
    messages = numbers.selectExpr("cast(id as string) payload", f"concat('k', id % {KEYS}) partition_key")
    done = publish(through(messages, killing(flag)), root, "keys", hashing_scheme="Murmur3_32Hash")
    stored = read_messages(spark, root, "keys").agg(F.count("*"), F.count_distinct("payload")).first()
    return {"was_killed": flag.exists(), "said": done.messages, "stored": stored[0], "different": stored[1]}


def consumed_by_key(spark: SparkSession, root: str, flag: Path) -> dict:
    """What two consumers got, a task of whose was killed half-way, and all executors as they were dealt to."""
    found: dict[str, list] = {"a": [], "b": []}
    lock = threading.Lock()

    def into(name: str) -> Callable:
        def handle(messages: DataFrame, _) -> None:
            rows = through(messages.select("payload", "partition_key", "redelivery_count"), killing(flag)).collect()
            with lock:
                found[name] += [tuple(row) for row in rows]

        return handle

    def consumer(name: str):
        return consume(spark, root, "keys", "s", into(name), subscription_type="KeyShared", consumer_name=name)

    with consumer("a") as one, consumer("b") as other:
        killed = executors(spark)
        for pid in killed:
            os.kill(pid, signal.SIGKILL)
        eventually(lambda: len(found["a"]) + len(found["b"]) >= MESSAGES, SECONDS)
        errors = [str(each.exception()) for each in (one, other) if each.exception()]
    by_key = {name: {key for _, key, _ in rows} for name, rows in found.items()}
    times = Counter(payload for rows in found.values() for payload, _, _ in rows)
    return {
        "was_killed": flag.exists() and len(killed),
        "errors": errors,
        "different": len(times),
        "most_often": max(times.values()),
        "redelivered": sum(count > 0 for rows in found.values() for _, _, count in rows),
        "keys": [len(by_key["a"] | by_key["b"]), len(by_key["a"] & by_key["b"])],
    }


def chunked(spark: SparkSession, root: str) -> list[int]:
    """Sizes of messages that went in chunks, as they were delivered."""
    big = spark.range(0, CHUNKED, 1, 2).selectExpr("repeat('x', 2500 + cast(id as int)) payload")
    publish(big, root, "big", chunking=True, chunk_max_message_size=1000)
    sizes: list[int] = []

    def handle(messages: DataFrame, _) -> None:
        sizes.extend(row[0] for row in messages.selectExpr("length(payload)").collect())

    with consume(spark, root, "big", "s", handle, available_now=True) as consumption:
        consumption.await_termination(SECONDS)
    return sorted(sizes)


def sent_back(spark: SparkSession, root: str, flag: Path) -> dict:
    """Dead letters that a job sent back, whose executor was killed."""
    write_letters(Layout(root), range(LETTERS))
    done = reprocess_dead_letters(
        spark,
        root,
        TOPIC,
        subscription=SUBSCRIPTION,
        job_id="repair",
        to="topic:repaired",
        fix=lambda letters: through(letters, killing(flag)),
    )
    there = read_messages(spark, root, "repaired").agg(F.count("*"), F.count_distinct("payload")).first()
    return {"was_killed": flag.exists(), "sent": done.sent, "stored": there[0], "different": there[1]}


def main(root: str, folder: Path) -> dict:
    settings = {"spark.sql.shuffle.partitions": "2", "spark.sql.execution.arrow.maxRecordsPerBatch": str(BATCH_ROWS)}
    spark = spark_session("pulsar_spark on a cluster", master="local-cluster[2,1,1024]", settings=settings, root=root)
    create_topic(Layout(root), "keys", 2)
    try:
        with Broker(spark_session(for_rounds=True), root) as broker:
            found = {
                "published": published(spark, root, folder / "publish"),
                "consumed_by_key": consumed_by_key(spark, root, folder / "consume"),
                "chunked": chunked(spark, root),
                "sent_back": sent_back(spark, root, folder / "send back"),
                "set_aside": len(broker.rounds.bundle.set_aside),
            }
    finally:
        spark.stop()
    return found


if __name__ == "__main__":
    print(json.dumps(main(sys.argv[1], Path(sys.argv[2]))), flush=True)
