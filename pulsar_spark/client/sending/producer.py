"""Producer: sends messages to a topic, from any number of threads."""

import itertools
import threading
import time
from collections.abc import Callable
from typing import Any

from pulsar_spark.client.arguments import public_call
from pulsar_spark.client.model.enums import BatchingType
from pulsar_spark.client.sending.access import Access
from pulsar_spark.client.sending.deduplication import Deduplication
from pulsar_spark.client.sending.message_routing import MessageRouting
from pulsar_spark.client.sending.open_batches import OpenBatches
from pulsar_spark.client.sending.producer_settings import ProducerSettings
from pulsar_spark.client.sending.publish_rows import Outgoing
from pulsar_spark.client.sending.publisher import Publisher
from pulsar_spark.client.sending.sending import Sending
from pulsar_spark.client.subscribing.following import PARTITIONS_SECONDS
from pulsar_spark.described import Described
from pulsar_spark.errors import AlreadyClosed, Timeout
from pulsar_spark.link import interrupts
from pulsar_spark.link.quota import BacklogQuota
from pulsar_spark.storage.topics.exclusive import RENEW_SECONDS
from pulsar_spark.storage.topics.partitions import PartitionWatch
from pulsar_spark.storage.topics.producers import STAY_SECONDS
from pulsar_spark.storage.topics.topics import Topic


class Producer(Described, Sending):
    """Publishes to one topic; made by ``Client.create_producer``."""

    def __init__(
        self,
        client: Any,
        topic_name: str,
        topic: Topic,
        partitions: list[int],
        settings: ProducerSettings,
        access: Access,
        schema_version: int | None,
    ):
        self._client, self._process = client, client._process
        self._topic_name, self._settings, self._name = topic_name, settings, settings.producer_name
        self._lock = threading.RLock()  # taken per message: a condition's own __enter__ is slower
        self._condition = threading.Condition(self._lock)
        self._is_closed, self._limit = False, settings.pending_limit(len(partitions))
        self._pending = self._sent = self._answered = 0
        self._flush_callbacks: list[Callable[[], None]] = []
        self._timeout = settings.send_timeout_millis / 1000 if settings.send_timeout_millis > 0 else float("inf")
        self._routing = MessageRouting(settings, partitions, topic_name)
        self._quota = BacklogQuota(client._layout, topic)
        is_interleaved = settings.batching_enabled and settings.batching_type is BatchingType.KeyBased
        deduplication = Deduplication(topic, self._name, self._quota, is_interleaved=is_interleaved)
        first = settings.initial_sequence_id
        if first is None or first == -1:
            first = -1 if (highest := deduplication.highest(partitions)) is None else highest
        self._sequence_ids = itertools.count(first + 1)
        self._last_sequence_id, self._has_partitions = first, len(partitions) > 1
        self._batches = OpenBatches(settings, partitions, self._quota.max_message_size)
        self._access = access
        self._publisher = Publisher(
            topic,
            self._name,
            deduplication,
            schema_version,
            self._condition,
            check=access.claim.check,
            due=self._batches.due,
            settled=self._settle,
            answered=self._answer,
            logger=client._logger,
        )
        if access.is_alone:
            client._claims.add(access.claim.renew, RENEW_SECONDS)
        if access.needs_renewal:
            client._claims.add(access.renew, STAY_SECONDS)
        if topic.partitions and len(partitions) == topic.partitions and topic.name.partition_index < 0:
            self._partition_watch = PartitionWatch(topic)
            client._following.add(self._grow, PARTITIONS_SECONDS)
        self._log("opened")

    def _log(self, what: str) -> None:
        self._client._logger.debug("%s: producer %r %s", self._topic_name, self._name, what)

    def _facts(self) -> dict[str, object]:
        return {
            "topic": self._topic_name,
            "producer_name": self._name,
            "state": "closed" if self._is_closed else "open",
            "pending": self._pending,
            "last_sequence_id": self._last_sequence_id,
        }

    def topic(self) -> str:
        """The full name of the topic, with the partition if the producer was created for one."""
        return self._topic_name

    def producer_name(self) -> str:
        """The given name, or the generated one."""
        return self._name

    def last_sequence_id(self) -> int:
        """The highest sequence id that the producer has published.

        Before the first message: the initial id, or with deduplication the highest stored id of this producer name,
        else -1.
        """
        return self._last_sequence_id

    def partition_for_key(self, partition_key: str) -> int:
        """The partition for messages with this *partition_key*; -1 if the topic has no partitions. A message router is
        not called."""
        return self._routing.partition_for_key(partition_key)

    def is_connected(self) -> bool:
        """Whether the producer is open. It needs no broker."""
        return not self._is_closed

    @public_call
    def flush(self) -> None:
        """Publish all pending messages, including open batches, and wait until they are stored; :class:`Timeout` after
        the send timeout."""
        with self._condition:
            wanted = self._begin_flush()
            since, deadline = interrupts.count(), time.monotonic() + self._timeout
            while self._answered < wanted and not self._is_closed and time.monotonic() < deadline:
                interrupts.pause(self._condition.wait, min(deadline - time.monotonic(), threading.TIMEOUT_MAX), since)
            if self._answered < wanted and not self._is_closed:
                raise Timeout(f"producer {self._name!r}: not everything was published within the send timeout")

    def _begin_flush(self) -> int:
        """Return the number of answered messages to wait for."""
        with self._condition:
            if self._is_closed:
                raise AlreadyClosed(f"producer {self._name!r} is closed")
            self._close_batches()
            self._condition.notify_all()
            return self._sent

    def _when_answered(self, wanted: int, done: Callable[[], None]) -> bool:
        """Call *done* in the publisher's thread when more messages are answered; False, without a call, if *wanted*
        are."""
        with self._condition:
            if self._answered >= wanted or self._is_closed:
                return False
            self._flush_callbacks.append(done)
            return True

    @public_call
    def close(self) -> None:
        """Publish pending messages, then close. A second call raises :class:`AlreadyClosed`."""
        with self._condition:
            self._begin_flush()
            self._is_closed = True
        self._publisher.stop(min(self._timeout, threading.TIMEOUT_MAX))
        self._leave_topic()
        self._client._forget(self)

    def _grow(self) -> None:
        topic = self._partition_watch.added()
        if topic is None:
            return
        partitions = list(topic.partition_indexes)
        with self._condition:
            if self._is_closed:
                return
            self._publisher.grow(topic)
            self._batches.grow(partitions)
            self._limit = self._settings.pending_limit(len(partitions))
            self._routing.grow(partitions)
            self._has_partitions = len(partitions) > 1
            self._access.grow(partitions)  # a disk may refuse this

    def _leave_topic(self) -> None:
        self._client._following.remove(self._grow)
        self._client._claims.remove(self._access.claim.renew)
        self._client._claims.remove(self._access.renew)
        self._access.leave()
        self._log("closed")

    def _shutdown(self) -> None:
        """Close at once: messages not being written fail with ``AlreadyClosed``."""
        with self._condition:
            self._close_batches()
            self._is_closed = True
        self._publisher.abandon()
        self._leave_topic()

    def _settle(self, messages: list[Outgoing], is_published: bool) -> None:
        self._log(f"{'published' if is_published else 'did not publish'} {len(messages)} messages")
        with self._condition:
            self._pending -= len(messages)
            if is_published:
                last = messages[-1].sequence_id
                self._last_sequence_id = max(self._last_sequence_id, last) if self._has_partitions else last
            self._condition.notify_all()

    def _answer(self, count: int) -> None:
        with self._condition:
            self._answered += count
            self._condition.notify_all()
            callbacks, self._flush_callbacks = self._flush_callbacks, []
        for done in callbacks:
            done()
