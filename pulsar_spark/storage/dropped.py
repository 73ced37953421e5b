"""Deleting a table. On a disk its folder is renamed first, by who has it for himself. In an object store nothing can
be renamed, and nobody has it for himself.

There, in one step its first commit says that it is dropped: from then on it is no table for anybody, and who has it
open meets another first commit before each of his own. What lies in its folder goes then, and that commit last, so a
crash in between leaves no table, and who deletes or makes one of that name removes the rest. One at a time does, by a
lock: else what the next maker of the table commits could go, too. A commit whose put was under way all the time may
come behind all that; where there is no first commit it is nobody's, and goes when the table is made again.
"""

import json
import os
from collections.abc import Callable
from functools import partial

from pulsar_spark.storage.layout import LOCK, beside
from pulsar_spark.storage.log import FIRST_COMMIT, TableLog
from pulsar_spark.storage.object_path import ObjectPath
from pulsar_spark.storage.store import AnyPath, store_of
from pulsar_spark.storage.store_lock import store_lock
from pulsar_spark.storage.table_lock import append_lock

OPERATION = "DROP TABLE"
_A_CALL = 1000


def is_dropped(first: list[dict] | None) -> bool:
    """Do the actions of a table's first commit say that it is dropped?"""
    return bool(first) and first[0].get("commitInfo", {}).get("operation") == OPERATION


def drop_table(table: AnyPath) -> None:
    """Delete it, so that nobody meets half of it; nothing in a store, and FileNotFoundError on a disk, where it is
    dropped already, or was never made."""
    if not isinstance(table, ObjectPath):
        store_of(table).drop_folder(table, partial(append_lock, table))
        return
    with store_lock(beside(table, LOCK)) as renew:
        log = TableLog(table)
        said = json.dumps({"commitInfo": {"operation": OPERATION, "table": str(table)}}) + "\n"
        while (first := log.first_actions()) is not None and not is_dropped(first):
            table.store.change(log.first_commit(), lambda first: None if first is None else said)
        _remove_rest(table, renew)


def is_rest(table: str | os.PathLike) -> bool:
    """Is what lies there of a table in a store that is none any more?"""
    return not store_of(table).is_local and _has_rest(TableLog(table))


def create_where_nothing_is(table: ObjectPath, first_commit: bytes) -> bool:
    """Make the table by its first commit; False where there is one."""
    log = TableLog(table)
    if not _has_rest(log):
        return table.store.put_if_absent(log.file(0), first_commit)
    with store_lock(beside(table, LOCK)) as renew:
        if _has_rest(log):
            _remove_rest(table, renew)
        return table.store.put_if_absent(log.file(0), first_commit)


def _has_rest(log: TableLog) -> bool:
    """Is something there of a table that is none any more?"""
    first = log.first_actions()
    if first is None:
        return log.latest() >= 0 and not (log.folder / "_last_checkpoint").exists()
    return is_dropped(first)


def _remove_rest(table: ObjectPath, renew: Callable[[], None]) -> None:
    """All that lies in the folder, what says that the table is dropped last."""
    last = [table / f"_delta_log/{name}" for name in (FIRST_COMMIT, f"{0:020d}.json")]
    names = [path for name in table.store.below(table) if (path := table / name) not in last]
    for first in range(0, len(names), _A_CALL):
        renew()
        table.store.remove(names[first : first + _A_CALL])
    renew()
    table.store.remove(last)
