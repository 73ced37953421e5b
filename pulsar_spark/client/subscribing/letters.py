"""Letters requested by a consumer: copies of messages that it puts off.

Rule: ConsumerImpl.doReconsumeLater (semantics 4.22-4.25, 4.29). The broker acknowledges and writes the copy in one
commit (0.27).
"""

import contextlib
from collections.abc import Iterable, Mapping
from functools import partial
from typing import NamedTuple

from pulsar_spark.client.model.message import Message
from pulsar_spark.client.model.policies import ConsumerDeadLetterPolicy
from pulsar_spark.errors import TopicNotFound
from pulsar_spark.protocol.redelivery import letters
from pulsar_spark.protocol.redelivery.letters import ReconsumeLater
from pulsar_spark.protocol.subscriptions.failover import java_order
from pulsar_spark.protocol.topics.topic_name import parse_topic_name
from pulsar_spark.storage.clock import now_micros
from pulsar_spark.storage.layout import Layout
from pulsar_spark.storage.topics.topics import check_letter_topic, read_topic

NAME_RETRY_TOPIC = "Name one with the policy's retry_letter_topic, or use shorter names"
LONGEST_DELAY_MS = letters.LATEST_MS // 2


class LetterTopics(NamedTuple):
    """Full names of a subscription's letter topics, and when a message is dead."""

    retry: str
    dead: str
    max_redeliver_count: int
    initial_subscription_name: str


def letter_topics(
    layout: Layout, topics: Iterable[str], subscription: str, policy: ConsumerDeadLetterPolicy, *, retry_enable: bool
) -> LetterTopics:
    """The letter topics of a subscription of *topics* (full names): from the policy, else named after the first in
    Java's order. With *retry_enable* a topic named as before Pulsar 2.8 is used if it exists (4.22)."""
    first = min(topics, key=java_order)
    retry, dead = (
        str(parse_topic_name(named))
        if named
        else (retry_enable and _named_as_before(layout, first, subscription, suffix)) or default(first, subscription)
        for named, default, suffix in (
            (policy.retry_letter_topic, letters.retry_letter_topic, letters.RETRY_SUFFIX),
            (policy.dead_letter_topic, letters.dead_letter_topic, letters.DEAD_LETTER_SUFFIX),
        )
    )
    return LetterTopics(retry, dead, policy.max_redeliver_count, policy.initial_subscription_name)


def _named_as_before(layout: Layout, topic: str, subscription: str, suffix: str) -> str | None:
    """The partitioned topic ``<namespace>/<subscription><suffix>``, if it exists."""
    name = parse_topic_name(topic)._replace(local_name=f"{subscription}{suffix}")
    with contextlib.suppress(TopicNotFound):  # also while it is created or deleted
        return str(name) if read_topic(layout, name).partitions else None
    return None


def check_letter_topics(
    layout: Layout, topics: Iterable[str], subscription: str, policy: ConsumerDeadLetterPolicy, *, retry_enable: bool
) -> None:
    """:class:`InvalidTopicName` if a letter topic of the subscription cannot exist; called before any change."""
    names = [str(parse_topic_name(topic).partitioned_topic) for topic in topics]
    check = partial(check_letter_topic, layout, subscription=subscription)
    if retry_enable:
        names = [min(names, key=java_order)]
        retry = policy.retry_letter_topic or letters.retry_letter_topic(names[0], subscription)
        check(retry, what="retry letter topic", remedy=NAME_RETRY_TOPIC)
    derived = [letters.dead_letter_topic(name, subscription) for name in names]
    for name in [policy.dead_letter_topic] if policy.dead_letter_topic else derived:
        check(name, what="dead letter topic", remedy=letters.NAME_DEAD_LETTER_TOPIC)


class Letters(NamedTuple):
    """Makes one consumer's letters."""

    topics: LetterTopics
    subscription: str
    consumer_name: str

    def of(
        self, message: Message, topic: str, delay_ms: int, custom: Mapping[str, str] | None, *, is_cumulative: bool
    ) -> ReconsumeLater:
        """The letter of *message*, received from *topic* (without a partition)."""
        message_id = str(message.message_id())
        believed = letters.believed_properties(
            message.properties(), topic, message.producer_name(), message.sequence_id(), retry=self.topics.retry
        )
        properties = letters.retry_letter_properties(
            believed,
            topic=topic,
            subscription=self.subscription,
            message_id=message_id,
            delay_ms=delay_ms,
            custom=custom,
        )
        attempts = letters.reconsume_times(properties)
        is_dead = letters.is_too_often(attempts, self.topics.max_redeliver_count)
        if is_dead:
            properties = letters.dead_letter_properties(
                properties,
                topic=topic,
                subscription=self.subscription,
                message_id=message_id,
                cause=letters.CAUSE_RECONSUMED,
                attempts=attempts,
            )
        target, suffix = (
            (self.topics.dead, letters.DEAD_LETTER_SUFFIX) if is_dead else (self.topics.retry, letters.RETRY_SUFFIX)
        )
        batch_index = message.message_id().batch_index()
        return ReconsumeLater(
            target,
            properties,
            is_dead,
            is_cumulative,
            batch_index if batch_index >= 0 else None,
            deliver_at_ms=now_micros() // 1000 + delay_ms if delay_ms > 0 and not is_dead else None,
            producer_name=f"{target.removesuffix(suffix)}-{self.consumer_name}{suffix}",
            initial_subscription_name=self.topics.initial_subscription_name or None if is_dead else None,
        )
