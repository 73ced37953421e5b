"""Whether a compaction of a topic runs, and how the last ended: a locked file in the topic's folder.

After a crash the file says "running" but is unlocked. In object stores the file names the process.
"""

import contextlib
import json
import os
import time
import uuid
from collections.abc import Iterator
from contextlib import AbstractContextManager
from typing import NamedTuple

from pulsar_spark.errors import NotAllowedError
from pulsar_spark.protocol.policies.compaction import ERROR, NOT_RUN, RUNNING, SUCCESS
from pulsar_spark.protocol.topics.message_id import MAX_LONG
from pulsar_spark.storage.clock import now_micros
from pulsar_spark.storage.compaction.compacted import IN_PROGRESS, CompactedView
from pulsar_spark.storage.processes.held_file import has_holder_ended, holder, try_hold
from pulsar_spark.storage.store.small_file import keep_aside, parse_object, say_unreadable, text_of, whole_number_of
from pulsar_spark.storage.store.store import AnyPath, store_of
from pulsar_spark.storage.topics.topics import Topic

FILE = "_compaction"
ENDED = "the process that compacted the topic ended early: compact it again"
_TEXT = 300
LONGEST_SECONDS = 60 * 60
"""In object stores, how long a compaction on another machine counts as running."""


class CompactionStatus(NamedTuple):
    """The result of ``pulsar-admin topics compaction-status``; ``failed_time_ms`` is 0 if none failed."""

    status: str
    last_error: str = ""
    failed_time_ms: int = 0


def compacting(topic: Topic) -> AbstractContextManager[None]:
    """Hold the topic for a compaction and record its outcome; :class:`NotAllowedError` while another runs."""
    return (_compacting if store_of(topic.path).is_local else _compacting_in_store)(topic)


@contextlib.contextmanager
def _compacting(topic: Topic) -> Iterator[None]:
    path = topic.path / FILE
    if path.exists() and not path.is_file():
        keep_aside(path)
    with try_hold(path, alone=True) as (opened, is_mine):
        if not is_mine:
            raise _in_progress(topic)
        before = _content(path, opened)
        _write(opened, {**before, "status": RUNNING})
        try:
            yield
        except BaseException as failed:
            _write(opened, _failure(failed))
            raise
        _write(opened, {**before, "status": SUCCESS})


def compaction_status(topic: Topic, view: CompactedView) -> CompactionStatus:
    done = SUCCESS if view.is_made else NOT_RUN
    try:
        is_free, content = (_now if store_of(topic.path).is_local else _now_in_store)(topic)
    except FileNotFoundError:
        return CompactionStatus(done)
    failed_time_ms = content.get("time_ms", 0)
    if not is_free:
        return CompactionStatus(RUNNING, "", failed_time_ms)
    if content.get("status") == RUNNING:
        return CompactionStatus(ERROR, ENDED, failed_time_ms)
    if content.get("status") == ERROR:
        return CompactionStatus(ERROR, content.get("error", ""), failed_time_ms)
    return CompactionStatus(done, "", failed_time_ms)


def _now(topic: Topic) -> tuple[bool, dict]:
    path = topic.path / FILE
    if not path.is_file():
        raise FileNotFoundError(path)
    with try_hold(path, alone=False) as (opened, is_free):
        return is_free, _content(path, opened)


@contextlib.contextmanager
def _compacting_in_store(topic: Topic) -> Iterator[None]:
    path, mine, before = topic.path / FILE, {**holder(), "run": uuid.uuid4().hex}, {}

    def begin(content: bytes | None) -> str:
        before.update(_parsed(path, content or b"{}"))
        if before.get("status") == RUNNING and not _is_over(path):
            raise _in_progress(topic)
        return json.dumps({"time_ms": before.get("time_ms", 0), **mine, "status": RUNNING})

    def ended(content: dict) -> None:
        text = json.dumps({**mine, **content})
        store_of(path).change(path, lambda now: text if _parsed(path, now or b"{}").get("run") == mine["run"] else None)

    store_of(path).change(path, begin)
    try:
        yield
    except BaseException as failed:
        ended(_failure(failed))
        raise
    ended({"time_ms": before.get("time_ms", 0), "status": SUCCESS})


def _now_in_store(topic: Topic) -> tuple[bool, dict]:
    path = topic.path / FILE
    content = _parsed(path, path.read_bytes())
    return content.get("status") != RUNNING or _is_over(path), content


def _is_over(path: AnyPath) -> bool:
    return has_holder_ended(path) or path.stat().st_mtime + LONGEST_SECONDS < time.time()


def _in_progress(topic: Topic) -> NotAllowedError:
    return NotAllowedError(f"topic {str(topic.name)!r}: {IN_PROGRESS}; wait for it: topics compaction-status")


def _failure(failed: BaseException) -> dict:
    text = f"{type(failed).__name__}: {failed}".partition("\n")[0][:_TEXT]
    return {"status": ERROR, "error": text, "time_ms": now_micros() // 1000}


def _content(path: AnyPath, opened: int) -> dict:
    return _parsed(path, os.pread(opened, 1 << 16, 0) or b"{}")


def _parsed(path: AnyPath, content: bytes) -> dict:
    try:
        found = parse_object(content)
        for name in {"status", "error"} & found.keys():
            text_of(found, name)
        if "time_ms" in found:
            whole_number_of(found, "time_ms", 0, MAX_LONG)
        return found
    except ValueError as why:
        say_unreadable(path, content, why, "the state of the topic's last compaction is unknown")
        return {}


def _write(opened: int, content: dict) -> None:
    text = json.dumps(content).encode()
    os.pwrite(opened, text, 0)
    os.ftruncate(opened, len(text))
