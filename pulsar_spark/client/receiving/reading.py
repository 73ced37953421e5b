"""Reads the messages of a delivery, in the thread that takes them.

Deleted messages are acknowledged; lost ones raise an error that names them.
"""

from collections.abc import Generator, Iterable, Iterator
from itertools import chain, count, groupby, repeat

import numpy as np
import pyarrow as pa

from pulsar_spark.client.model.block import Block
from pulsar_spark.client.model.message import Message
from pulsar_spark.client.receiving.delivery import Delivery
from pulsar_spark.client.receiving.joining import Joining, joining_of
from pulsar_spark.errors import MessagesLost
from pulsar_spark.protocol.topics.numbering import Run
from pulsar_spark.storage.entries.missing import Missing, lost_error

DUE_ENTRIES = 1 << 16
DUE_BYTES = 32 << 20
"""The most due entries, and bytes of their files, to read together."""


Read = list[Message] | MessagesLost
"""Messages of a delivery in order, or an error in their place. Messages with encoded payloads or chunks come one by
one."""


def read_messages(subscription, delivery: Delivery) -> Generator[Read, None, int]:
    """The delivery's messages in order, and errors; returns the number of messages."""
    positions, in_order = delivery.positions, delivery.due_order
    if in_order is None:
        stay = (
            positions if subscription.compacted_out is None else subscription.compacted_out.without(delivery, positions)
        )
        return (yield from _read(subscription, delivery, stay))
    messages, size = 0, _entries_at_once(subscription, delivery)
    for at in range(0, len(in_order), size):
        messages += yield from _read_in_order(subscription, delivery, in_order[at : at + size])
    return messages


def _entries_at_once(subscription, delivery: Delivery) -> int:
    """By the size of their files."""
    parts = delivery.parts(subscription.ledgers, subscription.topic, subscription.partition, delivery.positions)
    sizes = (run.bytes / run.entries * sum(last - first + 1 for first, last in spans) for run, spans in parts)
    return max(1, min(DUE_ENTRIES, int(DUE_BYTES * delivery.entries / max(sum(sizes), 1))))


def _read_in_order(subscription, delivery: Delivery, in_order: np.ndarray) -> Generator[Read, None, int]:
    """In the given order, errors last."""
    found: dict[int, list[Message]] = {}
    lost, positions = [], np.sort(in_order)
    for read in _entries(subscription, delivery, positions):
        if isinstance(read, MessagesLost):
            lost.append(read)
            continue
        for message in read:
            found.setdefault(message._position, []).append(message)
    chunked = joining_of(subscription, delivery, positions)
    in_turn = chain.from_iterable(found.pop(position, ()) for position in in_order.tolist())
    messages = yield from _whole(subscription, chunked, _apart(in_turn))
    yield from lost
    return messages


def _read(subscription, delivery: Delivery, positions: range | np.ndarray) -> Generator[Read, None, int]:
    chunked = joining_of(subscription, delivery, positions)
    return (yield from _whole(subscription, chunked, _entries(subscription, delivery, positions)))


def _entries(subscription, delivery: Delivery, positions: range | np.ndarray) -> Iterator[Read]:
    """By position; chunked messages by their last chunk."""
    topic, is_left = subscription.topic, delivery.is_left
    parts = delivery.parts(subscription.ledgers, topic, subscription.partition, positions)
    for run, rows in subscription.entries.read_all(topic.path, parts):
        if isinstance(rows, Missing):
            yield from _pass_over(subscription, delivery, run, rows)
            continue
        if is_left is not None:  # usually few of many: make messages only of these
            rows = rows.take(pa.array(np.flatnonzero(is_left[rows.column("batch_index").to_numpy()])))
        block = Block(
            rows,
            subscription.topic_name,
            subscription.partition,
            None if run is None else run.ledger_id,
            schema=subscription.schema,
            delivery=delivery,
            topic_id=topic.topic_id,
        )
        messages = list(map(Message, repeat(block), count(), block.column("position")))
        if block.has_encoded or block.has_chunks:
            yield from ([message] for message in messages)
        elif messages:
            yield messages


def _apart(messages: Iterable[Message]) -> Iterator[list[Message]]:
    """Split messages into the lists of :data:`Read`."""
    for comes_alone, alike in groupby(messages, lambda each: each._block.has_encoded or each._block.has_chunks):
        found = list(alike)
        yield from ([each] for each in found) if comes_alone else [found]


def _whole(subscription, chunked: Joining, found: Iterable[Read]) -> Generator[Read, None, int]:
    """Replace last chunks in *found* by their chunked messages."""
    messages = 0
    for each in found:
        whole: Read | None = each
        if isinstance(each, list) and each[0]._is_chunk():
            joined = _joined(subscription, chunked, each[0])
            whole = [joined] if isinstance(joined, Message) else joined
        messages += len(whole) if isinstance(whole, list) else 0
        if whole is not None:
            yield whole
    return messages


def _joined(subscription, chunked: Joining, last: Message) -> Message | MessagesLost | None:
    """The chunked message that ends with *last*; None if it is deleted or out of date."""
    delivery, position = last._block.delivery, last._position
    if delivery.generation != subscription.generation:
        return None
    found = chunked.message(last, position)
    if found is None:
        subscription.acknowledge_deleted([(position, position)])
    return found


def _pass_over(subscription, delivery: Delivery, run: Run, missing: Missing) -> Iterator[MessagesLost]:
    if delivery.generation != subscription.generation:
        return
    if missing.is_lost:
        yield lost_error(subscription.topic.path, run, missing)
        return
    subscription.acknowledge_deleted(
        [(first + run.to_position, last + run.to_position) for first, last in missing.whole]
    )
    wanted = delivery.unacked_bits
    for entry, indexes in missing.parts.items():
        for index in indexes:
            if wanted >> index & 1:
                subscription.tracker.acknowledge(entry + run.to_position, index, wanted)


class DeliveryReading:
    """*ahead* are its messages that nobody has taken yet."""

    def __init__(self, delivery: Delivery):
        self.delivery, self.subscription = delivery, delivery.subscription
        self.ahead: list[Message] = []
        self._taken, self._reads = 0, self.subscription.read(delivery)

    def restart(self) -> None:
        """Read again after what was taken, because Ctrl-C may have ended the reading."""
        self._reads = _after(self._taken, self.subscription.read(self.delivery))

    def read_on(self) -> Read | None:
        """Fill *ahead*; an error in place of messages, None after the last."""
        self.ahead[:0] = self.subscription.take_looked_at_again()
        if not self.ahead:
            read = next(self._reads, None)
            if not isinstance(read, list):
                self._taken += 1
                return read
            self.ahead, self._taken = read, self._taken + len(read)
        return self.ahead


def _after(messages: int, reads: Iterable[Read]) -> Iterator[Read]:
    for read in reads:
        if messages <= 0:
            yield read
        elif not isinstance(read, list):
            messages -= 1
        else:
            if read[messages:]:
                yield read[messages:]
            messages -= len(read)
