"""Reads the rounds of a bundle and dispatches their rows to a client's consumers and callers."""

import logging
import threading
from collections import deque
from collections.abc import Callable

from pulsar_spark.errors import LogShortened
from pulsar_spark.link.broker_watch import BrokerWatch
from pulsar_spark.link.bundle_log import bundle_log, leave
from pulsar_spark.link.inbox import Inbox
from pulsar_spark.storage.delta.actions import Commit
from pulsar_spark.storage.delta.log import TableLog
from pulsar_spark.storage.layout import Layout
from pulsar_spark.storage.store.away import check_there
from pulsar_spark.table_specs import CURSOR_LEDGER

MOST_PENDING = 64
"""So many rounds wait in memory for a client; if there are more, it reads them from the log."""
LOOK_SECONDS = 10.0
"""Seconds until the log is looked at without any report."""


class RoundReader:
    """*condition* guards *inbox*, and is notified when there may be another round.

    ``has_news`` says that there may be one; at ``next_look`` of the clock the log is looked at in any case.
    """

    def __init__(
        self,
        layout: Layout,
        inbox: Inbox,
        condition: threading.Condition,
        broker: BrokerWatch,
        clock: Callable[[], float],
        logger: logging.Logger,
    ):
        self._root, self._inbox, self._condition, self._broker = layout.root, inbox, condition, broker
        self._clock, self._logger = clock, logger
        path = layout.broker_table(CURSOR_LEDGER.name)
        self.seen = TableLog(path).latest()
        self.has_news, self.next_look = True, float("-inf")
        self._pending: deque[Commit] = deque()
        self._is_behind, self._is_reading = True, False
        self._bundle_log = bundle_log(path, self)
        self.log = self._bundle_log.log

    def receive(self) -> bool:
        """Receive new rounds, if one was reported or after some time without reports. False if rounds were lost."""
        is_late = self._clock() >= self.next_look
        if not (self.has_news or is_late):
            return True
        self.has_news, self.next_look = False, self._clock() + LOOK_SECONDS
        check_there(self._root)
        try:
            if self._take_pending(is_late):
                self._read_on()
            return True
        except LogShortened:
            pass
        except FileNotFoundError:  # joined so long ago that the file is gone; its commit stays longer
            if self.log.latest() <= self.seen:
                raise
            check_there(self._root)
        self.seen = self.log.latest()
        return False

    def _take_pending(self, is_late: bool) -> bool:
        """Dispatch the pending rounds; return whether the log has to be read, which then begins."""
        while True:
            with self._condition:
                if not self._pending:
                    self._is_reading, self._is_behind = self._is_behind or is_late, False
                    return self._is_reading
                commit = self._pending.popleft()
            is_done = False
            try:
                self._dispatch(commit)
                is_done = True
            finally:
                if not is_done:
                    self._fall_behind(commit.version - 1)

    def _read_on(self) -> None:
        is_done = False
        try:
            for commit in self.log.commits(after=self.seen):
                self._dispatch(commit)
                self.seen = commit.version
            is_done = True
        finally:
            with self._condition:
                self._is_reading = False
                self._is_behind |= not is_done

    def _fall_behind(self, seen: int) -> None:
        """Read the log after the round *seen* next."""
        with self._condition:
            self.seen, self._is_behind = seen, True
            self._pending.clear()

    def _dispatch(self, commit: Commit) -> None:
        self._broker.note_commit()
        self._logger.debug("heard the round of version %d", commit.version)
        self._inbox.receive(commit, self._bundle_log.rows, self._condition)

    def hurry(self, is_waiting: bool) -> None:
        self._bundle_log.hurry(self, is_waiting)

    def close(self) -> None:
        leave(self._bundle_log, self)

    def on_round(self, commit: Commit | None) -> None:
        """Pass over a round of others, or wake the channel to receive it."""
        with self._condition:
            if commit is None or self._is_reading or self._is_behind or commit.version > self.seen + 1:
                self._is_behind = True
            elif commit.version <= self.seen:
                return
            else:
                self._broker.note_commit()
                self.seen = commit.version
                if not self._inbox.concerns(commit):
                    return
                self._pending.append(commit)
                if len(self._pending) > MOST_PENDING:
                    self._fall_behind(self._pending[0].version - 1)
            self.has_news = True
            self._condition.notify_all()
