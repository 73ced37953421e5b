"""Brokers as processes when something goes wrong: told to stop with their JVM, taken over while they slept, folders
gone, the disk full."""

import logging
import os
import shutil
import signal
import subprocess
import time

import pytest

import pulsar_spark as pulsar
from pulsar_spark.storage.layout import Layout
from pulsar_spark.storage.processes.lease import LEASE_SECONDS, BundleLease
from pulsar_spark.testing.plain_broker import PlainBroker
from tests.broker.test_process import PATIENCE_MS, BrokerProcess
from tests.support.waiting import eventually

pytestmark = pytest.mark.java
MESSAGES = 5
START_SECONDS = 600
SPARKS_OWN = ("WARN", "Setting", "To adjust", "Using", "WARNING: ", "resolving ")
log = logging.getLogger(__name__)


@pytest.fixture
def started(tmp_path):
    """Starts brokers; what is left of them at the end is killed."""
    running = []

    def start(root, name: str) -> BrokerProcess:
        running.append(BrokerProcess(root, tmp_path / name))
        return running[-1]

    yield start
    for broker in running:
        if broker.process.poll() is None:
            broker.stop(signal.SIGKILL)


def said(path) -> list[str]:
    """What a broker said, without how Spark introduces itself."""
    return [
        line
        for line in path.read_text().splitlines()
        if line and not any(each in line[: len(each) + 20] for each in SPARKS_OWN)
    ]


def without_late_workers(lines: list[str]) -> list[str]:
    """*lines* without tracebacks of the query's Python workers that needed more than the ten seconds Spark gives them
    on a busy machine; the broker starts the query again."""
    kept: list[str] = []
    for line in lines:
        kept.append(line)
        if "[CANNOT_OPEN_SOCKET]" in line and "Traceback (most recent call last):" in kept:
            del kept[len(kept) - 1 - kept[::-1].index("Traceback (most recent call last):") :]
    return kept


def serves(path) -> bool:
    return any(" serves " in line for line in said(path))


def test_a_broker_and_its_jvm_told_to_stop_together_end_without_a_traceback(root, started, tmp_path):
    broker = started(root, "log")
    eventually(lambda: serves(tmp_path / "log"), START_SECONDS)
    client = pulsar.Client(f"delta:{root}")
    producer = client.create_producer("t")
    consumer = client.subscribe("t", "s", initial_position=pulsar.InitialPosition.Earliest)
    for number in range(5):
        producer.send(b"%d" % number)
        consumer.acknowledge(consumer.receive(timeout_millis=PATIENCE_MS))
    assert broker.stop(signal.SIGTERM) == 0
    client.close()
    lines = said(tmp_path / "log")
    told = [word for line in lines for word in (" starts", " serves ", " delivered, ", " stopped") if word in line]
    minutes = told.count(" delivered, ")  # one line a minute; on a slow machine this takes more than one
    assert told == [" starts", " serves ", *[" delivered, "] * minutes, " stopped"], lines
    assert minutes and len(lines) == len(told), lines


@pytest.mark.parametrize("with_jvm", [True, False])
def test_a_broker_that_slept_while_another_took_over_ends_with_one_line(root, started, tmp_path, caplog, with_jvm):
    """The other one is of this process, and plans without Spark."""
    first = started(root, "first")
    eventually(lambda: serves(tmp_path / "first"), START_SECONDS)
    sleep = os.killpg if with_jvm else os.kill
    sleep(first.process.pid, signal.SIGSTOP)
    with caplog.at_level(logging.INFO, "pulsar_spark.broker"), PlainBroker(root) as second:
        sleep(first.process.pid, signal.SIGCONT)
        assert first.process.wait(START_SECONDS) == 1
        assert BundleLease(Layout(root), "test").holder().broker_id == second.broker_id and second.failure is None
    lines = without_late_workers(said(tmp_path / "first"))
    assert lines[-1].startswith("BrokerFenced: another broker"), lines
    served = next(number for number, line in enumerate(lines) if " serves " in line)
    lines = lines[served:]
    assert all(" pulsar_spark." in line for line in lines[:-1]) and len(lines) <= 5, lines
    told = ("stands by", "takes over", " serves ", " round")
    others = [record.getMessage() for record in caplog.records]
    assert others and all(any(word in line for word in told) for line in others), others


def test_folders_that_go_while_it_serves_are_made_again(root, started, tmp_path):
    broker = started(root, "log")
    eventually(lambda: serves(tmp_path / "log"), START_SECONDS)
    client = pulsar.Client(f"delta:{root}")
    producer = client.create_producer("t")
    consumer = client.subscribe("t", "s", initial_position=pulsar.InitialPosition.Earliest)

    def serves_some() -> None:
        for number in range(MESSAGES):
            producer.send(b"%d" % number)
            message = consumer.receive(timeout_millis=PATIENCE_MS)
            assert message.data() == b"%d" % number
            consumer.acknowledge(message)

    for folder in (Layout(root).checkpoint(), Layout(root).bundle_folder() / "inputs", Layout(root).checkpoint()):
        shutil.rmtree(folder)
        serves_some()
        eventually(folder.exists)
        serves_some()
    client.close()
    assert broker.process.poll() is None
    assert broker.stop(signal.SIGTERM) == 0
    lines = without_late_workers(said(tmp_path / "log"))
    assert not any("Traceback" in line or line.startswith("\tat ") for line in lines)


@pytest.fixture
def small_disk(tmp_path):
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=16m", "tmpfs", str(disk)], capture_output=True, text=True, check=False
    )
    if mounted.returncode:
        pytest.skip(f"no mounting here: {mounted.stderr}")
    yield disk
    subprocess.run(["umount", "-l", str(disk)], check=True)


@pytest.mark.parametrize("fault", ["full", "read-only"])
def test_a_disk_that_is_full_or_read_only_for_a_while_loses_nothing(small_disk, started, tmp_path, fault):
    root = small_disk / "root"
    broker = started(root, "log")
    eventually(lambda: serves(tmp_path / "log"), START_SECONDS)
    client = pulsar.Client(f"delta:{root}", operation_timeout_seconds=START_SECONDS)
    producer = client.create_producer("t", send_timeout_millis=PATIENCE_MS)
    consumer = client.subscribe(
        "t", "s", consumer_type=pulsar.ConsumerType.Shared, initial_position=pulsar.InitialPosition.Earliest
    )
    sent, results = [], []
    for number in range(3):
        sent.append(number)
        producer.send(b"%d" % number)
    refuse(small_disk, fault)
    for number in range(3, 6):
        sent.append(number)
        producer.send_async(b"%d" % number, lambda result, _: results.append(result))
    time.sleep(LEASE_SECONDS + 1)  # its lease runs out meanwhile
    assert broker.process.poll() is None and not results
    with pytest.raises(pulsar.Timeout):
        pulsar_small = client.create_producer("t", send_timeout_millis=1000)
        pulsar_small.send(b"refused")
    allow(small_disk, fault)
    producer.flush()
    assert results == [pulsar.Result.Ok] * 3
    received = [consumer.receive(timeout_millis=PATIENCE_MS) for _ in sent]
    assert sorted(int(message.data()) for message in received) == sent
    for message in received:
        consumer.acknowledge(message)
    with pytest.raises(pulsar.Timeout):
        consumer.receive(timeout_millis=2000)
    client.close()
    assert broker.stop(signal.SIGTERM) == 0
    lines = said(tmp_path / "log")
    assert [word for line in lines for word in ("waits: ", "goes on after ") if word in line] == [
        "waits: ",
        "goes on after ",
    ], lines


def refuse(disk, fault: str) -> None:
    if fault == "read-only":
        subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=True)
        return
    with open(disk / "ballast", "wb", buffering=0) as ballast:
        for size in (1 << 20, 1 << 12):
            try:
                while True:
                    ballast.write(bytes(size))
            except OSError:
                continue


def allow(disk, fault: str) -> None:
    if fault == "read-only":
        subprocess.run(["mount", "-o", "remount,rw", str(disk)], check=True)
    else:
        (disk / "ballast").unlink()
