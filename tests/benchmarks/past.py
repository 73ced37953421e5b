"""What a long past costs: a topic of 10^6 publish commits of a message each, which all cursors have passed.

The past is written as clients and brokers that kept house have left it: messages of many publishes to a file, a log
that begins at its last commit, a row of ``ledgers`` for each commit. Every size is measured by processes of its own,
with a broker that plans without Spark (``python -m tests.benchmarks.past_process``), and compared with the smallest.
What is a fraction of a second, a start and what comes behind it, is measured several times, of all sizes in turns.
"""

import json
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime
from itertools import count
from pathlib import Path

import numpy as np
import pyarrow as pa

import pulsar_spark as pulsar
from pulsar_spark.frames import consume
from pulsar_spark.protocol.topics.topic_name import parse_topic_name
from pulsar_spark.storage.delta.checkpoints import last_checkpoint, make_checkpoint
from pulsar_spark.storage.delta.commits import commit
from pulsar_spark.storage.delta.data_files import write_files
from pulsar_spark.storage.delta.log import TableLog
from pulsar_spark.storage.delta.tables import AppendTable
from pulsar_spark.storage.layout import BUNDLES
from pulsar_spark.table_specs import LEDGERS, MESSAGES
from pulsar_spark.testing.plain_broker import PlainBroker
from pulsar_spark.views import create_views
from tests.benchmarks.bench import Bench, files_under, in_turns, seconds
from tests.benchmarks.figures import BYTES, COUNT, PER_SECOND, SECONDS, Budget, Figure
from tests.benchmarks.past_client import TIMEOUT_MS, TOPIC
from tests.support.requests import On
from tests.support.spark_engine import SparkEngine, new_engine

JOINED, ROWS = 4096, 1 << 16
PAYLOAD = b"x" * 100
STARTS = 5
FLAT, LATER = Budget(1.3, is_ratio=True), Budget(0.5)
FILES_BESIDE, MOST_FILES = "files besides the topics' own", Budget(5000)
WHAT = {
    "files": ("files under the root", COUNT, None),
    "bytes": ("bytes under the root", BYTES, None),
    "own_files": (FILES_BESIDE, COUNT, MOST_FILES),
    "own_bytes": ("bytes of those", BYTES, None),
    "load": ("loading the state at a start", SECONDS, Budget(15.0)),
    "broker_bytes": ("memory of the state", BYTES, None),
    "first": ("a new consumer's first message", SECONDS, None),
    "later": ("a new consumer's first message, later than on a fresh root", SECONDS, LATER),
    "frame": ("a new DataFrame consumer's first delivery", SECONDS, None),
    "stats": ("stats of the topic", SECONDS, None),
    "read": ("a new reader's first message, the earliest", SECONDS, None),
    "views": ("the views, and a look into the one of cursors", SECONDS, None),
    "delivery": ("publish to receive, one at a time", SECONDS, FLAT),
    "client_bytes": ("largest memory of a client that received and acknowledged each", BYTES, Budget(300e6)),
    "client_rate": ("what it received and acknowledged", PER_SECOND, None),
}


def measure(bench: Bench) -> Iterator[Figure]:
    sizes = [1_000, 100_000] + ([] if bench.is_quick else [1_000_000])
    folders = {size: bench.new_folder(f"past-{size}") for size in sizes}
    found: dict[int, dict[str, list[float]]] = {}
    for size, folder in folders.items():
        bench.say(f"past: writing {size:,} publish commits")
        write_past(folder, size)
        (files, of_files), (own, of_own) = files_under(folder), files_under(folder / BUNDLES)
        found[size] = {"files": [files], "bytes": [of_files], "own_files": [own], "own_bytes": [of_own]}
    _start_in_turns(bench, folders, found)
    for size, folder in folders.items():
        bench.say(f"past: Spark looks at {size:,} publish commits")
        found[size] |= _looked_at_by_spark(bench, folder)
        bench.say(f"past: a client receives {size:,} messages")
        found[size] |= measured_apart("receive", folder, size)
        for name, runs in found[size].items():
            what, unit, budget = WHAT[name]
            other = () if size == sizes[0] or name == "later" else found[sizes[0]][name]
            compared = f"{sizes[0]:,}" if other else None
            if budget is None or not budget.is_ratio or other:
                yield Figure("past", f"{what}, {size:,} publish commits", unit, runs, compared, other, budget)


def _start_in_turns(bench: Bench, folders: dict[int, Path], found: dict[int, dict[str, list[float]]]) -> None:
    """Add to what is *found* of each size what starts with it measure, a process each time."""
    for turn in range(bench.few(2, STARTS)):
        starts = {}
        for size, folder in folders.items():
            bench.say(f"past: a start after {size:,} publish commits, {turn + 1}")
            starts[size] = measured_apart("start", folder, size)
        freshest = min(starts)
        for size, start in starts.items():
            if size != freshest:
                start["later"] = [start["first"][0] - starts[freshest]["first"][0]]
            for name, values in start.items():
                found[size].setdefault(name, []).extend(values)


def _looked_at_by_spark(bench: Bench, folder: Path) -> dict[str, list[float]]:
    """How long it takes from the call that subscribes until a DataFrame consumer has counted what was published behind
    it, and how long until the view of cursors is there; a first time of both does not count."""
    client, numbers = pulsar.Client(f"delta:{folder}"), count()
    with PlainBroker(folder), closing(client):
        producer = client.create_producer(TOPIC)

        def first_delivery() -> float:
            received, began = threading.Event(), time.perf_counter()
            name, handle = f"frame-{next(numbers)}", lambda messages, _: messages.count() and received.set()
            consumption = consume(bench.spark, folder, TOPIC, name, handle, initial_position="Latest")
            producer.send(PAYLOAD)
            assert received.wait(TIMEOUT_MS / 1000)
            took = time.perf_counter() - began
            consumption.stop()
            return took

        def views() -> None:
            create_views(bench.spark, folder)
            bench.spark.sql("SELECT count(*) FROM cursors").collect()

        frames, looks = in_turns(bench.few(3, 5), first_delivery, lambda: seconds(views))
    return {"frame": frames, "views": looks}


def measured_apart(what: str, folder: Path, size: int) -> dict[str, list[float]]:
    command = [sys.executable, "-m", "tests.benchmarks.past_process", what, str(folder), str(size)]
    return json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout.splitlines()[-1])


def write_past(folder: Path, commits: int) -> SparkEngine:
    """A root with that many publish commits, acknowledged by a subscription, and one behind them."""
    engine, on = new_engine(None, folder), On(TOPIC)
    engine.create_topic(TOPIC)
    table = engine.layout.topic(parse_topic_name(TOPIC))
    log, ledgers = TableLog(table), AppendTable(engine.layout.broker_table(LEDGERS.name))
    for version, first in enumerate(range(1, commits + 1, JOINED), start=1):
        last = min(first + JOINED, commits + 1) - 1
        commit(table, [version], write_files(table, _messages(first, last), False), {})
    for first in range(1, commits + 1, ROWS):
        ledgers.append(_runs(engine.topic_ids[TOPIC], first, min(first + ROWS, commits + 1) - 1))
    begin_at(log, commits)
    engine.published = commits
    engine.start()
    engine.rounds.take_over()
    engine.rounds.bundle.topics[TOPIC].version = commits
    engine.publish(TOPIC, -1, [1], payload=PAYLOAD)
    engine.round([on.subscribe("A"), on.flow("A", 1)], 1)
    engine.round([on.clear_backlog(), on.close("A")], 2)
    return engine


def begin_at(log: TableLog, version: int) -> None:
    """Let the log begin with its latest commit, as *version*."""
    made = make_checkpoint(log.folder.parent)
    log.keep_first_commit()
    log.file(made).rename(log.folder / "latest")
    for each in log.versions():
        log.file(each).unlink()
    (log.folder / "latest").rename(log.file(version))
    for file in log.folder.glob("*.checkpoint.parquet"):
        if file.name.startswith(f"{made:020d}"):
            file.rename(log.folder / f"{version:020d}.checkpoint.parquet")
        else:
            file.unlink()
    said = log.folder / "_last_checkpoint"
    assert last_checkpoint(log.folder.parent)[0] == made
    said.write_text(json.dumps(json.loads(said.read_text()) | {"version": version}))


def _messages(first: int, last: int) -> pa.Table:
    count = last - first + 1
    given = {
        "publish_id": pa.array([f"{number:032x}" for number in range(first, last + 1)]),
        "entry_id": pa.array(np.zeros(count, np.int64)),
        "batch_size": pa.array(np.ones(count, np.int32)),
        "publish_time": pa.repeat(pa.scalar(datetime.now(UTC), MESSAGES.schema.field("publish_time").type), count),
        "payload": pa.repeat(pa.scalar(PAYLOAD), count),
    }
    return _table(MESSAGES.schema, given, count)


def _runs(topic_id: str, first: int, last: int) -> pa.Table:
    count, numbers = last - first + 1, np.arange(first, last + 1)
    now = pa.scalar(datetime.now(UTC), LEDGERS.schema.field("min_publish_time").type)
    given = {
        "topic": pa.repeat(TOPIC, count),
        "topic_id": pa.repeat(topic_id, count),
        "publish_id": pa.array([f"{number:032x}" for number in range(first, last + 1)]),
        "path": pa.array([f"part-00000-{uuid.UUID(int=number)}-c000.snappy.parquet" for number in numbers.tolist()]),
        "ledger_id": pa.array(numbers),
        "first_position": pa.array(numbers - 1),
        "min_publish_time": pa.repeat(now, count),
        "max_publish_time": pa.repeat(now, count),
    }
    same = {"partition": -1, "first_entry_id": 0, "entries": 1, "batch_size": 1, "bytes": 5000}
    same |= dict.fromkeys(("has_delayed", "has_chunks", "has_keys", "has_encoded"), False)
    given |= {name: pa.repeat(pa.scalar(value), count) for name, value in same.items()}
    return _table(LEDGERS.schema, given, count)


def _table(schema: pa.Schema, given: dict[str, pa.Array], count: int) -> pa.Table:
    columns = [
        given[each.name].cast(each.type) if each.name in given else pa.nulls(count, each.type) for each in schema
    ]
    return pa.Table.from_arrays(columns, schema=schema)
