"""Many who append to one table at once: each row is there once, and who finds its version taken waits for a turn."""

import fcntl
import itertools
import os
import signal
import subprocess
import sys
import threading

import pytest

from pulsar_spark.storage.delta import table_lock
from pulsar_spark.storage.delta.definitions import create_table
from pulsar_spark.storage.delta.log import TableLog
from pulsar_spark.storage.delta.table_lock import append_lock, shared_lock, turn
from pulsar_spark.storage.delta.tables import AppendTable
from pulsar_spark.storage.layout import TURN, beside
from pulsar_spark.table_specs import REQUESTS

WRITERS, COMMITS = 8, 5


def _row(name: str) -> list[dict]:
    return [{"request_id": name, "kind": "keep_alive", "client_id": "c"}]


def test_all_who_append_at_once_come_to_a_version_of_their_own(tmp_path):
    create_table(tmp_path / "requests", REQUESTS)
    start, versions = threading.Barrier(WRITERS), []

    def append(number: int) -> None:
        table = AppendTable(tmp_path / "requests", makes_checkpoints=False)
        start.wait(60)
        for count in range(COMMITS):
            versions.append(table.append(REQUESTS.rows(_row(f"{number}-{count}"))))

    writers = [threading.Thread(target=append, args=(number,)) for number in range(WRITERS)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join(60)
    assert sorted(versions) == list(range(1, WRITERS * COMMITS + 1))
    assert TableLog(tmp_path / "requests").latest() == WRITERS * COMMITS


def overtaken(table: AppendTable) -> None:
    """Let the table's next commit find its version taken, as if that happened after its last look."""
    has, looks = table._log.has, itertools.count()
    table._known = 0
    table._log.has = lambda version: next(looks) > 0 and has(version)


def test_who_waits_for_a_turn_is_in_nobody_s_way_who_finds_a_version_free(tmp_path):
    create_table(tmp_path / "requests", REQUESTS)
    first, second = (AppendTable(tmp_path / "requests", makes_checkpoints=False) for _ in range(2))
    assert first.append(REQUESTS.rows(_row("a"))) == 1
    with turn(tmp_path / "requests"):
        assert first.append(REQUESTS.rows(_row("b"))) == 2
        overtaken(second)
        waiting, found = threading.Event(), []

        def append() -> None:
            waiting.set()
            found.append(second._commit([], {}))

        writer = threading.Thread(target=append)
        writer.start()
        waiting.wait(60)
        assert first.append(REQUESTS.rows(_row("c"))) == 3
    writer.join(60)
    assert found == [4]


_HOLDER = """
import sys
from pulsar_spark.storage.delta.table_lock import turn
with turn(sys.argv[1]):
    print("held", flush=True)
    sys.stdin.read()
"""


def test_a_process_that_was_stopped_in_its_turn_holds_nobody_up(tmp_path):
    create_table(tmp_path / "requests", REQUESTS)
    table = AppendTable(tmp_path / "requests", makes_checkpoints=False)
    command = [sys.executable, "-c", _HOLDER, str(tmp_path / "requests")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as holder:
        try:
            assert holder.stdout.readline() == "held\n"
            holder.send_signal(signal.SIGSTOP)
            found = []
            AppendTable(tmp_path / "requests", makes_checkpoints=False).append(REQUESTS.rows(_row("a")))
            overtaken(table)
            writer = threading.Thread(target=lambda: found.append(table._commit([], {})), daemon=True)
            writer.start()
            writer.join(60)
            assert found == [2]
        finally:
            holder.kill()


@pytest.mark.parametrize("hold, name", [(turn, TURN), (append_lock, ".lock"), (shared_lock, ".lock")])
def test_a_lock_is_let_go_though_a_forked_process_has_its_file_open(tmp_path, monkeypatch, hold, name):
    open_file, copies = os.open, []

    def opened(*args):
        found = open_file(*args)
        copies.append(os.dup(found))  # as a fork does
        return found

    monkeypatch.setattr(table_lock.os, "open", opened)
    with hold(tmp_path / "requests"):
        pass
    monkeypatch.undo()
    other = os.open(beside(tmp_path / "requests", name), os.O_RDWR)
    assert copies and fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB) is None
    for each in (other, *copies):
        os.close(each)
