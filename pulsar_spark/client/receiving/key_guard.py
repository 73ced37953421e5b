"""Keeps the order per key of one Key_Shared subscription: messages that come too early are given back unseen."""

from pulsar_spark.client.model.message import Message
from pulsar_spark.client.receiving.delivery import Delivery
from pulsar_spark.client.receiving.key_order import KeyOrder
from pulsar_spark.protocol.acknowledgement.positions import ranges_of
from pulsar_spark.storage.entries.key_hashes import hashes_of

MOST_GUARDED = 20
"""How many messages are checked at once while some may be too early."""


class KeyGuard:
    """The guard of one *subscription*; *order* knows what its consumer gave back."""

    def __init__(self, subscription, order: KeyOrder):
        self._subscription, self._order = subscription, order

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

    def in_order(self, delivery: Delivery, messages: list[Message], hashes: dict[int, int]) -> list[Message]:
        """The *messages* before which no entry of the same hash was given back. Gives the others back. Requires the
        lock."""
        order, in_order = self._order, []
        for message in messages:
            position = message._position
            version = delivery.read_version_at(position)
            order.arrives(version)
            if order.is_returned(position, version):
                continue
            if order.is_early(hashes[position], position, version):
                self._subscription.tracker.give_back_unseen(position, hashes[position])
                self._subscription._consumer._forget_unacked_entry(self._subscription, position)
            else:
                in_order.append(message)
        return in_order
