"""Takes messages to send: checks, routes, splits and queues them."""

import threading
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

from pulsar_spark.client.arguments import given, interrupted, public_call
from pulsar_spark.client.model.enums import Result
from pulsar_spark.client.schema.payloads import AS_IT_IS
from pulsar_spark.client.sending.message_routing import MessageRouting
from pulsar_spark.client.sending.open_batches import OpenBatches
from pulsar_spark.client.sending.producer_settings import ProducerSettings
from pulsar_spark.client.sending.publish_rows import Entry, Outgoing
from pulsar_spark.client.sending.publisher import Publisher
from pulsar_spark.client.sending.send_arguments import outgoing
from pulsar_spark.client.sending.send_outcomes import ChunkedSend, Done, Outcome, answer
from pulsar_spark.client.sending.splitting import chunks_of, pieces_of
from pulsar_spark.errors import (
    AlreadyClosed,
    CryptoError,
    Interrupted,
    InvalidMessage,
    MessageTooBig,
    NotAllowedError,
    ProducerQueueIsFull,
    PulsarSparkError,
)
from pulsar_spark.link import interrupts
from pulsar_spark.link.quota import BacklogQuota
from pulsar_spark.protocol.delays.durations import shown_seconds
from pulsar_spark.protocol.topics.message_id import MessageId
from pulsar_spark.storage.processes import forks


class Sending:
    """The part of :class:`~pulsar_spark.client.sending.producer.Producer` that takes messages."""

    _process: int
    _settings: ProducerSettings
    _topic_name: str
    _name: str
    _timeout: float
    _quota: BacklogQuota
    _routing: MessageRouting
    _batches: OpenBatches
    _publisher: Publisher
    _lock: threading.RLock
    _condition: threading.Condition
    _sequence_ids: Iterator[int]
    _is_closed: bool
    _limit: int
    _pending: int
    _sent: int

    @public_call
    def send(
        self,
        content: Any,
        properties: dict[str, str] | None = None,
        partition_key: str | None = None,
        ordering_key: str | None = None,
        sequence_id: int | None = None,
        replication_clusters: list[str] | None = None,
        disable_replication: bool = False,
        event_timestamp: int | None = None,
        deliver_at: int | None = None,
        deliver_after: timedelta | None = None,
    ) -> MessageId:
        """Publish a message, wait until it is stored, and return its id. An open batch is published with it.

        - ``content``: the value that the schema encodes; None for a null value.
        - ``properties``: a dict of texts.
        - ``partition_key``: determines the partition and, without an ``ordering_key``, the consumer of a Key_Shared
          subscription.
        - ``sequence_id``: the application's number of the message; by default the next one. The id of a duplicate that
          deduplication drops names no entry.
        - ``event_timestamp``: the event time in ms since 1970.
        - ``deliver_at`` (ms since 1970) or ``deliver_after`` (a timedelta): Shared and Key_Shared subscriptions deliver
          the message no earlier. :class:`NotAllowedError` if the topic's policy does not allow such a long delay.
        - ``replication_clusters``, ``disable_replication``: without effect.
        """
        outcome = Outcome()
        keys, replication = (partition_key, ordering_key, sequence_id), (replication_clusters, disable_replication)
        self._send(outcome, content, properties, *keys, *replication, event_timestamp, deliver_at, deliver_after)
        return outcome.result(self._timeout)

    def send_async(
        self,
        content: Any,
        callback: Callable[[Result, MessageId], Any] | None,
        properties: dict[str, str] | None = None,
        partition_key: str | None = None,
        ordering_key: str | None = None,
        sequence_id: int | None = None,
        replication_clusters: list[str] | None = None,
        disable_replication: bool = False,
        event_timestamp: int | None = None,
        deliver_at: int | None = None,
        deliver_after: timedelta | None = None,
    ) -> None:
        """Publish a message without waiting; ``callback(Result, MessageId)`` reports the outcome.

        The producer's thread calls it in the order of sending; with key-based batching this order holds within each
        key. Refusals, such as a full queue, are reported at once. Wrong arguments are raised.

        ``content``, ``properties``, ``partition_key``, ``ordering_key``, ``sequence_id``, ``replication_clusters``,
        ``disable_replication``, ``event_timestamp``, ``deliver_at`` and ``deliver_after`` are those of :meth:`send`.
        """
        if callback is not None and not callable(callback):
            raise ValueError(f"argument callback: a function expected, not {given(callback)}")
        keys, replication = (partition_key, ordering_key, sequence_id), (replication_clusters, disable_replication)
        self._send(callback, content, properties, *keys, *replication, event_timestamp, deliver_at, deliver_after)

    def _send(self, done: Done | None, *message: Any) -> None:
        """*message* are the arguments of :meth:`send` in order; *done* gets the outcome."""
        if self._process != forks.generation:
            forks.check_opened_here(self._process, "producer")
        is_waited_for = type(done) is Outcome
        try:
            error = self._enqueue(outgoing(self._settings.schema, self._timeout, done, *message), is_waited_for)
        except Interrupted:
            raise
        except KeyboardInterrupt:
            raise interrupted(self, "send" if is_waited_for else "send_async") from None
        if error is not None:
            answer(done, error, None)

    def _enqueue(self, message: Outgoing, is_flush: bool) -> PulsarSparkError | None:
        """Queue a message, whole or in chunks; return the refusal."""
        quota, now = self._quota, time.monotonic()
        if now >= quota.known_until:
            refused = quota.refusal(self._timeout, lambda: self._is_closed)
            if refused is not None:
                return refused
        partition = self._routing.partition(message)
        if message.deliver_at_ms is not None and (refused := self._refused_delay(message)) is not None:
            return refused
        payload, settings = message.payload, self._settings
        is_as_given = not settings.chunking_enabled and settings.encoder is AS_IT_IS
        if not is_as_given or payload is not None and len(payload) > quota.max_message_size:
            return self._enqueue_pieces(partition, message, is_flush)
        with self._lock:
            if self._is_closed or self._pending >= self._limit:
                error, now = self._await_places(1), time.monotonic()
                if error is not None:
                    return error
            self._put(partition, message, is_flush, now)
        return None

    def _refused_delay(self, message: Outgoing) -> NotAllowedError | None:
        waits_ms, most_ms = (message.deliver_at_ms or 0) - message.publish_ms, self._quota.max_delay_ms
        if not most_ms or waits_ms <= most_ms:
            return None
        return NotAllowedError(
            f"a delay of {shown_seconds(waits_ms / 1000)} is above the maximum of {most_ms} ms of "
            f"{self._topic_name!r}: deliver it earlier, or raise the maximum "
            "(set-delayed-delivery --max-delay)"
        )

    def _enqueue_pieces(self, partition: int, message: Outgoing, is_flush: bool) -> PulsarSparkError | None:
        """:meth:`_enqueue` an encoded message, or one that may be too large for one piece."""
        try:
            if self._settings.encoder is not AS_IT_IS and message.payload is not None:
                payload, columns = self._settings.encoder.encode(bytes(message.payload))
                message = message._replace(payload=payload, columns=columns)
            pieces = pieces_of(message, self._name, self._settings, self._quota.max_message_size)
        except (MessageTooBig, InvalidMessage, CryptoError) as refused:
            return refused
        with self._lock:
            if self._is_closed or self._pending + len(pieces) > self._limit:
                error = self._await_places(len(pieces))
                if error is not None:
                    return error
            if len(pieces) == 1:
                self._put(partition, message, is_flush, time.monotonic())
                return None
            if message.sequence_id < 0:
                message = message.numbered(next(self._sequence_ids))
            outcome = ChunkedSend(message.done, len(pieces))
            chunks = chunks_of(message, f"{self._name}-{message.sequence_id}", pieces)
            error = self._put_chunks(partition, chunks, outcome)
        if error is not None:
            outcome(error, None)
        return None

    def _await_places(self, count: int) -> PulsarSparkError | None:
        """Wait for room in the queue, for one place if blocking; return the refusal. Requires the condition."""
        limit, since = self._limit, interrupts.count()
        if self._settings.block_if_queue_full:
            count = 1
        while limit > 0 and self._pending + count > limit and not self._is_closed:
            if not self._settings.block_if_queue_full:
                return ProducerQueueIsFull(
                    f"producer {self._name!r} has {self._pending} of at most {limit} messages and chunks "
                    f"pending, and needs {count} more: wait, set block_if_queue_full or raise max_pending_messages"
                )
            self._close_batches()
            self._condition.notify_all()
            interrupts.pause(self._condition.wait, None, since)
        return AlreadyClosed(f"producer {self._name!r} is closed") if self._is_closed else None

    def _put_chunks(self, partition: int, chunks: list[Outgoing], whole: ChunkedSend) -> PulsarSparkError | None:
        """Queue chunks, each in its own place (1.6); return the error that ends it early."""
        for number, chunk in enumerate(chunks):
            try:
                error = self._await_places(1) if number else None
            except KeyboardInterrupt:
                whole.give_up()
                raise
            if error is not None or whole.error is not None:
                return error
            chunk = chunk._replace(done=whole, deadline=time.monotonic() + self._timeout)
            self._pending += 1
            self._sent += 1
            self._publisher.put([Entry(partition, [chunk], whole)])
        self._condition.notify_all()
        return None

    def _put(self, partition: int, message: Outgoing, is_flush: bool, now: float) -> None:
        if message.sequence_id < 0:
            message = message.numbered(next(self._sequence_ids))
        self._pending += 1
        self._sent += 1
        closed = self._batches.add(partition, message, is_flush, now)
        if closed and self._publisher.put(closed) or self._batches.is_waiting:
            self._condition.notify_all()

    def _close_batches(self) -> None:
        self._publisher.put(self._batches.close())
