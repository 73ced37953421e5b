"""Gather the entries of a Key_Shared cursor that a round decides about, owner by owner.

The owner of an entry is the consumer that has the hash of its key. An entry that may not go to its owner in this round
is held (see keyed).
"""

from collections.abc import Sequence
from functools import cached_property

import numpy as np

from pulsar_spark.broker.bundle.bundle import Bundle
from pulsar_spark.broker.cursors.consumer import Consumer
from pulsar_spark.broker.delays.deliver_times import TimedRange, unread_ranges
from pulsar_spark.broker.gathering.cursor_inputs import CursorInputs
from pulsar_spark.broker.gathering.marks import NO_POSITIONS
from pulsar_spark.broker.gathering.planned_entries import Labelled, Labels, Listed
from pulsar_spark.broker.key_shared.keyed import Keyed
from pulsar_spark.broker.requests.drafts import CursorChanges, RoundDraft
from pulsar_spark.protocol.entries.entry_codes import UNREAD_CODE, WAITING_CODE
from pulsar_spark.protocol.entries.entry_ranges import by_code
from pulsar_spark.protocol.keys.hash_ranges import NOBODY

_HELD = None, True
"""Columns ``line`` and ``is_held`` of entries that go to nobody in this round."""


class InputsByKey(CursorInputs):
    """Like its base, but each range names the owner of its entries, or is held."""

    def __init__(self, bundle: Bundle, draft: RoundDraft, changes: CursorChanges, takers: Sequence[Consumer]):
        super().__init__(bundle, draft, changes, takers)
        self._keyed = Keyed(bundle, draft, changes, takers, self.marks, self.read)
        self.ranges.line = _HELD
        self._labels = Labels(0, np.empty(0, np.int16))
        self.found_nothing = True
        """Is there no entry that its owner can take?"""

    @cached_property
    def _again(self) -> tuple[np.ndarray, np.ndarray]:
        """The entries to deliver again that did not wait for a time; and the position of each owner's first such entry
        for which it has no permits. Sets ``_due``, the entries to deliver because they came due."""
        ripe = self._ripe() if self._permits > 0 else {}
        untimed, most, looked_at = self._where_left(ripe.pop(0, ())), self._permits, -1
        while True:  # some of those that came due are held, so look at more until permits or entries run out
            due = self._came_due(ripe, most)
            positions, times = np.append(untimed, due.positions), np.append(np.zeros(len(untimed), np.int64), due.times)
            order, takes = np.argsort(positions), np.empty(len(positions), bool)
            takes[order], beyond = self._keyed.again(positions[order], times[order])
            if len(due) == looked_at or np.count_nonzero(takes) >= self._permits:
                self._due = due.part(takes[len(untimed) :])
                return untimed[takes[: len(untimed)]], beyond
            most, looked_at = 4 * most, len(due)

    def _may_be_dealt(self, comes: np.ndarray) -> np.ndarray:
        """Which of the entries *comes*, which come back now, their owner can take: none after the first entry for which
        it has no permits."""
        owners = self._keyed.owners_of(comes)
        return comes[(owners != NOBODY) & (comes < self._again[1][owners])]

    def _offered(self) -> np.ndarray:
        return self._again[0]

    def _read_new(self) -> None:
        self._labels = self._keyed.new()

    def _add_candidates(self, known: np.ndarray) -> None:
        """Add the entries at *known*, held ones first; then those that came due, and those never delivered. An entry at
        *known* that was never delivered is one that requests acknowledge in part."""
        owners, is_unread = self._keyed.owners_of(known), np.isin(self._entries.at(known), (UNREAD_CODE, WAITING_CODE))
        self._add_known(known[owners == NOBODY])
        is_again = ~is_unread & (owners != NOBODY)
        for owner, positions in by_code(owners[is_again], known[is_again]):
            self.ranges.line = self._keyed.names[owner], False
            self._add_known(self._keyed.by_deliver_time(positions))
        self.first_new = self.ranges.places
        self._add_due()
        new, counts = self._labels, self._labels.counts
        self.found_nothing = not len(self._again[0]) and not len(self._due) and not any(counts)
        ranges = unread_ranges(self._bundle, self._cursor, new.first, new.last, self._draft.wall) if any(counts) else []
        is_apart = is_unread & (owners != NOBODY)
        apart = dict(by_code(owners[is_apart], known[is_apart]))
        for owner in sorted({*apart, *(owner for owner, count in enumerate(counts) if count)}):
            self.ranges.line = self._keyed.names[owner], False
            count = counts[owner] if owner < len(counts) else 0
            if count and owner not in apart and len(ranges) == 1:
                _, _, batch_size, due = ranges[0]
                self.ranges.add_new(Labelled(count, new, owner), batch_size, due)
            else:
                self._add_unread(new.positions(owner), apart.get(owner, NO_POSITIONS), ranges)
        self.ranges.line = _HELD

    def _add_due(self) -> None:
        """Add the entries that came due, owner by owner."""
        order = np.argsort(self._due.positions)
        owners = np.empty(len(order), np.int64)
        owners[order] = self._keyed.owners_of(self._due.positions[order])
        for owner, places in by_code(owners, np.arange(len(order))):
            self.ranges.line = self._keyed.names[owner], False
            self._add_known(self._due.positions[places], self._due.times[places])

    def _add_unread(self, new: np.ndarray, apart: np.ndarray, ranges: list[TimedRange]) -> None:
        """Add one owner's entries that were never delivered, by position: *new* ones by ranges, and one by one those
        *apart*, which requests acknowledge in part."""
        begin = 0
        stretch_ends = [*np.searchsorted(new, apart).tolist(), len(new)]
        for position, end in zip([*apart.tolist(), None], stretch_ends):  # None: after the last one apart
            self._add_in_ranges(new[begin:end], ranges)
            begin = end
            if position is not None:
                self._add_known(np.array([position]))

    def _add_in_ranges(self, positions: np.ndarray, ranges: list[TimedRange]) -> None:
        for first, last, batch_size, due in ranges:
            begin, end = np.searchsorted(positions, (first, last + 1)).tolist()
            if begin < end:
                self.ranges.add_new(Listed(positions[begin:end]), batch_size, due)
