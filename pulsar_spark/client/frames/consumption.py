"""A running DataFrame consumer: the thread that takes deliveries, calls the function, and answers the broker.

Permits for the next delivery are asked for when the function begins, so two are in flight and the broker's rounds hide
behind the function's work; deliveries that have piled up meanwhile are handed over as one.

**The end.** A consumer ends when it is told to, when its Spark session is stopped, or with the process, which waits for
a delivery that is being handled (see ``running``). The end of its ``with`` block raises nothing: what ended it is
logged, and :meth:`Consumption.exception` tells it.
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

from pulsar_spark.client.channel import Channel
from pulsar_spark.client.frames import running
from pulsar_spark.client.frames.backlog import Backlog
from pulsar_spark.client.frames.backoff import Backoff
from pulsar_spark.client.frames.call import Caller, ConsumeFunction
from pulsar_spark.client.frames.delivery import Answer, Delivery, subtract
from pulsar_spark.client.frames.membership import Failed, Lost, Membership, SubscribeOptions
from pulsar_spark.client.frames.progress import Progress, fields, told
from pulsar_spark.errors import AlreadyClosed, ConsumerBusy, PulsarSparkError, UnknownError
from pulsar_spark.storage.layout import Layout
from pulsar_spark.storage.session import is_running
from pulsar_spark.storage.topics import Topic

STOP_SECONDS = 60.0
"""How long the end of a ``with`` block waits for a delivery that is being handled."""
_IDLE_SECONDS = 0.05
_LOOK_SECONDS = 1.0
_SIGNAL_SECONDS = 1.0
"""How long after Spark's end a word to stop may come: a service manager ends all processes of a service at once."""
_GONE = ("unsubscribed", "deleted")
log = logging.getLogger(__name__)



class Consumption:
    """A running consumer, in the manner of a StreamingQuery. Made by :func:`consume`; a context manager that stops at
    its end."""

    def __init__(
        self,
        spark: SparkSession,
        layout: Layout,
        topic: Topic,
        partitions: list[int],
        options: SubscribeOptions,
        function: ConsumeFunction,
        *,
        max_messages: int,
        available_now: bool,
        on_error: str,
        columns: Sequence[str] | None,
        with_payload: bool,
        timeout: float,
        clock: Callable[[], float],
    ):
        self._spark, self._topic, self._partitions, self._options = spark, topic, partitions, options
        self._max_messages, self._timeout = max_messages, timeout
        self._caller = Caller(spark, layout, topic, function, columns, with_payload=with_payload)
        self.seat = running.Seat(str(layout.root), str(topic.name), tuple(partitions), options.subscription)
        self.start_time = datetime.now(timezone.utc)
        # A failed delivery that is followed by another one would be a gap below the sink's transaction.
        self._stops_on_error = on_error == "stop" or getattr(function, "is_exactly_once", False)
        if getattr(function, "is_exactly_once", False):
            function.open(layout, topic.topic_id, options.subscription)
        # Put into from signal handlers, too, which a Queue's lock does not allow.
        self._events: queue.SimpleQueue[tuple[Membership | None, Delivery | Lost | Failed | None]] = queue.SimpleQueue()
        self._waiting: Delivery | None = None
        self._given_back: dict[int, list[tuple[int, int]]] = {}
        self._error: BaseException | None = None
        self._backoff, self._progress = Backoff(clock), Progress(self._who(), clock)
        self._ended, self._stopping = threading.Event(), threading.Event()
        self._backlog = Backlog(layout, topic, partitions, options.subscription, subtract) if available_now else None
        self._channel = Channel(layout, uuid.uuid4().hex)
        self._membership: Membership | None = None
        self._thread = threading.Thread(
            target=self._run, name=f"pulsar-spark-consume-{options.subscription}", daemon=True
        )

    # For the user.

    @property
    def consumer_name(self) -> str:
        """As it was given, or made up."""
        return self._options.consumer_name

    @property
    def is_active(self) -> bool:
        """Whether it still consumes."""
        return not self._ended.is_set()

    @property
    def last_progress(self) -> dict | None:
        """The last delivery handled: round, messages, acknowledged and given back ranges, messages put off, seconds,
        error; and, after an error, how many there were in a row (``failures``) and after how many seconds the function
        is called again (``pause_seconds``). None before the first."""
        return self._progress.last

    @property
    def totals(self) -> dict[str, int]:
        """What was done since the start: deliveries, messages, acknowledged, given_back, put_off, failures (calls of
        the function that raised)."""
        return fields(self._progress.totals)

    def stop(self, timeout: float | None = None) -> None:
        """End after the delivery that is being handled; what is not handled goes back. A pause after an error ends at
        once.

        Waits for the end, *timeout* seconds at most (0 = it only asks, as a signal handler does), unless it is the
        function that calls. Never raises.
        """
        self._ask_to_stop()
        if threading.current_thread() is not self._thread and timeout != 0 and not self._ended.wait(timeout):
            log.warning(
                "%s: its function has not returned within %g s of being told to stop, and is not waited for any longer",
                self._who(),
                timeout,
            )

    def await_termination(self, timeout: float | None = None) -> bool:
        """Wait for the end, *timeout* seconds at most; whether it came. Raises what ended it, or made an
        *available_now* run incomplete."""
        if not self._ended.wait(timeout):
            return False
        if self._error is not None:
            raise self._error
        return True

    def exception(self) -> BaseException | None:
        """While it runs, the error of the function's last call, None after one that returned. Once it has ended, what
        ended it, or was the function's last error in an *available_now* run."""
        return self._error if self._ended.is_set() and self._error is not None else self._backoff.error

    def __enter__(self) -> "Consumption":
        return self

    def __exit__(self, *_) -> None:
        self.stop(STOP_SECONDS)

    # The thread.

    def _who(self) -> str:
        options = self._options
        return f"consumer {options.consumer_name!r} of subscription {options.subscription!r} of {self._topic.name}"

    def _ask_to_stop(self) -> None:
        """Tell the thread to end; safe in a signal handler."""
        self._stopping.set()
        self._events.put((None, None))

    def _start(self) -> None:
        is_joined = False
        try:
            running.replace(self.seat, self._options.consumer_name, STOP_SECONDS)
            self._join()
            is_joined = True
        except ConsumerBusy as refused:
            raise running.explained(refused, self.seat) from refused
        finally:
            if not is_joined:  # an interrupted cell, too, must leave nobody behind who holds the subscription
                self._ended.set()
                self._channel.stop(self._timeout)
        log.info(
            "%s consumes (%s); a subscription that is new starts at %s",
            self._who(),
            self._options.subscription_type,
            self._options.initial_position,
        )
        running.enter(self)
        self._thread.start()

    def _join(self) -> None:
        self._membership = Membership(
            self._channel, self._topic, self._partitions, self._options, lambda *event: self._events.put(event)
        )
        self._membership.join(self._timeout)
        share = max(1, self._max_messages // len(self._partitions))
        self._channel.submit([self._membership.row("flow", partition, permits=share) for partition in self._partitions])

    def _run(self) -> None:
        self._channel.hurry(1)
        error: BaseException | None = UnknownError("the consumer's thread ended: see its traceback")
        try:
            while not self._stopping.is_set() and not self._is_done():
                self._progress.look()
                self._take()
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
            log.log(
                logging.ERROR if self._error else logging.INFO,
                "%s ended: %s",
                self._who(),
                told(totals),
                exc_info=self._error,
                extra=fields(totals),
            )
            running.leave(self)
            self._ended.set()

    def _is_done(self) -> bool:
        if self._backlog is None or self._waiting is not None or not self._events.empty():
            return False
        return self._backlog.is_handled(self._membership.consumer_id, self._given_back)

    def _take(self) -> None:
        """Take in events: all that are there, one of them at least unless none comes in a while."""
        try:
            event = self._events.get(
                timeout=_IDLE_SECONDS if self._backlog or self._backoff.seconds_left else _LOOK_SECONDS
            )
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
            self._waiting = None
            self._membership.leave()
            self._join()

    def _handle(self, delivery: Delivery) -> None:
        began = time.monotonic()
        self._ask_for_more(delivery)
        ranges = tuple(
            part for held in delivery.ranges for part in subtract(held, self._given_back.get(held.partition, []))
        )
        if not ranges:
            return
        delivery = delivery._replace(ranges=ranges)
        reply, letters, error = self._caller.call(delivery, self._options.letters, self._membership.row)
        if error is None:
            self._backoff.succeeded()
        elif self._is_end_of_spark(error):
            return
        else:
            self._take_error(delivery, error)
        self._send(reply, letters)
        self._progress.note(
            delivery,
            reply,
            time.monotonic() - began,
            error,
            self._backoff.failures,
            self._backoff.seconds_left if error else 0.0,
        )

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

    def _ask_for_more(self, delivery: Delivery) -> None:
        taken = dict.fromkeys((held.partition for held in delivery.ranges), 0)
        for held in delivery.ranges:
            taken[held.partition] += held.messages
        self._channel.submit(
            [
                self._membership.row("flow", partition, permits=permits)
                for partition, permits in taken.items()
                if permits
            ]
        )

    def _send(self, reply: Answer, rows: list[dict]) -> None:
        for done in reply.acknowledged:
            rows.append(self._membership.row("ack", done.partition, first=done.first, last=done.last,
                                             ack_set=None if done.ack_set is None else list(done.ack_set)))
        for held in reply.given_back:
            if self._backlog is not None:
                self._given_back.setdefault(held.partition, []).append((held.first, held.last))
            delay_ms = 0 if self._backlog is not None or self._stopping.is_set() else self._backoff.delay_ms(held)
            rows.append(
                self._membership.row(
                    "negative_ack", held.partition, first=held.first, last=held.last, delay_ms=delay_ms
                )
            )
        if rows:
            self._channel.submit(rows, is_urgent=True)
