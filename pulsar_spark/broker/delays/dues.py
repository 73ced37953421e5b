"""Which entries of a cursor come due, by deliver time and position (semantics 5 with 0.21 and 0.24).

An entry whose deliver time has not come is WAITING in the cursor's map once a read passed it. The delay index finds
what comes due after the cursor's *watermark*.
"""

from collections.abc import Iterator

import numpy as np

from pulsar_spark.broker.delays.delay_index import DelayIndex
from pulsar_spark.protocol.entries.entry_codes import UNREAD_CODE, WAITING_CODE
from pulsar_spark.protocol.entries.entry_map import EntryMap, codes_at
from pulsar_spark.storage.delay_index.delayed import NONE_DUE, Due

MOST_READ = 1 << 16
"""Most entries read from the index in one go, except those due at one instant."""
LOOKED_AT = 1 << 12
"""Entries looked at in one go."""


class Dues:
    """What comes due for one cursor. No entry due at or before ``watermark`` (microseconds) waits."""

    def __init__(self, index: DelayIndex, topic_id: str, partition: int, watermark: int):
        self._index, self._place = index, (topic_id, partition)
        self.watermark = self._read_until = watermark
        self._met = NONE_DUE
        self.is_stored = False
        """Does a row say that the cursor waits?"""
        self.came_at: int | None = None
        """When anything came due last, by the machine's clock."""

    def come_due(self, entries: EntryMap, wall: int, most: int) -> Due:
        """The next *most* entries that wait and whose time has come, in order."""
        found = [NONE_DUE]
        for block in self._blocks(wall):
            ripe = block.part(slice(int(np.searchsorted(block.times, wall, "right"))))
            ripe = ripe.part(np.flatnonzero(_wait(entries, ripe.positions))[:most])
            found.append(ripe)
            most -= len(ripe)
            if most <= 0:
                break
        return Due(*map(np.concatenate, zip(*found)))

    def _blocks(self, wall: int) -> Iterator[Due]:
        begin = 0
        while begin < len(self._met) or self._read_on(wall):
            yield self._met.part(slice(begin, begin + LOOKED_AT))
            begin = min(begin + LOOKED_AT, len(self._met))

    def _read_on(self, wall: int) -> bool:
        """Read what came due since, up to *wall*; whether there was anything."""
        end = min(wall, self._index.ready_until(*self._place))
        while self._read_until < end:
            until, count = self._part(self._read_until, end)
            found = self._index.due(*self._place, self._read_until, until) if count else NONE_DUE
            self._read_until = until
            if len(found):
                self._met = Due(*map(np.concatenate, zip(self._met, found)))
                self.came_at = wall
                return True
        return False

    def _part(self, after: int, until: int) -> tuple[int, int]:
        count = self._index.count(*self._place, after, until)
        first = self._index.next_due(*self._place, after) if count > MOST_READ else None
        while count > MOST_READ and first is not None and until > first:
            until = (first + until) // 2
            count = self._index.count(*self._place, after, until)
        return until, count

    def advance_watermark(self, entries: EntryMap, wall: int | None = None) -> None:
        """Move the watermark up to the first entry that waits. Without one, and with *wall*, move it up to *wall*, or
        to the next time at which something comes due."""
        begin = 0
        while begin < len(self._met):
            block = self._met.part(slice(begin, begin + LOOKED_AT))
            waits = _wait(entries, block.positions)
            if waits.any():
                begin += int(waits.argmax())
                break
            begin += len(block)
        self._met = self._met.part(slice(begin, None))
        if wall is not None and not len(self._met) and not self._comes_due(wall):
            self._read_until = max(self._read_until, min(wall, self._index.ready_until(*self._place)))
        self.watermark = int(self._met.times[0]) - 1 if len(self._met) else self._read_until

    def is_due(self, wall: int) -> bool:
        """Would :meth:`come_due` look at anything?"""
        return (len(self._met) > 0 and int(self._met.times[0]) <= wall) or self._comes_due(wall)

    def _comes_due(self, wall: int) -> bool:
        due = self._index.next_due(*self._place, self._read_until)
        return due is not None and due <= min(wall, self._index.ready_until(*self._place))

    def next_due(self, wall: int) -> int | None:
        """When, after *wall*, the next entry comes due; None while nothing waits."""
        dues = self._met.times[self._met.times > wall][:1].tolist()
        dues += [due for due in [self._index.next_due(*self._place, max(self._read_until, wall))] if due is not None]
        return min(dues, default=None)

    def next_look(self, wall: int, tick: int) -> int | None:
        """When to look next for what comes due; None while nothing waits. At least a *tick* after the last time
        (5.5)."""
        if len(self._met) and int(self._met.times[0]) > wall:  # the clock was set back
            return int(self._met.times[0])
        due = self._index.next_due(*self._place, self._read_until)
        if due is None:
            return None
        if self._index.ready_until(*self._place) < due:
            return wall + tick
        return due if self.came_at is None else max(due, min(self.came_at, wall) + tick)

    @property
    def is_over(self) -> bool:
        """Will nothing come due any more, as far as the whole index says?"""
        return (
            not len(self._met)
            and self._index.next_due(*self._place, self._read_until) is None
            and self._index.is_whole(*self._place)
        )


def _wait(entries: EntryMap, positions: np.ndarray) -> np.ndarray:
    """Which of the entries at *positions*, in any order, wait or were not read."""
    codes = codes_at(entries, positions)
    return (codes == WAITING_CODE) | (codes == UNREAD_CODE)
