"""Chunked messages as the application sees them, at the last chunk (semantics 1.7)."""

from collections.abc import Mapping
from functools import cached_property, partial

import numpy as np

from pulsar_spark.client.model.block import Block
from pulsar_spark.client.model.message import Message, unreadable
from pulsar_spark.client.receiving.delivery import Delivery
from pulsar_spark.errors import MessagesLost, UnreadableMessage
from pulsar_spark.protocol.topics.message_id import MessageId
from pulsar_spark.storage.chunks.chunks import ChunkedMessages


class Joining:
    """Of one topic partition; *first_chunks* gives the first position of each message by its last."""

    def __init__(self, chunked: ChunkedMessages, first_chunks: Mapping[int, int]):
        self._chunked, self._first_chunks = chunked, first_chunks

    @cached_property
    def _parts(self) -> dict[int, np.ndarray]:
        return self._chunked.parts(self._first_chunks)

    def message(self, last: Message, position: int) -> Message | MessagesLost | None:
        """The message that ends with the chunk *last*; None if it ends none or a chunk is deleted, the error if one is
        lost."""
        if position not in self._first_chunks:
            return None
        first = self._first_chunks[position]
        if last._field("num_chunks_from_msg") == position - first + 1:  # its chunks are adjacent
            parts = np.arange(first, position + 1)
        else:
            parts = self._parts[position]
        first_chunk = self._message_id(last._block, first)
        try:
            payload = self._chunked.joined(parts) if len(parts) else None
        except MessagesLost as lost:
            return lost
        except UnreadableMessage as wrong:
            wrong = UnreadableMessage(f"{wrong}; acknowledge the message to skip it")
            return last._joined(None, first_chunk, unreadable(wrong, last.message_id().of_chunks(first_chunk)))
        return None if payload is None else last._joined(bytes(payload), first_chunk)

    def _message_id(self, block: Block, position: int) -> MessageId:
        ((run, _),) = self._chunked.spans_of([(position, position)])
        place = MessageId(block.partition, run.ledger_id, position - run.to_position)
        return place.of_topic(block.topic_name)


def joining_of(subscription, delivery: Delivery, positions: range | np.ndarray) -> Joining:
    """The :class:`Joining` of a delivery's chunked messages at *positions*."""
    first_chunks, topic = delivery.first_chunks, subscription.topic
    if first_chunks and len(positions) < delivery.entries:
        first_chunks = {last: first_chunks[last] for last in map(int, positions) if last in first_chunks}
    spans_of = partial(subscription.ledgers.spans_of, topic.topic_id, subscription.partition)
    return Joining(ChunkedMessages(topic.path, subscription.chunks, spans_of), first_chunks)
