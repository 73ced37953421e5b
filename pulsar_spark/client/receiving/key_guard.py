"""Keeps the order per key of one Key_Shared subscription: messages that come too early wait, or are given back
unseen."""

import time
from typing import NamedTuple

from pulsar_spark.client.model.message import Message
from pulsar_spark.client.receiving.delivery import Delivery
from pulsar_spark.client.receiving.key_order import KeyOrder
from pulsar_spark.client.receiving.waiting_messages import WAIT_SECONDS
from pulsar_spark.protocol.acknowledgement.positions import ranges_of
from pulsar_spark.storage.entries.key_hashes import hashes_of

MOST_GUARDED = 20
"""How many messages are checked at once while some may be too early."""
_WATCH_SECONDS = 0.5


class InOrder(NamedTuple):
    """Messages to hand out, and those to look at afterwards, before any others: *released* of them had waited."""

    found: list[Message]
    next: list[Message]
    released: int


class KeyGuard:
    """The guard of one *subscription*; *order* knows what its consumer gave back."""

    def __init__(self, subscription, order: KeyOrder):
        self._subscription, self._order, self._is_watching = subscription, order, False

    def hashes_of(self, messages: list[Message]) -> dict[int, int] | None:
        """The hashes of the first *messages*, by position; None if none can be too early."""
        order, subscription = self._order, self._subscription
        if not order.is_guarding:
            return None
        with subscription.lock:
            unknown = order.unknown
        first = {each._position: each._sticky_hash() for each in messages[:MOST_GUARDED]}
        found = {position: sticky_hash for position, sticky_hash in first.items() if sticky_hash is not None}
        wanted = sorted({*unknown, *(first.keys() - found.keys())})
        if wanted:
            where = subscription.topic.path, subscription.topic.topic_id, subscription.partition
            known = hashes_of(subscription.ledgers, *where, ranges_of(wanted)).tolist()
            hashes = dict(zip(wanted, known, strict=True))
            found |= {position: hashes[position] for position in hashes.keys() & first.keys()}
            with subscription.lock:
                order.learn({position: hashes[position] for position in unknown})
        return found

    def has_changed(self, hashes: dict[int, int] | None) -> bool:
        """Whether to look up *hashes* again, because entries were given back since. Requires the lock."""
        return self._order.is_guarding and (hashes is None or bool(self._order.unknown))

    def in_order(self, delivery: Delivery, messages: list[Message], hashes: dict[int, int]) -> InOrder:
        """The first *messages* in order of their keys. Requires the lock."""
        order, found = self._order, list[Message]()
        version_at = delivery.read_version_at
        for at, message in enumerate(messages):
            if not self.may_go(delivery, message, hashes):
                continue
            position = message._position
            is_last = (
                delivery.batch_size == 1 or message._field("batch_index") == delivery.unacked_bits.bit_length() - 1
            )
            released = order.release(hashes[position], position, version_at(position), is_last=is_last)
            if not released:
                found.append(message)
                continue
            earlier = [each for each in released if each._position < position]
            if not earlier:
                found.append(message)
                return InOrder(found, [*released, *messages[at + 1 :]], len(released))
            later = released[len(earlier) :]
            return InOrder(found, [*earlier, message, *later, *messages[at + 1 :]], len(released))
        return InOrder(found, [], 0)

    def may_go(self, delivery: Delivery, message: Message, hashes: dict[int, int]) -> bool:
        """Whether *message* may be handed out. If it comes too early, it waits or is given back. Requires the lock."""
        order, position = self._order, message._position
        version, sticky_hash = delivery.read_version_at(position), hashes[position]
        order.arrives(version)
        if order.is_returned(position, version):
            return False
        if not order.is_early(sticky_hash, position, version):
            return True
        if not self._let_wait(sticky_hash, message, version):
            self._give_back(sticky_hash, position)
        return False

    def _let_wait(self, sticky_hash: int, message: Message, version: int) -> bool:
        subscription = self._subscription
        if not subscription._permits.queue_size:
            return False
        does_wait = self._order.let_wait(sticky_hash, message, version, time.monotonic())
        if does_wait and not self._is_watching:
            self._is_watching = True
            subscription._channel.call_later(WAIT_SECONDS, self.give_back_late)
        return does_wait

    def _give_back(self, sticky_hash: int, position: int) -> None:
        self._subscription.tracker.give_back_unseen(position, sticky_hash)
        self._subscription._consumer._forget_unacked_entry(self._subscription, position)

    def give_back_late(self) -> None:
        """Give back messages that waited too long."""
        with self._subscription.lock:
            for sticky_hash, message in self._order.take_late(time.monotonic()):
                self._give_back(sticky_hash, message._position)
            self._is_watching = bool(self._order.waiting)
        if self._is_watching:
            self._subscription._channel.call_later(_WATCH_SECONDS, self.give_back_late)
