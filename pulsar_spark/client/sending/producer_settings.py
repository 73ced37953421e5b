"""The checked arguments of ``create_producer``."""

import uuid
from collections.abc import Callable
from typing import Any, NamedTuple

from pulsar_spark.client.arguments import check_kept_properties, check_not_negative, check_types, check_utf8
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


def producer_settings(given: dict[str, Any]) -> ProducerSettings:
    """The settings from the arguments of ``create_producer``, by name; ValueError for a wrong type, number or text,
    :class:`CryptoError` for a missing public key."""
    check_types(
        given,
        producer_name=str | None,
        schema=Schema,
        initial_sequence_id=int | None,
        block_if_queue_full=bool,
        batching_enabled=bool,
        chunking_enabled=bool,
        lazy_start_partitioned_producers=bool,
        message_routing_mode=PartitionsRoutingMode,
        batching_type=BatchingType,
        access_mode=ProducerAccessMode,
        hashing_scheme=HashingScheme,
        chunk_max_message_size=int,
    )
    check_not_negative(
        given,
        "send_timeout_millis",
        "max_pending_messages",
        "max_pending_messages_across_partitions",
        "batching_max_messages",
        "batching_max_allowed_size_in_bytes",
        "batching_max_publish_delay_ms",
    )
    check_utf8(given["producer_name"] or "", "producer_name")
    check_kept_properties(given["properties"])
    router = given["message_router"]
    if router is not None and not callable(router):
        raise ValueError("argument message_router: a function of a message and the number of partitions expected")
    if given["message_routing_mode"] is PartitionsRoutingMode.CustomPartition and router is None:
        raise ValueError("argument message_router: message_routing_mode CustomPartition needs one")
    if given["batching_enabled"] and given["chunking_enabled"]:
        raise ValueError("batching_enabled and chunking_enabled exclude each other")
    size = given["chunk_max_message_size"]
    if size == 0 or size < -1:
        raise ValueError(f"argument chunk_max_message_size: {size} is neither above 0 nor -1")
    encoding = ("compression_type", "encryption_key", "crypto_key_reader", "crypto_failure_action")
    own: dict[str, Any] = {
        "producer_name": given["producer_name"] or f"spark-{uuid.uuid4().hex[:12]}",
        "encoder": payload_encoder(*(given[name] for name in encoding)),
    }
    return ProducerSettings(**{name: own[name] if name in own else given[name] for name in ProducerSettings._fields})
