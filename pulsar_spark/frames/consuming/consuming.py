"""The thread of a DataFrame consumer: it takes deliveries, calls the function, and replies to the broker.

Permits for the next delivery are granted when the function begins, so that rounds overlap with its work; piled-up
deliveries are passed on as one. On Exclusive and Failover subscriptions give-backs come first (see rewinding). During a
pause it still takes events, so that a stop or lost lease is noticed.
"""

import logging
import queue
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import datetime, timezone

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from pulsar_spark.errors import AlreadyClosed, PulsarSparkError, UnknownError
from pulsar_spark.frames.consuming import running
from pulsar_spark.frames.consuming.backlog import Backlog
from pulsar_spark.frames.consuming.backoff import Backoff
from pulsar_spark.frames.consuming.broker_connection import BrokerConnection
from pulsar_spark.frames.consuming.call import Caller
from pulsar_spark.frames.consuming.key_order import KeyOrder
from pulsar_spark.frames.consuming.membership import Failed, Lost, Membership, SubscribeOptions
from pulsar_spark.frames.consuming.progress import Progress, as_sentence, fields
from pulsar_spark.frames.consuming.rewinding import Rewinding
from pulsar_spark.frames.deliveries.delivery import Acknowledged, Answer, Delivery, messages_by_partition, without
from pulsar_spark.frames.deliveries.named_entries import NamedEntries, exact
from pulsar_spark.frames.deliveries.remaining import Remaining, remaining
from pulsar_spark.frames.deliveries.unreadable import Unreadable
from pulsar_spark.protocol.delays.durations import shown_seconds
from pulsar_spark.protocol.subscriptions.membership import SINGLE_ACTIVE
from pulsar_spark.storage.entries.slices import PositionRange
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
_GONE = ("unsubscribed", "deleted")
log = logging.getLogger(__name__)


class Consuming:
    """What a :class:`~pulsar_spark.frames.consuming.consumption.Consumption`, the user's handle, does."""

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
        self._spark, self._topic = spark, topic
        self._max_messages = max_messages
        self._caller, ledgers, function = caller, caller.ledgers, caller.function
        self.start_time = datetime.now(timezone.utc)
        # Another delivery after a failed one would leave a gap below the sink's transaction.
        self._stops_on_error = on_error == "stop" or getattr(function, "is_exactly_once", False)
        self._ended, self._stopping = threading.Event(), threading.Event()
        # Signal handlers put into it, too; a Queue's lock does not allow that.
        self._events: queue.SimpleQueue[tuple[Membership | None, Delivery | Lost | Failed | None]] = queue.SimpleQueue()
        self._open_sink(layout, options.subscription)
        self._waiting: Delivery | None = None
        self._given_back: dict[int, list[tuple[int, int]]] = {}
        self._error: BaseException | None = None
        self._backoff = Backoff(clock)
        self._rewinding: Rewinding | None = None
        if options.subscription_type in SINGLE_ACTIVE:
            self._rewinding = Rewinding(clock, options.letters.max_redeliver_count if options.letters else 0)
        self._backlog = Backlog(layout, topic, partitions, options.subscription, ledgers) if available_now else None
        self._key_order = KeyOrder(topic, ledgers, is_final=available_now) if options.is_key_shared else None
        self._connection = BrokerConnection(  # last: it watches the root until disconnect
            layout,
            topic,
            partitions,
            options,
            ledgers,
            max_messages=max_messages,
            timeout=timeout,
            stopping=self._stopping,
            notify=lambda *event: self._events.put(event),
            moved=self._moved,
            follows=not available_now,
        )
        self._progress = Progress(str(self._connection), clock)
        self._thread = threading.Thread(
            target=self._run, name=f"pulsar-spark-consume-{options.subscription}", daemon=True
        )

    @property
    def _options(self) -> SubscribeOptions:
        return self._connection.options

    @property
    def seat(self) -> running.Seat:
        """The subscription and root that the consumer is connected to."""
        return self._connection.seat

    def _moved(self) -> None:
        ledgers = self._caller.ledgers = self._connection.ledgers
        if self._key_order is not None:
            self._key_order.follow(ledgers)
        if self._backlog is not None:
            self._backlog.follow(self._connection.layout, ledgers)
        self._open_sink(self._connection.layout, self._options.subscription)

    def _open_sink(self, layout: Layout, subscription: str) -> None:
        """Open a sink that writes exactly once, on the root whose rounds record its deliveries."""
        if getattr(self._caller.function, "is_exactly_once", False):
            self._caller.function.open(layout, self._topic.topic_id, subscription)

    def _run(self) -> None:
        self._connection.hurry(1)
        error: BaseException | None = UnknownError("the consumer's thread ended: see its traceback")
        try:
            while not self._stopping.is_set() and not self._is_done():
                self._progress.look()
                self._connection.follow_partitions()
                self._take()
                self._rewind()
                if self._waiting is not None and not self._stopping.is_set() and not self._backoff.seconds_left:
                    delivery, self._waiting = self._waiting, None
                    self._handle(delivery)
            error = self._error
        except (PulsarSparkError, PySparkException, Py4JError, OSError) as failed:
            error = failed
        finally:
            self._error = error
            self._finish()

    def _finish(self) -> None:
        try:
            self._connection.leave()
        except PulsarSparkError as failed:
            self._error = self._error or failed
        finally:
            totals = self._progress.totals
            level = logging.ERROR if self._error else logging.INFO
            log.log(
                level, "%s ended: %s", self._connection, as_sentence(totals), exc_info=self._error, extra=fields(totals)
            )
            running.leave(self)
            self._ended.set()

    def _is_done(self) -> bool:
        if self._backlog is None or self._waiting is not None or not self._events.empty():
            return False
        return self._backlog.is_handled(self._connection.membership.consumer_id, self._given_back)

    def _take(self) -> None:
        """Take all waiting events; without any, wait a little for one."""
        is_awaiting = self._backoff.seconds_left or (self._rewinding is not None and self._rewinding.is_awaiting)
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
        if membership is not self._connection.membership:
            return
        if isinstance(event, Delivery):
            event = self._in_order(replace(event, ranges=self._exact(event.ranges, lambda range_: False)))
            self._waiting = event if self._waiting is None else self._waiting.merged(event)
        elif isinstance(event, Failed):
            raise event.error
        elif isinstance(event, Lost):
            if event.text in _GONE:
                raise AlreadyClosed(
                    f"subscription {self._options.subscription!r} of {str(self._topic.name)!r} was {event.text}"
                )
            log.warning(
                "%s lost its messages (%s): it subscribes again", self._connection, event.text or "the cursor was moved"
            )
            self._begin_anew()

    def _begin_anew(self) -> None:
        self._waiting = None
        if self._rewinding is not None:
            self._rewinding.forget()
        if self._key_order is not None:
            self._key_order.forget()
        self._connection.join_anew()

    def _in_order(self, delivery: Delivery) -> Delivery:
        """A new delivery without messages that come too early for the order of their keys, which are given back."""
        if self._key_order is None:
            return delivery
        ranges = self._not_given_back(delivery)
        kept, early = self._key_order.in_order(ranges, delivery.requests_version)
        self._grant_permits(delivery, but=kept)
        if early:
            self._send(Answer([], [], unseen=early), [])
        return replace(delivery, ranges=kept)

    def _not_given_back(self, delivery: Delivery) -> tuple[PositionRange | NamedEntries, ...]:
        ranges = self._exact(delivery.ranges, lambda range_: range_.partition in self._given_back)
        return without(ranges, self._given_back)

    def _exact(
        self, ranges: Sequence[PositionRange | NamedEntries], is_selected: Callable[[NamedEntries], bool]
    ) -> tuple[PositionRange | NamedEntries, ...]:
        return exact(ranges, is_selected)

    def _rewind(self) -> None:
        if self._rewinding is None or not self._rewinding.is_awaiting:
            return
        self._connection.flow(self._rewinding.due_permits())
        if self._rewinding.is_over(self._connection.layout, self._topic.topic_id, self._options.subscription):
            log.info(
                "%s: the messages that it gave back were acknowledged meanwhile: it subscribes again", self._connection
            )
            self._begin_anew()

    def _handle(self, delivery: Delivery) -> None:
        began = time.monotonic()
        if self._rewinding is not None:
            delivery, permits = self._rewinding.in_order(delivery)
            self._connection.flow(permits)
            if not delivery.ranges:
                return
        self._grant_permits(delivery)
        delivery = replace(delivery, ranges=self._not_given_back(delivery))
        try:
            found = remaining(self._spark, self._topic, self._connection.ledgers, delivery)
        except (PySparkException, Py4JError, OSError) as failed:
            if self._is_end_of_spark(failed):
                return
            raise
        self._report_missing(found)
        if not found.ranges:
            return
        delivery = replace(delivery, ranges=found.ranges)
        self._connection.hurry(-1)  # what arrives meanwhile waits for the function anyway
        try:
            called = self._caller.call(delivery, self._options.letters, self._connection.membership.row, found.parts)
        finally:
            self._connection.hurry(1)
        reply, letters, error, unreadable = called
        if error is None:
            self._backoff.succeeded()
        elif self._is_end_of_spark(error):
            return
        else:
            self._take_error(delivery, error)
        self._send(reply, letters)
        self._report_unreadable(unreadable)
        if reply.given_back and self._waiting is not None:
            self._waiting = self._in_order(self._waiting)
        pause = self._backoff.seconds_left if error else 0.0
        self._progress.note(
            delivery,
            reply,
            time.monotonic() - began,
            error or found.error or unreadable.error,
            self._backoff.failures,
            pause,
            deleted=found.deleted_messages,
        )

    def _report_missing(self, found: Remaining) -> None:
        """Acknowledge deleted messages; report lost ones as an error."""
        self._send(Answer([Acknowledged(*place) for place in found.deleted], []), [])
        if found.error is None:
            if not found.ranges and found.deleted:
                self._progress.missing(found.deleted_messages, None)
            return
        self._progress.missing(found.deleted_messages, found.error)
        self._wait_for(found.lost, found.error)

    def _report_unreadable(self, found: Unreadable) -> None:
        if found.discarded:
            log.warning("%s: %d entries cannot be decrypted and are discarded", self._connection, len(found.discarded))
        if found.error is not None:
            self._wait_for([(partition, at, at) for partition, at in found.kept], found.error)

    def _wait_for(self, places: list[tuple[int, int, int]], error: PulsarSparkError) -> None:
        """Log *error* for messages that stay unacknowledged, and stop if so configured."""
        log.error("%s: %s", self._connection, error)
        for partition, first, last in places if self._backlog is not None else ():
            self._given_back.setdefault(partition, []).append((first, last))
        if self._stops_on_error or self._backlog is not None:
            self._error = error
        else:
            self._backoff.error = error
        if self._stops_on_error:
            self._stopping.set()

    def _take_error(self, delivery: Delivery, error: BaseException) -> None:
        if self._stops_on_error or self._backlog is not None:
            self._error = error
        what = "it stops"
        if self._stops_on_error:
            self._stopping.set()
        elif self._backlog is not None:
            self._backoff.error = error
            what = "the next run receives them again"
        else:
            self._backoff.failed(error)
            pause = self._backoff.seconds_left
            what = f"error {self._backoff.failures} in a row, the next call is in {shown_seconds(pause)}"
        log.warning(
            "%s: the function raised, %d messages of round %d are given back; %s",
            self._connection,
            delivery.messages,
            delivery.round,
            what,
            exc_info=error,
            extra={"messages": delivery.messages, "failures": self._backoff.failures},
        )

    def _is_end_of_spark(self, error: BaseException) -> bool:
        """Whether *error* came because the Spark session ended; then the consumer stops."""
        if is_running(self._spark):
            return False
        if not self._stopping.wait(_SIGNAL_SECONDS):
            self._error = AlreadyClosed(
                f"Spark was stopped while subscription {self._options.subscription!r} was consumed: start a session "
                "and consume again"
            )
            self._error.__cause__ = error
            self._stopping.set()
        return True

    def _grant_permits(self, delivery: Delivery, but: Sequence[PositionRange | NamedEntries] = ()) -> None:
        """Grant permits for the delivered messages, *but* those of some ranges."""
        self._connection.flow(messages_by_partition(delivery.ranges) - messages_by_partition(but))

    def _send(self, reply: Answer, rows: list[dict]) -> None:
        delays = []
        for range_ in reply.given_back:
            if self._backlog is not None:  # on ordered subscriptions, the next run handles everything after it
                last = range_.last if self._rewinding is None else _ALL
                self._given_back.setdefault(range_.partition, []).append((range_.first, last))
            is_at_once = self._backlog is not None or self._stopping.is_set()
            delays.append(0 if is_at_once else self._backoff.delay_ms(range_))
            if self._rewinding is not None and self._backlog is None:
                self._rewinding.given_back(range_, delays[-1])
        for range_ in reply.unseen if self._backlog is not None else ():
            self._given_back.setdefault(range_.partition, []).append((range_.first, range_.last))
        rows += self._connection.membership.answer_rows(reply, delays)
        back = [*reply.given_back, *reply.unseen]
        committed = self._key_order.given_back(back) if self._key_order and back else None
        if rows:
            self._connection.channel.submit(rows, is_urgent=True, committed=committed)
