"""Making producers: the client's ``create_producer``."""

from collections.abc import Callable
from contextlib import ExitStack

from pulsar_spark.client.access import LOOK_SECONDS, Access
from pulsar_spark.client.arguments import check_type, public_call
from pulsar_spark.client.enums import (
    BatchingType,
    CompressionType,
    PartitionsRoutingMode,
    ProducerAccessMode,
    ProducerCryptoFailureAction,
)
from pulsar_spark.client.message import Message
from pulsar_spark.client.producer import Producer
from pulsar_spark.client.producer_settings import ProducerSettings, check_producer_settings
from pulsar_spark.link import interrupts
from pulsar_spark.payloads.keys import CryptoKeyReader
from pulsar_spark.protocol.routing import HashingScheme
from pulsar_spark.schema import BytesSchema, Schema


class Producing:
    """The part of :class:`~pulsar_spark.client.client.Client` that makes producers."""

    def create_producer(
        self,
        topic: str,
        producer_name: str | None = None,
        schema: Schema = BytesSchema(),
        initial_sequence_id: int | None = None,
        send_timeout_millis: int = 30000,
        compression_type: CompressionType = CompressionType.NONE,
        max_pending_messages: int = 1000,
        max_pending_messages_across_partitions: int = 50000,
        block_if_queue_full: bool = False,
        batching_enabled: bool = False,
        batching_max_messages: int = 1000,
        batching_max_allowed_size_in_bytes: int = 128 * 1024,
        batching_max_publish_delay_ms: int = 10,
        chunking_enabled: bool = False,
        message_routing_mode: PartitionsRoutingMode = PartitionsRoutingMode.RoundRobinDistribution,
        lazy_start_partitioned_producers: bool = False,
        properties: dict[str, str] | None = None,
        batching_type: BatchingType = BatchingType.Default,
        encryption_key: str | list[str] | None = None,
        crypto_key_reader: CryptoKeyReader | None = None,
        access_mode: ProducerAccessMode = ProducerAccessMode.Shared,
        message_router: Callable[[Message, int], int] | None = None,
        hashing_scheme: HashingScheme = HashingScheme.BoostHash,
        chunk_max_message_size: int = -1,
        crypto_failure_action: ProducerCryptoFailureAction = ProducerCryptoFailureAction.FAIL,
    ) -> Producer:
        """A producer on *topic*, which is created if it is missing.

        - ``producer_name``: made up where none is given. ``properties``: texts by texts, of the producer.
        - ``schema``: turns values into payloads.
        - ``initial_sequence_id``: the number before the first message's own.
        - ``send_timeout_millis``: how long a message may wait to be published; 0 for ever.
        - ``compression_type``: of payloads.
        - ``max_pending_messages``: how many messages may wait, of each partition, and
          ``max_pending_messages_across_partitions``, of all; more are refused, or, with ``block_if_queue_full``, waited
          for.
        - ``batching_enabled``: messages share an entry, at most ``batching_max_messages`` of them and
          ``batching_max_allowed_size_in_bytes``, for at most ``batching_max_publish_delay_ms``; by key with a
          ``batching_type`` KeyBased. It excludes ``chunking_enabled``.
        - ``message_routing_mode``: how messages without a key go to partitions; ``message_router(message, partitions)``
          says it for all of them. ``hashing_scheme`` chooses the hash of partition keys.
        - ``lazy_start_partitioned_producers``: nothing is started for a partition anyway.

        With ``chunking_enabled`` a message above the topic's maximum message size is sent in chunks, of at most
        ``chunk_max_message_size`` bytes where that is given; otherwise it is refused with :class:`MessageTooBig`.
        ``encryption_key`` is the name of a public key, or a list of them, that ``crypto_key_reader`` has; a message
        that cannot be encrypted is refused with :class:`CryptoError`, or sent as it is with a ``crypto_failure_action``
        SEND.

        What *schema* says of itself the topic keeps, and each message says its version; :class:`IncompatibleSchema`
        where it does not fit those that the topic keeps, as the policy ``schema_compatibility_strategy`` says.

        ``access_mode`` Exclusive has the topic for this producer alone, or raises :class:`ProducerFenced` where another
        producer has; WaitForExclusive waits for that one to leave; ExclusiveWithFencing takes the topic from it. Then
        Shared producers are refused with :class:`ProducerBusy`, and what those send that were there before fails with
        :class:`ProducerFenced`. It is a whole topic that is had so.
        """
        check_type(str, topic, "topic")
        settings = check_producer_settings(
            producer_name=producer_name,
            schema=schema,
            initial_sequence_id=initial_sequence_id,
            send_timeout_millis=send_timeout_millis,
            compression_type=compression_type,
            max_pending_messages=max_pending_messages,
            max_pending_messages_across_partitions=max_pending_messages_across_partitions,
            block_if_queue_full=block_if_queue_full,
            batching_enabled=batching_enabled,
            batching_max_messages=batching_max_messages,
            batching_max_allowed_size_in_bytes=batching_max_allowed_size_in_bytes,
            batching_max_publish_delay_ms=batching_max_publish_delay_ms,
            chunking_enabled=chunking_enabled,
            message_routing_mode=message_routing_mode,
            lazy_start_partitioned_producers=lazy_start_partitioned_producers,
            properties=properties,
            batching_type=batching_type,
            access_mode=access_mode,
            message_router=message_router,
            hashing_scheme=hashing_scheme,
            chunk_max_message_size=chunk_max_message_size,
            encryption_key=encryption_key,
            crypto_key_reader=crypto_key_reader,
            crypto_failure_action=crypto_failure_action,
        )
        return self._create_producer(topic, settings)

    @public_call
    def _create_producer(self, topic: str, settings: ProducerSettings) -> Producer:
        """A step of its own as that of ``subscribe`` is: callers ask the code of a call for its arguments."""
        return self._produce(ProducerOpening(self, topic, settings))

    def _produce(self, opening: "ProducerOpening") -> Producer:
        """Wait until there is a producer."""
        sleep = interrupts.sleeper()
        with ExitStack() as undone:
            undone.callback(opening.give_up)
            while (producer := opening.attempt()) is None:
                sleep(LOOK_SECONDS)
            undone.pop_all()
        return producer


class ProducerOpening:
    """A producer of a client on its way to its *topic*, which others may have to leave first."""

    def __init__(self, client, topic: str, settings: ProducerSettings):
        self._client, self._settings = client, settings
        self._topic, self._partitions, self._name = client._resolve(topic)
        self._schema_version = client._schemas.version_for_producer(self._topic, settings.schema)
        self._access = Access(self._topic, self._partitions, settings)

    def attempt(self) -> Producer | None:
        """The producer; None where it has to wait (``WaitForExclusive``), and does. Who is refused, and who fails,
        leaves nothing behind that others would wait for."""
        with ExitStack() as undone:
            undone.callback(self.give_up)
            self._client._check_open()
            is_there = self._access.enter()
            made = (self._topic, self._partitions, self._settings, self._access, self._schema_version)
            producer = Producer(self._client, self._name, *made) if is_there else None
            undone.pop_all()
        return producer and self._client._keep(producer, producer._shutdown)

    def give_up(self) -> None:
        """Wait no more."""
        self._access.let_go()
