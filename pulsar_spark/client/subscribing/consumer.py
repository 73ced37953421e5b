"""Consumer: receives from one subscription of one or more topics, acknowledges, gives back, moves the cursor."""

from typing import Any

from pulsar_spark.client.acks.acknowledger import Acknowledger
from pulsar_spark.client.acks.acknowledging import Acknowledging
from pulsar_spark.client.acks.unacked import UnackedTracker
from pulsar_spark.client.arguments import check_type, interrupted, public_call
from pulsar_spark.client.model.message import Message
from pulsar_spark.client.readers.topic_log import last_message_id
from pulsar_spark.client.receiving.receiver import Receiver
from pulsar_spark.client.subscribing.consumer_settings import ConsumerSettings
from pulsar_spark.client.subscribing.letters import Letters, LetterTopics
from pulsar_spark.client.subscribing.listener import Listener
from pulsar_spark.client.subscribing.membership import Membership
from pulsar_spark.client.subscribing.seeking import seek
from pulsar_spark.described import Described
from pulsar_spark.errors import InvalidConfiguration, OperationNotSupported, Timeout
from pulsar_spark.link.channels import Channels
from pulsar_spark.link.inbox import Reply
from pulsar_spark.protocol.topics.message_id import MessageId
from pulsar_spark.storage.compaction.compacted_entries import CompactedEntries
from pulsar_spark.storage.processes import forks
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
        request = settings.request_properties(self._channel.lease_ms)
        if letter_topics is not None:
            request["dead_letter_topic"] = letter_topics.dead
        self._membership = Membership(self, topics, request, self._receiver, settings, follows_pattern=follows_pattern)
        self._places = self._membership.places
        self._acknowledger = Acknowledger(self._channel, self._places, settings, self._unacked, client._timeout)
        self._letters = letter_topics and Letters(letter_topics, settings.subscription_name, settings.consumer_name)

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
        self._check_listener(is_wanted=False)
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
        """Receive messages until a limit of the batch receive policy is reached; the list may be empty."""
        self._check_listener(is_wanted=False)
        return self._receiver.take_batch(self._settings.batch_receive_policy)

    @public_call
    def seek(self, messageid: MessageId | int) -> None:
        """Move the cursor after the message *messageid* (to it with ``start_message_id_inclusive``), or to the first
        message published at or after a time in ms."""
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
        """Delete the subscription and close the consumer; refused while other consumers are connected."""
        self._unsubscribed(self._channel.ask(self._unsubscribe_rows(), self._client._timeout))

    def _unsubscribe_rows(self) -> list[dict]:
        self._receiver.check_open()
        return [subscription.row("unsubscribe") for subscription in self._subscriptions]

    def _unsubscribed(self, replies: list[Reply]) -> None:
        for reply in replies:
            if reply.error is not None:
                raise reply.error
        self._membership.finish()

    @public_call
    def close(self) -> None:
        """Send pending acknowledgements, then leave the subscription. A second call raises :class:`AlreadyClosed`."""
        self._channel.post(self._leave_orderly(), self._client._timeout)

    def _leave_orderly(self) -> list[dict]:
        """Stop receiving; return the remaining acknowledgements and the requests to leave."""
        self._receiver.check_closed()
        rows = [row for subscription in self._subscriptions for row in subscription.tracker.take_rows(is_last=True)]
        rows += [subscription.row("close") for subscription in self._subscriptions]
        self._membership.finish()
        self._channel.logger.info("%s: consumer %r closed", self._receiver.name, self.consumer_name())
        return rows

    @public_call
    def pause_message_listener(self) -> None:
        """Stop calling the listener, after the present call, until it is resumed. The queue continues to fill."""
        self._check_listener(is_wanted=True)
        self._receiver.pause()

    @public_call
    def resume_message_listener(self) -> None:
        """Call the listener again."""
        self._check_listener(is_wanted=True)
        self._receiver.resume()

    def _check_listener(self, *, is_wanted: bool) -> None:
        self._receiver.check_open()
        if is_wanted and self._listener is None:
            raise InvalidConfiguration("the consumer has no message listener")
        if not is_wanted and self._listener is not None:
            raise InvalidConfiguration("a consumer with a message listener passes messages only to that")
