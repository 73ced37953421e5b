"""Checkpoints of a table's log, for those who open the table: written by ``deltalake`` in the background of whoever
commits, or follows what others commit, and removed when newer ones stand.

A checkpoint repeats the list of all the table's files, and of those that left it in the last week. So the next one is
made when a fixed part of what the last one holds has been committed since: all checkpoints together cost in proportion
to the commits, and who opens the table reads, beside the checkpoint, commits that are at most that part of it. What
stays is the newest; those that were the newest until a while ago, because who chose one then may still read it; older
ones, the further apart the older they are, where readers of older versions and shortened logs begin; and the one at
which the log begins. Source: the Delta protocol, "Checkpoints", "Last Checkpoint File".
"""

import logging
import re
import threading
import time
from contextlib import suppress
from typing import NamedTuple

from deltalake.exceptions import DeltaError

from pulsar_spark.errors import CorruptState
from pulsar_spark.storage import forks
from pulsar_spark.storage.durability import is_durable, sync_file, sync_folder
from pulsar_spark.storage.log import TableLog
from pulsar_spark.storage.scan import open_table
from pulsar_spark.storage.small_file import parse_object, read_small
from pulsar_spark.storage.store import AnyPath

CHECKPOINT_EVERY = 100
"""Versions apart at least; only such a version begins one, so that of many writers one does."""
SHARE, SHARE_BYTES = 8, 4 * 1024
"""So many actions, or bytes, of the last checkpoint there are for each commit since then, at most: one that says where
a file lies takes a kilobyte, one of a file that left the table 70 bytes. Of these there are many, a week's, and who
opens a table takes a thread, 0.1 MB and 0.4 ms for each commit since the last checkpoint."""
CHOSEN_SECONDS = 6 * 60 * 60
"""So long after a newer one was written a checkpoint stays: who opened the table before may read it only now, as
Spark does for a frame that is executed later."""
APART_SECONDS = 24 * 60 * 60
"""Older checkpoints lie so far apart, and from four times that age on at most half of their age."""
_FILE = re.compile(r"([0-9]{20})\.checkpoint(\.[0-9]{10}\.[0-9]{10})?\.parquet")
_checkpointing = forks.module_lock()
log = logging.getLogger(__name__)


class Checkpoint(NamedTuple):
    """One that lies in the log, in one file or several, and when it was written."""

    version: int
    files: tuple[AnyPath, ...]
    written: float


def checkpoints(table: AnyPath) -> list[Checkpoint]:
    """Those that lie in the table's log, by version; one that goes meanwhile is passed over."""
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
    """Is the commit of *version* one behind which a checkpoint is to be made?"""
    if version % CHECKPOINT_EVERY:
        return False
    last, size, size_in_bytes = _last_checkpoint(table)
    commits = version - last
    return commits * SHARE >= size or 0 < size_in_bytes <= commits * SHARE_BYTES


def checkpoint_behind(table: AnyPath, followed: int, version: int) -> None:
    """Make one where it is due at a commit behind version *followed* and up to *version*: for who follows a table whose
    writers make none."""
    latest = version - version % CHECKPOINT_EVERY
    if latest > followed and is_due(table, latest):
        start_checkpoint(table)


def last_checkpoint(table: AnyPath) -> tuple[int, int]:
    """Version of the latest checkpoint and how many actions it holds; 0 and 0 where there is none, or where nobody can
    tell."""
    return _last_checkpoint(table)[:2]


def _last_checkpoint(table: AnyPath) -> tuple[int, int, int]:
    """The same, and its bytes; 0 where nobody says how many."""
    try:
        said = parse_object(read_small(TableLog(table).folder / "_last_checkpoint"))
        return int(said["version"]), int(said["size"]), int(said.get("sizeInBytes") or 0)
    except (OSError, ValueError, KeyError, TypeError, OverflowError):
        return 0, 0, 0


def start_checkpoint(table: AnyPath) -> None:
    """Make one on a thread that the process waits for at its end: one that is killed in the middle of native code takes
    the process with it."""
    try:
        threading.Thread(target=_try, args=(table,), name=f"checkpoint {table.name}", daemon=False).start()
    except RuntimeError:  # the interpreter is ending already and starts no threads: the next checkpoint will do
        log.info("no checkpoint of %s: the process is ending", table)


def _try(table: AnyPath) -> None:
    """One at a time; a table deleted meanwhile needs none, and one that cannot be made now is made another time."""
    with _checkpointing:
        try:
            if TableLog(table).exists():
                make_checkpoint(table)
        except (CorruptState, DeltaError, OSError) as failed:
            log.warning("no checkpoint of %s at present (it only makes opening faster): %s", table, failed)


def make_checkpoint(table: AnyPath) -> int:
    """Write a checkpoint of the table as it is, and remove those that nobody needs behind it; its version."""
    opened = open_table(table)
    opened.create_checkpoint()
    if is_durable(table):
        for file in TableLog(table).folder.glob(f"{opened.version():020d}.checkpoint*.parquet"):
            sync_file(file)
        sync_folder(TableLog(table).folder)
    remove_checkpoints(table)
    return opened.version()


def remove_checkpoints(table: AnyPath) -> list[int]:
    """Remove those that nobody needs any more; their versions. A crash in between leaves the others for the next
    time."""
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
    """The versions of the checkpoints that were the newest until a while ago, and of the first of each stretch of time.

    Stretches begin at multiples of their length, which doubles with the age: so what is first in a long one was first
    in a short one, and is still there when the short ones have become a long one."""
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
