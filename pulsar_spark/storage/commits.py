"""Writing one append commit (or one that removes files, see trimming) to a Delta log: data files first, then the commit
file, put in place by a hard link, which the file system does only once. Nobody needs a lock for that (design 3.4,
rule 5): who finds a version taken links the same file under the next.

What a crash or an error in between leaves: before the link files that no commit names, which the writer takes away
if it can and ``maintain vacuum`` otherwise; after it the commit, whatever the writer was told. So a writer that was
told of an error looks for its rows in the log before it writes them again.

Why not through ``deltalake``: its append brings the whole table's file list into play, so it takes 20 ms on a table
of 60 commits and 200 to 500 ms on one of 300 to 800, and a broker makes that many in minutes. An append needs none
of it: 2 ms, however long the log is (``python -m tests.benchmarks``). What is left out is what appends of ours never
need: schema changes, deletion vectors, column mapping; a table that asks for more than :data:`WRITER_VERSION` is
refused. Now and then a checkpoint is made in the background, for those who open the table (see checkpoints).
Source: the Delta protocol, "Delta Log Entries", "Actions".
"""

import contextlib
import json
import os
import time
import uuid
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from pulsar_spark.storage.actions import ENGINE
from pulsar_spark.storage.announcements import announce
from pulsar_spark.storage.checkpoints import is_due, start_checkpoint
from pulsar_spark.storage.data_files import remove_files
from pulsar_spark.storage.durability import is_durable, sync_file, sync_folder
from pulsar_spark.storage.log import TableLog

WRITER_VERSION = 4


def commit(
    table: Path,
    versions: Iterable[int],
    adds: list[dict],
    transactions: dict[str, int],
    removes: Sequence[dict] = (),
    *,
    metadata: dict | None = None,
    is_rearranged: bool = False,
    concerns: Sequence[str] | None = None,
    held: Callable[[], contextlib.AbstractContextManager] = contextlib.nullcontext,
    makes_checkpoint: bool = True,
) -> int | None:
    """Put a commit in place as the first of *versions* that nobody has taken, each asked for when the one before is;
    that version, None when there is none.

    *removes* are path, size and partitionValues of files that leave the table; where the same rows come back in *adds*
    it *is_rearranged*, so that no data changes; *metadata* is what the table's ``metaData`` action says from then on;
    *concerns* names all whom the rows concern, so that others need not read them (see Commit); the link is made inside
    *held*; without *makes_checkpoint* somebody else makes the table's (see checkpoints). Where the commit does not come
    to be, the files of *adds* are taken away. An error means that, but for one of the last step, which brings the log's
    folder to the disk."""
    log_folder = table / "_delta_log"
    fresh = log_folder / f".{uuid.uuid4().hex}.tmp"
    version = None
    try:
        fresh.write_text(commit_text(adds, transactions, removes, metadata, is_rearranged, concerns))
        if is_durable(table):
            sync_file(fresh)
        version = _link(fresh, TableLog(table), versions, held)
    finally:
        if version is None:
            remove_files(table, adds)
        with contextlib.suppress(OSError):  # it is in nobody's way, and what it says is decided
            fresh.unlink()
    if version is None:
        return None
    announce(table)
    if is_durable(table):
        sync_folder(log_folder)
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
) -> str:
    """What a commit's file holds: an action a line. The first says how many files the others name, so that one that was
    cut off between two lines is known."""
    if metadata is not None:
        operation = {"operation": "ADD COLUMNS", "operationParameters": {}}
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


def replace_commit(table: Path, version: int, text: str, *, keep_as: str | None = "broken") -> None:
    """Put *text* in the place of a commit, in one step: a crash or power loss leaves either.

    What was there stays beside it, under a hidden name that nobody reads and that says what it was; with None it goes.
    For callers that hold the table alone."""
    log = TableLog(table)
    target, fresh = log.file(version) if version else log.first_commit(), log.folder / f".{uuid.uuid4().hex}.tmp"
    try:
        fresh.write_text(text)
        sync_file(fresh)
        if keep_as is not None and target.exists():
            keep = os.rename if target.is_dir() else os.link
            keep(target, target.with_name(f".{target.name}.{keep_as}-{time.time_ns()}"))
        os.replace(fresh, target)
    finally:
        with contextlib.suppress(OSError):
            fresh.unlink(missing_ok=True)
    sync_folder(log.folder)


def _link(
    fresh: Path, log: TableLog, versions: Iterable[int], held: Callable[[], contextlib.AbstractContextManager]
) -> int | None:
    """The first version that nobody had taken. An error of a link that was made all the same, as network file systems
    have them, is none."""
    for version in versions:
        try:
            with held():
                os.link(fresh, log.file(version))
            return version
        except FileExistsError:
            if _is_linked(fresh):
                return version
        except OSError:
            if not _is_linked(fresh):
                raise
            return version
    return None


def _is_linked(fresh: Path) -> bool:
    try:
        return fresh.stat().st_nlink > 1
    except FileNotFoundError:  # with its folder: the table was deleted
        return False


def now_micros() -> int:
    """The machine's clock, in microseconds since 1970."""
    return time.time_ns() // 1000
