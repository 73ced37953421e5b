"""When to write a checkpoint of a table's log, and which older ones to remove.

Source: the Delta protocol, "Checkpoints", "Last Checkpoint File".
"""

import logging
import re
import threading
import time
from contextlib import suppress
from typing import NamedTuple

from deltalake.exceptions import DeltaError

from pulsar_spark.errors import CorruptState
from pulsar_spark.storage.delta.log import TableLog
from pulsar_spark.storage.delta.scan import open_table
from pulsar_spark.storage.processes import forks
from pulsar_spark.storage.store.durability import is_durable, sync_file, sync_folder
from pulsar_spark.storage.store.small_file import parse_object, read_small
from pulsar_spark.storage.store.store import AnyPath

CHECKPOINT_EVERY = 100
"""Only multiples of this version start a checkpoint, so that one of many writers does."""
SHARE, SHARE_BYTES = 8, 4 * 1024
"""A checkpoint is due when the last one has at most this many actions, or bytes, for each commit since then."""
CHOSEN_SECONDS = 6 * 60 * 60
"""How long a checkpoint stays after a newer one, because a lazy frame of Spark may still read it."""
APART_SECONDS = 24 * 60 * 60
"""Distance between older checkpoints; from four times this age on, at most half their age."""
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
    opened = open_table(table)
    opened.create_checkpoint()
    if is_durable(table):
        for file in next((each.files for each in checkpoints(table) if each.version == opened.version()), ()):
            sync_file(file)
        sync_folder(TableLog(table).folder)
    remove_checkpoints(table)
    return opened.version()


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
