"""Whose lock is free has ended, and nobody else: files held by processes, by their forks, and files that go."""

import contextlib
import fcntl
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from pulsar_spark.storage.processes.held_file import HeldFile, has_holder_ended, hold, opened

pytestmark = pytest.mark.local_disk


@contextlib.contextmanager
def another_process(begin: Callable[[], object] = lambda: None) -> Iterator[None]:
    """A fork of this one, which has done *begin* and lives until the end of the block."""
    (ready, is_ready), (until, ends) = os.pipe(), os.pipe()
    child = os.fork()
    if child == 0:
        os.close(ends)
        begin()
        os.write(is_ready, b"!")
        os.read(until, 1)
        os._exit(0)
    try:
        assert os.read(ready, 1)
        yield
    finally:
        for each in (ends, until, ready, is_ready):
            os.close(each)
        os.waitpid(child, 0)


def is_free(path: Path) -> bool:
    with opened(path) as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True


def test_a_process_is_gone_when_it_has_ended_and_no_sooner(tmp_path):
    path, found = tmp_path / "clients/c", []
    with another_process(lambda: hold(path)):
        assert not has_holder_ended(path, found.append) and path.exists()
    assert has_holder_ended(path, found.append) and found == [path]


def test_a_fork_holds_nothing_of_its_parent_s(tmp_path):
    held = HeldFile(tmp_path / "clients/c")
    with another_process():
        assert not is_free(held.path)
        held.close()
        assert is_free(held.path)


def test_a_file_that_somebody_removes_before_it_is_held_is_made_again(tmp_path, monkeypatch):
    """Who looks for files of those who are gone holds the lock, and removes one that says nothing yet."""
    flock, removed = fcntl.flock, []

    def flock_late(file: int, kind: int) -> None:
        if not removed:
            removed.append(path.unlink())
        flock(file, kind)

    path = tmp_path / "clients/c"
    monkeypatch.setattr(fcntl, "flock", flock_late)
    held = HeldFile(path)
    assert removed and held.touch() and not is_free(path)
    held.end()
    assert not path.exists()
