"""Skips compacted-out entries for a consumer that reads compacted.

They are acknowledged in few requests, also ahead of a delivery. Deletions are delivered unless their key is unknown
(semantics 0.34).
"""

import numpy as np

from pulsar_spark.client.receiving.delivery import Delivery
from pulsar_spark.protocol.acknowledgement.positions import Positions, distinct, ranges_of
from pulsar_spark.storage.compaction.compacted_entries import CompactedEntries

AHEAD = 1000
"""How many entries that stay to look ahead."""
AHEAD_FOR_DELETIONS = 100_000
"""How many entries to look ahead for deletions."""


class CompactedOut:
    """Of one subscription on a partition; for the thread that takes messages."""

    def __init__(self, subscription, entries: CompactedEntries):
        self._subscription, self._entries = subscription, entries
        self._reported_for, self._reported_until = (-1, -1), -1
        """Generation and horizon, and the last position reported for them."""
        self._knows_none_until: int | None = None
        """The consumer knows no keys of deletions up to this ledger; None before the first delivery."""

    def without(self, delivery: Delivery, positions: range | np.ndarray) -> range | np.ndarray:
        """The *positions* of a delivery that are not compacted out."""
        subscription = self._subscription
        if not isinstance(positions, range) or not len(positions):
            return positions
        topic, partition, first, last = subscription.topic, subscription.partition, positions[0], positions[-1]
        horizon, stay = self._entries.places(topic.path, partition, first, last, AHEAD)
        end = subscription.ledgers.next_position(topic.topic_id, partition, horizon + 1, -1)
        if self._knows_none_until is None:
            self._knows_none_until = horizon if first == 0 else 0
        if first >= end:
            return positions
        hears = horizon > self._knows_none_until
        if self._reported_for != (delivery.generation, horizon):
            self._reported_for, self._reported_until = (delivery.generation, horizon), -1
        has_more = len(stay) - int(np.searchsorted(stay, last, "right")) == AHEAD
        until = min(int(stay[-1]), end - 1) if has_more else end - 1  # a broker refuses unnumbered entries
        begin = max(first, self._reported_until + 1)
        if hears:
            until = max(min(last, end - 1), min(until, begin + AHEAD_FOR_DELETIONS))
            stay = distinct(np.concatenate([stay, self._deletions(first, begin, until)]))
        if begin <= until:
            gaps = Positions(ranges_of(stay)).gaps(begin, until)
            subscription.acknowledge_deleted(list(gaps))
            self._reported_until = until
        kept = stay[stay <= last]
        return np.concatenate([kept, np.arange(max(first, end), last + 1)])

    def _deletions(self, first: int, begin: int, until: int) -> np.ndarray:
        """Positions from *first* to *until* of deletions to deliver; those before *begin* are known."""
        subscription, known = self._subscription, 0
        topic, partition = subscription.topic, subscription.partition
        if self._knows_none_until:
            known = subscription.ledgers.next_position(topic.topic_id, partition, self._knows_none_until + 1, -1)
        if max(begin, known) <= until:
            spans = [(max(begin, known), until)]
            self._entries.look_for_deletions(
                topic.path, partition, subscription.ledgers.spans_of(topic.topic_id, partition, spans)
            )
        return self._entries.deletions(topic.path, partition, first, until)
