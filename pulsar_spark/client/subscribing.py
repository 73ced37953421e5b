"""``Client.subscribe``: its options checked, its topics found or made, and the consumer that comes of them.

Options that mean nothing for a folder (statistics caches, replication) are accepted with any value of their type.
"""

import re
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

from pulsar_spark.client.arguments import check_type, public_call
from pulsar_spark.client.consumer import Consumer
from pulsar_spark.client.consumer_settings import ConsumerSettings, check_consumer_settings
from pulsar_spark.client.enums import ConsumerCryptoFailureAction, ConsumerType, InitialPosition, RegexSubscriptionMode
from pulsar_spark.client.following import Following, for_each
from pulsar_spark.client.letters import check_letter_topics, letter_topics
from pulsar_spark.client.message import Message
from pulsar_spark.client.policies import ConsumerBatchReceivePolicy, ConsumerDeadLetterPolicy, ConsumerKeySharedPolicy
from pulsar_spark.client.schemas import TopicSchemas
from pulsar_spark.errors import (
    IncompatibleSchema,
    InvalidConfiguration,
    OperationNotSupported,
    PulsarSparkError,
    Timeout,
    TopicNotFound,
)
from pulsar_spark.payloads.keys import CryptoKeyReader
from pulsar_spark.protocol.redelivery import MultiplierRedeliveryBackoff
from pulsar_spark.protocol.topic_pattern import TopicPattern
from pulsar_spark.schema import BytesSchema, Schema
from pulsar_spark.storage.layout import Layout
from pulsar_spark.storage.topics import Topic, read_topic


class Subscribing:
    """The part of :class:`~pulsar_spark.client.client.Client` that makes consumers."""

    _layout: Layout
    _following: Following
    _client_id: str
    _schemas: TopicSchemas
    _consumer_numbers: Iterator[int]
    _check_open: Callable[[], None]
    _resolve: Callable[[str], tuple[Topic, list[int], str]]
    _keep: Callable[[Consumer, Callable[[], None]], Consumer]

    def subscribe(
        self,
        topic: str | list[str] | re.Pattern[str],
        subscription_name: str,
        consumer_type: ConsumerType = ConsumerType.Exclusive,
        schema: Schema = BytesSchema(),
        message_listener: Callable[[Consumer, Message], Any] | None = None,
        receiver_queue_size: int = 1000,
        max_total_receiver_queue_size_across_partitions: int = 50000,
        consumer_name: str | None = None,
        unacked_messages_timeout_ms: int | None = None,
        broker_consumer_stats_cache_time_ms: int = 30000,
        negative_ack_redelivery_delay_ms: int = 60000,
        is_read_compacted: bool = False,
        properties: dict[str, str] | None = None,
        pattern_auto_discovery_period: int = 60,
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
        retry_enable: bool = False,
        priority_level: int = 0,
        negative_ack_redelivery_backoff: MultiplierRedeliveryBackoff | None = None,
        ack_timeout_redelivery_backoff: MultiplierRedeliveryBackoff | None = None,
        ack_group_time_ms: int = 100,
        max_ack_group_size: int = 1000,
        ack_receipt_enabled: bool = False,
        expire_time_of_incomplete_chunked_message_ms: int = 60_000,
    ) -> Consumer:
        """A consumer of a subscription on a topic or a list of topics, which are created if missing, or on all topics
        that a pattern fits (``re.compile("tenant/namespace/...")``, matched against the whole name).

        Every ``pattern_auto_discovery_period`` seconds it is looked for topics that fit and are new; their messages
        come from the first on. ``regex_subscription_mode`` NonPersistentOnly is refused: there are no such topics.

        A message that cannot be decrypted, with the private keys that ``crypto_key_reader`` has, is not delivered and
        stays unacknowledged (``crypto_failure_action`` FAIL: ``receive`` raises :class:`CryptoError` once, which says
        its ``message_id``), is acknowledged unseen (DISCARD), or comes as it is stored (CONSUME: see
        ``Message.encryption_context``). One that cannot be decompressed is a :class:`DecompressionError` likewise.

        - ``topic``: a name, a list of names or a pattern; ``subscription_name``: joined, or made where it is missing.
        - ``consumer_type``: Exclusive, Shared, Failover or KeyShared. ``consumer_name``: made up where none is given.
        - ``schema``: turns payloads into values.
        - ``message_listener(consumer, message)``: is called with each message, from a thread of its own.
        - ``initial_position``: where a subscription that is made begins. ``start_message_id_inclusive``: seek goes to
          the message and not behind it.
        - ``negative_ack_redelivery_delay_ms``: when what is given back comes again.
        - ``unacked_messages_timeout_ms``: when what is not acknowledged does; 0 for never.
        - ``dead_letter_policy``: what becomes of messages that came too often.
        - ``batch_receive_policy``: when ``batch_receive`` returns.
        - ``batch_index_ack_enabled``: single messages of a batch are acknowledged, which is on here and off in the
          package.
        - ``properties``: texts by texts, of the consumer, shown in statistics.
        - ``is_read_compacted``: of what was compacted (``pulsar-spark compact``) the latest message of each key, and
          what was published since; on Exclusive and Failover. What compaction left out is acknowledged as it is passed
          over, but for deletions behind what the subscription has received: they come, so that a cache hears of them.
        - ``replicate_subscription_state_enabled``,
          ``broker_consumer_stats_cache_time_ms``: mean nothing for a folder.

        What comes after ``crypto_failure_action`` are options of Pulsar's Java client. With ``retry_enable`` the
        subscription's retry letter topic is received from too. ``priority_level``: who gets messages first on Shared
        and Failover, 0 before 1. ``negative_ack_redelivery_backoff`` and ``ack_timeout_redelivery_backoff``: delays
        that grow with the redelivery count. Acknowledgements wait ``ack_group_time_ms`` for others, or for
        ``max_ack_group_size`` of them; with ``ack_receipt_enabled`` the call waits for the broker's commit.

        A ``receiver_queue_size`` of 1,000, the default, or more is a floor: the queue grows with what is taken,
        up to half of ``max_total_receiver_queue_size_across_partitions``, and what waits in it of no use is given back
        within seconds, uncounted, so that others get it. A smaller one stays as it is.

        On Key_Shared, consumers that are connected at a time agree on mode and order (``key_shared_policy``): one that
        asks for others is refused with :class:`SubscriptionBusy`, one whose sticky ranges others have with
        :class:`ConsumerAssignError`.

        A chunked message comes when its last chunk is there, in the place of that one. When more than
        ``max_pending_chunked_message`` are begun and not complete, the oldest is withheld from this consumer, or
        acknowledged with ``auto_ack_oldest_chunked_message_on_queue_full``; one that is not complete after
        ``expire_time_of_incomplete_chunked_message_ms`` is acknowledged. 0 is no limit.

        A *schema* that cannot read what the topic's schema writes is refused with :class:`IncompatibleSchema`; a topic
        without one, and without messages, keeps it.
        """
        self._check_open()
        for name, value in (
            ("broker_consumer_stats_cache_time_ms", broker_consumer_stats_cache_time_ms),
            ("pattern_auto_discovery_period", pattern_auto_discovery_period),
        ):
            check_type(int, value, name)
        check_type(bool, replicate_subscription_state_enabled, "replicate_subscription_state_enabled")
        check_type(RegexSubscriptionMode, regex_subscription_mode, "regex_subscription_mode")
        settings = check_consumer_settings(
            subscription_name=subscription_name,
            consumer_type=consumer_type,
            schema=schema,
            message_listener=message_listener,
            receiver_queue_size=receiver_queue_size,
            max_total_receiver_queue_size_across_partitions=max_total_receiver_queue_size_across_partitions,
            consumer_name=consumer_name,
            unacked_messages_timeout_ms=unacked_messages_timeout_ms,
            negative_ack_redelivery_delay_ms=negative_ack_redelivery_delay_ms,
            properties=properties,
            initial_position=initial_position,
            start_message_id_inclusive=start_message_id_inclusive,
            batch_receive_policy=batch_receive_policy,
            key_shared_policy=key_shared_policy,
            batch_index_ack_enabled=batch_index_ack_enabled,
            dead_letter_policy=dead_letter_policy,
            retry_enable=retry_enable,
            priority_level=priority_level,
            negative_ack_redelivery_backoff=negative_ack_redelivery_backoff,
            ack_timeout_redelivery_backoff=ack_timeout_redelivery_backoff,
            ack_group_time_ms=ack_group_time_ms,
            max_ack_group_size=max_ack_group_size,
            ack_receipt_enabled=ack_receipt_enabled,
            crypto_key_reader=crypto_key_reader,
            crypto_failure_action=crypto_failure_action,
            max_pending_chunked_message=max_pending_chunked_message,
            auto_ack_oldest_chunked_message_on_queue_full=auto_ack_oldest_chunked_message_on_queue_full,
            expire_time_of_incomplete_chunked_message_ms=expire_time_of_incomplete_chunked_message_ms,
            is_read_compacted=is_read_compacted,
        )
        return self._subscribe(topic, settings, regex_subscription_mode, pattern_auto_discovery_period)

    @public_call
    def _subscribe(
        self,
        topic: str | list[str] | re.Pattern[str],
        settings: ConsumerSettings,
        mode: RegexSubscriptionMode,
        period: int,
    ) -> Consumer:
        """What :meth:`subscribe` does once its options are checked. It is a step of its own because callers ask the
        code of ``subscribe`` for its arguments, to know which options of Java's client are there."""
        if not isinstance(topic, re.Pattern):
            return self._join(_topic_names(topic), settings)
        if isinstance(topic.pattern, bytes):
            raise ValueError("argument topic: a pattern of a text expected, not of bytes")
        if mode is RegexSubscriptionMode.NonPersistentOnly:
            raise OperationNotSupported(
                "regex_subscription_mode NonPersistentOnly: there are no non-persistent topics here, a topic is a table"
            )
        if period <= 0:
            raise ValueError(f"argument pattern_auto_discovery_period: {period} is not above 0")
        return self._join_fitting(TopicPattern(topic), settings, period)

    def _join_fitting(self, pattern: TopicPattern, settings: ConsumerSettings, period: float) -> Consumer:
        """A connected consumer of all topics the pattern fits, now and, looked for every *period* seconds, later."""
        if settings.retry_enable:
            raise InvalidConfiguration(
                f"topic pattern {str(pattern)!r}: with retry_enable topics are named, as their retry letter topic is"
            )
        settings.queue_size(2)  # refuses the size 0: however many topics fit now, there may be more
        consumer = self._join([], settings, pattern)
        known = {subscription.topic.topic_id for subscription in consumer._subscriptions}

        def is_new(topic: Topic) -> bool:
            try:
                return topic.topic_id not in known and not self._schemas.check_consumer(topic, settings.schema)
            except IncompatibleSchema as refused:
                self._logger.warning("topic %s, which fits %s, is not consumed: %s", topic.name, pattern, refused)
                return False

        def join(found: list[Topic]) -> None:
            added = [(topic, list(topic.partition_indexes)) for topic in found]
            consumer._add(added)
            consumer._follow_partitions(added)
            known.update(topic.topic_id for topic in found)

        def look() -> None:
            found = list(filter(is_new, self._fitting(pattern)))
            try:
                if found:
                    join(found)
            except Timeout:
                raise
            except PulsarSparkError:  # one of them refuses the consumer, which does not concern the others
                for_each([[topic] for topic in found], join)

        consumer._follow(look, period)
        return consumer

    def _fitting(self, pattern: TopicPattern) -> list[Topic]:
        """The topics that a pattern fits, of which none is made."""
        found = []
        for name in pattern.fitting(self._layout.topics(*pattern.namespace)):
            with suppress(TopicNotFound):  # deleted meanwhile
                found.append(read_topic(self._layout, name))
        return found

    def _join(self, names: list[str], settings: ConsumerSettings, pattern: TopicPattern | None = None) -> Consumer:
        """A connected consumer of the topics of these *names* and of those a *pattern* fits, and of the retry letter
        topic where it is asked for."""
        if pattern is not None:
            self._check_open()
            fitting = self._fitting(pattern)
            names = [str(topic.name) for topic in fitting]
        if settings.dead_letter_policy is not None:
            check_letter_topics(
                self._layout,
                names,
                settings.subscription_name,
                settings.dead_letter_policy,
                retry_enable=settings.retry_enable,
            )
        if pattern is None:
            resolved = {name: (found, partitions) for found, partitions, name in map(self._resolve, names)}
            topic_name = ",".join(resolved)
        else:
            resolved = {str(found.name): (found, list(found.partition_indexes)) for found in fitting}
            topic_name = str(pattern)
        letters = None
        for found, _ in resolved.values():
            self._schemas.check_consumer(found, settings.schema)
        settings.schema.attach_client(self)
        if settings.retry_enable:
            letters = letter_topics(
                self._layout,
                [str(found.name) for found, _ in resolved.values()],
                settings.subscription_name,
                settings.dead_letter_policy,
                retry_enable=True,
            )
            found, partitions, name = self._resolve(letters.retry)
            resolved[name] = found, partitions
        consumer_id = f"{self._client_id}-c{next(self._consumer_numbers)}"
        consumer = Consumer(
            self,
            list(resolved.values()),
            topic_name,
            consumer_id,
            settings,
            letters,
            follows_pattern=pattern is not None,
        )
        self._keep(consumer, consumer._leave)
        self._connect(consumer)
        return consumer

    def _connect(self, consumer: Consumer) -> None:
        """Wait until the broker knows the consumer."""
        consumer._connect()


def _topic_names(topic: str | list[str]) -> list[str]:
    """The topics that are meant; ValueError, or an error that says why, for what names none."""
    names = [topic] if isinstance(topic, str) else topic
    if not isinstance(names, list):
        raise ValueError(f"argument topic: str, list or pattern expected, not {type(topic).__name__}")
    if not names:
        raise InvalidConfiguration("an empty list of topics: give at least one")
    return names
