"""Write checkpoints of a table's log where they are due, and remove unneeded ones.

Source: the Delta protocol, "Checkpoints", "Last Checkpoint File".
"""

import json
import logging
import re
import threading
import time
import uuid
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from deltalake.exceptions import DeltaError

from pulsar_spark.errors import CorruptState
from pulsar_spark.storage.delta.log import TableLog, read_actions
from pulsar_spark.storage.delta.scan import open_table
from pulsar_spark.storage.processes import forks
from pulsar_spark.storage.store.durability import is_durable, sync_file, sync_folder
from pulsar_spark.storage.store.small_file import parse_object, read_small
from pulsar_spark.storage.store.store import AnyPath, store_of

CHECKPOINT_EVERY = 100
"""Only multiples of this version start a checkpoint, so that one of many writers does."""
SHARE, SHARE_BYTES = 8, 1024
"""A checkpoint is due when the last one has at most this many actions, or bytes, for each commit since then."""
CHOSEN_SECONDS = 6 * 60 * 60
"""How long a checkpoint stays after a newer one, because a lazy frame of Spark may still read it."""
APART_SECONDS = 24 * 60 * 60
"""Distance between older checkpoints; from four times this age on, at most half their age."""
_EXTENDED_BYTES = 64 * 1024 * 1024
"""Most bytes of a checkpoint that is extended in memory."""
_ADD = frozenset(("path", "partitionValues", "size", "modificationTime", "dataChange", "stats"))
"""What an ``add`` of this package says."""
_FILE = re.compile(r"([0-9]{20})\.checkpoint(\.[0-9]{10}\.[0-9]{10})?\.parquet")
_checkpointing = forks.module_lock()
log = logging.getLogger(__name__)


class Checkpoint(NamedTuple):
    version: int
    files: tuple[AnyPath, ...]
    written: float


def checkpoints(table: AnyPath) -> list[Checkpoint]:
    found: dict[int, list[AnyPath]] = {}
    with suppress(FileNotFoundError):
        for file in TableLog(table).folder.iterdir():
            if match := _FILE.fullmatch(file.name):
                found.setdefault(int(match[1]), []).append(file)
    each = []
    for version, files in sorted(found.items()):
        with suppress(FileNotFoundError):
            each.append(Checkpoint(version, tuple(sorted(files)), max(file.stat().st_mtime for file in files)))
    return each


def is_due(table: AnyPath, version: int) -> bool:
    """Should a checkpoint follow the commit of *version*?"""
    if version % CHECKPOINT_EVERY:
        return False
    last, size, size_in_bytes = last_checkpoint(table)
    commits = version - last
    return commits * SHARE >= size or 0 < size_in_bytes <= commits * SHARE_BYTES


def checkpoint_if_due(table: AnyPath, followed: int, version: int) -> None:
    """Start a checkpoint if one is due after *followed* and up to *version*."""
    latest = version - version % CHECKPOINT_EVERY
    if latest > followed and is_due(table, latest):
        start_checkpoint(table)


def last_checkpoint(table: AnyPath) -> tuple[int, int, int]:
    """Version, actions and bytes of the latest checkpoint; 0 for each that is unknown."""
    try:
        last = parse_object(read_small(TableLog(table).folder / "_last_checkpoint"))
        return int(last["version"]), int(last["size"]), int(last.get("sizeInBytes") or 0)
    except (OSError, ValueError, KeyError, TypeError, OverflowError):
        return 0, 0, 0


def start_checkpoint(table: AnyPath) -> None:
    """Make a checkpoint on a thread that the process waits for at its end: killing native code would crash it."""
    try:
        threading.Thread(target=_try, args=(table,), name=f"checkpoint {table.name}", daemon=False).start()
    except RuntimeError:  # the interpreter is ending and starts no threads: the next checkpoint will do
        log.info("no checkpoint of %s: the process is ending", table)


def _try(table: AnyPath) -> None:
    with _checkpointing:
        try:
            if TableLog(table).exists():
                make_checkpoint(table)
        except (CorruptState, DeltaError, OSError) as failed:
            log.warning("no checkpoint of %s at present (it only makes opening faster): %s", table, failed)


def make_checkpoint(table: AnyPath) -> int:
    """Write a checkpoint of the current version, and remove unneeded ones; its version."""
    version = _extend_checkpoint(table)
    if version is None:
        opened = open_table(table)
        opened.create_checkpoint()
        version = opened.version()
    if is_durable(table):
        for file in next((each.files for each in checkpoints(table) if each.version == version), ()):
            sync_file(file)
        sync_folder(TableLog(table).folder)
    remove_checkpoints(table)
    return version


def _extend_checkpoint(table: AnyPath) -> int | None:
    """Write the last checkpoint again, with the appends since; the version. It takes a tenth of ``deltalake``'s time.

    None, without a write, if there is anything but appends, or no last checkpoint in one local file.
    """
    log, last = TableLog(table), last_checkpoint(table)[0]
    source, latest = log.folder / f"{last:020d}.checkpoint.parquet", log.latest(last)
    try:
        if not isinstance(source, Path) or last >= latest or source.stat().st_size > _EXTENDED_BYTES:
            return None
        actions = [action for version in range(last + 1, latest + 1) for action in read_actions(log.file(version))]
        whole = _extended(pq.ParquetFile(source).read(use_threads=False), actions)
    except (OSError, ValueError, TypeError, KeyError, AttributeError, pa.ArrowException):
        return None  # deltalake names the cause
    if whole is None:
        return None
    fresh = log.folder / f".{uuid.uuid4().hex}.tmp"
    try:
        pq.write_table(whole, fresh, store_schema=False, use_dictionary=False)
        size = fresh.stat().st_size
        store_of(table).move(fresh, log.file(latest).with_suffix(".checkpoint.parquet"))
    finally:
        fresh.unlink(missing_ok=True)
    files = len(whole) - whole["add"].null_count
    last_text = json.dumps({"version": latest, "size": len(whole), "sizeInBytes": size, "numOfAddFiles": files})
    store_of(table).replace(log.folder / "_last_checkpoint", last_text)
    return latest


def _extended(rows: pa.Table, actions: list[dict]) -> pa.Table | None:
    """The *rows* of a checkpoint with *actions*; None if those are not all new files and transactions."""
    adds = [action["add"] for action in actions if "add" in action]
    transactions = {action["txn"]["appId"]: action["txn"] for action in actions if "txn" in action}
    paths = pa.array({add["path"] for add in adds}, pa.string())
    is_known = {"add", "remove", "txn"} <= set(rows.column_names) and all(
        field.nullable or field.name in _ADD for field in rows.schema.field("add").type
    )
    has_appends_only = all(action.keys() <= {"add", "txn", "commitInfo"} for action in actions)
    if not is_known or not has_appends_only or any(add.keys() != _ADD for add in adds) or len(paths) < len(adds):
        return None
    if any(pc.any(pc.is_in(pc.struct_field(rows[name], "path"), paths)).as_py() for name in ("add", "remove")):
        return None
    app_ids = pa.array(transactions, pa.string())
    left = rows.filter(pc.invert(pc.is_in(pc.struct_field(rows["txn"], "appId"), app_ids)))
    news = [{"txn": txn} for txn in transactions.values()]
    news += [{"add": add | {"partitionValues": list(add["partitionValues"].items())}} for add in adds]
    return pa.concat_tables([left, pa.Table.from_pylist(news, rows.schema)])


def remove_checkpoints(table: AnyPath) -> list[int]:
    found, gone = checkpoints(table), []
    newest = last_checkpoint(table)[0]
    kept = _kept(found, time.time()) | {TableLog(table).earliest()}
    for each in found:
        if each.version < newest and each.version not in kept:
            gone.append(each.version)
            for file in each.files:
                file.unlink(missing_ok=True)
    return gone


def _kept(found: list[Checkpoint], now: float) -> set[int]:
    """Versions to keep: recently newest ones, and the first in each stretch of time. Stretches double with age."""
    chosen = {
        each.version
        for each, successor in zip(found, [*found[1:], None])
        if successor is None or successor.written > now - CHOSEN_SECONDS
    }
    firsts: dict[tuple[int, int], int] = {}
    for each in found:
        days_old = max(0.0, now - each.written) / APART_SECONDS
        doubled = max(int(days_old).bit_length() - 2, 0)
        firsts.setdefault((doubled, int(each.written // (APART_SECONDS << doubled))), each.version)
    return chosen | set(firsts.values())
