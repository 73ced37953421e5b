"""What a broker knows of one message of a subscription, in words."""

from collections.abc import Iterator
from typing import NamedTuple

from pulsar_spark.broker.bundle.bundle import Bundle
from pulsar_spark.broker.cursors.state import Cursor
from pulsar_spark.errors import InvalidMessage, TopicNotFound
from pulsar_spark.protocol.acknowledgement import ack_set
from pulsar_spark.protocol.acknowledgement.cursor import ACKNOWLEDGED, DEAD, PENDING, REPLAY
from pulsar_spark.protocol.delays.durations import shown_seconds
from pulsar_spark.protocol.entries.entry_codes import PART, WAITING
from pulsar_spark.protocol.suggestions import close_names, did_you_mean, no_subscription
from pulsar_spark.protocol.topics.message_id import MessageId
from pulsar_spark.protocol.topics.topic_name import parse_topic_name

SECOND = 1_000_000


class Whereabouts(NamedTuple):
    """A message by its position; ``batch_index`` is -1 for a whole entry."""

    cursor: Cursor
    position: int
    batch_index: int

    def message_id(self, bundle: Bundle) -> MessageId:
        partition = self.cursor.key.partition
        (run,) = bundle.topics[self.cursor.topic].ledgers(partition).overlapping(self.position, self.position)
        return MessageId(
            partition, run.ledger_id, self.position - run.to_position, self.batch_index, topic_name=self.cursor.topic
        )

    @property
    def is_acknowledged(self) -> bool:
        found = self.cursor.find(self.position)
        if self.position <= self.cursor.mark_delete:
            return True
        if found is None or found.ack_set is None or self.batch_index < 0:
            return found is not None and found.status == ACKNOWLEDGED
        return not ack_set.has(found.ack_set, self.batch_index)

    def in_words(self, bundle: Bundle) -> str:
        """A sentence without its subject's name."""
        if self.is_acknowledged:
            return "it is acknowledged"
        found = self.cursor.find(self.position)
        times = "" if found is None or not found.redelivery_count else f" (redelivered {found.redelivery_count} times)"
        if found is not None and found.status == PENDING:
            consumer = self.cursor.consumers.get(found.consumer_id or "")
            name = repr(consumer.name) if consumer else "that left"
            if found.due_time is None:
                return f"it is out at consumer {name}{times}"
            return f"consumer {name} gave it back; it comes again {_in(found.due_time - bundle.now.own)}{times}"
        if found is not None and found.status == REPLAY and (found.due_time or 0) <= bundle.now.wall:
            return f"it waits for a consumer, to be delivered again{times}"
        if found is not None and found.status in (REPLAY, WAITING):
            when = f", {_in(found.due_time - bundle.now.wall)}" if found.due_time else ""
            return f"it waits for its deliver time{when}"
        if found is not None and found.status in (DEAD, PART):
            return "it is dead, and its letter waits" if found.status == DEAD else "it is a chunk of a larger message"
        return "no consumer has received it yet" + ("" if self.cursor.consumers else ", and none is connected")


def _in(micros: int) -> str:
    return f"in {shown_seconds(max(0, micros) / SECOND)}"


def cursors_of(bundle: Bundle, topic: str, subscription: str) -> list[Cursor]:
    """The subscription's cursors, one for each partition; :class:`SubscriptionNotFound` without any, and
    :class:`TopicNotFound` without the topic."""
    name = parse_topic_name(topic)
    if str(name.partitioned_topic) not in bundle.topics:
        local = {parse_topic_name(each).local_name for each in bundle.topics}
        suggested = did_you_mean(close_names(name.local_name, local))
        raise TopicNotFound(f"topic {topic!r} does not exist: create it, or give another{suggested}")
    of_topic = [each for each in bundle.cursors.values() if each.topic == str(name.partitioned_topic)]
    found = [
        each
        for each in of_topic
        if each.key.subscription == subscription and name.partition_index in (-1, each.key.partition)
    ]
    if not found:
        raise no_subscription(str(name), subscription, {each.key.subscription for each in of_topic})
    return found


def find(bundle: Bundle, topic: str, subscription: str, message_id: MessageId) -> Whereabouts:
    """A message by its id; :class:`InvalidMessage` if the topic has none."""
    for cursor in cursors_of(bundle, topic, subscription):
        if cursor.key.partition == message_id.partition():
            ledgers = bundle.topics[cursor.topic].ledgers(cursor.key.partition)
            run = ledgers.run_of_entry(message_id.ledger_id(), message_id.entry_id())
            if run is not None:
                return Whereabouts(cursor, message_id.entry_id() + run.to_position, message_id.batch_index())
    raise InvalidMessage(f"topic {topic!r} has no message {message_id}: give a message of this topic, or its id")


def backlog_of(bundle: Bundle, cursor: Cursor) -> Iterator[Whereabouts]:
    """The unacknowledged messages of a cursor, in order."""
    end = bundle.topics[cursor.topic].ledgers(cursor.key.partition).end_position
    for first, last in cursor.backlog(0, end - 1):
        for position in range(first, last + 1):
            batch_size, found = bundle.batch_size(cursor, position), cursor.find(position)
            if batch_size == 1:
                yield Whereabouts(cursor, position, -1)
                continue
            left = None if found is None else found.ack_set
            for index in range(batch_size) if left is None else ack_set.indexes(left):
                yield Whereabouts(cursor, position, index)
