"""Remove the oldest commits of a table's log, so that it begins at a later checkpoint, as after Delta's clean-up.

A copy of the first commit is kept (log.TableLog.life). Source: the Delta protocol, "Metadata Cleanup".
"""

import time
from collections.abc import Callable, Iterator

import pyarrow as pa

from pulsar_spark.storage.delta.checkpoints import CHOSEN_SECONDS, checkpoints
from pulsar_spark.storage.delta.log import TableLog
from pulsar_spark.storage.delta.table_lock import lock_where_there_is_one
from pulsar_spark.storage.store.durability import is_durable, sync_folder
from pulsar_spark.storage.store.store import AnyPath, store_of

COMMITS_A_STEP = 500
LEAST_SECONDS = 60 * 60
"""The least age of a commit removed in an object store: longer than a late writer needs to notice."""
_OF_A_COMMIT = (".json", ".crc")


def shorten(
    table: AnyPath, followed: int, before: float, clear: Callable[[range], object] = lambda doomed: None
) -> Iterator[int]:
    """Begin the log at the last *followed* checkpoint older than *before* (seconds); yields the commits of each step.

    *clear* gets their versions before, again after a crash.
    """
    log = TableLog(table)
    begins = _new_beginning(table, followed, before)
    if begins is None:
        return
    for first in range(log.earliest(), begins, COMMITS_A_STEP):
        doomed = range(first, min(first + COMMITS_A_STEP, begins))
        clear(doomed)
        with lock_where_there_is_one(table):
            log.keep_first_commit()
            if is_durable(table):
                sync_folder(log.folder)
            store_of(table).remove(
                log.file(version).with_suffix(suffix) for version in doomed for suffix in _OF_A_COMMIT
            )
        yield len(doomed)
    for each in checkpoints(table):
        if each.version < begins:
            store_of(table).remove(each.files)


def _new_beginning(table: AnyPath, followed: int, before: float) -> int | None:
    """That checkpoint's version; None if no commit can go."""
    before = before if store_of(table).is_local else min(before, time.time() - LEAST_SECONDS)
    log, chosen = TableLog(table), max(time.time() - CHOSEN_SECONDS, before)
    for each in reversed(checkpoints(table)):
        is_new = each.written > chosen
        if each.version <= followed + 1 and len(each.files) == 1 and log.has(each.version) and not is_new:
            is_old = log.file(each.version).stat().st_mtime <= before
            if is_old and _can_be_read(each.files[0]):
                return each.version if each.version > log.earliest() else None
    return None


def _can_be_read(file: AnyPath) -> bool:
    try:
        return store_of(file).footer(file).num_rows > 0
    except (pa.ArrowInvalid, FileNotFoundError):
        return False
