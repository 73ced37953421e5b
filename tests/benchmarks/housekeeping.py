"""What many small writes leave behind: files and bytes under a root, before and after housekeeping, and its cost.

Messages are sent one a commit, with a round every so often, by a broker that plans without Spark. Housekeeping is done
without its rests, as if the time were over for which things stay.

What it costs those who are served: a client receives single messages, then a backlog in batches, from a broker in a
process of its own that puts all that away at its usual pace, and from one that does not, in turns.
"""

import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import NamedTuple
from unittest.mock import patch

import pulsar_spark as pulsar
from pulsar_spark.storage.cursor_ledger.cursor_ledger import read_latest
from pulsar_spark.storage.delta import checkpoints
from pulsar_spark.storage.delta.checkpoints import make_checkpoint
from pulsar_spark.storage.delta.log import TableLog
from pulsar_spark.storage.upkeep import shortening
from pulsar_spark.storage.upkeep.housekeeping import keep_house
from pulsar_spark.storage.upkeep.kept_tables import NEEDED, kept_tables
from tests.benchmarks.bench import Bench, seconds
from tests.benchmarks.figures import BYTES, COUNT, PER_SECOND, SECONDS, Budget, Figure
from tests.support.requests import On
from tests.support.spark_engine import SparkEngine, new_engine

TOPIC = "persistent://public/default/small"
BACKLOG, SINGLE = "persistent://public/default/backlog", "persistent://public/default/single"
SENDS_A_ROUND = 20
RATE, PAYLOAD = 20, b"x" * 100
TIMEOUT_MS = 120_000


def measure(bench: Bench) -> Iterator[Figure]:
    sends, folder = bench.few(2_000, 20_000), bench.new_folder("housekeeping")
    bench.say(f"housekeeping: {sends:,} sends, one a commit")
    engine = _written(folder, sends)
    left, past = _files(folder), bench.new_folder("housekeeping-past") / "root"
    shutil.copytree(folder, past)
    bench.say("housekeeping: keeping house")
    with patch.object(checkpoints, "CHOSEN_SECONDS", 0), patch.object(shortening, "CHOSEN_SECONDS", 0):
        elapsed = seconds(lambda: _keep(engine))
    kept = _files(folder)
    what, compared = f"after {sends:,} sends of a byte and {sends // SENDS_A_ROUND:,} rounds", "as they were left"
    yield Figure("housekeeping", f"files {what}", COUNT, [len(kept)], compared, [len(left)])
    yield Figure("housekeeping", f"bytes {what}", BYTES, [sum(kept)], compared, [sum(left)])
    yield Figure("housekeeping", f"housekeeping of all that, without its rests: {sends:,} sends", SECONDS, [elapsed])
    yield from _while_serving(bench, past)


class Served(NamedTuple):
    """What a client met: its messages a second, how long each single one took, and how many of the past's files
    went."""

    rate: float
    waited: list[float]
    files_gone: int


def _while_serving(bench: Bench, past: Path) -> Iterator[Figure]:
    messages, found = bench.few(200_000, 1_000_000), {"on": [], "off": []}
    with closing(pulsar.Client(f"delta:{past}")) as client:
        producer = client.create_producer(BACKLOG, block_if_queue_full=True)
        for _ in range(messages):
            producer.send_async(PAYLOAD, None)
        producer.flush()
    for number in range(bench.few(1, 3)):
        for keeps, runs in found.items():
            bench.say(f"housekeeping: serving a backlog, housekeeping {keeps}, {number + 1}")
            root = bench.new_folder("housekeeping-served") / "root"
            shutil.copytree(past, root)
            runs.append(_serve(root, keeps, messages, bench.few(100, 300)))
    rates = {keeps: [run.rate for run in runs] for keeps, runs in found.items()}
    waited = {keeps: [wait for run in runs for wait in run.waited] for keeps, runs in found.items()}
    what, other = f"a backlog of {messages:,}, received and acknowledged each, while housekeeping goes on", "without it"
    least = Budget(0.9, is_most=False, is_ratio=True)
    yield Figure("housekeeping", what, PER_SECOND, rates["on"], other, rates["off"], least)
    for share, budget in ((0.5, None), (0.99, Budget(0.5))):
        for keeps, words in (("on", "while housekeeping goes on"), ("off", "without it")):
            what = f"publish to receive, {RATE} a second, p{share:.0%} {words}".replace("%", "")
            yield Figure("housekeeping", what, SECONDS, waited[keeps], budget=budget, share=share)
    gone = [run.files_gone for run in found["on"]]
    yield Figure("housekeeping", "files of the past that went meanwhile", COUNT, gone)


def _serve(root: Path, keeps: str, messages: int, single: int) -> Served:
    before = {path for path in root.rglob("*") if path.is_file()}
    with _broker(root, keeps), closing(pulsar.Client(f"delta:{root}")) as client:
        waited = list(_single(client, single))
        consumer = client.subscribe(
            BACKLOG, "all", consumer_type=pulsar.ConsumerType.Shared, initial_position=pulsar.InitialPosition.Earliest
        )
        consumer.acknowledge(consumer.receive(TIMEOUT_MS))
        began = time.perf_counter()
        for _ in range(messages - 1):
            consumer.acknowledge(consumer.receive(TIMEOUT_MS))
        rate = (messages - 1) / (time.perf_counter() - began)
    return Served(rate, waited, sum(not path.exists() for path in before))


def _single(client: pulsar.Client, messages: int) -> Iterator[float]:
    """How long each of some messages at a steady rate takes from publish to receive."""
    producer = client.create_producer(SINGLE)
    consumer = client.subscribe(SINGLE, "all", consumer_type=pulsar.ConsumerType.Shared)
    began = time.perf_counter()
    for number in range(messages):
        time.sleep(max(0.0, began + number / RATE - time.perf_counter()))
        sent = time.perf_counter()
        producer.send(PAYLOAD)
        consumer.acknowledge(consumer.receive(TIMEOUT_MS))
        yield time.perf_counter() - sent


@contextmanager
def _broker(root: Path, keeps: str) -> Iterator[None]:
    command = [sys.executable, "-m", "tests.benchmarks.kept_broker", str(root), keeps]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as broker:
        broker.stdout.readline()
        yield
        broker.stdin.close()


def _written(folder: Path, sends: int) -> SparkEngine:
    engine, on = new_engine(None, folder), On(TOPIC)
    engine.create_topic(TOPIC)
    engine.round([on.subscribe("A"), on.flow("A", sends)], 1)
    for number in range(sends):
        engine.publish(TOPIC, -1, [1], publish_time_ms=number)
        if number % SENDS_A_ROUND == SENDS_A_ROUND - 1:
            engine.round([on.ack(number - SENDS_A_ROUND + 1, number)], number)
    engine.restart(sends)
    return engine


def _keep(engine: SparkEngine) -> None:
    """Until nothing is left to do."""
    for _ in range(2):
        for kept in kept_tables(engine.layout, read_latest(engine.layout, *NEEDED)):
            if TableLog(kept.path).exists():
                make_checkpoint(kept.path)
                for _ in keep_house(kept.path, kept.needs, history_seconds=0, time_travel_seconds=0):
                    """One step after the other."""


def _files(folder: Path) -> list[int]:
    return [path.stat().st_size for path in folder.rglob("*") if path.is_file()]
