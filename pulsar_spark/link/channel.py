"""A client's connection to the broker: a background thread writes ``requests`` and follows ``cursor_ledger``.

Requests that arrive during a commit go into the next one; those that nobody waits for start a commit at most every 50
ms. Rows of each round go to those they concern (see inbox). An idle client sends a sign of life three times per lease.
A permanent failure ends the thread and is reported to all waiting callers.
"""

import heapq
import itertools
import logging
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence

from pulsar_spark.errors import AlreadyClosed, LogShortened, PulsarSparkError, RootAway, Timeout, UnknownError
from pulsar_spark.link import broker_watch, interrupts
from pulsar_spark.link.broker_watch import NAME, BrokerWatch
from pulsar_spark.link.bundle_log import bundle_log, leave
from pulsar_spark.link.inbox import Answers, Inbox, Reply, Subscriber
from pulsar_spark.link.request_writer import RequestWriter
from pulsar_spark.link.requests import RequestMaker, no_answer, valid_for
from pulsar_spark.link.worker import Worker
from pulsar_spark.protocol.delays.durations import shown_seconds
from pulsar_spark.protocol.subscriptions.membership import DEFAULT_LEASE_MS
from pulsar_spark.storage.delta.log import TableLog
from pulsar_spark.storage.layout import Layout
from pulsar_spark.storage.processes.presence import Presence
from pulsar_spark.storage.store.away import check_there, is_away, root_away
from pulsar_spark.storage.store.faults import is_fault_of_disk
from pulsar_spark.table_specs import CURSOR_LEDGER

SPACING = 0.05
LOOK_SECONDS = 10.0
"""Seconds until the log is looked at without any report of a round."""
FAULT_SECONDS = 1.0
"""Seconds between looks at a log that cannot be read at the moment."""
Done = Callable[[list[Reply], PulsarSparkError | None], None]
"""Called with the replies in the order of the requests, or without replies and with the error."""


class Channel(Worker):
    """The connection of one client to one bundle.

    ``clock`` counts monotonic seconds. A broker waits ``lease_ms`` for a sign of life. *maker* makes the requests of
    all of a client's channels.
    """

    def __init__(
        self,
        layout: Layout,
        client_id: str,
        clock: Callable[[], float] = time.monotonic,
        *,
        lease_ms: int = DEFAULT_LEASE_MS,
        logger: logging.Logger | None = None,
        maker: RequestMaker | None = None,
    ):
        super().__init__(f"client-{client_id}", threading.Condition())
        self._root = layout.root
        self.logger = logging.getLogger(NAME) if logger is None else logger
        self._broker = BrokerWatch(layout, self.logger, clock)
        self._broker.look()
        self._presence = Presence(layout, client_id)
        self._requests = RequestWriter(layout, self._gives_up)
        self.lease_ms = lease_ms
        self.make = (maker or RequestMaker(client_id)).make
        self._clock = clock
        self._outbox: list[dict] = []
        self._committed: list[Callable[[int], None]] = []
        self._is_urgent = False
        self._inbox = Inbox()
        self._sources: dict[Callable[[], list[dict]], float] = {}
        self._timers: list[tuple[float, int, Callable[[], None]]] = []
        self._timer_numbers = itertools.count()
        self._eager = 0
        self._last_commit = self._last_sign = float("-inf")
        self._failure: PulsarSparkError | None = None
        self._is_faulty = False
        self._has_news, self._next_look = True, float("-inf")
        path = layout.broker_table(CURSOR_LEDGER.name)
        self._seen = TableLog(path).latest()
        self._rounds = bundle_log(path, self, self._note_round)
        self._log = self._rounds.log
        self._start()

    def submit(
        self,
        rows: list[dict],
        *,
        is_urgent: bool = False,
        committed: Callable[[int], None] | None = None,
        replied: dict[str, Callable[[Reply], None]] | None = None,
    ) -> None:
        """Send *rows* in one commit, in order.

        *committed* is called with the version: -1 if the connection failed before, 0 at once without rows. *replied*
        has a callback for each request id that gets a reply.
        """
        if not rows:
            if committed is not None:
                committed(0)
            return
        with self._condition:
            if self._failure is not None:
                raise self._failure
            self._outbox += rows
            self._inbox.waiting.update(replied or {})
            if committed is not None:
                self._committed.append(committed)
            self._is_urgent |= is_urgent or bool(replied)
            self._condition.notify_all()

    def ask(self, rows: list[dict], timeout: float, *, followed_by: Sequence[dict] = ()) -> list[Reply]:
        """Send *rows* and wait for all replies; :class:`Timeout` if one is missing after *timeout* seconds.

        Rows in *followed_by* go into the same commit and get no reply.
        """
        if not rows:
            return []
        since, rows, all_there = interrupts.count(), valid_for(rows, timeout), threading.Event()
        answers = Answers(rows, all_there.set)
        self.submit([*rows, *followed_by], replied=answers.awaited)
        try:
            is_answered = interrupts.until(all_there.wait, timeout, since)
        finally:
            with self._condition:
                self._inbox.forget(answers)
        if not is_answered:
            raise no_answer(self._root, timeout)
        return answers.in_order()

    def ask_then(self, rows: list[dict], timeout: float, done: Done) -> None:
        """Like :meth:`ask`, without waiting; *done* is called once, on the channel's thread."""
        if not rows:
            done([], None)
            return
        rows = valid_for(rows, timeout)
        answers = Answers(rows, lambda: done(answers.in_order(), None))

        def is_late() -> None:
            if not answers.are_there:
                with self._condition:
                    self._inbox.forget(answers)
                done([], no_answer(self._root, timeout))

        self.submit(rows, replied=answers.awaited)
        self.call_later(timeout, is_late)

    def post(self, rows: list[dict], timeout: float) -> None:
        """Send *rows* and wait until they are committed; :class:`Timeout` after *timeout* seconds."""
        versions: list[int] = []
        is_done = threading.Event()

        def done(version: int) -> None:
            versions.append(version)
            is_done.set()

        self.submit(rows, is_urgent=True, committed=done)
        if interrupts.until(is_done.wait, timeout):
            if versions[0] < 0 and self._failure is not None:
                raise self._failure
        else:
            raise Timeout(
                f"{self._requests.path!r} could not be written within {shown_seconds(timeout)}: another process "
                "holds its lock, or the disk is slow"
            )

    def attach(self, consumer_id: str, topic: str, partition: int, subscriber: Subscriber) -> None:
        """Dispatch what the broker has for the consumer on this partition to *subscriber*."""
        with self._condition:
            self._inbox.attach(consumer_id, topic, partition, subscriber)

    def detach(self, consumer_id: str, topic: str, partition: int) -> None:
        """Stop dispatching to the consumer."""
        with self._condition:
            self._inbox.detach(consumer_id, topic, partition)

    def expect(self, replied: dict[str, Callable[[Reply], None]]) -> None:
        """Register callbacks for replies to requests that a source is about to send."""
        with self._condition:
            failure = self._failure
            if failure is None:
                self._inbox.waiting.update(replied)
                return
        for callback in replied.values():
            callback(Reply(failure, None))

    def when_committed(self, committed: Callable[[int], None]) -> None:
        """Call *committed* with the version of the next commit; for a source whose rows go with it."""
        with self._condition:
            if self._failure is None:
                self._committed.append(committed)

    def gather(self, source: Callable[[], list[dict]], delay: float, *, is_urgent: bool = False) -> None:
        """Call *source* for its rows after *delay* seconds, or with an earlier commit; at once if urgent."""
        with self._condition:
            self._is_urgent |= is_urgent
            due = self._clock() + delay
            if is_urgent or due < self._sources.get(source, float("inf")):
                self._sources[source] = due
                self._condition.notify_all()

    def call_later(self, delay: float, function: Callable[[], None]) -> None:
        """Call *function* on the channel's thread after *delay* seconds."""
        with self._condition:
            heapq.heappush(self._timers, (self._clock() + delay, next(self._timer_numbers), function))
            self._condition.notify_all()

    def hurry(self, change: int) -> None:
        """Count waiting callers, +1 before and -1 after a wait; meanwhile the log is looked at more often."""
        with self._condition:
            self._eager += change
            self._hurry()

    @property
    def failure(self) -> PulsarSparkError | None:
        """Why no more requests can be sent; None while they can."""
        return self._failure

    def is_alive(self) -> bool:
        """Whether requests can still be sent."""
        return self._failure is None

    def has_broker(self) -> bool:
        """Whether there was a broker a second ago."""
        return self._failure is None and self._broker.is_there

    def _run(self) -> None:
        failure: PulsarSparkError = UnknownError("the client's thread ended: see its traceback")
        try:
            while not (self._is_stopping and not self._outbox):
                self._broker.look()
                self._call_timers()
                self._send()
                try:
                    self._receive()
                    self._is_faulty = False
                    self._pause()
                except OSError as fault:  # received rounds count; the rest comes when the disk or store is back
                    is_missing = isinstance(fault, FileNotFoundError) and is_away(self._root)
                    self._tolerate(root_away(self._root) if is_missing else fault)
            failure = AlreadyClosed("the client is closed")
        except PulsarSparkError as error:
            failure = error
            self.logger.error("the connection to the broker of root %r has ended: %s", str(self._root), error)
        finally:
            leave(self._rounds, self)
            self._presence.end()
            self._fail(failure)

    def _gives_up(self) -> bool:
        """Whether to give up a request that cannot be written; logs the reason."""
        self._broker.look()
        return self._is_stopping

    def _tolerate(self, fault: OSError) -> None:
        if not is_fault_of_disk(fault):
            raise fault
        if not self._is_faulty and not isinstance(fault, RootAway):  # the watch for a broker logs that
            self.logger.warning("root %r cannot be read for now: %s", str(self._root), fault)
        self._is_faulty = self._has_news = True
        with self._condition:
            if not self._is_stopping:
                self._condition.wait(FAULT_SECONDS)

    def _fail(self, failure: PulsarSparkError) -> None:
        with self._condition:
            self._failure = failure
            waiting, subscribers = self._inbox.take_all()
            committed, self._committed = self._committed, []
        for replied in waiting:
            replied(Reply(failure, None))
        for callback in committed:
            callback(-1)
        for subscriber in subscribers:
            subscriber.on_failure(failure)

    def _call_timers(self) -> None:
        while True:
            with self._condition:
                if not self._timers or self._timers[0][0] > self._clock():
                    return
                function = heapq.heappop(self._timers)[2]
            function()

    def _note_round(self) -> None:
        with self._condition:
            self._has_news = True
            self._condition.notify_all()

    def _hurry(self) -> None:
        self._rounds.hurry(self, bool(self._inbox.waiting or self._eager))

    def _pause(self) -> None:
        with self._condition:
            self._hurry()
            now = self._clock()
            if self._is_stopping or self._has_news:
                return
            wake_at = min(self._next_look, now + broker_watch.LOOK_SECONDS)
            if self._inbox.has_consumers:
                wake_at = min(wake_at, self._next_sign)
            if self._outbox or self._sources:
                wanted = now if self._outbox else min(self._sources.values())
                wake_at = min(wake_at, now if self._is_urgent else max(wanted, self._last_commit + SPACING))
            if self._timers:
                wake_at = min(wake_at, self._timers[0][0])
            if wake_at > now:
                self._condition.wait(wake_at - now)

    @property
    def _next_sign(self) -> float:
        return self._last_sign + self.lease_ms / 3000

    def _send(self) -> None:
        with self._condition:
            now = self._clock()
            is_spaced = now >= self._last_commit + SPACING or self._is_stopping
            is_due = self._is_urgent or (
                is_spaced and (self._outbox or any(due <= now for due in self._sources.values()))
            )
            is_silent = self._inbox.has_consumers and now >= self._next_sign
            if not is_due and not is_silent:
                return
            sources = list(self._sources)
            self._sources.clear()
        gathered = [row for source in sources for row in source()]
        with self._condition:
            rows = gathered + self._outbox
            committed, self._outbox, self._committed, self._is_urgent = self._committed, [], [], False
        if not rows and is_silent:
            self._last_sign = now
            rows = [] if self._presence.touch() else [self.make("keep_alive")]
        if rows:
            try:
                version = self._requests.write(rows)
            except PulsarSparkError:
                with self._condition:
                    self._committed += committed
                raise
            self._last_commit = self._last_sign = self._clock()
            if self.logger.isEnabledFor(logging.DEBUG):
                kinds = ", ".join(f"{count} {kind}" for kind, count in Counter(row["kind"] for row in rows).items())
                self.logger.debug("asked in version %d: %s", version, kinds)
            for callback in committed:
                callback(version)

    def _receive(self) -> None:
        """Receive new rounds, if one was reported or after some time without reports."""
        if not self._has_news and self._clock() < self._next_look:
            return
        self._has_news, self._next_look = False, self._clock() + LOOK_SECONDS
        check_there(self._root)
        try:
            for commit in self._log.commits(after=self._seen):
                self._broker.note_commit()
                self.logger.debug("heard the round of version %d", commit.version)
                self._inbox.receive(commit, self._rounds.rows, self._condition)
                self._seen = commit.version
        except LogShortened:
            self._begin_again()
        except FileNotFoundError:  # joined so long ago that the file is gone; its commit stays longer
            if self._log.latest() <= self._seen:
                raise
            check_there(self._root)
            self._begin_again()

    def _begin_again(self) -> None:
        """Continue at the end of the log after rounds were lost, and ask the broker to close the consumers, so that
        their messages come again."""
        self._seen = self._log.latest()
        if self._inbox.has_consumers:
            self.submit([self.make("close")])
        for subscriber in self._inbox.subscribers():
            subscriber.on_removed("it was away for longer than commits stay in the log")
