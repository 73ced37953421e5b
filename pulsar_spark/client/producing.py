"""Making producers: the client's ``create_producer``."""

from collections.abc import Callable
from contextlib import ExitStack

from pulsar_spark.client.access import admitted
from pulsar_spark.client.arguments import check_type, public_call
from pulsar_spark.client.enums import (
    BatchingType,
    CompressionType,
    PartitionsRoutingMode,
    ProducerAccessMode,
    ProducerCryptoFailureAction,
)
from pulsar_spark.client.producer import Producer
from pulsar_spark.client.producer_settings import check_producer_settings
from pulsar_spark.client.schemas import TopicSchemas
from pulsar_spark.protocol.routing import HashingScheme
from pulsar_spark.schema import BytesSchema
from pulsar_spark.storage.topics import Topic


class Producing:
    """The part of :class:`~pulsar_spark.client.client.Client` that makes producers."""

    _schemas: TopicSchemas
    _check_open: Callable[[], None]
    _resolve: Callable[[str], tuple[Topic, list[int], str]]
    _keep: Callable[[Producer, Callable[[], None]], Producer]

    @public_call
    def create_producer(
        self,
        topic,
        producer_name=None,
        schema=BytesSchema(),
        initial_sequence_id=None,
        send_timeout_millis=30000,
        compression_type=CompressionType.NONE,
        max_pending_messages=1000,
        max_pending_messages_across_partitions=50000,
        block_if_queue_full=False,
        batching_enabled=False,
        batching_max_messages=1000,
        batching_max_allowed_size_in_bytes=128 * 1024,
        batching_max_publish_delay_ms=10,
        chunking_enabled=False,
        message_routing_mode=PartitionsRoutingMode.RoundRobinDistribution,
        lazy_start_partitioned_producers=False,
        properties=None,
        batching_type=BatchingType.Default,
        encryption_key=None,
        crypto_key_reader=None,
        access_mode=ProducerAccessMode.Shared,
        message_router=None,
        hashing_scheme=HashingScheme.BoostHash,
        chunk_max_message_size=-1,
        crypto_failure_action=ProducerCryptoFailureAction.FAIL,
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
        found, partitions, name = self._resolve(topic)
        schema_version = self._schemas.version_for_producer(found, schema)
        access = admitted(found, partitions, settings, self._check_open)
        with ExitStack() as undone:
            undone.callback(access.let_go)
            producer = Producer(self, name, found, partitions, settings, access, schema_version)
            undone.pop_all()
        return self._keep(producer, producer._shutdown)
