"""Shared: the order in which the consumers of a subscription are offered entries.

Rules: PersistentDispatcherMultipleConsumers and AbstractDispatcherMultipleConsumers.getNextConsumer, semantics 2.14 and
2.15. The list is in joining order; it is sorted by priority level, stably, when a consumer joins with a better priority
than the one before it. Each pick serves the best priority that has an available consumer; inside a level picks go round
robin, from where they stopped.

A round picks many entries at once, so the walk round a level is two laps, and each round starts one consumer further
(0.28: run lengths are ours). Which consumer is available and how much it takes is the plan's (transforms.turns).
"""

from collections.abc import Sequence
from itertools import groupby
from typing import NamedTuple, Protocol, TypeVar


class InLine(Protocol):
    """What decides a consumer's place: ``join_order`` counts up over the subscription's life."""

    priority_level: int
    join_order: int


AnyConsumer = TypeVar("AnyConsumer", bound=InLine)
LAPS = (0, 1)
"""A fair share each, then what is left of each one's permits."""


class Turn(NamedTuple):
    """One lap of one consumer, who shares its level with so many *peers* (itself included)."""

    consumer: InLine
    lap: int
    peers: int


def dispatch_order(consumers: Sequence[AnyConsumer]) -> list[AnyConsumer]:
    """*consumers* in the order of the dispatcher's list.

    Joining in turn with a stable sort at every better newcomer, and joining at the end otherwise, always comes to: by
    priority level, then by joining.

    >>> from pulsar_spark.protocol.failover import Consumer
    >>> [c.name for c in dispatch_order([Consumer("1", "a", 1, 0), Consumer("2", "b", 0, 1), Consumer("3", "c", 1, 2)])]
    ['b', 'a', 'c']
    """
    return sorted(consumers, key=lambda c: (c.priority_level, c.join_order))


def turns(consumers: Sequence[AnyConsumer], *, start: int) -> list[Turn]:
    """The turns of *consumers* in order of service: level by level, twice round each, beginning at its *start*-th
    consumer, counted round.

    >>> from pulsar_spark.protocol.failover import Consumer
    >>> three = [Consumer("1", "a", 0, 0), Consumer("2", "b", 0, 1), Consumer("3", "c", 1, 2)]
    >>> [(turn.consumer.name, turn.lap, turn.peers) for turn in turns(three, start=1)]
    [('b', 0, 2), ('a', 0, 2), ('b', 1, 2), ('a', 1, 2), ('c', 0, 1), ('c', 1, 1)]
    """
    found = []
    for _, level in groupby(dispatch_order(consumers), key=lambda consumer: consumer.priority_level):
        peers = list(level)
        first = start % len(peers)
        found += [Turn(consumer, lap, len(peers)) for lap in LAPS for consumer in peers[first:] + peers[:first]]
    return found
