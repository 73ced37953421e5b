"""Subscribes again after a broker has forgotten a consumer, and follows a topic to the broker of another bundle."""

import logging
from typing import Any

from pulsar_spark.errors import PulsarSparkError, ServiceUnitNotReady, TopicNotFound
from pulsar_spark.link.inbox import Reply
from pulsar_spark.storage.delta.scan import MAY_PASS
from pulsar_spark.storage.topics.topics import read_topic

RECONNECT_SECONDS = 1.0


class Reconnection:
    """Of one :class:`PartitionSubscription`, on its channel's thread."""

    def __init__(self, subscription: Any):
        self._subscription, self._consumer = subscription, subscription._consumer
        self._label = (
            f"subscription {self._consumer.subscription_name()!r} of {subscription.topic_name!r}, "
            f"consumer {self._consumer.consumer_name()!r}"
        )
        self._refused: type[PulsarSparkError] | None = None

    def follow_topic(self) -> None:
        """Switch to the broker of the topic's present bundle."""
        subscription, consumer = self._subscription, self._consumer
        name = str(subscription.topic.name)
        channel = consumer._channel.follow(name)
        if channel is not subscription._channel:
            consumer._channel.detach(consumer._consumer_id, name, subscription.partition)
            subscription._channel, subscription.ledgers = channel, consumer._ledgers.of(subscription.topic)
            subscription.tracker.switch_channel(channel)
            channel.attach(consumer._consumer_id, name, subscription.partition, subscription)

    def begin(self, text: str | None) -> None:
        """Subscribe again after the broker removed the consumer for the reason *text*."""
        logger = self._subscription._channel.logger
        logger.warning("%s: the broker no longer knows the consumer (%s): it subscribes again", self._label, text)
        self._ask()

    def _ask(self) -> None:
        if not self._is_over():
            self.follow_topic()
            row = self._subscription.row("subscribe", properties=self._subscription.request)
            self._subscription._channel.submit([row], replied={row["request_id"]: self._replied})

    def _replied(self, reply: Reply) -> None:
        subscription, error = self._subscription, reply.error
        if self._is_over():
            return
        if isinstance(error, TopicNotFound) or error is None and self._is_made_anew():
            subscription._channel.submit([subscription.row("close")])
            subscription.on_removed("deleted")
        elif error is None:
            self._refused = None
            subscription.connected()
            subscription._channel.logger.info("%s: subscribed again", self._label)
        else:
            if type(error) is not self._refused:
                self._refused = type(error)
                level = logging.INFO if isinstance(error, ServiceUnitNotReady) else logging.WARNING
                text = "%s: could not subscribe again, next try in a second: %s: %s"
                subscription._channel.logger.log(level, text, self._label, type(error).__name__, error)
            subscription._channel.call_later(RECONNECT_SECONDS, self._ask)

    def _is_over(self) -> bool:
        return self._consumer._receiver.is_closed or self._subscription.error is not None

    def _is_made_anew(self) -> bool:
        """Whether the topic was deleted and created again under its name; False if it cannot be read."""
        topic = self._subscription.topic
        try:
            return read_topic(self._consumer._client._layout, topic.name).topic_id != topic.topic_id
        except MAY_PASS:
            return False
