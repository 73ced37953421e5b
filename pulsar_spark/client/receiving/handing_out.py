"""Chooses which delivered messages of a partition the application gets, in order.

It leaves out replaced and acknowledged messages, and those too early for the order of their key.
"""

import threading
from collections.abc import Callable, Iterator
from itertools import compress, groupby, takewhile
from operator import attrgetter
from typing import Any

from pulsar_spark.client.acks.acknowledgement_tracker import AcknowledgementTracker
from pulsar_spark.client.model.message import Message
from pulsar_spark.client.receiving.delivery import Delivery
from pulsar_spark.client.receiving.key_guard import MOST_GUARDED, KeyGuard
from pulsar_spark.client.receiving.key_order import KeyOrder
from pulsar_spark.client.receiving.reading import Read, read_messages
from pulsar_spark.client.receiving.ready import Ready
from pulsar_spark.errors import TopicNotFound
from pulsar_spark.link.channel import Channel
from pulsar_spark.protocol.subscriptions.permits import Permits
from pulsar_spark.storage.ledgers.ledger_index import LedgerIndex
from pulsar_spark.storage.topics.topics import Topic

_POSITION = attrgetter("_position")


class HandingOut:
    """The part of :class:`~pulsar_spark.client.subscribing.subscription.PartitionSubscription` that hands out
    messages."""

    topic: Topic
    partition: int
    ledgers: LedgerIndex
    lock: threading.Lock
    generation: int
    tracker: AcknowledgementTracker
    key_order: KeyOrder | None
    _guard: KeyGuard | None
    row: Callable[..., dict]
    _channel: Channel
    _permits: Permits
    _flow: Callable[[int], None]
    _queued: int
    _ready: Ready
    _looked_at_again: list[Message]
    _newest: dict[int, Delivery]
    _is_timed: bool
    _consumer: Any
    _start_after: tuple[int, int] | None

    def read(self, delivery: Delivery) -> Iterator[Read]:
        """The delivery's messages in order; errors take the place of lost ones."""
        messages = yield from read_messages(self, delivery)
        self._pass_over(delivery, delivery.messages - messages)

    def join(self, delivery: Delivery, others: list[Delivery]) -> None:
        """Read *others* after *delivery*."""
        with self.lock:
            delivery.join(others)
            if self._newest:
                gone = set(others)
                at = [each for each in map(int, delivery.positions) if self._newest.get(each) in gone]
                self._newest.update(dict.fromkeys(at, delivery))

    def acknowledge_deleted(self, spans: list[tuple[int, int]]) -> None:
        """Acknowledge deleted entries in *spans* (first..last)."""
        self._channel.submit([self.row("ack", first=first, last=last) for first, last in spans])

    def _pass_over(self, delivery: Delivery, messages: int) -> None:
        """Count messages that no longer exist as taken."""
        with self.lock:
            permits = self._count_taken()
            if messages > 0 and delivery.generation == self.generation:
                self._queued -= messages
                permits += self._permits.take(messages)
        self._flow(permits)

    def _count_taken(self) -> int:
        """Count the taken messages; return the permits to request. Call it before using the counts, with the lock."""
        taken = self._ready.newly_taken()
        self._queued -= taken
        if self.key_order is not None:
            waiting = len(self.key_order.waiting) - self._permits.queue_size
            self._permits.keep(len(self.tracker.given_back) + max(0, waiting))
        return self._permits.take(taken) if taken else 0

    def look_again(self) -> None:
        """Recheck all ready messages before they are handed out."""
        with self.lock:
            self._look_again()

    def _look_again(self) -> None:
        self._looked_at_again += self._ready.take_back()

    def take_looked_at_again(self) -> list[Message]:
        with self.lock:
            found, self._looked_at_again = self._looked_at_again, []
        return found

    def hand_out(self, messages: list[Message]) -> Ready | None:
        """Take messages from the front of *messages* (all of one delivery), up to the one at which permits must be
        requested. None if the delivery is out of date."""
        block = messages[0]._block
        delivery = block.delivery
        is_single = self._is_timed or block.has_encoded
        guard = self._guard
        hashes = None if guard is None else guard.hashes_of(messages)
        with self.lock:
            if delivery.generation != self.generation:
                return None
            if guard is not None and guard.has_changed(hashes):
                return Ready([])  # check again
            permits = self._count_taken()
            most = 1 if is_single else max(1, self._permits.until_request - 1)
            most = most if hashes is None else min(most, MOST_GUARDED)
            looked_at = messages[:most]
            if guard is not None:  # messages that waited are of other blocks
                looked_at = list(takewhile(lambda each: each._block is block, looked_at))
            del messages[: len(looked_at)]
            shown, left = self._to_be_shown(delivery, looked_at), 0
            if guard is not None and hashes is not None:
                shown, following, released = guard.in_order(delivery, shown, hashes)
                messages[:0] = following
                left = len(following) - released
                self._queued += released
                permits += self._permits.take(-released)
            done = len(looked_at) - left
            if most == 1 and done:
                self._queued -= 1
                permits += self._permits.hand_out(is_shown=bool(shown))
            elif most > 1 and (unseen := done - len(shown)):
                self._queued -= unseen
                permits += self._permits.take(unseen)
            ready = Ready(shown, delivery.first, delivery.last)
            self._ready = ready if most > 1 else Ready([])  # a counted message is not checked again
        self._flow(permits)
        return ready

    def may_still_be_handed_out(self, message: Message) -> bool:
        """Whether a taken message that reached nobody can be handed out now. If it has become too early, it waits or is
        given back."""
        guard, delivery = self._guard, message._block.delivery
        try:
            hashes = None if guard is None else guard.hashes_of([message])
        except TopicNotFound:  # deleted; the broker will say so
            return False
        with self.lock:
            if delivery.generation != self.generation:
                return False
            return guard is None or hashes is None or guard.may_go(delivery, message, hashes)

    def _to_be_shown(self, delivery: Delivery, messages: list[Message]) -> list[Message]:
        """Messages that are neither replaced, acknowledged, nor before the place of a seek."""
        if delivery.batch_size == 1:
            if self._newest:
                messages = [each for each in messages if self._is_newest(delivery, each._position, True)]
            are_new = self.tracker.current_group().new_of([each._position for each in messages])
            shown = messages if are_new is None else list(compress(messages, are_new))
        else:
            shown = []
            for position, of_entry in groupby(messages, _POSITION):
                found = list(of_entry)
                ends = _batch_index(found[-1]) == delivery.unacked_bits.bit_length() - 1
                if not self._newest or self._is_newest(delivery, position, ends):
                    shown += self._of_batch(delivery, position, found)
        if self._start_after is None:
            return shown
        return [each for each in shown if (each._position, _batch_index(each)) >= self._start_after]

    def _is_newest(self, delivery: Delivery, position: int, ends: bool) -> bool:
        """Whether no newer delivery of this entry is queued. *ends*: its last message is handed out now."""
        newest = self._newest.get(position)
        if newest is not delivery:
            return newest is None
        if ends:
            del self._newest[position]
        return True

    def _of_batch(self, delivery: Delivery, position: int, messages: list[Message]) -> list[Message]:
        """The unacknowledged ones of one entry's messages."""
        delivered, first = delivery.unacked_bits, _batch_index(messages[0])
        group = self.tracker.current_group()
        if 1 << first == delivered & -delivered:
            group.deliver(position, delivered)
            if self._start_after is not None and position == self._start_after[0]:
                group.skip(position, delivered, self._start_after[1])
        left = group.left_of(position, delivered) >> first
        last = _batch_index(messages[-1]) - first
        if last == len(messages) - 1 and ~left & (2 << last) - 1 == 0:
            return messages
        return [each for each in messages if left >> (_batch_index(each) - first) & 1]


def _batch_index(message: Message) -> int:
    return message._field("batch_index") or 0
