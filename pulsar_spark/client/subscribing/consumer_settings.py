"""The checked arguments of ``subscribe``, and the properties sent to the broker."""

import uuid
from collections.abc import Callable
from typing import Any, NamedTuple

from pulsar_spark.client.acks.acknowledgement_tracker import Grouping
from pulsar_spark.client.arguments import check_given, check_kept_properties, check_not_negative, check_types
from pulsar_spark.client.model.enums import ConsumerType, InitialPosition, RegexSubscriptionMode
from pulsar_spark.client.model.policies import (
    DEFAULT_BATCH_RECEIVE,
    ConsumerBatchReceivePolicy,
    ConsumerDeadLetterPolicy,
    ConsumerKeySharedPolicy,
)
from pulsar_spark.client.schema.payloads import PayloadOpener
from pulsar_spark.errors import InvalidConfiguration, named
from pulsar_spark.protocol.chunks.chunk_limits import ChunkLimits
from pulsar_spark.protocol.policies.compaction import IS_READ_COMPACTED, reads_compacted_refusal
from pulsar_spark.protocol.redelivery.letters import DEFAULT_MAX_REDELIVER_COUNT
from pulsar_spark.protocol.redelivery.redelivery import MultiplierRedeliveryBackoff
from pulsar_spark.protocol.topics.topic_name import check_own_name, check_subscription, parse_topic_name
from pulsar_spark.schema import Schema

MIN_UNACKED_TIMEOUT_MS = 10_000
DEAD_LETTER_UNACKED_TIMEOUT_MS = 30_000
"""The default timeout of a consumer with a dead letter policy (0.6)."""
_GROUPING = ("ack_group_time_ms", "max_ack_group_size", "batch_index_ack_enabled", "ack_receipt_enabled")
_CHUNK_LIMITS = (
    "max_pending_chunked_message",
    "auto_ack_oldest_chunked_message_on_queue_full",
    "expire_time_of_incomplete_chunked_message_ms",
)
"""Arguments of :class:`Grouping` and :class:`ChunkLimits`, in order."""
GROWS_FROM = 1000
"""The receiver queue size from which on a queue grows (protocol.subscriptions.permits)."""


class ConsumerSettings(NamedTuple):
    """One consumer's settings. ``unacked_timeout_ms`` 0 means no timeout."""

    subscription_name: str
    consumer_type: ConsumerType
    schema: Schema
    message_listener: Callable | None
    receiver_queue_size: int
    max_total_receiver_queue_size_across_partitions: int
    consumer_name: str
    unacked_timeout_ms: int
    negative_ack_redelivery_delay_ms: int
    properties: dict[str, str]
    initial_position: InitialPosition
    start_message_id_inclusive: bool
    batch_receive_policy: ConsumerBatchReceivePolicy
    key_shared_policy: ConsumerKeySharedPolicy | None
    dead_letter_policy: ConsumerDeadLetterPolicy | None
    retry_enable: bool
    priority_level: int
    negative_ack_redelivery_backoff: MultiplierRedeliveryBackoff | None
    ack_timeout_redelivery_backoff: MultiplierRedeliveryBackoff | None
    grouping: Grouping
    opener: PayloadOpener
    chunk_limits: ChunkLimits
    is_read_compacted: bool

    @property
    def is_single_active(self) -> bool:
        """Whether one consumer at a time receives."""
        return self.consumer_type in (ConsumerType.Exclusive, ConsumerType.Failover)

    @property
    def keeps_key_order(self) -> bool:
        """Whether messages of a key stay in order across consumers."""
        policy = self.key_shared_policy
        return self.consumer_type is ConsumerType.KeyShared and not (policy and policy.allow_out_of_order_delivery)

    def queue_size(self, partitions: int) -> int:
        """The receiver queue size per partition; InvalidConfiguration for 0 on several partitions."""
        if not self.receiver_queue_size and partitions > 1:
            raise InvalidConfiguration("receiver_queue_size=0 works on one topic without partitions only")
        share = (
            self.max_total_receiver_queue_size_across_partitions // partitions
            if partitions > 1
            else self.receiver_queue_size
        )
        return min(self.receiver_queue_size, max(1, share)) if self.receiver_queue_size else 0

    def largest_queue(self, partitions: int) -> int:
        """The size to which each partition's queue may grow; 0 for no growth. Three quarters of its share, within the
        default limit of unacknowledged messages."""
        if self.receiver_queue_size < GROWS_FROM:
            return 0
        return 3 * self.max_total_receiver_queue_size_across_partitions // 4 // partitions

    def request_properties(self, lease_ms: int) -> dict[str, str]:
        """The properties of the subscribe request; the application's own get the prefix ``property.``."""
        given = {
            "consumer_name": self.consumer_name,
            "subscription_type": self.consumer_type.name,
            "priority_level": str(self.priority_level),
            "initial_position": self.initial_position.name,
            "lease_ms": str(lease_ms),
            **self.chunk_limits.request_properties(),
            **{f"property.{name}": value for name, value in self.properties.items()},
        }
        if self.key_shared_policy is not None:
            given.update(self.key_shared_policy.request_properties())
        if self.dead_letter_policy is not None:
            given.update(self.dead_letter_policy.request_properties())
        if self.retry_enable:
            given["retry_enable"] = "true"
        if self.is_read_compacted:
            given[IS_READ_COMPACTED] = "true"
        return given


def consumer_settings(given: dict[str, Any]) -> ConsumerSettings:
    """The settings from the arguments of ``subscribe``, by name; ValueError, or :class:`InvalidConfiguration` for a
    name."""
    _check_arguments(given)
    name, subscription, policy = given["consumer_name"], given["subscription_name"], given["dead_letter_policy"]
    consumer_type, timeout_ms = given["consumer_type"], given["unacked_messages_timeout_ms"]
    if given["is_read_compacted"] and (refused := reads_compacted_refusal(consumer_type.name)):
        raise named(refused[0])(refused[1])
    check_given(check_subscription, subscription)
    if name:
        check_given(check_own_name, "consumer", name)
    if policy is not None:
        _check_letter_names(policy)
        timeout_ms = DEAD_LETTER_UNACKED_TIMEOUT_MS if timeout_ms is None else timeout_ms
    elif given["retry_enable"]:
        policy = ConsumerDeadLetterPolicy(DEFAULT_MAX_REDELIVER_COUNT)
    own: dict[str, Any] = {
        "consumer_name": name or uuid.uuid4().hex[:10],
        "unacked_timeout_ms": timeout_ms or 0,
        "properties": given["properties"] or {},
        "batch_receive_policy": given["batch_receive_policy"] or DEFAULT_BATCH_RECEIVE,
        "dead_letter_policy": policy,
        "grouping": Grouping(*(given[name] for name in _GROUPING)),
        "opener": PayloadOpener(given["crypto_key_reader"], given["crypto_failure_action"]),
        "chunk_limits": ChunkLimits(*(given[name] for name in _CHUNK_LIMITS)),
    }
    return ConsumerSettings(**{name: own[name] if name in own else given[name] for name in ConsumerSettings._fields})


def _check_arguments(given: dict[str, Any]) -> None:
    check_types(
        given,
        subscription_name=str,
        consumer_type=ConsumerType,
        schema=Schema,
        consumer_name=str | None,
        unacked_messages_timeout_ms=int | None,
        initial_position=InitialPosition,
        start_message_id_inclusive=bool,
        batch_receive_policy=ConsumerBatchReceivePolicy | None,
        key_shared_policy=ConsumerKeySharedPolicy | None,
        batch_index_ack_enabled=bool,
        dead_letter_policy=ConsumerDeadLetterPolicy | None,
        retry_enable=bool,
        negative_ack_redelivery_backoff=MultiplierRedeliveryBackoff | None,
        ack_timeout_redelivery_backoff=MultiplierRedeliveryBackoff | None,
        ack_receipt_enabled=bool,
        is_read_compacted=bool,
        max_pending_chunked_message=int,
        auto_ack_oldest_chunked_message_on_queue_full=bool,
        broker_consumer_stats_cache_time_ms=int,
        pattern_auto_discovery_period=int,
        replicate_subscription_state_enabled=bool,
        regex_subscription_mode=RegexSubscriptionMode,
    )
    check_not_negative(
        given,
        "receiver_queue_size",
        "max_total_receiver_queue_size_across_partitions",
        "negative_ack_redelivery_delay_ms",
        "priority_level",
        "ack_group_time_ms",
        "max_ack_group_size",
        "expire_time_of_incomplete_chunked_message_ms",
    )
    check_kept_properties(given["properties"])
    if given["message_listener"] is not None and not callable(given["message_listener"]):
        raise ValueError("argument message_listener: a function expected")
    timeout_ms = given["unacked_messages_timeout_ms"]
    if timeout_ms and timeout_ms < MIN_UNACKED_TIMEOUT_MS:
        raise ValueError(
            f"unacked_messages_timeout_ms {timeout_ms}: give at least {MIN_UNACKED_TIMEOUT_MS}, or 0 for no timeout"
        )


def _check_letter_names(policy: ConsumerDeadLetterPolicy) -> None:
    for name in filter(None, (policy.dead_letter_topic, policy.retry_letter_topic)):
        parse_topic_name(name)
    if policy.initial_subscription_name:
        check_given(check_subscription, policy.initial_subscription_name, "initial subscription")
