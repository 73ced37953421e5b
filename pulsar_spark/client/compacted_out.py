"""What a consumer that reads compacted passes over: entries that were compacted out are acknowledged in few requests,
those of a delivery and others ahead of it, so that the next deliveries are of entries that stay. Without that a topic
of which one entry in a thousand stays would take a round for each."""

import numpy as np

from pulsar_spark.client.delivery import Delivery
from pulsar_spark.protocol.positions import Positions, ranges_of
from pulsar_spark.storage.compacted_entries import CompactedEntries

AHEAD = 1000
"""So far it is looked ahead, in entries that stay: a queue full."""


class CompactedOut:
    """Of one subscription on a topic partition; for the thread that takes messages."""

    def __init__(self, subscription, entries: CompactedEntries):
        self._subscription, self._entries = subscription, entries
        self._told_for, self._told_until = (-1, -1), -1
        """Generation and horizon, and up to which position was told for them."""

    def without(self, delivery: Delivery, positions: range | np.ndarray) -> range | np.ndarray:
        """Those of a delivery's *positions* that stay, or are not compacted."""
        subscription = self._subscription
        if not isinstance(positions, range) or not len(positions):
            return positions
        topic, partition, first, last = subscription.topic, subscription.partition, positions[0], positions[-1]
        horizon, stay = self._entries.places(topic.path, partition, first, last, AHEAD)
        end = subscription.ledgers.next_position(topic.topic_id, partition, horizon + 1, -1)
        if first >= end:
            return positions
        if self._told_for != (delivery.generation, horizon):
            self._told_for, self._told_until = (delivery.generation, horizon), -1
        has_more = len(stay) - int(np.searchsorted(stay, last, "right")) == AHEAD
        until = min(int(stay[-1]), end - 1) if has_more else end - 1  # a broker refuses what it has not numbered yet
        begin = max(first, self._told_until + 1)
        if begin <= until:
            gaps = Positions(ranges_of(stay)).gaps(begin, until)
            subscription.tell_deleted(list(gaps))
            self._told_until = until
        kept = stay[stay <= last]
        return np.concatenate([kept, np.arange(max(first, end), last + 1)])
