"""A table's inter-process lock, in a file beside it: held alone, or shared by appends. Object stores have none."""

import contextlib
import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager
from functools import lru_cache

from pulsar_spark.errors import OperationNotSupported
from pulsar_spark.storage.layout import LOCK, TURN, beside
from pulsar_spark.storage.store.away import check_there
from pulsar_spark.storage.store.store import StrPath, store_of

TURN_SECONDS = 0.5
"""Most seconds to wait for a turn: its holder may be stopped, or hang on its disk."""
_LOOK_SECONDS = 0.0005, 0.002
"""The first and the longest pause between two looks."""


def append_lock(table: StrPath) -> AbstractContextManager[None]:
    """Hold the lock alone; :class:`OperationNotSupported` in an object store."""
    if not store_of(table).is_local:
        raise OperationNotSupported(f"{str(table)!r} lies in an object store, where a table cannot be locked")
    return _locked(table, fcntl.LOCK_EX)


def lock_where_there_is_one(table: StrPath) -> AbstractContextManager[None]:
    """:func:`append_lock`; nothing in an object store, where the caller replaces only what it read."""
    return append_lock(table) if store_of(table).is_local else contextlib.nullcontext()


def shared_lock(table: StrPath) -> AbstractContextManager[None]:
    """Share the lock; nothing in an object store."""
    return _locked(table, fcntl.LOCK_SH) if store_of(table).is_local else contextlib.nullcontext()


@contextlib.contextmanager
def turn(table: StrPath) -> Iterator[None]:
    """Wait for a turn to append, at most :data:`TURN_SECONDS`, to avoid collisions; nothing in an object store."""
    if not store_of(table).is_local:
        yield
        return
    with _opened(table, TURN) as lock:
        deadline, (pause, longest) = time.monotonic() + TURN_SECONDS, _LOOK_SECONDS
        while not _is_taken_now(lock) and time.monotonic() < deadline:
            time.sleep(pause)
            pause = min(2 * pause, longest)
        yield


def _is_taken_now(lock: int) -> bool:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


@contextlib.contextmanager
def _locked(table: StrPath, kind: int) -> Iterator[None]:
    with _opened(table, LOCK) as lock:
        fcntl.flock(lock, kind)
        yield


@lru_cache(maxsize=1000)
def _lock_file(table: str, suffix: str) -> str:
    return str(beside(table, suffix))


@contextlib.contextmanager
def _opened(table: StrPath, suffix: str) -> Iterator[int]:
    """A lock file beside the table, unlocked in the end even if a forked process has it."""
    lock = _lock_file(str(table), suffix)
    check_there(lock)
    try:
        opened = os.open(lock, os.O_RDWR | os.O_CREAT, 0o644)
    except FileNotFoundError:
        os.makedirs(os.path.dirname(lock), exist_ok=True)
        opened = os.open(lock, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        yield opened
    finally:
        fcntl.flock(opened, fcntl.LOCK_UN)
        os.close(opened)
