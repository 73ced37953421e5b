"""Consuming a subscription as DataFrames: a function is called with each delivery, and what it does decides what becomes of the messages.

It returns: acknowledged. It raises: given back, to be delivered again. It returns a frame of outcomes: row by row (see ``delivery``). Permits for the next
delivery are asked for when the function begins, so two are in flight and the broker's rounds hide behind the function's work; deliveries that have piled up
meanwhile are handed over as one. At-least-once: a crash between the function's return and the acknowledgement's commit delivers again; ``delta_sink`` says
how to have it exactly once.
"""
import logging
import os
import queue
import threading
import time
import uuid
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from pulsar_spark.client.channel import Channel
from pulsar_spark.client.frames.backlog import Backlog
from pulsar_spark.client.frames.delivery import Acknowledged, Answer, Delivery, answer, subtract
from pulsar_spark.client.frames.letters import FrameLetters
from pulsar_spark.client.frames.membership import Failed, Lost, Membership, SubscribeOptions, one_of
from pulsar_spark.client.frames.presence import Presence, presence
from pulsar_spark.client.ledgers import LedgerIndex
from pulsar_spark.client.policies import ConsumerDeadLetterPolicy
from pulsar_spark.errors import AlreadyClosed, InvalidConfiguration, PulsarSparkError, UnknownError
from pulsar_spark.storage.layout import Layout
from pulsar_spark.storage.session import check_delta
from pulsar_spark.storage.slices import Piece, PositionRange, read_pieces
from pulsar_spark.storage.topics import Topic, prepare_root, resolve_topic

log = logging.getLogger(__name__)

MAX_MESSAGES = 4_000_000
ON_ERROR = ("give_back", "stop")
_IDLE_SECONDS = 0.05
_GONE = ("unsubscribed", "deleted")

ConsumeFunction = Callable[[DataFrame, Delivery], object]


def consume(spark: SparkSession, root: str | os.PathLike, topic: str, subscription: str, function: ConsumeFunction, *,
            subscription_type: str = "Exclusive", consumer_name: str | None = None, initial_position: str = "Latest", max_messages: int = MAX_MESSAGES,
            available_now: bool = False, on_error: str = "give_back", columns: Sequence[str] | None = None, with_payload: bool = True,
            priority_level: int = 0, dead_letter_policy: ConsumerDeadLetterPolicy | None = None, retry_enable: bool = False, create: bool = True,
            timeout: float = 30.0) -> "Consumption":
    """Subscribe, and call ``function(messages, delivery)`` with each delivery in a thread of its own until stopped.

    *messages* has the columns of the messages table (*columns* of them and ``partition``, no payload without *with_payload*) and ``ledger_id``, ``position``,
    ``redelivery_count``, in no order: sort by partition and position where order matters. *max_messages* is what is asked for per delivery, over all
    partitions. With *available_now* it ends when everything published before the start has been handled; what was given back is left to the next run,
    and an error of the function is raised at the end. *on_error* "stop" ends at the first error. What is given back more often than *dead_letter_policy* says
    becomes a dead letter; with *retry_enable* the function may put messages off (see ``letters``): consume the retry letter topic, too, to see them again.

    The broker's refusal (:class:`ConsumerBusy`, ...) is raised here, as :class:`Timeout` is when no broker answers in *timeout* seconds.
    """
    check_delta(spark)
    options = SubscribeOptions.checked(subscription, subscription_type, consumer_name, initial_position, priority_level)
    if max_messages < 1:
        raise InvalidConfiguration(f"max_messages {max_messages!r}: ask for 1 message or more")
    layout = Layout(root)
    if create:
        prepare_root(layout)
    found, partitions = resolve_topic(layout, topic, create=create)
    if dead_letter_policy is not None or retry_enable:
        letters = FrameLetters(layout, found, subscription, options.consumer_name, dead_letter_policy, retry_enable=retry_enable)
        letters.prepare(timeout)
        options = options._replace(letters=letters)
    consumption = Consumption(spark, layout, found, partitions, options, function, max_messages=max_messages, available_now=available_now,
                              on_error=one_of("on_error", on_error, ON_ERROR), columns=columns, with_payload=with_payload, timeout=timeout)
    consumption._start()
    return consumption


class Consumption:
    """A running consumer, in the manner of a StreamingQuery. Made by :func:`consume`; a context manager that stops at its end."""

    def __init__(self, spark: SparkSession, layout: Layout, topic: Topic, partitions: list[int], options: SubscribeOptions, function: ConsumeFunction, *,
                 max_messages: int, available_now: bool, on_error: str, columns: Sequence[str] | None, with_payload: bool, timeout: float):
        self._spark, self._layout, self._topic, self._partitions, self._options, self._function = spark, layout, topic, partitions, options, function
        self._max_messages, self._timeout, self._columns, self._with_payload = max_messages, timeout, columns, with_payload
        # A failed delivery that is followed by another one would be a gap below the sink's transaction.
        self._stops_on_error = on_error == "stop" or getattr(function, "is_exactly_once", False)
        if getattr(function, "is_exactly_once", False):
            function.open(layout, topic.topic_id, options.subscription)
        self._events: queue.Queue[tuple[Membership | None, Delivery | Lost | Failed | None]] = queue.Queue()
        self._waiting: Delivery | None = None
        self._given_back: dict[int, list[tuple[int, int]]] = {}
        self._error: BaseException | None = None
        self._progress: dict | None = None
        self._ended = threading.Event()
        self._is_stopping = False
        self._working: threading.Thread | None = None
        self._ledgers = LedgerIndex(layout)
        self._backlog = Backlog(layout, topic, partitions, options.subscription, subtract) if available_now else None
        self._channel = Channel(layout, uuid.uuid4().hex)
        self._membership: Membership | None = None
        self._runner = ThreadPoolExecutor(1, thread_name_prefix=f"consume-{options.subscription}")
        self._thread = threading.Thread(target=self._run, name=f"pulsar-spark-consume-{options.subscription}", daemon=True)

    # For the user.

    @property
    def is_active(self) -> bool:
        """Whether it still consumes."""
        return not self._ended.is_set()

    @property
    def last_progress(self) -> dict | None:
        """The last delivery handled: round, messages, acknowledged and given back ranges, messages put off, seconds, error; None before the first."""
        return self._progress

    def stop(self) -> None:
        """End after the delivery that is being handled; what is not handled goes back. Waits for the end, unless it is the function that calls."""
        self._is_stopping = True
        self._events.put((None, None))
        if threading.current_thread() not in (self._thread, self._working):
            self._ended.wait()

    def await_termination(self, timeout: float | None = None) -> bool:
        """Wait for the end, *timeout* seconds at most; whether it came. Raises what ended it, or made an *available_now* run incomplete."""
        if not self._ended.wait(timeout):
            return False
        if self._error is not None:
            raise self._error
        return True

    def exception(self) -> BaseException | None:
        """What ended it, or was the function's last error in an *available_now* run."""
        return self._error if self._ended.is_set() else None

    def __enter__(self) -> "Consumption":
        return self

    def __exit__(self, *_) -> None:
        self.stop()

    # The thread.

    def _start(self) -> None:
        try:
            self._join()
        except PulsarSparkError:
            self._ended.set()
            self._channel.stop(self._timeout)
            self._runner.shutdown()
            raise
        self._thread.start()

    def _join(self) -> None:
        self._membership = Membership(self._channel, self._topic, self._partitions, self._options, lambda *event: self._events.put(event))
        self._membership.join(self._timeout)
        share = max(1, self._max_messages // len(self._partitions))
        self._channel.submit([self._membership.row("flow", partition, permits=share) for partition in self._partitions])

    def _run(self) -> None:
        self._channel.hurry(1)
        error: BaseException | None = UnknownError("the consumer's thread ended: see its traceback")
        try:
            while not self._is_stopping and not self._is_done():
                self._take()
                if self._waiting is not None and not self._is_stopping:
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
            self._runner.shutdown(wait=False)
            self._ended.set()

    def _is_done(self) -> bool:
        if self._backlog is None or self._waiting is not None or not self._events.empty():
            return False
        return self._backlog.is_handled(self._membership.consumer_id, self._given_back)

    def _take(self) -> None:
        """Take in events: all that are there, one of them at least unless none comes."""
        try:
            event = self._events.get(timeout=_IDLE_SECONDS if self._backlog else None)
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
                raise AlreadyClosed(f"subscription {self._options.subscription!r} of {str(self._topic.name)!r} was {event.text}")
            self._waiting = None
            self._membership.leave()
            self._join()

    def _handle(self, delivery: Delivery) -> None:
        began = time.monotonic()
        self._ask_for_more(delivery)
        ranges = tuple(part for held in delivery.ranges for part in subtract(held, self._given_back.get(held.partition, [])))
        found = presence(self._topic, self._ledgers, ranges)
        self._tell_missing(found)
        if not found.ranges:
            return
        delivery = delivery._replace(ranges=found.ranges)
        done = self._runner.submit(self._call, delivery)
        error = done.exception()
        reply, letters = done.result() if error is None else (Answer([], list(ranges)), [])
        if error is not None and self._stops_on_error:
            self._is_stopping = True
        if error is not None and (self._stops_on_error or self._backlog is not None):
            self._error = error
        self._send(reply, letters)
        self._progress = {"round": delivery.round, "messages": delivery.messages, "acknowledged": len(reply.acknowledged), "given_back": len(reply.given_back),
                          "put_off": len(reply.put_off), "deleted": found.deleted_messages, "seconds": time.monotonic() - began,
                          "error": repr(error or found.error) if error or found.error else None}

    def _tell_missing(self, found: Presence) -> None:
        """Acknowledge what was deleted; what is lost is an error, and waits."""
        self._send(Answer([Acknowledged(*place) for place in found.deleted], []), [])
        if found.error is None:
            return
        log.error("subscription %s: %s", self._options.subscription, found.error)
        self._progress = {"round": None, "messages": 0, "acknowledged": len(found.deleted), "given_back": 0, "put_off": 0, "deleted": found.deleted_messages,
                          "seconds": 0.0, "error": repr(found.error)}
        for partition, first, last in found.lost if self._backlog is not None else ():
            self._given_back.setdefault(partition, []).append((first, last))
        if self._stops_on_error or self._backlog is not None:
            self._error = found.error
        self._is_stopping |= self._stops_on_error

    def _call(self, delivery: Delivery) -> tuple[Answer, list[dict]]:
        """What the function says, and the requests that put messages off."""
        self._working = threading.current_thread()
        reply, letters = answer(delivery, self._function(self._read(delivery), delivery)), self._options.letters
        if not reply.put_off:
            return reply, []
        if letters is None or not letters.is_retry_enabled:
            raise InvalidConfiguration("the outcomes put messages off: consume with retry_enable=True")
        return reply, letters.rows(reply.put_off, self._membership.row)

    def _ask_for_more(self, delivery: Delivery) -> None:
        taken = dict.fromkeys((held.partition for held in delivery.ranges), 0)
        for held in delivery.ranges:
            taken[held.partition] += held.messages
        self._channel.submit([self._membership.row("flow", partition, permits=permits) for partition, permits in taken.items() if permits])

    def _send(self, reply: Answer, rows: list[dict]) -> None:
        for done in reply.acknowledged:
            rows.append(self._membership.row("ack", done.partition, first=done.first, last=done.last,
                                             ack_set=None if done.ack_set is None else list(done.ack_set)))
        for held in reply.given_back:
            if self._backlog is not None:
                self._given_back.setdefault(held.partition, []).append((held.first, held.last))
            rows.append(self._membership.row("negative_ack", held.partition, first=held.first, last=held.last, delay_ms=0))
        if rows:
            self._channel.submit(rows, is_urgent=True)

    def _read(self, delivery: Delivery) -> DataFrame:
        return read_pieces(self._spark, self._topic, [piece for held in delivery.ranges for piece in self._pieces(held)], self._columns, self._with_payload,
                           without=self._ledgers.foreign_files(self._topic.topic_id))

    def _pieces(self, held: PositionRange) -> list[Piece]:
        return [Piece(held.partition, run.ledger_id, run.publish_id, run.first_entry_id, run.first_entry_id + run.entries - 1, run.first_position,
                      held.redelivery_count, held.ack_set)
                for run in self._ledgers.runs(self._topic.topic_id, held.partition, held.first, held.last)]
