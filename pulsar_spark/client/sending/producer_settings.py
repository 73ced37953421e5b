"""The checked arguments of ``create_producer``."""

import uuid
from collections.abc import Callable
from typing import NamedTuple

from pulsar_spark.client.arguments import check_kept_properties, check_type, check_type_or_none, check_utf8
from pulsar_spark.client.model.enums import BatchingType, PartitionsRoutingMode, ProducerAccessMode
from pulsar_spark.client.schema.payloads import AS_IT_IS, payload_encoder
from pulsar_spark.payloads.encoding import PayloadEncoder
from pulsar_spark.protocol.topics.routing import HashingScheme
from pulsar_spark.schema import Schema


class ProducerSettings(NamedTuple):
    """One producer's settings."""

    schema: Schema
    producer_name: str
    initial_sequence_id: int | None
    send_timeout_millis: int
    max_pending_messages: int
    max_pending_messages_across_partitions: int
    block_if_queue_full: bool
    batching_enabled: bool
    batching_max_messages: int
    batching_max_allowed_size_in_bytes: int
    batching_max_publish_delay_ms: int
    batching_type: BatchingType
    message_routing_mode: PartitionsRoutingMode
    message_router: Callable | None
    hashing_scheme: HashingScheme
    chunking_enabled: bool = False
    chunk_max_message_size: int = -1
    encoder: PayloadEncoder = AS_IT_IS
    access_mode: ProducerAccessMode = ProducerAccessMode.Shared

    def pending_limit(self, partitions: int) -> int:
        """How many messages may be pending on this many partitions; 0 means no limit."""
        if self.max_pending_messages_across_partitions and partitions > 1:
            return min(self.max_pending_messages * partitions, self.max_pending_messages_across_partitions)
        return self.max_pending_messages


def check_producer_settings(
    *,
    producer_name,
    schema,
    initial_sequence_id,
    send_timeout_millis,
    compression_type,
    max_pending_messages,
    max_pending_messages_across_partitions,
    block_if_queue_full,
    batching_enabled,
    batching_max_messages,
    batching_max_allowed_size_in_bytes,
    batching_max_publish_delay_ms,
    chunking_enabled,
    message_routing_mode,
    lazy_start_partitioned_producers,
    properties,
    batching_type,
    access_mode,
    message_router,
    hashing_scheme,
    chunk_max_message_size,
    encryption_key,
    crypto_key_reader,
    crypto_failure_action,
) -> ProducerSettings:
    """Check and collect the settings; ValueError for a wrong type, number or text, :class:`CryptoError` for a missing
    public key.
    """
    check_type_or_none(str, producer_name, "producer_name")
    check_utf8(producer_name or "", "producer_name")
    check_type(Schema, schema, "schema")
    check_type_or_none(int, initial_sequence_id, "initial_sequence_id")
    for name, value in (
        ("send_timeout_millis", send_timeout_millis),
        ("max_pending_messages", max_pending_messages),
        ("max_pending_messages_across_partitions", max_pending_messages_across_partitions),
        ("batching_max_messages", batching_max_messages),
        ("batching_max_allowed_size_in_bytes", batching_max_allowed_size_in_bytes),
        ("batching_max_publish_delay_ms", batching_max_publish_delay_ms),
    ):
        check_type(int, value, name)
        if value < 0:
            raise ValueError(f"argument {name}: {value} is below 0")
    for name, value in (
        ("block_if_queue_full", block_if_queue_full),
        ("batching_enabled", batching_enabled),
        ("chunking_enabled", chunking_enabled),
        ("lazy_start_partitioned_producers", lazy_start_partitioned_producers),
    ):
        check_type(bool, value, name)
    check_type(PartitionsRoutingMode, message_routing_mode, "message_routing_mode")
    check_type(BatchingType, batching_type, "batching_type")
    check_type(ProducerAccessMode, access_mode, "access_mode")
    check_type(HashingScheme, hashing_scheme, "hashing_scheme")
    check_kept_properties(properties)
    if message_router is not None and not callable(message_router):
        raise ValueError("argument message_router: a function of a message and the number of partitions expected")
    if message_routing_mode is PartitionsRoutingMode.CustomPartition and message_router is None:
        raise ValueError("argument message_router: message_routing_mode CustomPartition needs one")
    if batching_enabled and chunking_enabled:
        raise ValueError("batching_enabled and chunking_enabled exclude each other")
    check_type(int, chunk_max_message_size, "chunk_max_message_size")
    if chunk_max_message_size == 0 or chunk_max_message_size < -1:
        raise ValueError(f"argument chunk_max_message_size: {chunk_max_message_size} is neither above 0 nor -1")
    return ProducerSettings(
        schema,
        producer_name or f"spark-{uuid.uuid4().hex[:12]}",
        initial_sequence_id,
        send_timeout_millis,
        max_pending_messages,
        max_pending_messages_across_partitions,
        block_if_queue_full,
        batching_enabled,
        batching_max_messages,
        batching_max_allowed_size_in_bytes,
        batching_max_publish_delay_ms,
        batching_type,
        message_routing_mode,
        message_router,
        hashing_scheme,
        chunking_enabled,
        chunk_max_message_size,
        payload_encoder(compression_type, encryption_key, crypto_key_reader, crypto_failure_action),
        access_mode,
    )
