"""Seek: from a message id or a time to the position a cursor is asked to move to.

The cursor goes to the entry of the message: mark-delete is the position before it (semantics 3.26). What the
application asked not to see, which without ``start_message_id_inclusive`` is the message itself and inside a batch the
earlier indexes too, the consumer leaves out; nobody acknowledged it, so it counts as backlog and comes to the consumer
that takes over the subscription. To a chunked message the cursor goes where its first chunk lies (1.7); what lies
between its chunks comes before it, and is left out like it. An id above everything published is the end, one between
two entries the next one.
"""

import time

from pulsar_spark.client.arguments import given
from pulsar_spark.client.places import await_numbering
from pulsar_spark.client.subscription import PartitionSubscription
from pulsar_spark.errors import InvalidConfiguration, Timeout
from pulsar_spark.protocol.letters import LATEST_MS
from pulsar_spark.protocol.message_id import MessageId


def check_target(target: object) -> None:
    """ValueError for what is no place to go on from, :class:`InvalidConfiguration` for a time that no message has."""
    if isinstance(target, bool) or not isinstance(target, (MessageId, int)):
        raise ValueError(f"argument messageid: MessageId or a time in ms expected, not {given(target)}")
    if isinstance(target, int) and not 0 <= target <= LATEST_MS:
        raise InvalidConfiguration(f"seek: {target} is not a time in ms since 1970: give one from 0 to {LATEST_MS}")


def seek(consumer, target: MessageId | int, is_inclusive: bool) -> None:
    """Move the consumer's cursors and wait for the broker to have done it."""
    check_target(target)
    subscriptions, deadline = consumer._subscriptions, time.monotonic() + consumer._client._timeout
    if isinstance(target, int):
        rows = [subscription.seek_row({"publish_time_ms": str(target)}, None) for subscription in subscriptions]
    elif target in (MessageId.earliest, MessageId.latest):
        position = "earliest" if target == MessageId.earliest else "latest"
        rows = [subscription.seek_row({"position": position}, None) for subscription in subscriptions]
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
    """The position to move to, and the position and batch index of the first message that is shown; None for all."""
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
    first = chunk and ledgers.find(topic.topic_id, partition, chunk.ledger_id(), chunk.entry_id())
    begin = position if first is None else min(first[0], position)
    return begin, (position, index) if index or begin < position else None
