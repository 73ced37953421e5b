"""Brokers killed with SIGKILL, at each of their writes and at random times, while a workload goes on; and the account
of every message.

``PULSAR_SPARK_KILLS_AT_WRITES`` and ``PULSAR_SPARK_KILLS`` say how many brokers are killed: few in the suite, hundreds
by hand. ``PULSAR_SPARK_SEED`` gives other random times."""

import os
import random
import signal
import subprocess
import sys
import threading
import time

import pytest

from tests.broker.delayed_workload import DelayedWorkload
from tests.broker.mortal_broker import DAMAGED_INDEX, HOUSE, INDEX, LAST, TABLES
from tests.broker.workload import Account, Workload
from tests.support.waiting import eventually

NOTHING_WRONG = Account(lost=[], unexpected=[], letters=[], left={})
WRITES = int(os.environ.get("PULSAR_SPARK_KILLS_AT_WRITES", "12"))
KILLS = int(os.environ.get("PULSAR_SPARK_KILLS", "1"))
SEED = int(os.environ.get("PULSAR_SPARK_SEED", "1"))
LONGEST_LIFE_SECONDS = 60


def start(log, *arguments: str) -> subprocess.Popen:
    with open(log, "ab") as output:
        return subprocess.Popen(
            [sys.executable, "-m", *arguments], stdout=output, stderr=output, start_new_session=True
        )


def kill(process: subprocess.Popen) -> None:
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def run_workload(root, brokers, patience_seconds: int, workload=Workload) -> Account:
    """The account of a workload that goes on while *brokers* (a generator that ends when the last one runs) come and
    go."""
    done, failures = threading.Event(), []

    def succession() -> None:
        try:
            for _ in brokers:
                pass
        except BaseException as failure:
            failures.append(failure)
            raise
        finally:
            done.set()

    threading.Thread(target=succession, name="brokers", daemon=True).start()
    with workload(root, patience_seconds) as work:
        while not done.is_set():
            work.step()
        assert not failures, failures
        work.settle()
        return work.account()


@pytest.mark.parametrize(
    ("what", "workload"),
    [(TABLES, Workload), (HOUSE, Workload), (INDEX, DelayedWorkload), (DAMAGED_INDEX, DelayedWorkload)],
)
def test_killed_at_every_write(tmp_path, what, workload):
    """Of its tables, of housekeeping, or of the delay index; and where one of the index's files is damaged before each
    start, the log says that it is made again."""
    root, log = tmp_path / "root", tmp_path / "brokers.log"
    process = start(log, "tests.broker.mortal_broker", what, str(root), *map(str, range(1, WRITES + 1)), "0")

    def brokers():
        eventually(lambda: LAST in log.read_text() or process.poll() is not None, WRITES * LONGEST_LIFE_SECONDS)
        assert process.poll() is None, log.read_text()
        yield

    try:
        assert run_workload(root, brokers(), LONGEST_LIFE_SECONDS, workload) == NOTHING_WRONG
    finally:
        kill(process)
    killed = {words[2] for line in log.read_text().splitlines() if (words := line.split())[:2] == ["killed", "before"]}
    # Which of its writes housekeeping comes to first is the machine's; a long run comes to all kinds.
    assert len(killed) >= (3 if what == HOUSE and WRITES >= 40 else 1), "at writes of several kinds"
    said = [line for line in log.read_text().splitlines() if line.startswith("delay index: ")]
    is_mended = [any(words in line for words in ("is rebuilt", "rebuilds it")) for line in said]
    assert what != DAMAGED_INDEX or (said and all(is_mended)), said


@pytest.mark.java
def test_killed_at_random_times(tmp_path):
    root, log = tmp_path / "root", tmp_path / "brokers.log"
    chance, alive = random.Random(SEED), []

    def brokers():
        for _ in range(KILLS):
            alive.append(start(log, "pulsar_spark.cli", "broker", "--root", str(root)))
            wait_until_serving(alive[-1], log)
            time.sleep(chance.uniform(0, 3))
            kill(alive.pop())
            yield
        alive.append(start(log, "pulsar_spark.cli", "broker", "--root", str(root)))

    def wait_until_serving(process, log) -> None:
        """Until the broker said so, which is when rounds begin."""
        before, until = served(log), time.monotonic() + 2 * LONGEST_LIFE_SECONDS
        while served(log) == before:
            assert process.poll() is None and time.monotonic() < until, log.read_text()
            time.sleep(0.02)

    def served(log) -> int:
        return log.read_text().count(" serves ") if log.exists() else 0

    try:
        assert run_workload(root, brokers(), 3 * LONGEST_LIFE_SECONDS) == NOTHING_WRONG, f"seed {SEED}"
    finally:
        for process in alive:
            kill(process)
