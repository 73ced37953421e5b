"""The thread of a DataFrame consumer: it takes deliveries, calls the function, and answers the broker.

Permits for the next delivery are asked for when the function begins, so two are in flight and the broker's rounds
hide behind the function's work; deliveries that have piled up meanwhile are handed over as one. What is given back on
an Exclusive or Failover subscription is waited for before anything behind it is handled (see rewinding). While it
pauses after an error it goes on taking in what comes, so a lost lease or a word to stop is met at once.
"""

import logging
import queue
import threading
import time
import uuid
from collections.abc import Callable, Sequence
from datetime import datetime, timezone

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from pulsar_spark.errors import AlreadyClosed, PulsarSparkError, ServiceUnitNotReady, Timeout, UnknownError
from pulsar_spark.frames import running, split_reads
from pulsar_spark.frames.backlog import Backlog
from pulsar_spark.frames.backoff import Backoff
from pulsar_spark.frames.call import Caller
from pulsar_spark.frames.delivery import Acknowledged, Answer, Delivery, messages_by_partition, without
from pulsar_spark.frames.key_order import KeyOrder
from pulsar_spark.frames.lane_deliveries import LaneRange, exact
from pulsar_spark.frames.membership import Failed, Lost, Membership, SubscribeOptions
from pulsar_spark.frames.progress import Progress, fields, told
from pulsar_spark.frames.remaining import Remaining, remaining
from pulsar_spark.frames.rewinding import Rewinding
from pulsar_spark.frames.unreadable import Unreadable
from pulsar_spark.link.channel import Channel
from pulsar_spark.protocol.membership import SINGLE_ACTIVE
from pulsar_spark.storage.bundles import LOOK_AGAIN_SECONDS, layout_of, look_again
from pulsar_spark.storage.layout import Layout
from pulsar_spark.storage.partitions import PartitionWatch
from pulsar_spark.storage.session import is_running
from pulsar_spark.storage.slices import PositionRange
from pulsar_spark.storage.topics import Topic

_IDLE_SECONDS = 0.05
_ENDING_SECONDS = 0.01
"""How often a run over what is there asks whether that was all; a look costs a stat until there is another round."""
_LOOK_SECONDS = 1.0
_SIGNAL_SECONDS = 1.0
"""How long after Spark's end a word to stop may come: a service manager ends all processes of a service at once."""
_ALL = 2**63 - 1
_GONE = ("unsubscribed", "deleted")
log = logging.getLogger(__name__)


class Consuming:
    """What a :class:`~pulsar_spark.frames.consumption.Consumption` does; that is the part for its user."""

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
        self._spark, self._topic, self._partitions, self._options = spark, topic, partitions, options
        self._layout = layout
        self._max_messages, self._timeout = max_messages, timeout
        self._caller, self._ledgers, function = caller, caller.ledgers, caller.function
        self.seat = running.Seat(str(layout.root), str(topic.name), tuple(partitions), options.subscription)
        self.start_time = datetime.now(timezone.utc)
        # A failed delivery that is followed by another one would be a gap below the sink's transaction.
        self._stops_on_error = on_error == "stop" or getattr(function, "is_exactly_once", False)
        self._open_sink()
        # Put into from signal handlers, too, which a Queue's lock does not allow.
        self._events: queue.SimpleQueue[tuple[Membership | None, Delivery | Lost | Failed | None]] = queue.SimpleQueue()
        self._waiting: Delivery | None = None
        self._given_back: dict[int, list[tuple[int, int]]] = {}
        self._error: BaseException | None = None
        self._backoff, self._progress = Backoff(clock), Progress(self._who(), clock)
        self._rewinding: Rewinding | None = None
        if options.subscription_type in SINGLE_ACTIVE:
            self._rewinding = Rewinding(clock, options.letters.max_redeliver_count if options.letters else 0)
        self._ended, self._stopping = threading.Event(), threading.Event()
        self._backlog = (
            Backlog(layout, topic, partitions, options.subscription, self._ledgers) if available_now else None
        )
        self._key_order = KeyOrder(topic, self._ledgers, is_final=available_now) if options.is_key_shared else None
        self._channel = Channel(layout, uuid.uuid4().hex)
        self._membership: Membership | None = None
        is_whole = bool(topic.partitions) and len(partitions) == topic.partitions
        self._watch = PartitionWatch(topic) if is_whole and not available_now else None
        self._added: list[int] = []
        """Partitions that were added and are not joined yet."""
        self._thread = threading.Thread(
            target=self._run, name=f"pulsar-spark-consume-{options.subscription}", daemon=True
        )

    def _who(self) -> str:
        options = self._options
        return f"consumer {options.consumer_name!r} of subscription {options.subscription!r} of {self._topic.name}"

    def _join(self) -> None:
        """Subscribe, in the bundle that the topic is in by now: who asked another is refused there."""
        deadline = time.monotonic() + self._timeout
        while True:
            try:
                self._join_here()
                return
            except ServiceUnitNotReady:
                if time.monotonic() > deadline:
                    raise
            if self._stopping.wait(LOOK_AGAIN_SECONDS):
                return
            self._follow_topic()

    def _follow_topic(self) -> None:
        """From now on ask, and read what is numbered by, the bundle that the topic is in."""
        look_again(self._layout)
        layout = layout_of(self._layout, self._topic.name)
        if layout.bundle == self._layout.bundle:
            return
        self._channel.stop(self._timeout)
        self._layout, self._channel = layout, Channel(layout, uuid.uuid4().hex)
        if self._thread.is_alive():
            self._channel.hurry(1)
        self._ledgers = self._caller.ledgers = self._ledgers.of(self._topic)
        if self._key_order is not None:
            self._key_order.follow(self._ledgers)
        if self._backlog is not None:
            self._backlog.follow(layout, self._ledgers)
        self._open_sink()

    def _open_sink(self) -> None:
        """Tell a function that writes exactly once whose rounds say what it was given."""
        if getattr(self._caller.function, "is_exactly_once", False):
            self._caller.function.open(self._layout, self._topic.topic_id, self._options.subscription)

    def _join_here(self) -> None:
        self._membership = Membership(
            self._channel, self._topic, self._partitions, self._options, lambda *event: self._events.put(event)
        )
        split_reads.enter(self._membership.consumer_id, self._spark)
        self._membership.join(self._timeout, self._share(self._partitions))

    def _share(self, partitions: list[int]) -> int:
        """Messages of each of the consumer's *partitions* in a delivery."""
        return max(1, self._max_messages // len(partitions))

    def _follow_partitions(self) -> None:
        """Consume from partitions that were added to the topic, where all of it is consumed, from their first message
        on. While the broker does not answer it is asked again; a refusal ends the consumer, as at its start."""
        if self._watch is None:
            return
        if (found := self._watch.added()) is not None:
            self._added = [partition for partition in found.partition_indexes if partition not in self._partitions]
        if not self._added:
            return
        try:
            permits = self._share([*self._partitions, *self._added])
            self._membership.join_added(self._added, self._timeout, permits)
        except (Timeout, ServiceUnitNotReady) as late:
            log.warning("%s: partitions %s were added and are not consumed yet: %s", self._who(), self._added, late)
            return
        added, self._added = self._added, []
        self._partitions = [*self._partitions, *added]
        self._options = self._options._replace(initial_position="Earliest")
        self.seat = self.seat._replace(partitions=tuple(self._partitions))
        log.info("%s consumes partitions %s too, which were added", self._who(), added)

    def _run(self) -> None:
        self._channel.hurry(1)
        error: BaseException | None = UnknownError("the consumer's thread ended: see its traceback")
        try:
            while not self._stopping.is_set() and not self._is_done():
                self._progress.look()
                self._follow_partitions()
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
            self._membership.leave()
            self._channel.stop(self._timeout)
        except PulsarSparkError as failed:
            self._error = self._error or failed
        finally:
            totals = self._progress.totals
            level = logging.ERROR if self._error else logging.INFO
            log.log(level, "%s ended: %s", self._who(), told(totals), exc_info=self._error, extra=fields(totals))
            running.leave(self)
            self._ended.set()

    def _is_done(self) -> bool:
        if self._backlog is None or self._waiting is not None or not self._events.empty():
            return False
        return self._backlog.is_handled(self._membership.consumer_id, self._given_back)

    def _take(self) -> None:
        """Take in events: all that are there, one of them at least unless none comes in a while."""
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
        if membership is not self._membership:
            return
        if isinstance(event, Delivery):
            event = self._in_order(event._replace(ranges=self._exact(event.ranges, lambda held: held.is_batch)))
            self._waiting = event if self._waiting is None else self._waiting.merged(event)
        elif isinstance(event, Failed):
            raise event.error
        elif isinstance(event, Lost):
            if event.text in _GONE:
                raise AlreadyClosed(
                    f"subscription {self._options.subscription!r} of {str(self._topic.name)!r} was {event.text}"
                )
            log.warning(
                "%s lost what it held (%s): it subscribes again", self._who(), event.text or "the cursor was moved"
            )
            self._begin_anew()

    def _begin_anew(self) -> None:
        self._waiting = None
        if self._rewinding is not None:
            self._rewinding.forget()
        if self._key_order is not None:
            self._key_order.forget()
        self._membership.leave()
        self._join()

    def _in_order(self, delivery: Delivery) -> Delivery:
        """What of a delivery that has come is not too early for the order of its keys; that is given back."""
        if self._key_order is None:
            return delivery
        ranges = self._not_given_back(delivery)
        kept, early = self._key_order.in_order(ranges, delivery.requests_version)
        self._ask_for_more(delivery, but=kept)
        if early:
            self._send(Answer([], [], unseen=early), [])
        return delivery._replace(ranges=kept)

    def _not_given_back(self, delivery: Delivery) -> tuple[PositionRange | LaneRange, ...]:
        """What of a delivery this run did not give back."""
        ranges = self._exact(delivery.ranges, lambda held: held.partition in self._given_back)
        return without(ranges, self._given_back)

    def _exact(
        self, ranges: Sequence[PositionRange | LaneRange], is_asked: Callable[[LaneRange], bool]
    ) -> tuple[PositionRange | LaneRange, ...]:
        return exact(self._topic, self._ledgers, ranges, is_asked)

    def _rewind(self) -> None:
        """See to it that what was given back comes again."""
        if self._rewinding is None or not self._rewinding.is_awaiting:
            return
        self._flow(self._rewinding.due_permits())
        if self._rewinding.is_over(self._layout, self._topic.topic_id, self._options.subscription):
            log.info("%s: what it gave back was acknowledged meanwhile: it subscribes again", self._who())
            self._begin_anew()

    def _handle(self, delivery: Delivery) -> None:
        began = time.monotonic()
        if self._rewinding is not None:
            delivery, permits = self._rewinding.in_order(delivery)
            self._flow(permits)
            if not delivery.ranges:
                return
        self._ask_for_more(delivery)
        delivery = delivery._replace(ranges=self._not_given_back(delivery))
        try:
            found = remaining(self._spark, self._topic, self._ledgers, delivery)
        except (PySparkException, Py4JError, OSError) as failed:
            if self._is_end_of_spark(failed):
                return
            raise
        self._tell_missing(found)
        if not found.ranges:
            return
        delivery = delivery._replace(ranges=found.ranges)
        self._channel.hurry(-1)  # what comes meanwhile waits for the function anyway
        try:
            called = self._caller.call(delivery, self._options.letters, self._membership.row, found.parts)
        finally:
            self._channel.hurry(1)
        split_reads.answered(delivery.consumer_id, delivery.round)
        reply, letters, error, unreadable = called
        if error is None:
            self._backoff.succeeded()
        elif self._is_end_of_spark(error):
            return
        else:
            self._take_error(delivery, error)
        self._send(reply, letters)
        self._tell_unreadable(unreadable)
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

    def _tell_missing(self, found: Remaining) -> None:
        """Acknowledge what was deleted; what is lost is an error, and waits."""
        self._send(Answer([Acknowledged(*place) for place in found.deleted], []), [])
        if found.error is None:
            if not found.ranges and found.deleted:
                self._progress.missing(found.deleted_messages, None)
            return
        self._progress.missing(found.deleted_messages, found.error)
        self._wait_for(found.lost, found.error)

    def _tell_unreadable(self, found: Unreadable) -> None:
        """What is discarded is told the broker with what was handled; what is kept is an error, and waits."""
        if found.discarded:
            log.warning("%s: %d entries cannot be decrypted and are discarded", self._who(), len(found.discarded))
        if found.error is not None:
            self._wait_for([(partition, at, at) for partition, at in found.kept], found.error)

    def _wait_for(self, places: list[tuple[int, int, int]], error: PulsarSparkError) -> None:
        """What cannot be handed over stays delivered: say so, and stop where that is asked for."""
        log.error("%s: %s", self._who(), error)
        for partition, first, last in places if self._backlog is not None else ():
            self._given_back.setdefault(partition, []).append((first, last))
        if self._stops_on_error or self._backlog is not None:
            self._error = error
        else:
            self._backoff.error = error
        if self._stops_on_error:
            self._stopping.set()

    def _take_error(self, delivery: Delivery, error: BaseException) -> None:
        """The function raised: say so, and pause or stop."""
        if self._stops_on_error or self._backlog is not None:
            self._error = error
        what = "it stops"
        if self._stops_on_error:
            self._stopping.set()
        elif self._backlog is not None:
            self._backoff.error = error
            what = "the next run gets them again"
        else:
            self._backoff.failed(error)
            pause = self._backoff.seconds_left
            what = f"error {self._backoff.failures} in a row, the function is called again in {pause:g} s"
        log.warning(
            "%s: the function raised, %d messages of round %d are given back; %s",
            self._who(),
            delivery.messages,
            delivery.round,
            what,
            exc_info=error,
            extra={"messages": delivery.messages, "failures": self._backoff.failures},
        )

    def _is_end_of_spark(self, error: BaseException) -> bool:
        """Whether *error* came because the session is gone: nothing can be handled any more, and what was delivered
        goes back as this consumer leaves."""
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

    def _ask_for_more(self, delivery: Delivery, but: Sequence[PositionRange | LaneRange] = ()) -> None:
        """Ask for as many messages as were delivered, *but* for those of some ranges."""
        self._flow(messages_by_partition(delivery.ranges) - messages_by_partition(but))

    def _flow(self, wanted: dict[int, int]) -> None:
        rows = [
            self._membership.row("flow", partition, permits=permits) for partition, permits in wanted.items() if permits
        ]
        if rows:
            self._channel.submit(rows)

    def _send(self, reply: Answer, rows: list[dict]) -> None:
        delays = []
        for held in reply.given_back:
            if self._backlog is not None:  # of a subscription with an order all that is behind is left to the next run
                last = held.last if self._rewinding is None else _ALL
                self._given_back.setdefault(held.partition, []).append((held.first, last))
            is_at_once = self._backlog is not None or self._stopping.is_set()
            delays.append(0 if is_at_once else self._backoff.delay_ms(held))
            if self._rewinding is not None and self._backlog is None:
                self._rewinding.given_back(held, delays[-1])
        for held in reply.unseen if self._backlog is not None else ():
            self._given_back.setdefault(held.partition, []).append((held.first, held.last))
        rows += self._membership.answer_rows(reply, delays)
        back = [*reply.given_back, *reply.unseen]
        committed = self._key_order.given_back(back) if self._key_order and back else None
        if rows:
            self._channel.submit(rows, is_urgent=True, committed=committed)
