"""Shared: the order in which the consumers of a subscription are offered entries.

Rules: PersistentDispatcherMultipleConsumers and AbstractDispatcherMultipleConsumers.getNextConsumer, semantics 2.14 and
2.15. The list is in joining order; it is sorted by priority level, stably, when a consumer joins with a better priority
than the one before it. Each pick serves the best priority that has an available consumer; inside a level picks go round
robin. A consumer is available while it has permits and is not blocked by its unacknowledged messages.
"""

from collections.abc import Callable, Sequence

from pulsar_spark.protocol.failover import Consumer


def dispatch_order(consumers: Sequence[Consumer]) -> list[Consumer]:
    """*consumers* in the order of the dispatcher's list.

    Joining in turn with a stable sort at every better newcomer, and joining at the end otherwise, always comes to: by
    priority level, then by joining.

    >>> [c.name for c in dispatch_order([Consumer("1", "a", 1, 0), Consumer("2", "b", 0, 1), Consumer("3", "c", 1, 2)])]
    ['b', 'a', 'c']
    """
    return sorted(consumers, key=lambda c: (c.priority_level, c.join_order))


class RoundRobin:
    """Picks consumers one after another; keeps the place in the list between picks."""

    def __init__(self, consumers: Sequence[Consumer]):
        self.consumers = dispatch_order(consumers)
        self._place = 0

    def pick(self, is_available: Callable[[Consumer], bool]) -> Consumer | None:
        """The next consumer among the available ones of the best priority that has any; None when nobody is available.

        >>> turns = RoundRobin([Consumer("1", "a"), Consumer("2", "b")])
        >>> [turns.pick(lambda c: True).name for _ in range(3)]
        ['a', 'b', 'a']
        """
        available = [place for place, consumer in enumerate(self.consumers) if is_available(consumer)]
        if not available:
            return None
        best = self.consumers[available[0]].priority_level
        level = [place for place in available if self.consumers[place].priority_level == best]
        picked = next((place for place in level if place >= self._place), level[0])
        self._place = picked + 1
        return self.consumers[picked]
