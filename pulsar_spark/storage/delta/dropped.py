"""Delete tables in one visible step, and create tables in their place.

On a disk the folder is renamed first. In an object store a new first commit says that the table is dropped, and is
deleted last. After a crash in between, the next deletion or creation removes the rest.
"""

import json
from collections.abc import Callable
from functools import partial

from pulsar_spark.storage.delta.log import FIRST_COMMIT, TableLog
from pulsar_spark.storage.delta.table_lock import append_lock
from pulsar_spark.storage.layout import LOCK, beside
from pulsar_spark.storage.store.local_store import drop_folder
from pulsar_spark.storage.store.object_path import ObjectPath
from pulsar_spark.storage.store.store import AnyPath, StrPath, store_of
from pulsar_spark.storage.store.store_lock import store_lock

OPERATION = "DROP TABLE"
_A_CALL = 1000


def is_dropped(first: list[dict] | None) -> bool:
    return first is not None and first[0].get("commitInfo", {}).get("operation") == OPERATION


def drop_table(table: AnyPath) -> None:
    """Delete a table at once. Without one: FileNotFoundError on a disk, nothing in a store."""
    if not isinstance(table, ObjectPath):
        drop_folder(table, partial(append_lock, table))
        return
    with store_lock(_lock_of(table)) as renew:
        log = TableLog(table)
        dropped = json.dumps({"commitInfo": {"operation": OPERATION, "table": str(table)}}) + "\n"
        while (first := log.first_actions()) is not None and not is_dropped(first):
            store_of(table).change(log.first_commit(), lambda first: None if first is None else dropped)
        _remove_rest(table, renew)


def create_where_nothing_is(table: ObjectPath, first_commit: bytes) -> bool:
    """Create the table by its first commit; False if there is one already."""
    if not has_rest(table):
        return table.store.put_if_absent(_first(table), first_commit)
    with store_lock(_lock_of(table)) as renew:
        if has_rest(table):
            _remove_rest(table, renew)
        return table.store.put_if_absent(_first(table), first_commit)


def has_rest(table: StrPath) -> bool:
    """Do remains of a deleted table lie there, in a store?"""
    if store_of(table).is_local:
        return False
    log = TableLog(table)
    first = log.first_actions()
    if first is None:
        return log.latest() >= 0 and not (log.folder / "_last_checkpoint").exists()
    return is_dropped(first)


def _first(table: ObjectPath) -> ObjectPath:
    return table / f"_delta_log/{0:020d}.json"


def _lock_of(table: ObjectPath) -> ObjectPath:
    return table.parent / beside(table, LOCK).name


def _remove_rest(table: ObjectPath, renew: Callable[[], None]) -> None:
    last = [table / f"_delta_log/{FIRST_COMMIT}", _first(table)]
    names = [path for name in table.store.below(table) if (path := table / name) not in last]
    for first in range(0, len(names), _A_CALL):
        renew()
        table.store.remove(names[first : first + _A_CALL])
    renew()
    table.store.remove(last)
