"""Shared: the order in which consumers of a subscription are offered entries.

Rules: PersistentDispatcherMultipleConsumers and AbstractDispatcherMultipleConsumers.getNextConsumer, semantics 2.14 and
2.15: the best priority level with an available consumer, round robin within it. Each round starts one consumer later
(0.28)."""

from collections.abc import Sequence
from itertools import groupby
from typing import Generic, NamedTuple, Protocol, TypeVar


class InLine(Protocol):
    """What decides a consumer's place; ``join_order`` counts consumers over the subscription's life."""

    priority_level: int
    join_order: int


AnyConsumer = TypeVar("AnyConsumer", bound=InLine)
LAPS = (0, 1)
"""First a fair share each, then the rest of each consumer's permits."""


class Turn(NamedTuple, Generic[AnyConsumer]):
    """One lap of one consumer; *peers* share its level, itself included."""

    consumer: AnyConsumer
    lap: int
    peers: int


def dispatch_order(consumers: Sequence[AnyConsumer]) -> list[AnyConsumer]:
    """*consumers* by priority level, then by joining."""
    return sorted(consumers, key=lambda c: (c.priority_level, c.join_order))


def turns(consumers: Sequence[AnyConsumer], *, start: int) -> list[Turn[AnyConsumer]]:
    """The turns of *consumers* in order of service: level by level, twice round each, from its *start*-th consumer
    (modulo their number) on.

    >>> from pulsar_spark.protocol.subscriptions.failover import Consumer
    >>> three = [Consumer("1", "a", 0, 0), Consumer("2", "b", 0, 1), Consumer("3", "c", 1, 2)]
    >>> [(turn.consumer.name, turn.lap) for turn in turns(three, start=1)]
    [('b', 0), ('a', 0), ('b', 1), ('a', 1), ('c', 0), ('c', 1)]
    """
    found = []
    for _, level in groupby(dispatch_order(consumers), key=lambda consumer: consumer.priority_level):
        peers = list(level)
        first = start % len(peers)
        found += [Turn(consumer, lap, len(peers)) for lap in LAPS for consumer in peers[first:] + peers[:first]]
    return found
