"""The topic partitions that a consumer joins, gains, loses and leaves."""

import threading
from collections.abc import Callable
from typing import Any

from pulsar_spark.client.acks.unacked import UNACKED_TICK
from pulsar_spark.client.model.enums import InitialPosition
from pulsar_spark.client.receiving.places import Places
from pulsar_spark.client.receiving.receiver import Receiver
from pulsar_spark.client.subscribing.consumer_settings import ConsumerSettings
from pulsar_spark.client.subscribing.following import PARTITIONS_SECONDS, for_each
from pulsar_spark.client.subscribing.subscription import PartitionSubscription
from pulsar_spark.errors import AlreadyClosed, InvalidConfiguration, PulsarSparkError
from pulsar_spark.link.channels import Channels
from pulsar_spark.link.inbox import Reply
from pulsar_spark.storage.topics.partitions import PartitionWatch
from pulsar_spark.storage.topics.topics import Topic


class Membership:
    """*request* are the properties of the requests to join. A consumer that *follows_pattern* may have no partition."""

    def __init__(
        self,
        consumer: Any,
        topics: list[tuple[Topic, list[int]]],
        request: dict[str, str],
        receiver: Receiver,
        settings: ConsumerSettings,
        *,
        follows_pattern: bool,
    ):
        self._consumer, self._client = consumer, consumer._client
        self._channel: Channels = consumer._channel
        self._consumer_id: str = consumer._consumer_id
        self._topics, self._request, self._follows_pattern = topics, request, follows_pattern
        self._receiver, self._settings = receiver, settings
        self._changing = threading.Lock()
        self._follows: list[Callable[[], None]] = []
        self.subscriptions = self._make(topics)
        partitions = {(each.topic.topic_id, each.partition) for each in self.subscriptions}
        if len(partitions) < len(self.subscriptions):
            raise InvalidConfiguration(f"topics {consumer.topic()!r} contain a partition twice")
        if not settings.receiver_queue_size and self.subscriptions:
            receiver.without_queue = self.subscriptions[0]
        self.places = Places(self.subscriptions, consumer.topic(), self._client._timeout)

    def _make(self, topics: list[tuple[Topic, list[int]]], others: int = 0) -> list[PartitionSubscription]:
        """Make one per partition; *others* share the queue."""
        settings = self._settings
        partitions = [(topic, partition) for topic, indexes in topics for partition in indexes]
        count = max(1, others + len(partitions))
        return [
            PartitionSubscription(
                self._consumer,
                topic,
                partition,
                settings.queue_size(count),
                settings.largest_queue(count),
                self._request,
                settings,
            )
            for topic, partition in partitions
        ]

    def follow(self, look: Callable[[], None], seconds: float) -> None:
        """Let the client call *look* every *seconds*, to find new topics or partitions."""
        self._follows.append(look)
        self._client._following.add(look, seconds)

    def follow_partitions(self, topics: list[tuple[Topic, list[int]]]) -> None:
        """Receive from added partitions of these topics, if all partitions are consumed."""
        watches = {
            topic.topic_id: PartitionWatch(topic)
            for topic, indexes in topics
            if topic.partitions and len(indexes) == topic.partitions
        }
        waiting: dict[str, Topic] = {}

        def look() -> None:
            for gone in watches.keys() - {each.topic.topic_id for each in self.subscriptions}:
                del watches[gone]
                waiting.pop(gone, None)
            if not watches:
                self._follows.remove(look)
                self._client._following.remove(look)
            found = [added for watch in watches.values() if (added := watch.added()) is not None]
            waiting.update({topic.topic_id: topic for topic in found})
            for_each(list(waiting.values()), join)

        def join(topic: Topic) -> None:
            known = {each.partition for each in self.subscriptions if each.topic.topic_id == topic.topic_id}
            self.add([(topic, [index for index in topic.partition_indexes if index not in known])])
            del waiting[topic.topic_id]

        if watches:
            self.follow(look, PARTITIONS_SECONDS)

    def add(self, topics: list[tuple[Topic, list[int]]]) -> None:
        """Join the subscription on new partitions, from their first message; all or none."""
        self._request = {**self._request, "initial_position": InitialPosition.Earliest.name}
        added = self._make(topics, len(self.subscriptions))
        rows = self._attach(added)
        try:
            replies = self._channel.ask(rows, self._client._timeout)
        except PulsarSparkError:
            self._give_up(added)
            raise
        errors = [reply.error for reply in replies if reply.error is not None]
        if errors or self._receiver.is_closed:
            self._give_up(added)
            if errors:
                raise errors[0]
            return
        with self._changing:
            added = [each for each in added if each.error is None]  # without those lost meanwhile
            self.places.add(added)
            self.subscriptions = self.subscriptions + added
        for subscription in added:
            subscription.joined()
        self._channel.logger.info(
            "%s: consumer %r reads %d new partitions", self._receiver.name, self._settings.consumer_name, len(added)
        )

    def lose(self, subscription: PartitionSubscription, error: PulsarSparkError) -> None:
        """Continue without a lost topic partition. The last one closes the consumer, unless it has a pattern."""
        with self._changing:
            subscription.end(error)
            self.subscriptions = [each for each in self.subscriptions if each is not subscription]
            self.places.remove(subscription)
        self._detach([subscription])
        self._consumer._forget_unacked(subscription)
        topic = subscription.topic
        if any(each.topic.topic_id == topic.topic_id for each in self.subscriptions):
            return
        if self.subscriptions or self._follows_pattern:
            self._channel.logger.warning("%s: %s: the consumer continues without it", self._receiver.name, error)
            return
        if topic.partitions or len(self._topics) > 1:
            error = AlreadyClosed(f"{error}; the consumer of {self._consumer.topic()!r} has no partition left")
        self._channel.logger.error("%s: the consumer is closed: %s", self._receiver.name, error)
        self._receiver.fail(error)

    def connect(self) -> None:
        """Join the subscription on every partition, or on none."""
        rows = self.attach()
        try:
            replies = self._channel.ask(rows, self._client._timeout)
        except PulsarSparkError:
            self.leave()
            raise
        self.joined(replies)

    def attach(self) -> list[dict]:
        """Attach to the channel; return the requests to join."""
        return self._attach(self.subscriptions)

    def _attach(self, subscriptions: list[PartitionSubscription]) -> list[dict]:
        for each in subscriptions:
            self._channel.attach(self._consumer_id, str(each.topic.name), each.partition, each)
        return [each.row("subscribe", properties=each.request) for each in subscriptions]

    def joined(self, replies: list[Reply]) -> None:
        """Start receiving, or raise a refusal."""
        errors = [reply.error for reply in replies if reply.error is not None]
        if errors:
            self.leave()
            self._channel.logger.error("%s: refused: %s: %s", self._receiver.name, type(errors[0]).__name__, errors[0])
            raise errors[0]
        self._channel.logger.info("%s: consumer %r subscribed", self._receiver.name, self._settings.consumer_name)
        for subscription in self.subscriptions:
            subscription.joined()
        self.follow_partitions(self._topics)
        if self._consumer._unacked is not None:
            self._channel.call_later(UNACKED_TICK, self._consumer._redeliver_expired)
        if self._consumer._listener is not None:
            self._consumer._listener.start()

    def leave(self) -> None:
        self.finish()
        self._give_up(self.subscriptions)

    def _give_up(self, subscriptions: list[PartitionSubscription]) -> None:
        self._detach(subscriptions)
        if self._channel.failure is None:
            self._channel.submit([each.row("close") for each in subscriptions], is_urgent=True)

    def finish(self) -> None:
        self._receiver.close()
        for look in self._follows:
            self._client._following.remove(look)
        self._detach(self.subscriptions)
        self._client._forget(self._consumer)

    def _detach(self, subscriptions: list[PartitionSubscription]) -> None:
        for subscription in subscriptions:
            subscription.tracker.pending.room = 0
            self._channel.detach(self._consumer_id, str(subscription.topic.name), subscription.partition)
