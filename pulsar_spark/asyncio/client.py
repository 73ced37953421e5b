"""The entry point: ``pulsar_spark.Client`` for an event loop."""

import asyncio
import re
from collections.abc import Callable
from contextlib import ExitStack, suppress
from functools import partial
from typing import Any

from pulsar_spark.asyncio.consumer import Consumer
from pulsar_spark.asyncio.futures import Files, raises_exceptions
from pulsar_spark.asyncio.producer import Producer
from pulsar_spark.asyncio.reader import Reader
from pulsar_spark.client import client as blocking
from pulsar_spark.client.arguments import check_type
from pulsar_spark.client.model.enums import (
    BatchingType,
    CompressionType,
    ConsumerCryptoFailureAction,
    ConsumerType,
    InitialPosition,
    PartitionsRoutingMode,
    ProducerAccessMode,
    RegexSubscriptionMode,
)
from pulsar_spark.client.model.policies import (
    ConsumerBatchReceivePolicy,
    ConsumerDeadLetterPolicy,
    ConsumerKeySharedPolicy,
)
from pulsar_spark.client.sending import producer as blocking_producer
from pulsar_spark.client.sending.access import LOOK_SECONDS
from pulsar_spark.client.sending.producing import ProducerOpening
from pulsar_spark.described import Described
from pulsar_spark.errors import AlreadyClosed, InvalidTopicName
from pulsar_spark.payloads.keys import CryptoKeyReader
from pulsar_spark.protocol.topics.message_id import MessageId
from pulsar_spark.schema import BytesSchema, Schema


class _Opener(blocking.Client):
    """Leaves waiting for a broker or a free topic to the awaiting caller."""

    def _produce(self, opening: ProducerOpening) -> ProducerOpening:
        return opening

    def _connect(self, consumer) -> None:
        pass


class Client(Described):
    """A connection to the topics of one root; arguments as for ``pulsar_spark.Client``."""

    def __init__(self, service_url: str, **kwargs: Any):
        self._client, self._files = _Opener(service_url, **kwargs), Files()
        self._is_shut_down = False

    def _facts(self) -> dict[str, object]:
        return self._client._facts()

    @raises_exceptions
    async def create_producer(
        self,
        topic: str,
        producer_name: str | None = None,
        schema: Schema | None = None,
        initial_sequence_id: int | None = None,
        send_timeout_millis: int = 30000,
        compression_type: CompressionType = CompressionType.NONE,
        max_pending_messages: int = 1000,
        max_pending_messages_across_partitions: int = 50000,
        block_if_queue_full: bool = False,
        batching_enabled: bool = True,
        batching_max_messages: int = 1000,
        batching_max_allowed_size_in_bytes: int = 128 * 1024,
        batching_max_publish_delay_ms: int = 10,
        chunking_enabled: bool = False,
        message_routing_mode: PartitionsRoutingMode = PartitionsRoutingMode.RoundRobinDistribution,
        lazy_start_partitioned_producers: bool = False,
        properties: dict | None = None,
        batching_type: BatchingType = BatchingType.Default,
        encryption_key: str | list[str] | None = None,
        crypto_key_reader: CryptoKeyReader | None = None,
        access_mode: ProducerAccessMode = ProducerAccessMode.Shared,
        message_router: Callable | None = None,
    ) -> Producer:
        """Create a producer on *topic*; arguments as for ``pulsar_spark.Client.create_producer``, but
        ``batching_enabled`` is True by default, as in ``pulsar.asyncio``."""
        making = partial(self._client.create_producer, **_by_name(locals()))
        opening = await self._made(ProducerOpening.give_up, making)
        return Producer(await self._produced(opening), self._files)

    async def _produced(self, opening: ProducerOpening) -> blocking_producer.Producer:
        def release(producer: blocking_producer.Producer | None) -> None:
            opening.give_up() if producer is None else producer.close()

        while (producer := await self._made(release, _attempt, opening)) is None:
            try:
                await asyncio.sleep(LOOK_SECONDS)
            except asyncio.CancelledError:
                self._files.submit(opening.give_up)
                raise
        return producer

    @raises_exceptions
    async def subscribe(
        self,
        topic: str | list[str],
        subscription_name: str,
        consumer_type: ConsumerType = ConsumerType.Exclusive,
        schema: Schema | None = None,
        receiver_queue_size: int = 1000,
        max_total_receiver_queue_size_across_partitions: int = 50000,
        consumer_name: str | None = None,
        unacked_messages_timeout_ms: int | None = None,
        broker_consumer_stats_cache_time_ms: int = 30000,
        negative_ack_redelivery_delay_ms: int = 60000,
        is_read_compacted: bool = False,
        properties: dict | None = None,
        initial_position: InitialPosition = InitialPosition.Latest,
        crypto_key_reader: CryptoKeyReader | None = None,
        replicate_subscription_state_enabled: bool = False,
        max_pending_chunked_message: int = 10,
        auto_ack_oldest_chunked_message_on_queue_full: bool = False,
        start_message_id_inclusive: bool = False,
        batch_receive_policy: ConsumerBatchReceivePolicy | None = None,
        key_shared_policy: ConsumerKeySharedPolicy | None = None,
        batch_index_ack_enabled: bool = True,
        regex_subscription_mode: RegexSubscriptionMode = RegexSubscriptionMode.PersistentOnly,
        dead_letter_policy: ConsumerDeadLetterPolicy | None = None,
        crypto_failure_action: ConsumerCryptoFailureAction = ConsumerCryptoFailureAction.FAIL,
        is_pattern_topic: bool = False,
    ) -> Consumer:
        """Create a consumer; arguments as for ``pulsar_spark.Client.subscribe``. With ``is_pattern_topic``, *topic* is
        a regular expression that topics must match."""
        given = _by_name(locals())
        check_type(str | list, topic, "topic")
        if given.pop("is_pattern_topic"):
            if isinstance(topic, list):
                raise ValueError("argument topic: a text expected, not a list, where is_pattern_topic is True")
            given["topic"] = _pattern_of(topic)
        consumer = await self._made(
            lambda consumer: consumer._membership.leave(), partial(self._client.subscribe, **given)
        )
        awaited = Consumer(consumer, self._files)
        await awaited._connect()
        return awaited

    @raises_exceptions
    async def create_reader(
        self,
        topic: str,
        start_message_id: MessageId,
        schema: Schema | None = None,
        receiver_queue_size: int = 1000,
        reader_name: str | None = None,
        subscription_role_prefix: str | None = None,
        is_read_compacted: bool = False,
        crypto_key_reader: CryptoKeyReader | None = None,
        start_message_id_inclusive: bool = False,
        crypto_failure_action: ConsumerCryptoFailureAction = ConsumerCryptoFailureAction.FAIL,
    ) -> Reader:
        """Create a reader; arguments as for ``pulsar_spark.Client.create_reader``."""
        making = partial(self._client.create_reader, **_by_name(locals()))
        return Reader(await self._made(lambda reader: reader.close(), making), self._files)

    @raises_exceptions
    async def get_topic_partitions(self, topic: str) -> list[str]:
        """The names of the partitions of *topic*; its own name if it has no partitions or does not exist."""
        return await self._run(self._client.get_topic_partitions, topic)

    @raises_exceptions
    async def close(self) -> None:
        """Close all producers, consumers and readers, then the client. Pending messages are published and pending
        acknowledgements sent."""
        if self._is_shut_down:
            return
        await self._run(self._client.close)
        self._files.end()

    def shutdown(self) -> None:
        """Close at once: pending sends fail. A later ``close`` does nothing."""
        self._is_shut_down = True
        self._client.shutdown()
        self._files.end()

    async def _made(self, release: Callable, function: Callable, *args):
        """The result of *function*; if the call is cancelled, *release* is called with it."""
        self._client._check_open()
        making = self._files.submit(function, *args)

        def is_made(making: asyncio.Future) -> None:
            if not making.cancelled() and making.exception() is None:
                with suppress(AlreadyClosed):  # closed with the client meanwhile
                    self._files.submit(release, making.result())

        try:
            return await asyncio.shield(making)
        except asyncio.CancelledError:
            making.add_done_callback(is_made)
            raise

    async def _run(self, function: Callable, *args):
        self._client._check_open()
        return await self._files.submit(function, *args)


def _by_name(given: dict[str, Any]) -> dict[str, Any]:
    """A method's ``locals()``, for the blocking client's method."""
    schema = BytesSchema() if given["schema"] is None else given["schema"]
    return {name: value for name, value in given.items() if name != "self"} | {"schema": schema}


def _pattern_of(topic: str) -> re.Pattern[str]:
    try:
        return re.compile(topic)
    except re.error as wrong:
        raise InvalidTopicName(f"topic pattern {topic!r} is not a regular expression: {wrong}") from wrong


def _attempt(opening: ProducerOpening) -> blocking_producer.Producer | None:
    """Its producer knows its backlog quota, so that first sends need not wait."""
    producer = opening.attempt()
    if producer is not None:
        with ExitStack() as undone:
            undone.callback(producer.close)
            producer._quota.refusal(0.0)
            undone.pop_all()
    return producer
