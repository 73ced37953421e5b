"""Consumer: receives from one subscription of one or more topics, acknowledges, gives back, moves the cursor.

It has a :class:`PartitionSubscription` per topic partition.
"""

import threading
from collections.abc import Callable
from typing import Any

from pulsar_spark.client.acks.acknowledger import Acknowledger
from pulsar_spark.client.acks.acknowledging import UNACKED_TICK, Acknowledging
from pulsar_spark.client.acks.unacked import UnackedTracker
from pulsar_spark.client.arguments import check_type, interrupted, public_call
from pulsar_spark.client.model.enums import ConsumerType, InitialPosition
from pulsar_spark.client.model.message import Message
from pulsar_spark.client.readers.topic_log import last_message_id
from pulsar_spark.client.receiving.places import Places
from pulsar_spark.client.receiving.receiver import Receiver
from pulsar_spark.client.subscribing.consumer_settings import ConsumerSettings
from pulsar_spark.client.subscribing.following import PARTITIONS_SECONDS, for_each
from pulsar_spark.client.subscribing.letters import Letters, LetterTopics
from pulsar_spark.client.subscribing.listener import Listener
from pulsar_spark.client.subscribing.seeking import seek
from pulsar_spark.client.subscribing.subscription import PartitionSubscription
from pulsar_spark.described import Described
from pulsar_spark.errors import AlreadyClosed, InvalidConfiguration, OperationNotSupported, PulsarSparkError, Timeout
from pulsar_spark.link.channels import Channels
from pulsar_spark.link.inbox import Reply
from pulsar_spark.protocol.topics.message_id import MessageId
from pulsar_spark.storage.compaction.compacted_entries import CompactedEntries
from pulsar_spark.storage.processes import forks
from pulsar_spark.storage.topics.partitions import PartitionWatch
from pulsar_spark.storage.topics.topics import Topic


class Consumer(Described, Acknowledging):
    """A consumer of one subscription; made by ``Client.subscribe``."""

    def __init__(
        self,
        client: Any,
        topics: list[tuple[Topic, list[int]]],
        topic_name: str,
        consumer_id: str,
        settings: ConsumerSettings,
        letter_topics: LetterTopics | None,
        *,
        follows_pattern: bool = False,
    ):
        self._client, self._process = client, client._process
        self._channel: Channels = client._channel
        self._ledgers = client._ledgers
        self._entries = CompactedEntries(client._entries) if settings.is_read_compacted else client._entries
        self._schema = settings.schema
        self._settings = settings
        self._topic_name = topic_name
        self._consumer_id = consumer_id
        self._topics = topics
        self._follows_pattern = follows_pattern
        self._changing = threading.Lock()
        """Whoever changes what it receives from has it."""
        self._follows: list[Callable[[], None]] = []
        timeout, backoff = settings.unacked_timeout_ms / 1000, settings.ack_timeout_redelivery_backoff
        self._unacked = UnackedTracker(timeout, backoff=backoff) if timeout else None
        self._receiver = Receiver(
            self._channel,
            f"subscription {settings.subscription_name!r} of {topic_name!r}",
            None if self._unacked is None else self._unacked.add,
            settings.opener,
            lambda message, error: self._acknowledger.discard(message, error),
        )
        self._listener = None
        if settings.message_listener is not None:
            self._listener = Listener(
                self, settings.message_listener, self._receiver.take, consumer_id, self._receiver.until_resumed
            )
        self._request = settings.request_properties(self._channel.lease_ms)
        if letter_topics is not None:
            self._request["dead_letter_topic"] = letter_topics.dead
        self._subscriptions = self._subscriptions_of(topics)
        if len({(each.topic.topic_id, each.partition) for each in self._subscriptions}) < len(self._subscriptions):
            raise InvalidConfiguration(f"topics {topic_name!r} contain a partition twice")
        if not settings.receiver_queue_size and self._subscriptions:
            self._receiver.without_queue = self._subscriptions[0]
        self._places = Places(self._subscriptions, topic_name, client._timeout)
        self._acknowledger = Acknowledger(self._channel, self._places, settings, self._unacked, client._timeout)
        self._letters = letter_topics and Letters(letter_topics, settings.subscription_name, settings.consumer_name)

    def _subscriptions_of(self, topics: list[tuple[Topic, list[int]]], others: int = 0) -> list[PartitionSubscription]:
        """Make one per partition; *others* share the queue."""
        settings, policy = self._settings, self._settings.dead_letter_policy
        partitions = [(topic, partition) for topic, indexes in topics for partition in indexes]
        count = max(1, others + len(partitions))
        return [
            PartitionSubscription(
                self,
                topic,
                partition,
                settings.queue_size(count),
                settings.largest_queue(count),
                self._request,
                settings.grouping,
                is_single_active=settings.is_single_active,
                keeps_key_order=settings.keeps_key_order,
                requests_early=settings.consumer_type is ConsumerType.Shared,  # Key_Shared: small deliveries cost more
                max_redeliver_count=None if policy is None else policy.max_redeliver_count,
            )
            for topic, partition in partitions
        ]

    def _follow(self, look: Callable[[], None], seconds: float) -> None:
        """Let the client call *look* for new topics or partitions every *seconds*."""
        self._follows.append(look)
        self._client._following.add(look, seconds)

    def _follow_no_more(self, look: Callable[[], None]) -> None:
        self._follows.remove(look)
        self._client._following.remove(look)

    def _follow_partitions(self, topics: list[tuple[Topic, list[int]]]) -> None:
        """Receive from partitions added to these topics, if all of a topic's partitions are consumed."""
        watches = {
            topic.topic_id: PartitionWatch(topic)
            for topic, indexes in topics
            if topic.partitions and len(indexes) == topic.partitions
        }
        waiting: dict[str, Topic] = {}

        def look() -> None:
            for gone in watches.keys() - {each.topic.topic_id for each in self._subscriptions}:
                del watches[gone]
                waiting.pop(gone, None)
            if not watches:
                self._follow_no_more(look)
            found = [added for watch in watches.values() if (added := watch.added()) is not None]
            waiting.update({topic.topic_id: topic for topic in found})
            for_each(list(waiting.values()), join)

        def join(topic: Topic) -> None:
            known = {each.partition for each in self._subscriptions if each.topic.topic_id == topic.topic_id}
            self._add([(topic, [index for index in topic.partition_indexes if index not in known])])
            del waiting[topic.topic_id]

        if watches:
            self._follow(look, PARTITIONS_SECONDS)

    def _add(self, topics: list[tuple[Topic, list[int]]]) -> None:
        """Join the subscription on new partitions, from their first message; all or none."""
        self._request = {**self._request, "initial_position": InitialPosition.Earliest.name}
        added = self._subscriptions_of(topics, len(self._subscriptions))
        for subscription in added:
            self._channel.attach(self._consumer_id, str(subscription.topic.name), subscription.partition, subscription)
        try:
            replies = self._channel.ask([each.subscribe_row() for each in added], self._client._timeout)
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
            self._places.add(added)
            self._subscriptions = self._subscriptions + added
        for subscription in added:
            subscription.joined()
        self._channel.logger.info(
            "%s: consumer %r reads %d new partitions", self._receiver.name, self.consumer_name(), len(added)
        )

    def _lose(self, subscription: PartitionSubscription, error: PulsarSparkError) -> None:
        """Continue without a topic partition that is gone, or whose subscription is (*error*). The last one closes the
        consumer, unless it has a pattern."""
        with self._changing:
            subscription.end(error)
            self._subscriptions = [each for each in self._subscriptions if each is not subscription]
            self._places.remove(subscription)
        self._detach([subscription])
        self._forget_unacked(subscription)
        topic = subscription.topic
        if any(each.topic.topic_id == topic.topic_id for each in self._subscriptions):
            return
        if self._subscriptions or self._follows_pattern:
            self._channel.logger.warning("%s: %s: the consumer continues without it", self._receiver.name, error)
            return
        if topic.partitions or len(self._topics) > 1:
            error = AlreadyClosed(f"{error}; the consumer of {self._topic_name!r} has no partition left")
        self._channel.logger.error("%s: the consumer is closed: %s", self._receiver.name, error)
        self._receiver.fail(error)

    def _connect(self) -> None:
        """Join the subscription on every partition, or on none."""
        rows = self._attach()
        try:
            replies = self._channel.ask(rows, self._client._timeout)
        except PulsarSparkError:
            self._leave()
            raise
        self._joined(replies)

    def _attach(self) -> list[dict]:
        """Attach to the channel; return the requests to join."""
        for subscription in self._subscriptions:
            self._channel.attach(self._consumer_id, str(subscription.topic.name), subscription.partition, subscription)
        return [subscription.subscribe_row() for subscription in self._subscriptions]

    def _joined(self, replies: list[Reply]) -> None:
        """Start receiving, or raise the refusal."""
        errors = [reply.error for reply in replies if reply.error is not None]
        if errors:
            self._leave()
            self._channel.logger.error("%s: refused: %s: %s", self._receiver.name, type(errors[0]).__name__, errors[0])
            raise errors[0]
        self._channel.logger.info("%s: consumer %r subscribed", self._receiver.name, self.consumer_name())
        for subscription in self._subscriptions:
            subscription.joined()
        self._follow_partitions(self._topics)
        if self._unacked is not None:
            self._channel.call_later(UNACKED_TICK, self._redeliver_expired)
        if self._listener is not None:
            self._listener.start()

    def _facts(self) -> dict[str, object]:
        return {
            "topic": self._topic_name,
            "subscription_name": self._settings.subscription_name,
            "consumer_type": self._settings.consumer_type.name,
            "consumer_name": self._settings.consumer_name,
            "state": "closed" if self._receiver.is_closed else "open",
        }

    def topic(self) -> str:
        """The topic; several topics are separated by commas."""
        return self._topic_name

    def subscription_name(self) -> str:
        return self._settings.subscription_name

    def consumer_name(self) -> str:
        return self._settings.consumer_name

    def is_connected(self) -> bool:
        """Whether a broker runs and knows the consumer, on all its partitions."""
        return (
            not self._receiver.is_closed
            and self._receiver.error is None
            and self._channel.has_broker()
            and all(subscription.is_connected for subscription in self._subscriptions)
        )

    def receive(self, timeout_millis: int | None = None) -> Message:
        """Return the next message. Waits for one, and raises :class:`Timeout` after *timeout_millis*."""
        try:
            if (timeout_millis is None or type(timeout_millis) is int) and self._process == forks.generation:
                if self._listener is None:
                    for message in self._receiver.ready:
                        return message
        except KeyboardInterrupt:
            raise interrupted(self, "receive") from None
        return self._receive(timeout_millis)

    @public_call
    def _receive(self, timeout_millis: int | None) -> Message:
        if timeout_millis is not None:
            check_type(int, timeout_millis, "timeout_millis")
        self._check_no_listener()
        if timeout_millis is not None and not self._settings.receiver_queue_size:
            raise InvalidConfiguration(
                "a consumer with receiver_queue_size=0 cannot receive with a timeout: leave it out, or give the "
                "queue a size"
            )
        message = self._receiver.take(None if timeout_millis is None else timeout_millis / 1000)
        if message is None:
            raise Timeout(f"no message within {timeout_millis} ms")
        return message

    @public_call
    def batch_receive(self) -> list[Message]:
        """Receive messages until the batch receive policy's count, size or time is reached; the list may be empty."""
        self._check_no_listener()
        return self._receiver.take_batch(self._settings.batch_receive_policy)

    @public_call
    def seek(self, messageid: MessageId | int) -> None:
        """Move the cursor after the message *messageid* (to it with ``start_message_id_inclusive``), or to the first
        message published at or after a time in ms.
        """
        self._receiver.check_open()
        seek(self, messageid, self._settings.start_message_id_inclusive)

    @public_call
    def get_last_message_id(self) -> MessageId:
        """The id of the topic's last message. Only for a consumer of one partition."""
        self._receiver.check_open()
        if len(self._subscriptions) != 1:
            raise OperationNotSupported(
                f"{self._receiver.name} has {len(self._subscriptions)} topic partitions and no last message id: ask a "
                "consumer of a single partition"
            )
        subscription = self._subscriptions[0]
        return last_message_id(subscription.topic, subscription.partition, subscription.ledgers)

    @public_call
    def unsubscribe(self) -> None:
        """Delete the subscription and close the consumer. The broker refuses this while other consumers are
        connected.
        """
        self._unsubscribed(self._channel.ask(self._unsubscribe_rows(), self._client._timeout))

    def _unsubscribe_rows(self) -> list[dict]:
        self._receiver.check_open()
        return [subscription.row("unsubscribe") for subscription in self._subscriptions]

    def _unsubscribed(self, replies: list[Reply]) -> None:
        for reply in replies:
            if reply.error is not None:
                raise reply.error
        self._finish()

    @public_call
    def close(self) -> None:
        """Send pending acknowledgements, then leave the subscription. A second call raises :class:`AlreadyClosed`."""
        self._channel.post(self._leave_orderly(), self._client._timeout)

    def _leave_orderly(self) -> list[dict]:
        """Stop receiving; return the remaining acknowledgements and the requests to leave."""
        self._receiver.check_closed()
        rows = [row for subscription in self._subscriptions for row in subscription.tracker.take_rows()]
        rows += [subscription.row("close") for subscription in self._subscriptions]
        self._finish()
        self._channel.logger.info("%s: consumer %r closed", self._receiver.name, self.consumer_name())
        return rows

    def _leave(self) -> None:
        """Give up joining."""
        self._finish()
        self._give_up(self._subscriptions)

    def _give_up(self, subscriptions: list[PartitionSubscription]) -> None:
        """Detach and send requests to leave, whatever became of the requests to join."""
        self._detach(subscriptions)
        if self._channel.failure is None:
            self._channel.submit([each.row("close") for each in subscriptions], is_urgent=True)

    def _finish(self) -> None:
        self._receiver.close()
        for look in self._follows:
            self._client._following.remove(look)
        self._detach(self._subscriptions)
        self._client._forget(self)

    def _detach(self, subscriptions: list[PartitionSubscription]) -> None:
        for subscription in subscriptions:
            subscription.tracker.close()
            self._channel.detach(self._consumer_id, str(subscription.topic.name), subscription.partition)

    @public_call
    def pause_message_listener(self) -> None:
        """Stop calling the listener until it is resumed. A call in progress ends first, and the queue continues to
        fill.
        """
        self._check_listener()
        self._receiver.pause()

    @public_call
    def resume_message_listener(self) -> None:
        """Call the listener again, from the next message on."""
        self._check_listener()
        self._receiver.resume()

    def _check_listener(self) -> None:
        self._receiver.check_open()
        if self._listener is None:
            raise InvalidConfiguration("the consumer has no message listener")

    def _check_no_listener(self) -> None:
        self._receiver.check_open()
        if self._listener is not None:
            raise InvalidConfiguration("a consumer with a message listener passes messages only to that")
