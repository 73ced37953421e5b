"""Places: the partition and position of a consumer's message or message id."""

import time
from collections.abc import Sequence
from typing import NamedTuple

from pulsar_spark.client.arguments import given
from pulsar_spark.client.model.message import Message
from pulsar_spark.client.subscribing.subscription import PartitionSubscription
from pulsar_spark.errors import InvalidMessage, OperationNotSupported
from pulsar_spark.link import interrupts
from pulsar_spark.protocol.topics.message_id import MessageId, SentMessageId
from pulsar_spark.storage.delta.log import TableLog
from pulsar_spark.storage.ledgers.ledger_index import LedgerIndex

_LOOK_SECONDS = 0.01
_REMEMBERED = 1000
"""How many removed partitions are remembered."""


class Place(NamedTuple):
    """``batch_index`` -1 means the whole entry; ``bits`` are the delivered indexes."""

    subscription: PartitionSubscription
    position: int
    batch_index: int
    bits: int


class Places:
    """Of one consumer's topics. Lookups wait *timeout* seconds for published entries to be numbered."""

    def __init__(self, subscriptions: Sequence[PartitionSubscription], topic_name: str, timeout: float):
        self._subscriptions = subscriptions
        self._topic_name = topic_name
        self._timeout = timeout
        self._by_partition = {
            (subscription.topic.topic_id, subscription.partition): subscription for subscription in subscriptions
        }
        self._gone: dict[str, PartitionSubscription] = {}

    def remove(self, subscription: PartitionSubscription) -> None:
        """Remove a partition from the consumer. Its messages can still be named, without effect."""
        self._subscriptions = [each for each in self._subscriptions if each is not subscription]
        self._by_partition = {place: each for place, each in self._by_partition.items() if each is not subscription}
        self._gone[subscription.topic_name] = subscription
        if len(self._gone) > _REMEMBERED:
            del self._gone[next(iter(self._gone))]

    def add(self, subscriptions: Sequence[PartitionSubscription]) -> None:
        self._subscriptions = [*self._subscriptions, *subscriptions]
        self._by_partition |= {(each.topic.topic_id, each.partition): each for each in subscriptions}

    def find(self, message: Message | MessageId) -> Place:
        """The place of a message. :class:`InvalidMessage` if it is not of these topics, ValueError for other objects,
        :class:`OperationNotSupported` for a producer's id on several partitions, as in Pulsar."""
        if isinstance(message, Message) and message._delivery is not None:
            delivery = message._delivery
            topic = delivery.subscription.topic
            subscription = self._by_partition.get((topic.topic_id, delivery.subscription.partition))
            if subscription is None and delivery.subscription in self._gone.values():
                subscription = delivery.subscription
            if subscription is None:
                raise InvalidMessage(
                    f"message {message.message_id()} of {message.topic_name()!r} does not belong "
                    f"to {self._topic_name!r}"
                )
            return Place(
                subscription,
                message._position,
                message._field("batch_index") if delivery.batch_size > 1 else -1,
                delivery.unacked_bits,
            )
        message_id = message.message_id() if isinstance(message, Message) else message
        if not isinstance(message_id, MessageId):
            raise ValueError(f"argument message: Message or MessageId expected, not {given(message)}")
        gone = self._gone.get(message_id.topic_name() or "")
        if gone is not None and all(gone.topic_name != each.topic_name for each in self._subscriptions):
            return Place(gone, -1, -1, 0)
        subscription = self.subscription_of(message_id)
        if isinstance(message_id, SentMessageId) and len(self._subscriptions) > 1:
            raise _without_topic(message_id)
        found = self._numbered(subscription, message_id)
        if found is None or message_id.batch_index() >= found[1] or (found[1] == 1 and message_id.batch_index() >= 0):
            raise InvalidMessage(
                f"topic {subscription.topic_name!r} has no message {message_id}, or its broker has not seen it yet"
            )
        return Place(subscription, found[0], message_id.batch_index(), (1 << found[1]) - 1)

    def _numbered(self, subscription: PartitionSubscription, message_id: MessageId) -> tuple[int, int] | None:
        """Position and batch size of an entry, or None. Waits for its numbering."""
        topic, ledger_id = subscription.topic, message_id.ledger_id()
        place = topic.topic_id, subscription.partition, ledger_id, message_id.entry_id()
        ledgers = subscription.ledgers
        found = ledgers.find(*place)
        if found is None and await_numbering(ledgers, subscription, ledger_id, time.monotonic() + self._timeout):
            found = ledgers.find(*place)
        return found

    def subscription_of(self, message_id: MessageId) -> PartitionSubscription:
        """The partition of an id; :class:`OperationNotSupported` if several fit."""
        name = message_id.topic_name()
        fitting = [
            subscription
            for subscription in self._subscriptions
            if subscription.partition == message_id.partition()
            and name in (None, subscription.topic_name, str(subscription.topic.name))
        ]
        if not fitting:
            raise InvalidMessage(
                f"message id {message_id}{f' of {name!r}' if name else ''} does not belong to {self._topic_name!r}"
            )
        if len(fitting) > 1:
            raise _without_topic(message_id)
        return fitting[0]


def await_numbering(ledgers: LedgerIndex, subscription: PartitionSubscription, ledger_id: int, deadline: float) -> bool:
    """Wait until the broker has numbered the partition's part of publish commit *ledger_id*; False after *deadline*."""
    topic, sleep, log = subscription.topic, interrupts.sleeper(), TableLog(subscription.topic.path)
    if not log.has(ledger_id) or not any(
        int(added.partition_values.get("partition") or -1) == subscription.partition
        for added in log.commit(ledger_id).added
    ):
        return True
    while ledgers.last_ledger_id(topic.topic_id, subscription.partition) < ledger_id:
        if time.monotonic() > deadline:
            return False
        sleep(_LOOK_SECONDS)
    return True


def _without_topic(message_id: MessageId) -> OperationNotSupported:
    return OperationNotSupported(
        f"message id {message_id} does not contain its topic: give the received message, its id, or "
        "MessageId.deserialize(bytes, topic)"
    )
