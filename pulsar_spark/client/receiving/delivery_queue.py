"""The deliveries of a consumer, in order of arrival, until they are read."""

from collections import deque
from collections.abc import Sequence

from pulsar_spark.client.receiving.delivery import Delivery

JOINED_ENTRIES = 1000
"""Up to about how many entries deliveries are read together."""


class DeliveryQueue:
    """The queue of one consumer; the caller holds a lock."""

    def __init__(self) -> None:
        self._deliveries: deque[Delivery] = deque()

    def __len__(self) -> int:
        return len(self._deliveries)

    def put(self, delivery: Delivery) -> None:
        self._deliveries.append(delivery)

    def take_tail(self, subscription, messages: int) -> list[Delivery]:
        """Take :func:`tail_of` the deliveries of *subscription*."""
        tail = tail_of([each for each in self._deliveries if each.subscription is subscription], messages)
        gone = set(tail)
        self._deliveries = deque(each for each in self._deliveries if each not in gone)
        return tail

    def take(self) -> list[Delivery]:
        """Take the first valid delivery, and those that can be read with it; empty without one."""
        while self._deliveries:
            found = [self._take_first()]
            if found[0].generation == found[0].subscription.generation:
                break
        else:
            return []
        entries = found[0].entries
        while found[0].can_be_joined and self._deliveries and entries < JOINED_ENTRIES:
            if not self._deliveries[0].can_be_joined or not found[-1].is_followed_by(self._deliveries[0]):
                break
            found.append(self._take_first())
            entries += found[-1].entries
        return found

    def _take_first(self) -> Delivery:
        delivery = self._deliveries.popleft()
        delivery.is_taken()
        return delivery


def tail_of(queue: Sequence[Delivery], messages: int) -> list[Delivery]:
    """The last deliveries in *queue* (of one subscription) with at least *messages* messages, or as many as there are.

    The round and place of the first one identify the tail.
    """
    if not queue or messages <= 0:
        return []
    taken, before = queue[0].subscription.taken, []
    for delivery in queue:
        before.append(taken)
        taken = delivery.taken_after(taken)
    cut, first, found = len(queue), queue[-1].place, 0
    for at in reversed(range(len(queue))):
        delivery = queue[at]
        is_same_round = at + 1 < len(queue) and queue[at + 1].round == delivery.round
        first = min(first, delivery.place) if is_same_round else delivery.place
        found += delivery.messages
        round_before, last_before = before[at]
        if round_before != delivery.round or last_before < first:
            cut = at
            if found >= messages:
                break
    return list(queue[cut:])
