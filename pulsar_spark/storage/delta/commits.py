"""Write one commit to a Delta log: data files first, then the commit file, put in place if that version is free.

A crash before the commit file leaves files that no commit names (design 3.4, rule 5). ``deltalake`` would read the
table's whole file list. Source: the Delta protocol, "Delta Log Entries", "Actions".
"""

import contextlib
import json
import time
import uuid
from collections.abc import Generator, Iterable, Sequence
from functools import lru_cache, partial

from pulsar_spark.storage.clock import now_micros
from pulsar_spark.storage.delta.actions import ENGINE
from pulsar_spark.storage.delta.checkpoints import is_due, start_checkpoint
from pulsar_spark.storage.delta.data_files import remove_files, sync_files
from pulsar_spark.storage.delta.log import TableLog
from pulsar_spark.storage.delta.reader_rows import EVERYBODY, STATED, Readers
from pulsar_spark.storage.processes import forks
from pulsar_spark.storage.processes.threads import Threads
from pulsar_spark.storage.store.durability import is_durable, sync_file, sync_folder
from pulsar_spark.storage.store.faults import UnclearWrite
from pulsar_spark.storage.store.object_path import Lock
from pulsar_spark.storage.store.store import AnyPath, store_of
from pulsar_spark.storage.topics.announcements import announce

WRITER_VERSION = 4
_SYNCS_AT_ONCE = 16


def commit(
    table: AnyPath,
    versions: Iterable[int],
    adds: list[dict],
    transactions: dict[str, int],
    removes: Sequence[dict] = (),
    *,
    metadata: dict | None = None,
    metadata_operation: str = "ADD COLUMNS",
    is_rearranged: bool = False,
    readers: Readers = EVERYBODY,
    lock: Lock = contextlib.nullcontext,
    makes_checkpoint: bool = True,
    are_synced: bool = True,
) -> int | None:
    """Put a commit in place as the first free one of *versions*, read one by one; that version, None if all are taken.

    *removes* are path, size and partitionValues of files that leave the table. *is_rearranged*: *adds* has the same
    rows. *metadata* is a new ``metaData`` action, *metadata_operation* its name. The commit file
    is put in place inside *lock*. Without *makes_checkpoint*, another program makes checkpoints. Unless the files of
    *adds* *are_synced*, that is done here.

    If no commit is made, the files of *adds* are removed. After an error none was made, unless syncing the log's folder
    failed. After :class:`UnclearWrite` or an interrupt it may be made, so the files stay.
    """
    log, is_synced = TableLog(table), is_durable(table)
    text = commit_text(
        adds, transactions, removes, metadata, is_rearranged, readers, metadata_operation=metadata_operation
    )
    put, is_unclear = None, False
    ready = partial(_sync, table, () if are_synced else adds) if is_synced else None
    try:
        put = store_of(table).put_in_first_free(map(log.file, versions), text, log.folder, lock, ready)
    except (UnclearWrite, KeyboardInterrupt):  # the call may have succeeded before the interrupt
        is_unclear = True
        raise
    finally:
        if put is None and not is_unclear:
            remove_files(table, adds)
    if put is None:
        return None
    if isinstance(versions, Generator):
        versions.close()  # so that the next writer has its turn while this one waits for the disk
    announce(table)
    if is_synced:
        sync_folder(log.folder)
    version = int(put.name[:20])
    if makes_checkpoint and is_due(table, version):
        start_checkpoint(table)
    return version


def _sync(table: AnyPath, adds: Sequence[dict], fresh: AnyPath) -> None:
    """Sync the *fresh* commit file and the files of *adds* at the same time, since the disk then writes once for
    both."""
    if not adds:
        sync_file(fresh)
        return
    of_files = _syncs(forks.generation).submit(sync_files, table, adds)
    try:
        sync_file(fresh)
    finally:
        of_files.result()


@lru_cache(maxsize=1)
def _syncs(forks_before: int) -> Threads:
    """The threads of this process that sync data files: a new one for each commit would cost as much as the rest."""
    return Threads(_SYNCS_AT_ONCE, "sync")


def commit_text(
    adds: list[dict],
    transactions: dict[str, int],
    removes: Sequence[dict] = (),
    metadata: dict | None = None,
    is_rearranged: bool = False,
    readers: Readers = EVERYBODY,
    *,
    metadata_operation: str = "ADD COLUMNS",
) -> str:
    """The content of a commit file; it states its number of files, to detect one that was cut off."""
    if metadata is not None:
        operation = {"operation": metadata_operation, "operationParameters": {}}
    elif removes:
        operation = {"operation": "OPTIMIZE" if is_rearranged else "DELETE", "operationParameters": {}}
    else:
        operation = {"operation": "WRITE", "operationParameters": {"mode": "Append"}}
    actions = [
        {
            "commitInfo": {
                "timestamp": now_micros() // 1000,
                **operation,
                "isBlindAppend": not removes and metadata is None,
                "engineInfo": ENGINE,
                "txnId": str(uuid.uuid4()),
                "operationMetrics": {"numFiles": str(len(adds) + len(removes))},
                **_for_readers(readers, adds),
            }
        }
    ]
    actions += [
        {"txn": {"appId": app_id, "version": number, "lastUpdated": now_micros() // 1000}}
        for app_id, number in transactions.items()
    ]
    actions += [] if metadata is None else [{"metaData": metadata}]
    actions += [{"add": _without_rows(add) | {"dataChange": not is_rearranged}} for add in adds]
    actions += [
        {
            "remove": {
                **remove,
                "deletionTimestamp": now_micros() // 1000,
                "dataChange": not is_rearranged,
                "extendedFileMetadata": True,
            }
        }
        for remove in removes
    ]
    return "\n".join(map(json.dumps, actions)) + "\n"


def _for_readers(readers: Readers, adds: list[dict]) -> dict[str, list]:
    stated = [add.get(STATED) for add in adds] if readers.rows is None else []
    return {
        **({} if readers.names is None else {"concerns": list(readers.names)}),
        **({} if readers.rows is None else {"readerRows": list(readers.rows)}),
        **({STATED: stated} if any(stated) else {}),
    }


def _without_rows(add: dict) -> dict:
    return {name: value for name, value in add.items() if name != STATED}


def replace_commit(table: AnyPath, version: int, text: str, *, keep_as: str | None = "broken") -> None:
    """Replace a commit's text in one step, and keep the old one under a hidden name with *keep_as* (None: do not keep).

    Local callers hold the table's lock alone. In a store, OSError if another program replaced it meanwhile.
    """
    log, store = TableLog(table), store_of(table)
    target = log.file(version) if version else log.first_commit()
    kept = None if keep_as is None else target.with_name(f".{target.name}.{keep_as}-{time.time_ns()}")
    store.replace(target, text, sync_file, kept)
    if store.is_local:
        sync_folder(log.folder)
