"""Follows a bundle's rounds for all clients of the process, reading each round once.

The thread looks often until the system has reported three rounds in a row (see folder_events), then once a second.
"""

import contextlib
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from functools import partial
from typing import Protocol

import pyarrow as pa

from pulsar_spark.errors import CorruptState
from pulsar_spark.link import inbox
from pulsar_spark.link.worker import Worker
from pulsar_spark.storage.delta.actions import Commit
from pulsar_spark.storage.delta.log import TableLog
from pulsar_spark.storage.processes import forks
from pulsar_spark.storage.store.folder_events import FolderEvents
from pulsar_spark.storage.store.store import AnyPath, path_of, store_of

FAST_POLL = 0.01
SLOW_POLL = 0.05
LOOK_SHARE = 9
"""The least pause after a look, in durations of that look; at most :data:`SLOW_POLL`."""
TRUSTED_POLL = 1.0
"""Seconds between looks while the system reports files."""
FAULT_SECONDS = 1.0
"""Seconds between looks at a log that cannot be read."""
TRUSTED_AFTER = 3
ENDS_WITHIN = 5.0
"""Seconds within which its thread ends, unless a disk hangs."""
KEPT_ROUNDS, KEPT_BYTES = 8, 1 << 20
"""How many of the latest rounds keep their rows for other clients, and their largest size."""

_logs: dict[tuple, "BundleLog"] = {}
_logs_lock = forks.module_lock()


class Follower(Protocol):
    """One client's reader of rounds."""

    def on_round(self, commit: Commit | None) -> None:
        """The next round, which need not be read if it concerns others; None: see the log. Called by its thread."""


class BundleLog(Worker):
    """Follows the rounds of a bundle; :func:`bundle_log` returns it."""

    def __init__(self, path: AnyPath):
        super().__init__("rounds", threading.Condition())
        self._path, self._log = path_of(path), TableLog(path)
        self.log = _ReadOnce(path, self._round)
        self._least_poll = store_of(path).look_seconds
        self._followers: dict[Follower, None] = {}
        self._eager: set[Follower] = set()
        self._rounds: OrderedDict[int, _Round] = OrderedDict()
        self._seen, self._reports = -1, 0
        self._events: FolderEvents | None = None

    def follow(self, follower: Follower) -> None:
        """Report each further round to *follower*."""
        if not self._followers:
            self._seen = self._log.latest()
            if not self._least_poll:
                with contextlib.suppress(OSError):
                    self._events = FolderEvents(self._log.folder)
            self._start()
        with self._condition:
            self._followers[follower] = None

    def leave(self, follower: Follower) -> bool:
        """Stop reporting; return whether *follower* was the last."""
        with self._condition:
            self._followers.pop(follower, None)
            self._eager.discard(follower)
            self._is_stopping = not self._followers
            self._wake()
            return self._is_stopping

    def hurry(self, follower: Follower, is_waiting: bool) -> None:
        with self._condition:
            if is_waiting == (follower in self._eager):
                return
            (self._eager.add if is_waiting else self._eager.discard)(follower)
            if is_waiting and self._reports < TRUSTED_AFTER:
                self._wake()

    def rows(self, commit: Commit) -> inbox.Rows:
        """The rows of a round that clients need."""
        return self._round(commit.version).rows(lambda: inbox.read_rows(self._path, commit))

    def _round(self, version: int) -> "_Round":
        with self._condition:
            found = self._rounds.get(version)
            if found is None:
                found = self._rounds[version] = _Round()
                while len(self._rounds) > KEPT_ROUNDS:
                    self._rounds.popitem(last=False)
            return found

    def _wake(self) -> None:
        """End the thread's wait. Requires the condition."""
        self._condition.notify_all()
        if self._events is not None:
            self._events.wake()

    def _run(self) -> None:
        try:
            self._follow()
        finally:
            with self._condition:
                events, self._events = self._events, None
            if events is not None:
                events.close()

    def _follow(self) -> None:
        is_reported = False
        while not self._is_stopping:
            began = time.monotonic()
            try:
                rounds = self._look()
            except OSError:  # readers of the log report it themselves
                rounds, pause = [None], FAULT_SECONDS
            else:
                pause = self._pause(time.monotonic() - began)
            if rounds:
                self._notify(rounds, is_reported)
            is_reported = self._wait_for_report(pause)

    def _notify(self, rounds: Sequence[int | None], is_reported: bool) -> None:
        self._reports = self._reports + 1 if is_reported or self._wait_for_report(0.0) else 0
        for version in rounds:
            commit = None
            if version is not None:
                with contextlib.suppress(OSError, CorruptState):  # readers of the log report it themselves
                    commit = self.log.commit(version)
            for follower in list(self._followers):
                follower.on_round(commit)

    def _look(self) -> Sequence[int | None]:
        """The versions of further rounds; None instead of many or if they are not in the log any more."""
        if not self._log.has_news(self._seen):
            return ()
        before, self._seen = self._seen, self._log.latest(self._seen)
        return range(before + 1, self._seen + 1) if 0 < self._seen - before <= KEPT_ROUNDS else [None]

    def _pause(self, look_seconds: float) -> float:
        if self._reports >= TRUSTED_AFTER:
            return TRUSTED_POLL
        poll = max(FAST_POLL, min(LOOK_SHARE * look_seconds, SLOW_POLL)) if self._eager else SLOW_POLL
        return max(poll, self._least_poll)

    def _wait_for_report(self, seconds: float) -> bool:
        """Return whether the system reported a file."""
        if self._events is not None:
            return self._events.wait(seconds)
        with self._condition:
            if not self._is_stopping:
                self._condition.wait(seconds)
        return False


class _Round:
    def __init__(self) -> None:
        self._lock, self._is_large = threading.Lock(), False
        self._commit: Commit | None = None
        self._rows: inbox.Rows | None = None

    def commit(self, read: Callable[[], Commit]) -> Commit:
        with self._lock:
            if self._commit is None:
                self._commit = read()
            return self._commit

    def rows(self, read: Callable[[], inbox.Rows]) -> inbox.Rows:
        if self._is_large:
            return read()
        with self._lock:
            rows = read() if self._rows is None else self._rows
            self._is_large = isinstance(rows, pa.Table) and rows.nbytes > KEPT_BYTES
            self._rows = None if self._is_large else rows
            return rows


class _ReadOnce(TableLog):
    def __init__(self, path: AnyPath, round_of: Callable[[int], _Round]):
        super().__init__(path)
        self._round_of = round_of

    def commit(self, version: int) -> Commit:
        return self._round_of(version).commit(partial(super().commit, version))


def bundle_log(path: AnyPath, follower: Follower) -> BundleLog:
    """Report rounds of the ``cursor_ledger`` at *path* until :func:`leave`. FileNotFoundError without a table."""
    with _logs_lock:
        key = forks.generation, str(path), TableLog(path).life()
        found = _logs.get(key)
        if found is None:
            found = _logs[key] = BundleLog(path)
        found.follow(follower)
        return found


def leave(log: BundleLog, follower: Follower) -> None:
    """Stop following; the last follower ends the log's thread. May be repeated."""
    with _logs_lock:
        is_last = log.leave(follower)
        if is_last:
            for key in [key for key, each in _logs.items() if each is log]:
                del _logs[key]
    if is_last:
        log.stop(ENDS_WITHIN)
