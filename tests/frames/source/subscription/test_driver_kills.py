"""Spark's driver killed at random times: a message that a Delta table lacks or has twice, that ``foreachBatch`` never
gets, or that is acknowledged before it is written, is found here."""

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path

import pytest

import pulsar_spark as pulsar
from pulsar_spark.storage.delta.scan import dataset_of
from pulsar_spark.storage.topics.topics import create_topic
from pulsar_spark.testing.broker import Broker
from tests.frames.source.subscription.micro_batches import payloads_left

KILLS = int(os.environ.get("PULSAR_SPARK_DRIVER_KILLS", "20"))
SEED = int(os.environ.get("PULSAR_SPARK_SEED", "1"))
SECONDS = 600
"""The most that a driver may take for anything."""
PAUSE_SECONDS = 0.05


class Driver:
    """A life of the driver, in *folder*."""

    def __init__(self, root, folder: Path, how: str):
        self._log = (folder / "log").open("ab")
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.frames.source.subscription.killed_driver", str(root), str(folder), how],
            cwd=folder,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
            stdin=subprocess.DEVNULL,
            stdout=self._log,
            stderr=self._log,
            start_new_session=True,
        )

    def kill(self, *, is_whole: bool) -> None:
        """SIGKILL for all its processes, or for the JVM alone, whose end the others see."""
        family = _family(self.process.pid)
        for pid, name in family.items():
            if is_whole or name == "java":
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        self.process.wait(SECONDS)
        until = time.monotonic() + SECONDS
        while any(_name(pid) == name for pid, name in family.items()):
            assert time.monotonic() < until, family
            time.sleep(PAUSE_SECONDS)
        self._log.close()


def _name(pid: int) -> str | None:
    """The program of a process that runs."""
    with suppress(OSError):
        name, _, rest = Path(f"/proc/{pid}/stat").read_text().partition("(")[2].rpartition(")")
        return None if rest.split()[0] == "Z" else name
    return None


def _family(pid: int) -> dict[int, str]:
    """The programs of a process and of all that it started, those first that started others."""
    children: dict[int, list[int]] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            number, _, rest = path.read_text().rpartition(")")
            children.setdefault(int(rest.split()[1]), []).append(int(number.split()[0]))
    found, looked_at = [pid], 0
    while looked_at < len(found):
        found += children.get(found[looked_at], [])
        looked_at += 1
    return {each: name for each in found if (name := _name(each)) is not None}


class History:
    """Messages that are published all the time, drivers that are killed, and what they left."""

    def __init__(self, broker: Broker, client: pulsar.Client, folder: Path):
        self.broker, self.folder, self.rng, self.kills = broker, folder, random.Random(SEED), Counter[str]()
        self.sent = 0
        (folder / "each").mkdir()
        create_topic(broker.layout, "t", 2)
        self._producer = client.create_producer("t")

    def send(self) -> None:
        self._producer.send(str(self.sent).encode(), partition_key=str(self.sent))
        self.sent += 1

    def _steps(self) -> int:
        """Offsets and commits of both streams that are in the checkpoints."""
        return len([*self.folder.glob("*-checkpoint/offsets/[0-9]*"), *self.folder.glob("*-checkpoint/commits/[0-9]*")])

    def _wait(self, is_so: Callable[[], bool], driver: Driver) -> None:
        until = time.monotonic() + SECONDS
        while not is_so():
            assert driver.process.poll() is None, (self.folder / "log").read_text()[-3000:]
            assert time.monotonic() < until, "the driver does nothing"
            self.send()
            time.sleep(PAUSE_SECONDS)

    def live(self) -> None:
        """A life of the driver, which is killed a while after some step of its streams."""
        driver, steps = Driver(self.broker.layout.root, self.folder, "goes_on"), self._steps()
        try:
            wanted, later = steps + self.rng.randint(1, 8), self.rng.uniform(0, 0.5)
            self._wait(lambda: self._steps() >= wanted, driver)
            until = time.monotonic() + later
            self._wait(lambda: time.monotonic() >= until, driver)
        finally:
            driver.kill(is_whole=self.rng.random() < 0.7)
        for name in ("delta", "each"):
            offsets, commits = (
                len([*self.folder.glob(f"{name}-checkpoint/{of}/[0-9]*")]) for of in ("offsets", "commits")
            )
            self.kills[f"{name}: {'within' if offsets > commits else 'between'} micro-batches"] += 1

    def end(self) -> None:
        driver = Driver(self.broker.layout.root, self.folder, "ends")
        try:
            assert driver.process.wait(SECONDS) == 0, (self.folder / "log").read_text()[-3000:]
        finally:
            driver.kill(is_whole=True)

    def table(self) -> list[int]:
        """The rows of the Delta table; none before its first commit."""
        folder = self.folder / "table"
        if not [*folder.glob("_delta_log/*.json")]:
            return []
        return [*map(int, dataset_of(folder).to_table()["text"].to_pylist())]

    def calls(self) -> dict[int, list[list[int]]]:
        """What ``foreachBatch`` got, by micro-batch, sorted, each call by itself."""
        found: dict[int, list[list[int]]] = {}
        for path in sorted((self.folder / "each").glob("*-*")):
            if path.suffix != ".new":
                found.setdefault(int(path.name[:6]), []).append(sorted(map(int, json.loads(path.read_text()))))
        return found

    def check(self) -> None:
        """What is acknowledged was written, nothing is twice in the table, and a micro-batch that ran again had the
        same messages."""
        left = {name: payloads_left(self.broker, "t", name) for name in ("delta", "each")}
        table, calls = self.table(), self.calls()
        assert len(table) == len({*table}), self.kills
        assert {*range(self.sent)} - left["delta"] <= {*table}, self.kills
        for batch_id, of_batch in calls.items():
            assert all(each == of_batch[0] for each in of_batch), (batch_id, self.kills)
        once = [number for of_batch in calls.values() for number in of_batch[0]]
        assert len(once) == len({*once}), self.kills
        assert {*range(self.sent)} - left["each"] <= {*once}, self.kills


@pytest.mark.java
@pytest.mark.long
def test_a_driver_that_is_killed_at_random_times_loses_nothing(tmp_path):
    folder = tmp_path / "folder"
    folder.mkdir()
    with Broker(tmp_path / "root") as broker, closing(pulsar.Client(broker.service_url)) as client:
        history = History(broker, client, folder)
        for _ in range(KILLS):
            history.live()
            history.check()
        history.end()
        history.check()
        assert sorted(history.table()) == [*range(history.sent)], history.kills
        assert {number for of_batch in history.calls().values() for number in of_batch[0]} == {*range(history.sent)}
        assert [broker.backlog("t", name) for name in ("delta", "each")] == [0, 0], history.kills
    print(f"{history.kills} of {history.sent} messages")
