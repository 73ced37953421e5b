"""Gives back unused messages of a queue that grew, so that other consumers get them."""

from typing import Any

from pulsar_spark.client.receiving.key_order import UnderWay
from pulsar_spark.protocol.acknowledgement.cursor import SINCE_ROUND
from pulsar_spark.protocol.subscriptions.permits import Permits

WATCH_SECONDS = 1.0


class QueueWatch:
    """Checks a :class:`PartitionSubscription` once a second while its queue may shrink. Not on Exclusive and
    Failover, and not while messages wait for earlier ones of their keys: few are taken then, whatever the application
    could do."""

    def __init__(self, subscription: Any, permits: Permits):
        self._subscription, self._permits, self._is_watching = subscription, permits, False

    def start(self) -> None:
        if self._permits.may_shrink and not self._is_watching and not self._subscription.is_single_active:
            self._is_watching = True
            self._subscription._channel.call_later(WATCH_SECONDS, self.shrink)

    def shrink(self) -> None:
        """Give back the surplus tail of the queue."""
        subscription, receiver = self._subscription, self._subscription._consumer._receiver
        self._is_watching = False
        if receiver.is_closed:
            return
        with subscription.lock:
            permits = subscription._count_taken()
            order = subscription.key_order
            is_guarding = order is not None and order.is_guarding
            too_many = 0 if is_guarding else self._permits.too_many(subscription._queued)
        tail = receiver.take_back(subscription, too_many)
        redelivery = UnderWay()
        with subscription.lock:
            tail = [delivery for delivery in tail if delivery.generation == subscription.generation]
            messages = sum(delivery.messages for delivery in tail)
            subscription._queued -= messages
            permits += self._permits.give_back(messages)
            if gone := set(tail):
                newest = subscription._newest
                subscription._newest = {at: each for at, each in newest.items() if each not in gone}
                subscription._stale = redelivery
        if tail:
            since = tail[0].round
            first = min(delivery.place for delivery in tail if delivery.round == since)
            row = subscription.row("redeliver_all", first=first, properties={SINCE_ROUND: str(since)})
            subscription._channel.submit([row], committed=redelivery.committed)
        subscription._flow(permits)
        self.start()
