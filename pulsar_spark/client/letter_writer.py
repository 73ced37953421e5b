"""Letters a consumer writes itself: copies of messages it wants to see later, or not any more.

Rule: ConsumerImpl.doReconsumeLater (semantics 4.22-4.25, 4.29): the copy has value, key, ordering key, event time and properties of the original, and says
where it comes from. It goes to the retry letter topic, to be delivered after the delay; a message that was put off as often as the policy allows goes to
the dead letter topic instead, at once. The producers are made when first needed, and so is the dead letter topic's initial subscription. Dead letters by
redelivery count are the broker's.
"""
import threading
import time
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from pulsar_spark.client.message import Message
from pulsar_spark.client.policies import ConsumerDeadLetterPolicy
from pulsar_spark.client.producer import Producer
from pulsar_spark.errors import NotAllowedError
from pulsar_spark.protocol import letters
from pulsar_spark.protocol.topic_name import parse_topic_name


class LetterTopics(NamedTuple):
    """Full names of a subscription's letter topics, and when a message is dead."""

    retry: str
    dead: str
    max_redeliver_count: int
    initial_subscription_name: str


def letter_topics(topics: Iterable[str], subscription: str, policy: ConsumerDeadLetterPolicy) -> LetterTopics:
    """Those of a subscription of *topics* (full names): as the policy says, else named after the first topic in sorted order (4.22)."""
    first = min(topics)
    return LetterTopics(str(parse_topic_name(policy.retry_letter_topic or letters.retry_letter_topic(first, subscription))),
                        str(parse_topic_name(policy.dead_letter_topic or letters.dead_letter_topic(first, subscription))),
                        policy.max_redeliver_count, policy.initial_subscription_name)


class LetterWriter:
    """One per consumer with retry letters. Safe for threads."""

    def __init__(self, client, topics: LetterTopics, subscription: str, consumer_name: str):
        self._client = client
        self._topics = topics
        self._subscription = subscription
        self._consumer_name = consumer_name
        self._lock = threading.Lock()
        self._producers: dict[str, Producer] = {}

    def write(self, message: Message, topic: str, delay_ms: int, custom: Mapping[str, str] | None) -> None:
        """Publish the letter of *message*, which was received from *topic*, and wait until it is there."""
        message_id = str(message.message_id())
        properties = letters.retry_letter_properties(message.properties(), topic=topic, subscription=self._subscription, message_id=message_id,
                                                     delay_ms=delay_ms, custom=custom)
        attempts = letters.reconsume_times(properties)
        deliver_at = time.time_ns() // 1_000_000 + delay_ms if delay_ms > 0 else None
        target = self._topics.retry
        if attempts > self._topics.max_redeliver_count:
            target, deliver_at = self._topics.dead, None
            properties = letters.dead_letter_properties(properties, topic=topic, subscription=self._subscription, message_id=message_id,
                                                        cause=letters.CAUSE_RECONSUMED, attempts=attempts)
        self._producer(target).send(
            None if message.has_null_value() else message.data(), properties=properties, partition_key=message.partition_key() or None,
            ordering_key=message.ordering_key() or None, event_timestamp=message.event_timestamp() or None, deliver_at=deliver_at)

    def _producer(self, topic: str) -> Producer:
        with self._lock:
            if topic not in self._producers:
                is_dead = topic == self._topics.dead
                suffix = letters.DEAD_LETTER_SUFFIX if is_dead else letters.RETRY_SUFFIX
                if is_dead and self._topics.initial_subscription_name:
                    self._create_initial_subscription(topic)
                name = f"{topic.removesuffix(suffix)}-{self._consumer_name}{suffix}"
                self._producers[topic] = self._client.create_producer(topic, name, block_if_queue_full=True)
            return self._producers[topic]

    def _create_initial_subscription(self, topic: str) -> None:
        channel = self._client._channel
        found, partitions, _ = self._client._resolve(topic)
        rows = [channel.make("create_subscription", topic=str(found.name), partition=partition, subscription=self._topics.initial_subscription_name,
                             properties={"initial_position": "Earliest"}) for partition in partitions]
        for reply in channel.ask(rows, self._client._timeout):
            if reply.error is not None and not isinstance(reply.error, NotAllowedError):
                raise reply.error

    def close(self) -> None:
        """Close the producers; nothing of theirs is pending, since every letter is waited for."""
        with self._lock:
            producers, self._producers = list(self._producers.values()), {}
        for producer in producers:
            producer.close()
