"""Writing one append commit (or one that removes files, see trimming) to a Delta log: data files first, then the commit
file, put in place if nothing is there: by a hard link, which a file system does only once, or as a store's call (see
local_store and object_store). Nobody needs a lock for that (design 3.4, rule 5): who finds a version taken puts the
same under the next.

What a crash or an error in between leaves: before the commit's file is there files that no commit names, which the
writer takes away if it can and ``maintain vacuum`` otherwise; after it the commit, whatever the writer was told. So a
writer that was told of an error looks for its rows in the log before it writes them again.

Why not through ``deltalake``: its append brings the whole table's file list into play, so it takes 20 ms on a table
of 60 commits and 200 to 500 ms on one of 300 to 800, and a broker makes that many in minutes. An append needs none
of it: 2 ms, however long the log is (``python -m tests.benchmarks``). What is left out is what appends of ours never
need: schema changes, deletion vectors, column mapping; a table that asks for more than :data:`WRITER_VERSION` is
refused. Now and then a checkpoint is made in the background, for those who open the table (see checkpoints).
Source: the Delta protocol, "Delta Log Entries", "Actions".
"""

import contextlib
import json
import time
import uuid
from collections.abc import Callable, Iterable, Sequence

from pulsar_spark.storage.actions import ENGINE
from pulsar_spark.storage.announcements import announce
from pulsar_spark.storage.checkpoints import is_due, start_checkpoint
from pulsar_spark.storage.data_files import remove_files
from pulsar_spark.storage.durability import is_durable, sync_file, sync_folder
from pulsar_spark.storage.faults import UnclearWrite
from pulsar_spark.storage.log import TableLog
from pulsar_spark.storage.store import AnyPath, store_of

WRITER_VERSION = 4


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
    concerns: Sequence[str] | None = None,
    held: Callable[[], contextlib.AbstractContextManager] = contextlib.nullcontext,
    makes_checkpoint: bool = True,
) -> int | None:
    """Put a commit in place as the first of *versions* that nobody has taken, each asked for when the one before is;
    that version, None when there is none.

    *removes* are path, size and partitionValues of files that leave the table; where the same rows come back in *adds*
    it *is_rearranged*, so that no data changes; *metadata* is what the table's ``metaData`` action says from then on,
    *metadata_operation* what was done to it;
    *concerns* names all whom the rows concern, so that others need not read them (see Commit); the link is made inside
    *held*; without *makes_checkpoint* somebody else makes the table's (see checkpoints). Where the commit does not come
    to be, the files of *adds* are taken away. An error means that, but for one of the last step, which brings the log's
    folder to the disk, and :class:`UnclearWrite` of a store, which leaves the files: the commit may yet come to be."""
    log, is_synced = TableLog(table), is_durable(table)
    text = commit_text(
        adds, transactions, removes, metadata, is_rearranged, concerns, metadata_operation=metadata_operation
    )
    put, is_unclear = None, False
    try:
        put = store_of(table).put_in_first_free(
            map(log.file, versions), text, log.folder, held, sync_file if is_synced else None
        )
    except (UnclearWrite, KeyboardInterrupt):  # who interrupts does so behind a call of which the answer is lost
        is_unclear = True
        raise
    finally:
        if put is None and not is_unclear:
            remove_files(table, adds)
    if put is None:
        return None
    version = int(put.name[:20])
    announce(table)
    if is_synced:
        sync_folder(log.folder)
    if makes_checkpoint and is_due(table, version):
        start_checkpoint(table)
    return version


def commit_text(
    adds: list[dict],
    transactions: dict[str, int],
    removes: Sequence[dict] = (),
    metadata: dict | None = None,
    is_rearranged: bool = False,
    concerns: Sequence[str] | None = None,
    *,
    metadata_operation: str = "ADD COLUMNS",
) -> str:
    """What a commit's file holds: an action a line. The first says how many files the others name, so that one that was
    cut off between two lines is known."""
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
                **({} if concerns is None else {"concerns": list(concerns)}),
            }
        }
    ]
    actions += [
        {"txn": {"appId": app_id, "version": number, "lastUpdated": now_micros() // 1000}}
        for app_id, number in transactions.items()
    ]
    actions += [] if metadata is None else [{"metaData": metadata}]
    actions += [{"add": add | {"dataChange": not is_rearranged}} for add in adds]
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


def replace_commit(table: AnyPath, version: int, text: str, *, keep_as: str | None = "broken") -> None:
    """Put *text* in the place of a commit, in one step: a crash or power loss leaves either.

    What was there stays beside it, under a hidden name that nobody reads and that says what it was; with None it goes.
    For callers that hold the table alone, where that can be; in an object store OSError, and nothing is replaced, where
    another did so meanwhile."""
    log, store = TableLog(table), store_of(table)
    target = log.file(version) if version else log.first_commit()
    kept = None if keep_as is None else target.with_name(f".{target.name}.{keep_as}-{time.time_ns()}")
    store.replace_kept(target, text, kept, sync_file)
    if store.is_local:
        sync_folder(log.folder)


def now_micros() -> int:
    """The machine's clock, in microseconds since 1970."""
    return time.time_ns() // 1000
