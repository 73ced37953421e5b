"""Which compaction of a topic is under way, and what became of the last: a file in the topic's folder, on which who
compacts holds a lock as long as its process is there.

A crash lets go of the lock and leaves the word that it runs, which then means that it failed. The file decides nothing:
where locks do not hold, the commit of the view lets only one of two through (see compacted).
"""

import contextlib
import fcntl
import json
import os
from collections.abc import Iterator
from typing import NamedTuple

from pulsar_spark.errors import NotAllowedError
from pulsar_spark.protocol.compaction import ERROR, NOT_RUN, RUNNING, SUCCESS
from pulsar_spark.storage.commits import now_micros
from pulsar_spark.storage.compacted import IN_PROGRESS, CompactedView
from pulsar_spark.storage.held_file import NO_LOCKS
from pulsar_spark.storage.store import store_of
from pulsar_spark.storage.topics import Topic

FILE = "_compaction"
ENDED = "the process that compacted the topic ended before it was done: compact it again"
_TEXT = 300


class CompactionStatus(NamedTuple):
    """As ``pulsar-admin topics compaction-status`` has it; when the last one failed, in ms, 0 for never."""

    status: str
    last_error: str = ""
    failed_time_ms: int = 0


@contextlib.contextmanager
def compacting(topic: Topic) -> Iterator[None]:
    """Hold the topic for a compaction; what it raises is kept as the status. :class:`NotAllowedError` while there is
    another."""
    opened = os.open(topic.path / FILE, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        if not _locked(opened, fcntl.LOCK_EX):
            raise NotAllowedError(f"topic {str(topic.name)!r}: {IN_PROGRESS}; wait for it: topics compaction-status")
        before = _said(opened)
        _say(opened, {**before, "status": RUNNING})
        try:
            yield
        except BaseException as failed:
            text = f"{type(failed).__name__}: {failed}".partition("\n")[0][:_TEXT]
            _say(opened, {"status": ERROR, "error": text, "time_ms": now_micros() // 1000})
            raise
        _say(opened, {**before, "status": SUCCESS})
    finally:
        os.close(opened)


def compaction_status(topic: Topic, view: CompactedView) -> CompactionStatus:
    """What became of the last compaction of the topic, whose *view* it is."""
    done = SUCCESS if view.is_made else NOT_RUN
    if not store_of(topic.path).is_local:  # where nobody compacts yet
        return CompactionStatus(done)
    try:
        opened = os.open(topic.path / FILE, os.O_RDONLY)
    except FileNotFoundError:
        return CompactionStatus(done)
    try:
        is_free = _locked(opened, fcntl.LOCK_SH)
        said = _said(opened)
    finally:
        os.close(opened)
    failed_time_ms = said.get("time_ms", 0)
    if not is_free:
        return CompactionStatus(RUNNING, "", failed_time_ms)
    if said.get("status") == RUNNING:
        return CompactionStatus(ERROR, ENDED, failed_time_ms)
    if said.get("status") == ERROR:
        return CompactionStatus(ERROR, said.get("error", ""), failed_time_ms)
    return CompactionStatus(done, "", failed_time_ms)


def _locked(opened: int, kind: int) -> bool:
    """Take the lock; False where another holds it. A file system without locks grants it."""
    try:
        fcntl.flock(opened, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as error:
        if error.errno not in NO_LOCKS:
            raise
    return True


def _said(opened: int) -> dict:
    try:
        said = json.loads(os.pread(opened, 1 << 16, 0) or b"{}")
    except ValueError:  # cut off by a full disk
        return {}
    return said if isinstance(said, dict) else {}


def _say(opened: int, said: dict) -> None:
    text = json.dumps(said).encode()
    os.pwrite(opened, text, 0)
    os.ftruncate(opened, len(text))
