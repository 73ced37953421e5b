"""The thread of a DataFrame consumer: it takes deliveries, calls the function, and replies to the broker.

Permits for the next delivery are granted when the function begins, so that rounds overlap with its work. During a pause
it still takes events, so that it notices a stop or lost lease."""

import logging
import queue
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Protocol, cast

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from pulsar_spark.errors import AlreadyClosed, PulsarSparkError, UnknownError
from pulsar_spark.frames.consuming.backlog import Backlog
from pulsar_spark.frames.consuming.backoff import Backoff
from pulsar_spark.frames.consuming.broker_connection import BrokerConnection
from pulsar_spark.frames.consuming.call import Caller
from pulsar_spark.frames.consuming.key_order import KeyOrder
from pulsar_spark.frames.consuming.membership import GONE, Failed, Lost, Membership, SubscribeOptions
from pulsar_spark.frames.consuming.progress import Progress, as_sentence, fields
from pulsar_spark.frames.consuming.rewinding import Rewinding
from pulsar_spark.frames.deliveries.delivery import Acknowledged, Answer, Delivery, messages_by_partition
from pulsar_spark.frames.deliveries.named_entries import Delivered
from pulsar_spark.frames.deliveries.remaining import Remaining, remaining
from pulsar_spark.protocol.delays.durations import shown_seconds
from pulsar_spark.protocol.subscriptions.membership import SINGLE_ACTIVE
from pulsar_spark.storage.layout import Layout
from pulsar_spark.storage.session import is_running
from pulsar_spark.storage.topics.topics import Topic

_IDLE_SECONDS = 0.05
_ENDING_SECONDS = 0.01
"""How often a run with *available_now* checks whether it is done; a check costs a stat until there is another round."""
_LOOK_SECONDS = 1.0
_SIGNAL_SECONDS = 1.0
"""How long after Spark's end a stop may still arrive: a service manager ends all processes of a service at once."""
_ALL = 2**63 - 1
log = logging.getLogger(__name__)


class Sink(Protocol):
    """A function that writes each delivery exactly once, by the rounds of the root that it opened."""

    is_exactly_once: bool

    def open(self, layout: Layout, topic_id: str, subscription: str) -> None: ...


class ConsumerThread:
    """The thread of one consumer of *partitions* of *topic*; ``on_end`` is called when it ends.

    With *available_now* it ends once all that was published before is handled. *on_error* "stop" ends it at the first
    error, and so does a function that is a :class:`Sink`. *timeout* is in seconds, *clock* counts monotonic seconds."""

    def __init__(
        self,
        spark: SparkSession,
        layout: Layout,
        topic: Topic,
        partitions: list[int],
        options: SubscribeOptions,
        caller: Caller,
        *,
        max_messages: int,
        available_now: bool,
        on_error: str,
        timeout: float,
        clock: Callable[[], float],
    ):
        self._spark, self._topic, self._caller, self._max_messages = spark, topic, caller, max_messages
        function, ledgers, subscription = caller.function, caller.ledgers, options.subscription
        self._sink = cast(Sink, function) if getattr(function, "is_exactly_once", False) else None
        if self._sink is not None:
            self._sink.open(layout, topic.topic_id, subscription)
        # Another delivery after a failed one would leave a gap below the sink's transaction.
        self._stops_on_error = on_error == "stop" or self._sink is not None
        self.has_ended, self.stopping = threading.Event(), threading.Event()
        self.on_end: Callable[[], None] = lambda: None
        # Signal handlers put into it, too; a Queue's lock does not allow that.
        self._events: queue.SimpleQueue[tuple[Membership | None, Delivery | Lost | Failed | None]] = queue.SimpleQueue()
        self._waiting: Delivery | None = None
        self.current: Delivery | None = None
        self.error: BaseException | None = None
        self.backoff = Backoff(clock)
        self._rewinding: Rewinding | None = None
        if options.subscription_type in SINGLE_ACTIVE:
            self._rewinding = Rewinding(clock, options.letters.max_redeliver_count if options.letters else 0)
        self._backlog = Backlog(layout, topic, partitions, subscription, ledgers) if available_now else None
        self._key_order = KeyOrder(topic, ledgers, is_final=available_now) if options.is_key_shared else None
        self.connection = BrokerConnection(  # last: it watches the root until disconnect
            layout,
            topic,
            partitions,
            options,
            ledgers,
            max_messages=max_messages,
            timeout=timeout,
            stopping=self.stopping,
            notify=lambda *event: self._events.put(event),
            moved=self._moved,
            follows=not available_now,
        )
        self.progress = Progress(str(self.connection), clock)
        self.thread = threading.Thread(target=self._run, name=f"pulsar-spark-consume-{subscription}", daemon=True)

    def request_stop(self) -> None:
        """Make the thread end; safe in a signal handler."""
        self.stopping.set()
        self._events.put((None, None))

    def _moved(self) -> None:
        layout, ledgers = self.connection.layout, self.connection.ledgers
        self._caller.ledgers = ledgers
        if self._key_order is not None:
            self._key_order.follow(ledgers)
        if self._backlog is not None:
            self._backlog.follow(layout, ledgers)
        if self._sink is not None:
            self._sink.open(layout, self._topic.topic_id, self.connection.options.subscription)

    def _run(self) -> None:
        self.connection.hurry(1)
        error: BaseException | None = UnknownError("the consumer's thread ended: see its traceback")
        try:
            while not self.stopping.is_set() and not self._is_done():
                self.progress.look()
                self.connection.follow_partitions()
                self._take()
                self._rewind()
                if self._waiting is not None and not self.stopping.is_set() and not self.backoff.seconds_left:
                    delivery, self._waiting = self._waiting, None
                    self._handle(delivery)
            error = self.error
        except (PulsarSparkError, PySparkException, Py4JError, OSError) as failed:
            error = failed
        finally:
            self.error = error
            self._finish()

    def _finish(self) -> None:
        try:
            self.connection.leave()
        except PulsarSparkError as failed:
            self.error = self.error or failed
        finally:
            totals = self.progress.totals
            level = logging.ERROR if self.error else logging.INFO
            log.log(
                level, "%s ended: %s", self.connection, as_sentence(totals), exc_info=self.error, extra=fields(totals)
            )
            self.on_end()
            self.has_ended.set()

    def _is_done(self) -> bool:
        if self._backlog is None or self._waiting is not None or not self._events.empty():
            return False
        return self._backlog.is_handled(self.connection.membership.consumer_id)

    def _take(self) -> None:
        is_awaiting = self.backoff.seconds_left or (self._rewinding is not None and self._rewinding.is_awaiting)
        idle_seconds = _IDLE_SECONDS if is_awaiting else _ENDING_SECONDS if self._backlog else _LOOK_SECONDS
        try:
            event = self._events.get(timeout=idle_seconds)
            while True:
                self._take_event(*event)
                if self._waiting is not None and self._waiting.messages >= self._max_messages:
                    return
                event = self._events.get_nowait()
        except queue.Empty:
            return

    def _take_event(self, membership: Membership | None, event: Delivery | Lost | Failed | None) -> None:
        if membership is not self.connection.membership:
            return
        if isinstance(event, Delivery):
            event = self._in_order(event)
            self._waiting = event if self._waiting is None else self._waiting.merged(event)
        elif isinstance(event, Failed):
            raise event.error
        elif isinstance(event, Lost):
            if event.text in GONE:
                subscription = self.connection.options.subscription
                raise AlreadyClosed(f"subscription {subscription!r} of {str(self._topic.name)!r} was {event.text}")
            log.warning(
                "%s lost its messages (%s): it subscribes again", self.connection, event.text or "the cursor was moved"
            )
            self._begin_anew()

    def _begin_anew(self) -> None:
        self._waiting = None
        if self._rewinding is not None:
            self._rewinding.forget()
        if self._key_order is not None:
            self._key_order.forget()
        self.connection.join_anew()

    def _in_order(self, delivery: Delivery) -> Delivery:
        """A new delivery without messages that come too early for the order of their keys; these are given back."""
        if self._key_order is None:
            return delivery
        ranges = self._without_left(delivery).ranges
        kept, early = self._key_order.in_order(ranges, delivery.requests_version)
        self._grant_permits(delivery, but=kept)
        if early:
            self._send(Answer([], [], unseen=early), [])
        return replace(delivery, ranges=kept)

    def _without_left(self, delivery: Delivery) -> Delivery:
        return delivery if self._backlog is None else self._backlog.without_left(delivery)

    def _rewind(self) -> None:
        if self._rewinding is None or not self._rewinding.is_awaiting:
            return
        self.connection.flow(self._rewinding.due_permits())
        subscription = self.connection.options.subscription
        if self._rewinding.is_over(self.connection.layout, self._topic.topic_id, subscription):
            log.info(
                "%s: the messages that it gave back were acknowledged meanwhile: it subscribes again", self.connection
            )
            self._begin_anew()

    def _handle(self, delivery: Delivery) -> None:
        began = time.monotonic()
        if self._rewinding is not None:
            delivery, permits = self._rewinding.in_order(delivery)
            self.connection.flow(permits)
            if not delivery.ranges:
                return
        self._grant_permits(delivery)
        try:
            found = remaining(self._spark, self._topic, self.connection.ledgers, self._without_left(delivery))
        except (PySparkException, Py4JError, OSError) as failed:
            if self._is_end_of_spark(failed):
                return
            raise
        self._report_missing(found)
        if not found.ranges:
            return
        self.current = delivery = replace(delivery, ranges=found.ranges)
        self.connection.hurry(-1)  # what arrives meanwhile waits for the function anyway
        try:
            letters, make = self.connection.options.letters, self.connection.membership.row
            reply, requests, error, unreadable = self._caller.call(delivery, letters, make, found.parts)
        finally:
            self.current = None
            self.connection.hurry(1)
        if error is None:
            self.backoff.succeeded()
        elif self._is_end_of_spark(error):
            return
        else:
            self._take_error(delivery, error)
        self._send(reply, requests)
        if unreadable.discarded:
            count = len(unreadable.discarded)
            log.warning("%s: %d entries cannot be decrypted and are discarded", self.connection, count)
        if unreadable.error is not None:
            self._wait_for([(partition, at, at) for partition, at in unreadable.kept], unreadable.error)
        if reply.given_back and self._waiting is not None:
            self._waiting = self._in_order(self._waiting)
        self.progress.note(
            delivery,
            reply,
            time.monotonic() - began,
            error or found.error or unreadable.error,
            self.backoff.failures,
            self.backoff.seconds_left if error else 0.0,
            deleted=found.deleted_messages,
        )

    def _report_missing(self, found: Remaining) -> None:
        self._send(Answer([Acknowledged(*place) for place in found.deleted], []), [])
        if found.error is not None or (not found.ranges and found.deleted):
            self.progress.missing(found.deleted_messages, found.error)
        if found.error is not None:
            self._wait_for(found.lost, found.error)

    def _wait_for(self, places: list[tuple[int, int, int]], error: PulsarSparkError) -> None:
        log.error("%s: %s", self.connection, error)
        if self._backlog is not None:
            for place in places:
                self._backlog.leave(*place)
        if self._stops_on_error or self._backlog is not None:
            self.error = error
        else:
            self.backoff.error = error
        if self._stops_on_error:
            self.stopping.set()

    def _take_error(self, delivery: Delivery, error: BaseException) -> None:
        if self._stops_on_error or self._backlog is not None:
            self.error = error
        what = "it stops"
        if self._stops_on_error:
            self.stopping.set()
        elif self._backlog is not None:
            self.backoff.error = error
            what = "the next run receives them again"
        else:
            self.backoff.failed(error)
            pause = self.backoff.seconds_left
            what = f"error {self.backoff.failures} in a row, the next call is in {shown_seconds(pause)}"
        log.warning(
            "%s: the function raised, %d messages of round %d are given back; %s",
            self.connection,
            delivery.messages,
            delivery.round,
            what,
            exc_info=error,
            extra={"messages": delivery.messages, "failures": self.backoff.failures},
        )

    def _is_end_of_spark(self, error: BaseException) -> bool:
        """Whether *error* came because the Spark session ended; then the consumer stops."""
        if is_running(self._spark):
            return False
        if not self.stopping.wait(_SIGNAL_SECONDS):
            self.error = AlreadyClosed(
                f"Spark was stopped while subscription {self.connection.options.subscription!r} was consumed: start a "
                "session and consume again"
            )
            self.error.__cause__ = error
            self.stopping.set()
        return True

    def _grant_permits(self, delivery: Delivery, but: Sequence[Delivered] = ()) -> None:
        self.connection.flow(messages_by_partition(delivery.ranges) - messages_by_partition(but))

    def _send(self, reply: Answer, rows: list[dict]) -> None:
        delays = []
        for range_ in reply.given_back:
            if self._backlog is not None:  # on ordered subscriptions, the next run handles everything after it
                self._backlog.leave(range_.partition, range_.first, range_.last if self._rewinding is None else _ALL)
            is_at_once = self._backlog is not None or self.stopping.is_set()
            delays.append(0 if is_at_once else self.backoff.delay_ms(range_))
            if self._rewinding is not None and self._backlog is None:
                self._rewinding.given_back(range_, delays[-1])
        if self._backlog is not None:
            for range_ in reply.unseen:
                self._backlog.leave(range_.partition, range_.first, range_.last)
        rows += self.connection.membership.answer_rows(reply, delays)
        back = [*reply.given_back, *reply.unseen]
        committed = self._key_order.given_back(back) if self._key_order and back else None
        if rows:
            self.connection.channel.submit(rows, is_urgent=True, committed=committed)
