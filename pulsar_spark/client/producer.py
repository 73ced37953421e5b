"""Producer: sends messages to a topic, alone or in batches, from any number of threads.

What Pulsar's client does with a broker connection is done here with commits to the topic's table (see publisher). The
queue of pending messages, routing, batching, sequence ids and timeouts keep Pulsar's rules and the ``pulsar`` package's
names. Compression is accepted and left to Parquet.
"""

import itertools
import threading
import time
import uuid

from pulsar_spark.client.arguments import public_call
from pulsar_spark.client.enums import BatchingType, Result, result_of
from pulsar_spark.client.message_routing import MessageRouting
from pulsar_spark.client.producer_settings import ProducerSettings
from pulsar_spark.client.publish_rows import Entry, Outgoing
from pulsar_spark.client.publisher import Publisher
from pulsar_spark.client.send_arguments import outgoing_fields
from pulsar_spark.errors import AlreadyClosed, MessageTooBig, ProducerQueueIsFull, PulsarSparkError, Timeout
from pulsar_spark.link import interrupts
from pulsar_spark.link.quota import BacklogQuota
from pulsar_spark.protocol.batching import BatchContainer
from pulsar_spark.protocol.message_id import MessageId
from pulsar_spark.storage.topics import Topic

_SEQUENCE_ID = Outgoing._fields.index("sequence_id")


class Producer:
    """Publishes to one topic; made by ``Client.create_producer``."""

    def __init__(self, client, topic_name: str, topic: Topic, partitions: list[int], settings: ProducerSettings):
        self._client, self._process = client, client._process
        self._topic_name = topic_name
        self._settings = settings
        self._name = settings.producer_name or f"spark-{uuid.uuid4().hex[:12]}"
        self._condition = threading.Condition()
        self._is_closed = False
        self._limit = settings.pending_limit(len(partitions))
        self._pending = 0
        self._sent = self._answered = 0
        first = -1 if settings.initial_sequence_id is None else settings.initial_sequence_id
        self._sequence_ids = itertools.count(first + 1)
        self._last_sequence_id = first
        self._timeout = settings.send_timeout_millis / 1000 if settings.send_timeout_millis > 0 else float("inf")
        self._delay = settings.batching_max_publish_delay_ms / 1000
        self._batches = (
            {partition: self._new_batches() for partition in partitions} if settings.batching_enabled else {}
        )
        self._routing = MessageRouting(settings, partitions, topic_name)
        self._quota = BacklogQuota(client._layout, topic)
        self._publisher = Publisher(topic, self._name, self._condition, self._due_batches, self._settle, self._answer)

    def _new_batches(self) -> BatchContainer[Outgoing]:
        settings = self._settings
        return BatchContainer(
            max_messages=settings.batching_max_messages,
            max_bytes=settings.batching_max_allowed_size_in_bytes,
            is_key_based=settings.batching_type is BatchingType.KeyBased,
        )

    def topic(self) -> str:
        """Full name of the topic, with the partition if one was named."""
        return self._topic_name

    def producer_name(self) -> str:
        """The name given, or the one made up."""
        return self._name

    def last_sequence_id(self) -> int:
        """The highest sequence id that was published; before the first, the initial one or -1."""
        return self._last_sequence_id

    def partition_for_key(self, partition_key: str) -> int:
        """The partition that a message with this key goes to, -1 where the topic has none; a message router of the
        application is not asked."""
        return self._routing.partition_for_key(partition_key)

    def is_connected(self) -> bool:
        """Whether the producer can send: it needs no broker."""
        return not self._is_closed

    @public_call
    def send(
        self,
        content,
        properties=None,
        partition_key=None,
        ordering_key=None,
        sequence_id=None,
        replication_clusters=None,
        disable_replication=False,
        event_timestamp=None,
        deliver_at=None,
        deliver_after=None,
    ) -> MessageId:
        """Publish and wait until the message is in the topic; its id. A batch that is open is closed by it."""
        outcome = _Outcome()
        message = outgoing_fields(
            self._settings.schema,
            self._timeout,
            outcome,
            content,
            properties,
            partition_key,
            ordering_key,
            sequence_id,
            replication_clusters,
            disable_replication,
            event_timestamp,
            deliver_at,
            deliver_after,
        )
        error = self._enqueue(message, is_flush=True)
        if error is not None:
            raise error
        return outcome.result(self._timeout)

    @public_call
    def send_async(
        self,
        content,
        callback,
        properties=None,
        partition_key=None,
        ordering_key=None,
        sequence_id=None,
        replication_clusters=None,
        disable_replication=False,
        event_timestamp=None,
        deliver_at=None,
        deliver_after=None,
    ) -> None:
        """Publish without waiting; ``callback(Result, MessageId)`` is called from the producer's thread, in the order
        of sending; with key-based batching in that of the batches, each key's in the order of sending.

        A message that is too big, a full queue and a closed producer are told to the callback too, at once; arguments
        that are wrong are raised.
        """

        def done(error: PulsarSparkError | None, message_id: MessageId | None) -> None:
            if callback is not None:
                callback(Result.Ok if error is None else result_of(error), message_id)

        try:
            message = outgoing_fields(
                self._settings.schema,
                self._timeout,
                done,
                content,
                properties,
                partition_key,
                ordering_key,
                sequence_id,
                replication_clusters,
                disable_replication,
                event_timestamp,
                deliver_at,
                deliver_after,
            )
            error = self._enqueue(message, is_flush=False)
        except MessageTooBig as too_big:
            error = too_big
        if error is not None:
            done(error, None)

    @public_call
    def flush(self) -> None:
        """Publish what is pending now, batches included, and wait for it."""
        with self._condition:
            if self._is_closed:
                raise AlreadyClosed(f"producer {self._name!r} is closed")
            self._close_batches()
            wanted = self._sent
            self._condition.notify_all()
            since, deadline = interrupts.count(), time.monotonic() + self._timeout
            while self._answered < wanted and not self._is_closed and time.monotonic() < deadline:
                interrupts.pause(self._condition.wait, min(deadline - time.monotonic(), threading.TIMEOUT_MAX), since)
            if self._answered < wanted and not self._is_closed:
                raise Timeout(f"producer {self._name!r}: not everything was published within the send timeout")

    @public_call
    def close(self) -> None:
        """Publish what is pending, then close. A second close does nothing."""
        with self._condition:
            if self._is_closed:
                return
            self._close_batches()
            self._is_closed = True
            self._condition.notify_all()
        self._publisher.stop(min(self._timeout, threading.TIMEOUT_MAX))
        self._client._forget(self)

    def _shutdown(self) -> None:
        """Close at once: what is not being written fails with ``AlreadyClosed``."""
        with self._condition:
            self._close_batches()
            self._is_closed = True
        self._publisher.abandon()

    def _enqueue(self, fields: list, is_flush: bool) -> PulsarSparkError | None:
        """Put the message into the queue; the error when it cannot be taken."""
        refused = self._quota.refusal(self._timeout, lambda: self._is_closed)
        if refused is not None:
            return refused
        partition = self._routing.partition(fields)
        limit, since = self._limit, interrupts.count()
        with self._condition:
            while limit > 0 and self._pending >= limit and not self._is_closed:
                if not self._settings.block_if_queue_full:
                    return ProducerQueueIsFull(
                        f"producer {self._name!r} has {limit} messages pending: wait for some, set "
                        "block_if_queue_full or raise "
                        "max_pending_messages"
                    )
                self._close_batches()
                self._condition.notify_all()
                interrupts.pause(self._condition.wait, None, since)
            if self._is_closed:
                return AlreadyClosed(f"producer {self._name!r} is closed")
            if fields[_SEQUENCE_ID] < 0:
                fields[_SEQUENCE_ID] = next(self._sequence_ids)
            self._pending += 1
            self._sent += 1
            self._put(partition, Outgoing._make(fields), is_flush)
        return None

    def _put(self, partition: int, message: Outgoing, is_flush: bool) -> None:
        batches = self._batches.get(partition)
        if batches is None:
            closed = [[message]]
        elif message.deliver_at_ms is not None:
            closed = [*batches.close(), [message]]
        else:
            was_open = batches.opened_at is not None
            key = message.ordering_key or message.partition_key
            closed = batches.add(message, len(message.payload or b""), key, time.monotonic())
            if is_flush:
                closed += batches.close()
            elif not was_open and not closed:
                self._condition.notify_all()
        for messages in closed:
            self._publisher.put(Entry(partition, messages))
        if closed:
            self._condition.notify_all()

    def _close_batches(self) -> None:
        for partition, batches in self._batches.items():
            for messages in batches.close():
                self._publisher.put(Entry(partition, messages))

    def _due_batches(self, now: float) -> tuple[list[Entry], float | None]:
        """The batches whose delay has passed, and when the next one's will; the publisher asks, holding the
        condition."""
        due, wake_at = [], None
        for partition, batches in self._batches.items():
            if batches.opened_at is None:
                continue
            if batches.opened_at + self._delay <= now:
                due += [Entry(partition, messages) for messages in batches.close()]
            else:
                wake_at = min(wake_at or float("inf"), batches.opened_at + self._delay)
        return due, wake_at

    def _settle(self, messages: list[Outgoing], is_published: bool) -> None:
        """Messages have left the queue."""
        with self._condition:
            self._pending -= len(messages)
            if is_published:
                self._last_sequence_id = max(self._last_sequence_id, max(message.sequence_id for message in messages))
            self._condition.notify_all()

    def _answer(self, count: int) -> None:
        """So many callbacks have returned: what ``flush`` waits for."""
        with self._condition:
            self._answered += count
            self._condition.notify_all()


class _Outcome:
    """What a blocking send waits for."""

    __slots__ = ("_event", "_error", "_message_id")

    def __init__(self):
        self._event = threading.Event()
        self._error = self._message_id = None

    def __call__(self, error: PulsarSparkError | None, message_id: MessageId | None) -> None:
        self._error, self._message_id = error, message_id
        self._event.set()

    def result(self, timeout: float) -> MessageId:
        if not interrupts.until(self._event.wait, min(timeout + 1, threading.TIMEOUT_MAX)):
            raise Timeout("the message was not published within the send timeout; it may still be")
        if self._error is not None:
            raise self._error
        return self._message_id
