"""Count the messages that a round acknowledges, by the states of their entries before it."""

from collections.abc import Iterable, Sequence

import numpy as np

from pulsar_spark.broker.gathering.planned_entries import PlannedEntries
from pulsar_spark.protocol.acknowledgement import ack_set as ack_sets
from pulsar_spark.protocol.acknowledgement.ack_set import AckSet
from pulsar_spark.protocol.acknowledgement.cursor import ACKNOWLEDGED, Range
from pulsar_spark.protocol.acknowledgement.positions import distinct
from pulsar_spark.protocol.entries.entry_codes import UNREAD_CODE, WAITING_CODE
from pulsar_spark.protocol.entries.entry_map import EntryMap, codes_at
from pulsar_spark.storage.ledgers.partition_ledgers import PartitionLedgers

_UNDELIVERED = (UNREAD_CODE, WAITING_CODE)
"""Codes of entries whose batch sizes only the ledgers know."""


class AcknowledgedMessages:
    """Counts what one cursor's plan acknowledges. It is made, and :meth:`of_whole` called, before the result is in the
    map, and :meth:`of_parts` after it.

    *ack_sets* has, by position, what requests leave of batches.
    """

    def __init__(self, entries: EntryMap, ledgers: PartitionLedgers, left: dict[int, AckSet]):
        self._entries, self._ledgers, self._left = entries, ledgers, left
        self._positions = np.array(sorted(left), np.int64)
        self._before = self._weights(self._positions) if left else self._positions

    def of_whole(self, planned: PlannedEntries, ranges: Iterable[Range]) -> int:
        """Messages of the entries that become acknowledged, without those acknowledged before."""
        entries, total = self._entries, 0
        for _, part, begin, end in planned.parts_of(ranges, ACKNOWLEDGED):
            code = getattr(part, "code", None)
            if code is not None and code not in _UNDELIVERED:
                total += entries.codes.state(code).weight * (end - begin)
                continue
            positions = part.positions(entries, begin, end)
            if isinstance(positions, list):
                total += sum(self._messages(first, last) for first, last in positions)
            else:
                total += int(self._weights(positions).sum())
        return total

    def of_parts(self, dead: Sequence[Range]) -> int:
        """Messages acknowledged of entries that are not acknowledged as a whole; *dead* are the dead ones."""
        if not self._left:
            return 0
        after = np.where(self._are_acknowledged(self._positions), self._before, self._weights(self._positions))
        total = int((self._before - after).sum())
        for range_ in dead:
            if range_.ack_set is not None:
                among = slice(*np.searchsorted(self._positions, (range_.first, range_.last + 1)))
                total += int((self._before[among] - ack_sets.count(range_.ack_set)).sum())
        return total

    def _messages(self, first: int, last: int) -> int:
        return self._ledgers.messages_before(last + 1) - self._ledgers.messages_before(first)

    def _are_acknowledged(self, positions: np.ndarray) -> np.ndarray:
        return np.isin(self._entries.at(positions), self._entries.codes.acknowledged)

    def _weights(self, positions: np.ndarray) -> np.ndarray:
        """The unacknowledged messages of each entry."""
        codes, weights = codes_at(self._entries, positions), np.zeros(len(positions), np.int64)
        for code in distinct(codes).tolist():
            its = codes == code
            if code in _UNDELIVERED:
                weights[its] = self._ledgers.batch_sizes(positions[its])
            else:
                weights[its] = self._entries.codes.state(code).weight
        return weights
