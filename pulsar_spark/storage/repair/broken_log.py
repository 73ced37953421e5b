"""Find missing or unreadable commits and checkpoints in a table's log."""

from collections.abc import Iterator
from fnmatch import fnmatchcase

import pyarrow as pa

from pulsar_spark.errors import DOCTOR, CorruptState
from pulsar_spark.storage.delta.log import TableLog
from pulsar_spark.storage.store.small_file import parse_object, read_small
from pulsar_spark.storage.store.store import AnyPath, store_of


def broken_commits(path: AnyPath) -> Iterator[tuple[int, str]]:
    """(version, what is wrong) of every commit that is empty, cut off, invalid or missing."""
    log = TableLog(path)
    for version in range(max(log.earliest(), 0), log.latest() + 1):
        if not log.has(version):
            yield version, "is missing from the log"
            continue
        try:
            log.commit(version)
        except CorruptState as broken:
            yield version, f"cannot be read ({broken.__cause__})"
        except OSError as broken:
            if not store_of(path).is_local:  # the commit may be whole: the store does not answer
                raise
            yield version, f"cannot be read ({broken.strerror})"
    newest = max(log.versions(), default=-1) if log.exists() else -1
    if newest > log.latest():
        yield from (
            (version, "is missing from the log") for version in range(log.latest() + 1, newest) if not log.has(version)
        )


def broken_checkpoints(path: AnyPath) -> Iterator[AnyPath]:
    """Unreadable checkpoints, and ``_last_checkpoint`` if it is unreadable or names none."""
    folder, store, names = TableLog(path).folder, store_of(path), []
    try:
        names = sorted(name for name in store.names(folder) if fnmatchcase(name, "*.checkpoint*.parquet"))
    except FileNotFoundError:
        return
    for name in names:
        try:
            store.footer(folder / name)
        except pa.ArrowInvalid:
            yield folder / name
        except OSError:
            if not store.is_local:
                raise
            yield folder / name
    last = folder / "_last_checkpoint"
    try:
        version = int(parse_object(read_small(last))["version"])
        is_there = any(name.startswith(f"{version:020d}.") for name in names)
    except FileNotFoundError:
        return
    except (ValueError, KeyError, TypeError, OverflowError):
        is_there = False
    if not is_there:
        yield last


def empty_commit(path: AnyPath, until: int) -> int | None:
    """The first empty commit after the last checkpoint, up to *until*; ``deltalake`` skips it. None in a store."""
    store, log = store_of(path), TableLog(path)
    if not store.is_local:
        return None
    try:
        checkpoint = int(parse_object(read_small(log.folder / "_last_checkpoint"))["version"])
    except (FileNotFoundError, ValueError, KeyError, TypeError, OverflowError):
        checkpoint = -1
    for version in range(checkpoint + 1, until + 1):
        try:
            if store.size(log.file(version)) == 0:
                return version
        except FileNotFoundError:  # the log was shortened
            continue
    return None


def check_log(path: AnyPath) -> None:
    """Raise :class:`CorruptState`, naming what is broken, unless the log is sound."""
    for version, why in broken_commits(path):
        if TableLog(path).has(version):
            TableLog(path).commit(version)  # raises the error that every reader of the log gets
        raise CorruptState(f"{str(path)!r}: commit {version} {why}; {DOCTOR}")
    for file in broken_checkpoints(path):
        raise CorruptState(f"{str(path)!r}: checkpoint {file.name!r} cannot be read; {DOCTOR}")
