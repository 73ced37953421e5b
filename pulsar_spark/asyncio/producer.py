"""A producer whose sends are awaited.

Messages are published in the order of the calls.
"""

import asyncio
import functools
import time
from datetime import timedelta
from typing import Any

from pulsar_spark.asyncio.futures import Files, answered, raises_exceptions
from pulsar_spark.client.schema.payloads import AS_IT_IS
from pulsar_spark.client.sending import producer as blocking
from pulsar_spark.client.sending.send_arguments import outgoing
from pulsar_spark.client.sending.send_outcomes import Answered
from pulsar_spark.described import Described
from pulsar_spark.errors import ProducerBlockedQuotaExceededError, PulsarSparkError, Timeout
from pulsar_spark.protocol.topics.message_id import MessageId

_HELD_SECONDS = 0.05


class _Sent(Answered):
    __slots__ = ("_future",)

    def __init__(self, future: asyncio.Future):
        self._future = future

    def __call__(self, error: PulsarSparkError | None, message_id: MessageId | None) -> None:
        answered(self._future, message_id, error)


class Producer(Described):
    """Publishes to one topic; made by ``Client.create_producer``."""

    def __init__(self, producer: blocking.Producer, files: Files):
        self._producer, self._files = producer, files
        self._turn = asyncio.Lock()
        settings = producer._settings
        self._needs_thread = settings.chunking_enabled or settings.encoder is not AS_IT_IS

    def _facts(self) -> dict[str, object]:
        return self._producer._facts()

    @raises_exceptions
    async def send(
        self,
        content: Any,
        properties: dict | None = None,
        partition_key: str | None = None,
        ordering_key: str | None = None,
        sequence_id: int | None = None,
        replication_clusters: list[str] | None = None,
        disable_replication: bool | None = None,
        event_timestamp: int | None = None,
        deliver_at: int | None = None,
        deliver_after: timedelta | None = None,
    ) -> MessageId:
        """Publish a message, wait until it is stored, and return its id.

        - ``content``: the value that the producer's schema encodes; None for a null value.
        - ``properties``: a dict of texts.
        - ``partition_key``: determines the partition; ``ordering_key``: the consumer of a Key_Shared subscription.
        - ``sequence_id``: the application's number of the message.
        - ``event_timestamp``: the event time in ms since 1970.
        - ``deliver_at`` (ms since 1970) or ``deliver_after``: the message is delivered no earlier.
        - ``replication_clusters``, ``disable_replication``: without effect.
        """
        producer, future = self._producer, asyncio.get_running_loop().create_future()
        where = producer._settings.schema, producer._timeout, _Sent(future)
        keys = partition_key, ordering_key, sequence_id
        replication = replication_clusters, False if disable_replication is None else disable_replication
        times = event_timestamp, deliver_at, deliver_after
        message = outgoing(*where, content, properties, *keys, *replication, *times)
        async with self._turn:
            await self._until_allowed()
            if self._needs_thread:
                error = await self._files.submit(producer._enqueue, message, False)
            else:
                await self._until_room()
                error = producer._enqueue(message, is_flush=False)
        if error is not None:
            raise error
        return await future

    async def _until_allowed(self) -> None:
        """Raise the refusal of the backlog quota, if it does not end."""
        producer, deadline = self._producer, time.monotonic() + self._producer._timeout
        while time.monotonic() >= producer._quota.known_until:
            refused = await self._files.submit(producer._quota.refusal, 0.0, lambda: producer._is_closed)
            if refused is None:
                return
            if not isinstance(refused, ProducerBlockedQuotaExceededError) or time.monotonic() > deadline:
                raise refused
            await asyncio.sleep(_HELD_SECONDS)

    async def _until_room(self) -> None:
        producer, limit = self._producer, self._producer._limit
        while producer._settings.block_if_queue_full and 0 < limit <= producer._pending and not producer._is_closed:
            await self._some_answered(producer._begin_flush(), None)

    async def _some_answered(self, wanted: int, timeout: float | None) -> bool:
        """Wait until more messages are answered; False if *wanted* are answered already."""
        loop = asyncio.get_running_loop()
        future = loop.create_future()
        if not self._producer._when_answered(wanted, functools.partial(answered, future, None, None)):
            return False
        await asyncio.wait_for(future, timeout)
        return True

    @raises_exceptions
    async def flush(self) -> None:
        """Publish all pending messages, including open batches and waiting calls, and wait until they are stored."""
        async with self._turn:
            wanted, deadline = self._producer._begin_flush(), time.monotonic() + self._producer._timeout
        try:
            while await self._some_answered(wanted, min(deadline - time.monotonic(), 1e6)):
                pass
        except TimeoutError:
            raise Timeout(
                f"producer {self.producer_name()!r}: not everything was published within the send timeout"
            ) from None

    @raises_exceptions
    async def close(self) -> None:
        """Publish pending messages, then close, even if they were not published in time. A second call raises
        ``AlreadyClosed``."""
        try:
            await self.flush()
        finally:
            if self.is_connected():
                await self._files.submit(self._producer.close)

    def topic(self) -> str:
        """The full name of the topic, with the partition if the producer was created for one."""
        return self._producer.topic()

    def producer_name(self) -> str:
        """The given name, or the generated one."""
        return self._producer.producer_name()

    def last_sequence_id(self) -> int:
        """The highest published sequence id; before the first message the initial one, or -1."""
        return self._producer.last_sequence_id()

    def is_connected(self) -> bool:
        """Whether the producer is open. It needs no broker."""
        return self._producer.is_connected()
