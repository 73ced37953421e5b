"""Show messages without moving anything: a subscription's backlog, or an entry by its place.

Rules: PersistentSubscription.peekMessage, PersistentTopicsBase.internalGetMessageById. Ours: without acknowledged
messages of a batch, and a chunked message at its last chunk.
"""

import itertools
from collections.abc import Iterable, Iterator
from functools import cached_property, partial

import numpy as np

from pulsar_spark.client.arguments import check_count, check_type
from pulsar_spark.client.model.block import Block
from pulsar_spark.client.model.enums import ConsumerCryptoFailureAction
from pulsar_spark.client.model.message import Message
from pulsar_spark.client.readers.topic_log import last_message_id
from pulsar_spark.client.receiving.joining import Joining
from pulsar_spark.client.schema.payloads import PayloadOpener
from pulsar_spark.errors import InvalidConfiguration, InvalidMessage, PulsarSparkError
from pulsar_spark.protocol.acknowledgement import ack_set as ack_sets
from pulsar_spark.protocol.acknowledgement.cursor import unacknowledged
from pulsar_spark.protocol.suggestions import no_subscription
from pulsar_spark.protocol.topics.message_id import MessageId
from pulsar_spark.protocol.topics.numbering import Run
from pulsar_spark.protocol.topics.topic_name import check_subscription
from pulsar_spark.storage.chunks.chunk_groups import ChunkGroups, chunks_of
from pulsar_spark.storage.chunks.chunks import ChunkedMessages
from pulsar_spark.storage.cursor_ledger.cursor_ledger import CursorKey, read_latest
from pulsar_spark.storage.entries.entries import CACHED_BYTES, EntryReader
from pulsar_spark.storage.entries.topic_files import trimmed_ledgers
from pulsar_spark.storage.layout import Layout
from pulsar_spark.storage.ledgers.ledger_index import LedgerIndex
from pulsar_spark.storage.topics.bundles import layout_of
from pulsar_spark.storage.topics.topics import Topic, resolve_partition, resolve_topic

_AS_FAR_AS_WITHOUT_KEYS = PayloadOpener(None, ConsumerCryptoFailureAction.CONSUME)
"""Payloads are decompressed; encrypted ones are shown as stored."""


class PartitionMessages:
    """The messages of one topic partition, as far as a broker has numbered them."""

    def __init__(self, layout: Layout, topic: Topic, partition: int):
        self._layout, self._topic, self._partition = layout, topic, partition
        self._name = str(topic.name.partition(partition))
        self._ledgers, self._entries = LedgerIndex(layout), EntryReader(CACHED_BYTES)
        spans_of = partial(self._ledgers.spans_of, topic.topic_id, partition)
        self._chunked = ChunkedMessages(topic.path, self._entries, spans_of)

    @cached_property
    def _groups(self) -> ChunkGroups:
        has_some = self._ledgers.last_chunk_position(self._topic.topic_id, self._partition) >= 0
        return chunks_of(self._layout, self._topic, self._partition, None if has_some else ())

    def backlog(self, subscription: str, first: int = 0) -> Iterator[Message]:
        """Unacknowledged messages from position *first* on, read lazily; :class:`SubscriptionNotFound` if missing."""
        latest = read_latest(self._layout)
        key = CursorKey(self._topic.topic_id, self._partition, subscription)
        if key not in latest.cursors:
            known = {each.subscription for each in latest.cursors if each[:2] == key[:2]}
            raise no_subscription(self._name, subscription, known)
        ranges = latest.ranges(key)
        end = self._ledgers.end(self._topic.topic_id, self._partition)
        left = unacknowledged(latest.cursors[key]["mark_delete_position"], end, ranges)
        return self._messages_of(((max(low, first), high, bits) for low, high, bits in left if high >= first))

    def _messages_of(self, left: Iterable[tuple[int, int, tuple[int, ...] | None]]) -> Iterator[Message]:
        for low, high, bits in left:
            kept = None if bits is None else set(ack_sets.indexes(bits))
            yield from (
                message for message in self._read(low, high) if kept is None or message._field("batch_index") in kept
            )

    def position_of(self, ledger_id: int, entry_id: int) -> int:
        """Position of an entry; :class:`InvalidMessage` if it does not exist."""
        found = self._ledgers.find(self._topic.topic_id, self._partition, ledger_id, entry_id)
        if found is None:
            raise InvalidMessage(
                f"topic {self._name!r} has no message {MessageId(self._partition, ledger_id, entry_id)}, or no "
                "broker has seen it yet"
            )
        return found[0]

    def at(self, position: int) -> list[Message]:
        """The messages of one entry, acknowledged or not; :class:`InvalidMessage` if the position has none, or was
        trimmed."""
        end = self._ledgers.end(self._topic.topic_id, self._partition)
        if not 0 <= position < end:
            raise InvalidMessage(
                f"topic {self._name!r} has no position {position}: "
                + (f"give one from 0 to {end - 1}" if end else "it has no messages yet")
            )
        position = self._message_of(position)
        found = list(self._read(position, position))
        if (
            not found
            or found[0].message_id().ledger_id()
            <= trimmed_ledgers(self._topic.path, [self._partition])[self._partition]
        ):
            raise InvalidMessage(f"position {position} of topic {self._name!r} was trimmed: give a later one")
        return found

    def _message_of(self, position: int) -> int:
        """The position of the message that an entry is a chunk of; of others their own."""
        if not self._groups.are_parts(np.array([position]))[0]:
            return position
        last = int(self._groups.ends(self._groups.begins(np.array([position])))[0])
        if last >= 0:
            return last
        raise InvalidMessage(
            f"position {position} of topic {self._name!r} is a chunk of an incomplete message: "
            "see 'pulsar-spark chunks list'"
        )

    def _read(self, first: int, last: int) -> Iterator[Message]:
        for run in self._ledgers.runs(self._topic.topic_id, self._partition, first, last):
            joining = self._joining(run) if run.may_have_chunks else None
            for rows in self._entries.rows_of(self._topic.path, run):
                block = Block(rows, self._name, self._partition, run.ledger_id)
                for index, position in enumerate(block.column("position")):
                    message = Message(block, index, position)
                    is_chunk = joining is not None and message._is_chunk()
                    found = joining.message(message, position) if joining is not None and is_chunk else message
                    if isinstance(found, PulsarSparkError):
                        raise found
                    if found is not None:
                        found._open(_AS_FAR_AS_WITHOUT_KEYS)
                        yield found

    def _joining(self, run: Run) -> Joining:
        firsts, lasts = self._groups.units(run.first_position, run.last_position)
        return Joining(self._chunked, dict(zip(lasts.tolist(), firsts.tolist())))


def place_of(layout: Layout, topic: str, at: int | MessageId) -> tuple[PartitionMessages, int]:
    """The partition that *topic*, or else the id *at*, names, and the position that *at* is or means."""
    if not isinstance(at, MessageId) and (not isinstance(at, int) or isinstance(at, bool) or at < 0):
        raise InvalidConfiguration(f"position {at!r}: give a position (0, 1, 2...) or a MessageId")
    if isinstance(at, MessageId) and at.partition() >= 0:
        partition, (found, partitions) = at.partition(), resolve_topic(layout, topic)
        if partition not in partitions:
            raise InvalidMessage(f"message id {at} belongs to another partition than {topic!r}")
    else:
        found, partition = resolve_partition(layout, topic, "look at")
    messages = PartitionMessages(layout_of(layout, found.name), found, partition)
    return messages, messages.position_of(at.ledger_id(), at.entry_id()) if isinstance(at, MessageId) else at


class Messages:
    """Part of ``Admin`` that shows messages. *topic* is one without partitions, or one partition, unless an id names
    the partition."""

    layout: Layout

    def peek_messages(self, topic: str, subscription: str, messages: int = 1, at: int | MessageId = 0) -> list[Message]:
        """The next *messages* of the subscription's backlog, or fewer; *at* begins at a position or entry.

        Nothing is acknowledged or moved, and delivered messages are included. Name one partition of a partitioned
        topic, or give an id of one.
        """
        check_count("messages", messages)
        return list(itertools.islice(self.backlog(topic, subscription, at), messages))

    def backlog(self, topic: str, subscription: str, at: int | MessageId = 0) -> Iterator[Message]:
        """Iterate over the messages of :meth:`peek_messages`, from *at* on."""
        check_subscription(subscription)
        found, first = place_of(self.layout, topic, at)
        return found.backlog(subscription, first)

    def get_message_by_id(self, topic: str, ledger_id: int, entry_id: int) -> Message:
        """The first message of an entry, acknowledged or not. Name one partition of a partitioned topic."""
        return self.get_messages_by_id(topic, ledger_id, entry_id)[0]

    def get_messages_by_id(self, topic: str, ledger_id: int, entry_id: int) -> list[Message]:
        """All messages of one entry. Name one partition of a partitioned topic."""
        check_type(int, ledger_id, "ledger_id")
        check_type(int, entry_id, "entry_id")
        return self.get_messages_at(topic, MessageId(-1, ledger_id, entry_id))

    def get_messages_at(self, topic: str, at: int | MessageId) -> list[Message]:
        """All messages of the entry at a position, or of the entry that *at* names."""
        found, position = place_of(self.layout, topic, at)
        return found.at(position)

    def last_message_id(self, topic: str) -> MessageId:
        """The id of the topic's last message; ``MessageId.earliest`` without one. Name one partition of a partitioned
        topic."""
        found, partition = resolve_partition(self.layout, topic, "ask for the last message of")
        return last_message_id(found, partition, LedgerIndex(layout_of(self.layout, found.name)))
