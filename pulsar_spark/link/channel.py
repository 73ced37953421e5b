"""A client's connection to a broker: a background thread writes ``requests`` and follows ``cursor_ledger``.

An idle client sends a sign of life three times per lease. A permanent failure is reported to all waiting callers.
"""

import logging
import threading
from collections import Counter
from collections.abc import Callable, Sequence

from pulsar_spark.errors import AlreadyClosed, PulsarSparkError, RootAway, Timeout, UnknownError
from pulsar_spark.link import broker_watch, interrupts
from pulsar_spark.link.broker_watch import NAME, BrokerWatch
from pulsar_spark.link.inbox import Answers, Inbox, Reply, Subscriber
from pulsar_spark.link.outbox import Committed, Outbox, Source
from pulsar_spark.link.request_writer import RequestWriter
from pulsar_spark.link.requests import RequestMaker, no_answer, valid_for
from pulsar_spark.link.round_reader import RoundReader
from pulsar_spark.link.timers import Timers
from pulsar_spark.link.worker import Worker
from pulsar_spark.protocol.delays.durations import shown_seconds
from pulsar_spark.protocol.subscriptions.membership import DEFAULT_LEASE_MS
from pulsar_spark.storage.clock import monotonic
from pulsar_spark.storage.layout import Layout
from pulsar_spark.storage.processes.presence import Presence
from pulsar_spark.storage.store.away import is_away, root_away
from pulsar_spark.storage.store.faults import is_fault_of_disk

FAULT_SECONDS = 1.0
"""Seconds between looks at a log that cannot be read."""
Done = Callable[[list[Reply], PulsarSparkError | None], None]
"""Called with the replies in the order of the requests, or without replies and with the error."""


class Channel(Worker):
    """Of one client to one bundle. ``clock`` counts monotonic seconds. A broker waits ``lease_ms`` for a sign of life.
    The client's channels share *maker*. Unless it *is_watched*, or after ``end_presence`` on its thread, brokers do not
    see that this process has ended: its consumers stay until the lease ends."""

    def __init__(
        self,
        layout: Layout,
        client_id: str,
        clock: Callable[[], float] = monotonic,
        *,
        lease_ms: int = DEFAULT_LEASE_MS,
        logger: logging.Logger | None = None,
        maker: RequestMaker | None = None,
        is_watched: bool = True,
    ):
        super().__init__(f"client-{client_id}", threading.Condition())
        self.root = layout.root
        self.logger = logging.getLogger(NAME) if logger is None else logger
        self._broker = BrokerWatch(layout, self.logger, clock)
        self._broker.look()
        self._presence = Presence(layout, client_id, is_held=is_watched)
        self.end_presence = self._presence.end
        self._requests = RequestWriter(layout, self._gives_up)
        self.lease_ms = lease_ms
        self.make = (maker or RequestMaker(client_id)).make
        self._clock = clock
        self._inbox, self._outbox = Inbox(), Outbox()
        self._timers = Timers(self._condition, clock)
        self.call_later = self._timers.add
        self._eager = 0
        self._last_sign = float("-inf")
        self.failure: PulsarSparkError | None = None
        """Why no more requests can be sent."""
        self._is_faulty = False
        self._rounds = RoundReader(layout, self._inbox, self._condition, self._broker, clock, self.logger)
        self._start()

    def submit(
        self,
        rows: list[dict],
        *,
        is_urgent: bool = False,
        committed: Committed | None = None,
        replied: dict[str, Callable[[Reply], None]] | None = None,
    ) -> None:
        """Send *rows* in one commit, in order.

        *committed* gets the version: -1 if the connection failed before, 0 at once without rows. *replied* has
        callbacks for replies, by request id.
        """
        if not rows:
            if committed is not None:
                committed(0)
            return
        with self._condition:
            if self.failure is not None:
                raise self.failure
            self._outbox.put(rows, committed, is_urgent=is_urgent or bool(replied))
            self._inbox.waiting.update(replied or {})
            self._condition.notify_all()

    def ask(self, rows: list[dict], timeout: float, *, followed_by: Sequence[dict] = ()) -> list[Reply]:
        """Send *rows* and return their replies; :class:`Timeout` after *timeout* seconds. Rows *followed_by* go into
        the same commit without a reply."""
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
            raise no_answer(self.root, timeout)
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
                done([], no_answer(self.root, timeout))

        self.submit(rows, replied=answers.awaited)
        self.call_later(timeout, is_late)

    def post(self, rows: list[dict], timeout: float) -> None:
        """Send *rows* and wait until they are committed; :class:`Timeout` after *timeout* seconds."""
        is_done = threading.Event()
        version = 0

        def done(committed: int) -> None:
            nonlocal version
            version = committed
            is_done.set()

        self.submit(rows, is_urgent=True, committed=done)
        if interrupts.until(is_done.wait, timeout):
            if version < 0 and self.failure is not None:
                raise self.failure
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
        with self._condition:
            self._inbox.detach(consumer_id, topic, partition)

    def expect(self, replied: dict[str, Callable[[Reply], None]]) -> None:
        """Register callbacks for replies to requests that a source is about to send."""
        with self._condition:
            failure = self.failure
            if failure is None:
                self._inbox.waiting.update(replied)
                return
        for callback in replied.values():
            callback(Reply(failure, None))

    def when_committed(self, committed: Committed) -> None:
        """Call *committed* with the version of the next commit."""
        with self._condition:
            if self.failure is None:
                self._outbox.when_committed(committed)

    def gather(self, source: Source, delay: float, *, is_urgent: bool = False) -> None:
        """Call *source* for its rows after *delay* seconds, with an earlier commit, or at once if urgent."""
        with self._condition:
            if self._outbox.gather(source, self._clock() + delay, is_urgent=is_urgent):
                self._condition.notify_all()

    def hurry(self, change: int) -> None:
        """Count waiting callers, +1 before and -1 after a wait; they make the log be looked at more often."""
        with self._condition:
            self._eager += change
            self._rounds.hurry(bool(self._inbox.waiting or self._eager))

    def has_broker(self) -> bool:
        return self.failure is None and self._broker.is_there

    def _run(self) -> None:
        failure: PulsarSparkError = UnknownError("the client's thread ended: see its traceback")
        try:
            while not (self._is_stopping and not self._outbox.rows):
                self._broker.look()
                self._timers.run_due()
                self._send()
                try:
                    if not self._rounds.receive():
                        self._close_consumers()
                    self._is_faulty = False
                    self._pause()
                except OSError as fault:  # received rounds count; the rest comes when the disk or store is back
                    is_missing = isinstance(fault, FileNotFoundError) and is_away(self.root)
                    self._tolerate(root_away(self.root) if is_missing else fault)
            failure = AlreadyClosed("the client is closed")
        except PulsarSparkError as error:
            failure = error
            self.logger.error("the connection to the broker of root %r has ended: %s", str(self.root), error)
        finally:
            self._rounds.close()
            self._presence.end()
            self._fail(failure)

    def _gives_up(self) -> bool:
        self._broker.look()
        return self._is_stopping

    def _tolerate(self, fault: OSError) -> None:
        if not is_fault_of_disk(fault):
            raise fault
        if not self._is_faulty and not isinstance(fault, RootAway):  # the watch for a broker logs that
            self.logger.warning("root %r cannot be read for now: %s", str(self.root), fault)
        self._is_faulty = self._rounds.has_news = True
        with self._condition:
            if not self._is_stopping:
                self._condition.wait(FAULT_SECONDS)

    def _fail(self, failure: PulsarSparkError) -> None:
        with self._condition:
            self.failure = failure
            waiting, subscribers = self._inbox.take_all()
            committed = self._outbox.take_committed()
        for replied in waiting:
            replied(Reply(failure, None))
        for callback in committed:
            callback(-1)
        for subscriber in subscribers:
            subscriber.on_failure(failure)

    def _pause(self) -> None:
        with self._condition:
            self._rounds.hurry(bool(self._inbox.waiting or self._eager))
            now = self._clock()
            if self._is_stopping or self._rounds.has_news:
                return
            wake_at = min(
                self._rounds.next_look,
                now + broker_watch.LOOK_SECONDS,
                self._next_sign,
                self._outbox.next_due(now),
                self._timers.next_due(),
            )
            if wake_at > now:
                self._condition.wait(wake_at - now)

    @property
    def _next_sign(self) -> float:
        """Never without consumers."""
        return self._last_sign + self.lease_ms / 3000 if self._inbox.has_consumers else float("inf")

    def _send(self) -> None:
        with self._condition:
            now = self._clock()
            is_silent = now >= self._next_sign
            if not is_silent and not self._outbox.is_due(now, is_last=self._is_stopping):
                return
            sources = self._outbox.take_sources()
        gathered = [row for source in sources for row in source()]
        with self._condition:
            rows, committed = self._outbox.take()
            rows = gathered + rows
        if not rows and is_silent:
            self._last_sign = now
            rows = [] if self._presence.touch() else [self.make("keep_alive")]
        if rows:
            try:
                version = self._requests.write(rows)
            except PulsarSparkError:
                with self._condition:
                    for callback in committed:
                        self._outbox.when_committed(callback)
                raise
            self._last_sign = self._clock()
            self._outbox.note_commit(self._last_sign)
            if self.logger.isEnabledFor(logging.DEBUG):
                kinds = ", ".join(f"{count} {kind}" for kind, count in Counter(row["kind"] for row in rows).items())
                self.logger.debug("asked in version %d: %s", version, kinds)
            for callback in committed:
                callback(version)

    def _close_consumers(self) -> None:
        """Rounds were lost: let the broker close the consumers, so that their messages come again."""
        if self._inbox.has_consumers:
            self.submit([self.make("close")])
        for subscriber in self._inbox.subscribers():
            subscriber.on_removed("it was away for longer than commits stay in the log")
