"""Reads the rounds of a bundle and dispatches their rows to a client's consumers and callers."""

import logging
import threading
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
        self._bundle_log = bundle_log(path, self)
        self.log = self._bundle_log.log

    def receive(self) -> bool:
        """Receive new rounds, if one was reported or after some time. False if rounds were lost."""
        if not self.has_news and self._clock() < self.next_look:
            return True
        self.has_news, self.next_look = False, self._clock() + LOOK_SECONDS
        check_there(self._root)
        try:
            for commit in self.log.commits(after=self.seen):
                self._broker.note_commit()
                self._logger.debug("heard the round of version %d", commit.version)
                self._inbox.receive(commit, self._bundle_log.rows, self._condition)
                self.seen = commit.version
            return True
        except LogShortened:
            pass
        except FileNotFoundError:  # joined so long ago that the file is gone; its commit stays longer
            if self.log.latest() <= self.seen:
                raise
            check_there(self._root)
        self.seen = self.log.latest()
        return False

    def hurry(self, is_waiting: bool) -> None:
        self._bundle_log.hurry(self, is_waiting)

    def close(self) -> None:
        leave(self._bundle_log, self)

    def on_round(self, commit: Commit | None) -> None:
        """Pass over a round of others, or wake the channel to receive it."""
        with self._condition:
            is_next = commit is not None and not self.has_news and commit.version == self.seen + 1
            if commit is not None and is_next and not self._inbox.concerns(commit):
                self._broker.note_commit()
                self.seen = commit.version
                return
            self.has_news = True
            self._condition.notify_all()
