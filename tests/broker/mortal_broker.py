"""``python -m tests.broker.mortal_broker WHAT ROOT WRITE...``: brokers without Spark, one after the other, each of
which kills itself, by SIGKILL, at one of its writes.

Each data file and each commit of any table is a write; 1 is the moment before the first of them, 2 the moment before
the second... 0 means never. Between a commit and the next write a broker reads, plans and answers nobody, so the moment
after a write is the moment before the next. *WHAT* is :data:`TABLES`, or which files' writes are meant and what is done
to them: those of the delay index that is built, merged, dropped and made anew in the background, all the time, as it
is so small (:data:`INDEX`); likewise, and before each start one of its files is damaged (:data:`DAMAGED_INDEX`); or
those of housekeeping, which are data files, texts, links and removals (:data:`HOUSE`).
"""

import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from itertools import count
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from pulsar_spark.broker.bundle.load_bundle import load_bundle
from pulsar_spark.broker.delays import delay_head, delay_index
from pulsar_spark.broker.requests.reading import read_request_batch
from pulsar_spark.broker.round.rounds import Rounds
from pulsar_spark.storage.clock import now_micros
from pulsar_spark.storage.delta import checkpoints, tables
from pulsar_spark.storage.layout import Layout
from pulsar_spark.storage.topics.topics import prepare_root
from pulsar_spark.storage.upkeep import joining
from pulsar_spark.testing.plain_broker import PlainBroker
from pulsar_spark.testing.plain_planner import PlainPlanner
from tests.benchmarks.kept_broker import quickly_old
from tests.support.faults import wrap_writes

TABLES, INDEX, DAMAGED_INDEX, HOUSE = "tables", "delay-index", "damaged-delay-index", "housekeeping"
LOOK_SECONDS = 0.01
KEPT_SECONDS = 5
"""How long what is in no use stays, where house is kept."""
KEEPERS_WRITES = (joining, "write_parts"), (Path, "write_text"), (Path, "unlink"), (os, "link"), (pq, "ParquetWriter")
LAST = "the last broker serves"
FILES = ("_delta_log/*.json", *(f"bucket=*/kind={kind}/part-*" for kind in ("entry", "segment", "indexed")))
DAMAGES = {
    "removed": Path.unlink,
    "empty": lambda path: path.write_bytes(b""),
    "half": lambda path: path.write_bytes(path.read_bytes()[: path.stat().st_size // 2]),
    "flipped": lambda path: path.write_bytes(flipped(path.read_bytes())),
}


def flipped(content: bytes) -> bytes:
    """One bit is another, in the middle."""
    at = len(content) // 2
    return content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :] if content else content


def mortal(write: int, thread: str | None = None) -> Callable:
    """A wrapper of functions that ends this process without a word before the *write*-th of their calls, of those of
    *thread* with one."""
    numbers = count(1)

    def wrap(function):
        def write_or_die(*args, **kwargs):
            if thread in (None, threading.current_thread().name) and next(numbers) == write:
                print(f"killed before {getattr(function, '__name__', function)} {args[:1]}", flush=True)
                os.kill(os.getpid(), signal.SIGKILL)
            return function(*args, **kwargs)

        return write_or_die

    return wrap


def serve(root: str, write: int) -> None:
    layout = Layout(root)
    prepare_root(layout)
    rounds = Rounds(load_bundle(layout), PlainPlanner().run, now_micros, f"mortal-{os.getpid()}")
    rounds.take_over()
    wrap = mortal(write)
    tables.write_files, tables.commit = wrap(tables.write_files), wrap(tables.commit)
    while True:
        if not rounds.run(
            *read_request_batch(layout.broker_table("requests"), after=rounds.bundle.requests_version)
        ).is_committed:
            time.sleep(LOOK_SECONDS)


def serve_with_index(root: str, write: int) -> None:
    delay_head.MOST_ENTRIES, delay_index.AT_ONCE = 6, 3
    wrap_writes(pytest.MonkeyPatch(), mortal(write, "delay index"))
    with PlainBroker(root, delayed_delivery_max_num_buckets=2) as broker:
        broker.wait()


def serve_and_keep_house(root: str, write: int) -> None:
    joining.FILES, checkpoints.CHECKPOINT_EVERY = 4, 8
    wrap = mortal(write, "housekeeping")
    for owner, name in KEEPERS_WRITES:
        setattr(owner, name, wrap(getattr(owner, name)))
    with (
        quickly_old(KEPT_SECONDS, LOOK_SECONDS=0.05, COMMITS=4, IDLE_SECONDS=0.2, AGAIN_SECONDS=0.2, REST=0),
        PlainBroker(root, housekeeping=True) as broker,
    ):
        broker.wait()


def damage(root: str, number: int) -> None:
    """Do to the latest of the index's files, each time of another kind, what files come to."""
    table = Layout(root).broker_table("delay_index")
    files = table.glob(FILES[(number + number // len(DAMAGES)) % len(FILES)])
    path = max(files, key=lambda path: path.stat().st_mtime_ns, default=None)
    if path is not None:
        name, do = list(DAMAGES.items())[number % len(DAMAGES)]
        do(path)
        print(f"{name}: {path}", flush=True)


def serve_in_turn(what: str, root: str, writes: list[int]) -> None:
    """A copy of this process for each broker but the last, which is the process itself and says so."""
    for number, write in enumerate(writes[:-1]):
        broker = os.fork()
        if not broker:
            SERVE[what](root, write)
        _, status = os.waitpid(broker, 0)
        assert os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL, status
        if what == DAMAGED_INDEX:
            damage(root, number)
    print(LAST, flush=True)
    SERVE[what](root, writes[-1])


SERVE = {TABLES: serve, INDEX: serve_with_index, DAMAGED_INDEX: serve_with_index, HOUSE: serve_and_keep_house}


if __name__ == "__main__":
    serve_in_turn(sys.argv[1], sys.argv[2], [int(write) for write in sys.argv[3:]])
