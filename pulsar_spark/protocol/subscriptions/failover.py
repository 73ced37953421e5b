"""Failover: the order of a subscription's consumers, and which of them is active.

Rules: AbstractDispatcherSingleActiveConsumer, semantics 2.7-2.11. Order is by priority level, then by name as in Java,
then by joining. Partition i goes to the i-th consumer of the best level, modulo their number; other topics are placed
on a hash ring."""

from bisect import bisect_left
from collections.abc import Sequence
from typing import NamedTuple

from pulsar_spark.protocol.keys.sticky_key import sticky_key_hash
from pulsar_spark.protocol.topics.topic_name import parse_topic_name

POINTS_PER_CONSUMER = 100


class Consumer(NamedTuple):
    """What decides a consumer's place; ``join_order`` counts consumers over the subscription's life."""

    consumer_id: str
    name: str
    priority_level: int = 0
    join_order: int = 0


def sort_consumers(consumers: Sequence[Consumer]) -> list[Consumer]:
    return sorted(consumers, key=lambda c: (c.priority_level, java_order(c.name), c.join_order))


def active_consumer(consumers: Sequence[Consumer], *, partition_index: int, topic_name: str) -> Consumer | None:
    """The consumer that receives, None without any. *partition_index* is -1 on a topic without partitions; *topic_name*
    is the full name.

    >>> both = [Consumer("1", "a"), Consumer("2", "b")]
    >>> active_consumer(both, partition_index=3, topic_name="persistent://public/default/t-partition-3").name
    'b'
    """
    ordered = sort_consumers(consumers)
    best = [c for c in ordered if c.priority_level == ordered[0].priority_level]
    if not best:
        return None
    if partition_index < 0:
        partition_index = parse_topic_name(topic_name).partition_index
    return best[partition_index % len(best)] if partition_index >= 0 else _nearest_on_ring(best, topic_name)


def takeover_pause_ms(subscription_type: str, delay_ms: int) -> int | None:
    """How long a consumer that takes over waits before it receives: *delay_ms* on Failover (2.11), else None.

    >>> takeover_pause_ms("Failover", 1000), takeover_pause_ms("Exclusive", 1000)
    (1000, None)
    """
    return delay_ms if subscription_type == "Failover" else None


def _nearest_on_ring(best: list[Consumer], topic_name: str) -> Consumer:
    """The consumer of the first point at or after the topic's, cyclically. If points coincide, the later consumer
    wins."""
    ring = {
        sticky_key_hash(f"{consumer.name}{i}".encode()): consumer
        for consumer in best
        for i in range(POINTS_PER_CONSUMER)
    }
    points = sorted(ring)
    place = bisect_left(points, sticky_key_hash(topic_name.encode("utf-8")))
    return ring[points[place % len(points)]]


def java_order(name: str) -> bytes:
    """Bytes that sort as Java's ``String.compareTo`` does."""
    return name.encode("utf-16-be", "surrogatepass")
