"""A table's inter-process lock, which lies beside it: held alone, or shared with all who append. In an object store
there is none: who appends needs none, and what would have to hold it alone is refused."""

import contextlib
import fcntl
import os
from collections.abc import Iterator

from pulsar_spark.errors import OperationNotSupported
from pulsar_spark.storage.layout import LOCK, TURN, beside
from pulsar_spark.storage.store import store_of


@contextlib.contextmanager
def append_lock(table: str | os.PathLike) -> Iterator[None]:
    """Hold the table's inter-process lock alone: nobody appends meanwhile. Not needed to append or to read.
    :class:`OperationNotSupported` in an object store."""
    if not store_of(table).is_local:
        raise OperationNotSupported(
            f"{str(table)!r} lies in an object store, where nobody can have a table for himself: this release neither "
            "mends, repairs nor migrates tables there"
        )
    with _locked(table, fcntl.LOCK_EX):
        yield


@contextlib.contextmanager
def lock_where_there_is_one(table: str | os.PathLike) -> Iterator[None]:
    """The same for who need not have the table alone, but would have to begin again as often as others append; in an
    object store, where nobody waits for anybody, nothing."""
    with append_lock(table) if store_of(table).is_local else contextlib.nullcontext():
        yield


@contextlib.contextmanager
def shared_lock(table: str | os.PathLike) -> Iterator[None]:
    """Hold it with others: nobody holds it alone meanwhile. Nothing in an object store."""
    if not store_of(table).is_local:
        yield
        return
    with _locked(table, fcntl.LOCK_SH):
        yield


@contextlib.contextmanager
def turn(table: str | os.PathLike) -> Iterator[None]:
    """Be the only one of those who wait for their turn to append; nobody else has to. In an object store, where whoever
    found a version taken is told which are there, nobody waits."""
    if not store_of(table).is_local:
        yield
        return
    with _locked(table, fcntl.LOCK_EX, TURN):
        yield


@contextlib.contextmanager
def _locked(table: str | os.PathLike, kind: int, suffix: str = LOCK) -> Iterator[None]:
    """Hold a lock beside the table, alone or with others, after waiting for it without looking again and again."""
    lock = beside(table, suffix)
    lock.parent.mkdir(parents=True, exist_ok=True)
    opened = os.open(lock, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        fcntl.flock(opened, kind)
        yield
    finally:
        os.close(opened)
