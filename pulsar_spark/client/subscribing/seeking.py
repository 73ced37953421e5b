"""Seek: the position that a message id or a time moves the cursor to.

It is the entry of the message (semantics 3.26), or its first chunk (1.7); an id between entries means the next one.
Earlier indexes of the batch are hidden.
"""

import time

from pulsar_spark.client.arguments import given
from pulsar_spark.client.receiving.places import await_numbering
from pulsar_spark.client.subscribing.subscription import PartitionSubscription
from pulsar_spark.errors import InvalidConfiguration, Timeout
from pulsar_spark.protocol.redelivery.letters import LATEST_MS
from pulsar_spark.protocol.topics.message_id import MessageId


def check_target(target: object) -> None:
    """ValueError unless *target* is a message id or a time, :class:`InvalidConfiguration` for a time out of range."""
    if isinstance(target, bool) or not isinstance(target, (MessageId, int)):
        raise ValueError(f"argument messageid: MessageId or a time in ms expected, not {given(target)}")
    if isinstance(target, int) and not 0 <= target <= LATEST_MS:
        raise InvalidConfiguration(f"seek: {target} is not a time in ms since 1970: give one from 0 to {LATEST_MS}")


def seek(consumer, target: MessageId | int, is_inclusive: bool) -> None:
    check_target(target)
    subscriptions, deadline = consumer._subscriptions, time.monotonic() + consumer._client._timeout
    if isinstance(target, int):
        rows = [subscription.seek_row({"publish_time_ms": str(target)}, None) for subscription in subscriptions]
    elif target in (MessageId.earliest, MessageId.latest):
        end = "earliest" if target == MessageId.earliest else "latest"
        rows = [subscription.seek_row({"position": end}, None) for subscription in subscriptions]
    else:
        subscription = consumer._places.subscription_of(target)
        position, shown_from = _position(subscription.ledgers, subscription, target, is_inclusive, deadline)
        rows = [subscription.seek_row({"position": str(position)}, shown_from)]
    try:
        for reply in consumer._channel.ask(rows, max(0.0, deadline - time.monotonic())):
            if reply.error is not None:
                raise reply.error
    finally:
        for subscription in subscriptions:
            subscription.end_seek()


def _position(
    ledgers, subscription: PartitionSubscription, target: MessageId, is_inclusive: bool, deadline: float
) -> tuple[int, tuple[int, int] | None]:
    """The position to move to, and position and batch index of the first message shown; None for all."""
    topic, partition = subscription.topic, subscription.partition
    if not await_numbering(ledgers, subscription, target.ledger_id(), deadline):
        raise Timeout(
            f"no broker numbered publish commit {target.ledger_id()} of {subscription.topic_name!r}: start one with "
            "pulsar-spark broker"
        )
    found = ledgers.find(topic.topic_id, partition, target.ledger_id(), target.entry_id())
    if found is None:
        return ledgers.next_position(topic.topic_id, partition, target.ledger_id(), target.entry_id()), None
    position, batch_size = found
    index = max(0, target.batch_index())
    if not is_inclusive:
        index = batch_size if target.batch_index() < 0 else index + 1
    chunk = target.first_chunk_message_id()
    first = None if chunk is None else ledgers.find(topic.topic_id, partition, chunk.ledger_id(), chunk.entry_id())
    begin = position if first is None else min(first[0], position)
    return begin, (position, index) if index or begin < position else None
