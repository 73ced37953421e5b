"""The due lane of a cursor: what it keeps of delayed entries.

A delayed entry is nothing that a cursor knows of until it comes due and is *looked at*: promoted (see promotion), and
met by a round in which somebody can take it. From then on the cursor keeps its state as that of its number, on an axis
of its own: virtual positions (protocol.delays), in the same pages, plan and rows as positions, with a mark-delete of
its own. So what came due and is acknowledged is one number, however scattered its positions are. The main lane passes
over delayed entries: there they count as acknowledged, so that its ranges are as long as if there were none.

A few entries leave that order before they are looked at: those that are acknowledged while they wait, as a whole or in
part, and those that are rescheduled. They are kept *apart*, by position, and their numbers are passed over.

**Its own** are the delayed entries due behind ``since``, at ``floor`` or behind it. All others are to this cursor
entries like any other: those that had come due before it met the first delayed entry. Requests name positions, and are
brought onto the axes (see due_requests); what leaves the broker names positions again. Rules: semantics 5 with 0.21 and
0.24.
"""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

import numpy as np

from pulsar_spark.broker.deliver_times import delayed_between
from pulsar_spark.broker.drafts import CursorDraft
from pulsar_spark.broker.entry_hashes import EntryHashes
from pulsar_spark.broker.promotion import Promotion
from pulsar_spark.broker.state import Cursor
from pulsar_spark.broker.topics import TopicState
from pulsar_spark.broker.unread_slices import UnreadRun
from pulsar_spark.protocol.cursor import ACKNOWLEDGED, Range
from pulsar_spark.protocol.delays import (
    APART_BASE,
    AXES_END,
    DUE_BASE,
    are_delayed,
    number_at,
    place_apart,
    position_of,
    virtual,
    visible_mark_delete,
)
from pulsar_spark.protocol.numbering import Run
from pulsar_spark.protocol.positions import as_array, expanded, inside, ranges_of
from pulsar_spark.storage.ledgers import PartitionLedgers

LEAST_LOOK, MOST_LOOK = 1 << 10, 1 << 20
"""Numbers looked at in one go, at least and at most."""

WINDOW = 1 << 20
"""Positions whose deliver times are read in one go."""


class Motion(NamedTuple):
    """What is in motion: positions, ascending, and numbers of the entries that were looked at and are not acknowledged;
    and the positions, ascending, of all that were looked at before others with lower numbers."""

    positions: np.ndarray
    numbers: np.ndarray
    ahead: np.ndarray


class DueLane:
    """Of one cursor. ``mark_delete`` is on the axis of numbers: all up to there are done. ``visible`` is the
    mark-delete that people see: nothing up to there waits, is in motion or unread."""

    def __init__(
        self,
        cursor: Cursor,
        topic: TopicState,
        promotion: Promotion,
        *,
        since: int,
        floor: int,
        mark_delete: int,
        visible: int,
    ):
        self.cursor, self.topic, self.promotion = cursor, topic, promotion
        self.since, self.floor, self.mark_delete = since, floor, mark_delete
        self.visible = visible
        self.is_behind = True
        """May entries in motion have been acknowledged while the delay index was not there (see due_requests)?"""
        self._blocker: int | None = None
        self._motion: tuple[int, Motion] | None = None

    @property
    def ledgers(self) -> PartitionLedgers:
        return self.topic.ledgers(self.cursor.key.partition)

    @property
    def read(self) -> int:
        """The first number that was never looked at."""
        return number_at(self.cursor.first_unknown(self.mark_delete + 1))

    def has_ripe(self, wall: int) -> bool:
        """Is there a number to look at whose time has come? It has, but where the clock was set back."""
        return self.read < self.promotion.count and self.next_ripe(wall) is None

    def next_ripe(self, wall: int) -> int | None:
        """The instant after *wall* at which the next number may be looked at, where the clock was set back."""
        read = self.read
        if self.promotion.until <= wall or read >= self.promotion.count:
            return None
        due, _ = self.promotion.key_of(read)
        return due if due > wall else None

    @property
    def motion(self) -> Motion:
        """What is in motion now."""
        if self._motion is None or self._motion[0] != self.cursor.changes:
            held = list(self.cursor.ranges_between(DUE_BASE, APART_BASE))
            read = virtual(self.read)
            out = _numbers(each for each in held if each.status != ACKNOWLEDGED)
            ahead = _numbers(each for each in held if each.first > read)
            positions = self.promotion.at(out).positions
            order = np.argsort(positions, kind="stable")
            motion = Motion(positions[order], out[order], np.sort(self.promotion.at(ahead).positions))
            self._motion = self.cursor.changes, motion
        return self._motion[1]

    def positions_of(self, held: Range) -> np.ndarray:
        """The positions of the entries of a range of the lane, in order of number."""
        return self.real(np.arange(held.first, held.last + 1))

    def real(self, axis: np.ndarray) -> np.ndarray:
        """The positions of entries on any axis, which ascend."""
        numbered, apart = np.searchsorted(axis, (DUE_BASE, APART_BASE))
        if numbered == len(axis):
            return axis
        due = self.promotion.at(number_at(axis[numbered:apart])).positions
        return np.concatenate((axis[:numbered], due, position_of(axis[apart:])))

    def hashes_at(self, axis: np.ndarray, hashes: EntryHashes) -> np.ndarray:
        """The sticky-key hashes of entries on any axis, which ascend; *hashes* are those of the topic partition."""
        numbered, apart = np.searchsorted(axis, (DUE_BASE, APART_BASE))
        numbers = number_at(axis[numbered:apart])
        by_position = hashes.at(axis[:numbered]), hashes.at(position_of(axis[apart:]))
        return np.concatenate((by_position[0], self.promotion.at(numbers).hashes, by_position[1]))

    # Which entries are its own, and what became of them

    def is_own(self, positions: np.ndarray, times: np.ndarray) -> np.ndarray:
        """Which entries are of this lane, by the deliver times of those that are delayed (0 of others)."""
        return (times > self.since) & (positions >= self.floor)

    def is_own_of(self, run: Run, times: np.ndarray) -> np.ndarray:
        """The same of all entries of a run, by deliver times as their producers gave them (0 for none)."""
        positions = np.arange(run.first_position, run.last_position + 1)
        return self.is_own(positions, np.where(are_delayed(times, run.delayed_after), times, 0))

    def waiting_between(self, first: int, last: int) -> np.ndarray:
        """The positions first..last of its own entries that were not looked at, nor kept apart."""
        return self.unlooked(*self._own_between(first, last))

    def unfinished_between(self, first: int, last: int) -> np.ndarray:
        """The positions first..last of its own entries that are not done: they wait, or are in motion."""
        positions, times = self._own_between(first, last)
        if not len(positions):
            return positions
        waiting = self.unlooked(positions, times)
        is_unfinished = np.isin(positions, waiting) | np.isin(positions, self.motion.positions)
        return positions[is_unfinished | inside(positions, self._apart_between(first, last, but=ACKNOWLEDGED))]

    def own_between(self, first: int, last: int) -> np.ndarray:
        """The positions first..last of its own entries, whatever became of them."""
        return self._own_between(first, last)[0]

    def _own_between(self, first: int, last: int) -> tuple[np.ndarray, np.ndarray]:
        positions, times = delayed_between(self.topic, self.cursor.key.partition, max(first, self.floor), last)
        is_own = self.is_own(positions, times)
        return positions[is_own], times[is_own]

    def unlooked(self, positions: np.ndarray, times: np.ndarray) -> np.ndarray:
        """The positions of its own among entries that were neither looked at nor kept apart."""
        is_own = self.is_own(positions, times)
        positions, times = positions[is_own], times[is_own]
        if not len(positions):
            return positions
        time, position = self.promotion.key_of(self.read)
        is_behind = (times > time) | ((times == time) & (positions >= position))
        is_known = np.isin(positions, self.motion.ahead) | self.is_apart(positions)
        return positions[is_behind & ~is_known]

    def done_stretches(self) -> Iterator[tuple[int, int]]:
        """The stretches of positions behind the visible mark-delete that are acknowledged, in order: in the main lane,
        but not where it passed over what is not done; and what is done here though the main one has not come there."""
        cursor = self.cursor
        main = [(self.visible + 1, cursor.mark_delete)] if cursor.mark_delete > self.visible else []
        main += [(held.first, held.last) for held in cursor.ranges() if held.status == ACKNOWLEDGED]
        last_delayed = self.ledgers.last_delayed_position
        for first in range(self.visible + 1, last_delayed + 1, WINDOW):
            last = min(first + WINDOW - 1, last_delayed)
            positions = np.arange(first, last + 1)
            is_done = inside(positions, main) | np.isin(positions, self.own_between(first, last))
            yield from ranges_of(positions[is_done & ~np.isin(positions, self.unfinished_between(first, last))])
        yield from ((max(first, last_delayed + 1), last) for first, last in main if last > last_delayed)

    def is_apart(self, positions: np.ndarray) -> np.ndarray:
        """Which positions are kept apart."""
        if not len(positions):
            return np.zeros(0, bool)
        return inside(positions, self._apart_between(int(positions.min()), int(positions.max())))

    def _apart_between(self, first: int, last: int, but: str | None = None) -> list[tuple[int, int]]:
        """The stretches of positions that are kept apart and overlap *first*..*last*, *but* those of one status."""
        held = self.cursor.ranges_between(place_apart(first), place_apart(last) + 1)
        return [(position_of(each.first), position_of(each.last)) for each in held if each.status != but]

    def place(self, position: int) -> int:
        """Where on the axes the state of the entry at *position* is kept, or would be."""
        motion = self.motion
        at = int(np.searchsorted(motion.positions, position))
        if at < len(motion.positions) and motion.positions[at] == position:
            return virtual(int(motion.numbers[at]))
        held = self.cursor.find(position)
        if held is not None and held.status != ACKNOWLEDGED:
            return position
        if self.cursor.find(place_apart(position)) or len(self.waiting_between(position, position)):
            return place_apart(position)
        return position

    # What comes due

    def unread(self, asked: CursorDraft, most: int, wall: int, *, by_time: bool) -> list[UnreadRun]:
        """The next *most* entries that came due and were never looked at, as runs of numbers; the other numbers are
        noted as passed over. Neighbours of one batch size are one run, with the deliver time of the first: they are in
        order anyway. Not so with *by_time*, where others have come due too."""
        found, at = [], self.read
        while most > 0 and at < self.promotion.count:
            last = min(at + int(np.clip(most, LEAST_LOOK, MOST_LOOK)), self.promotion.count) - 1
            numbers, is_last = self.unknown(asked, at, last, wall)
            numbers = numbers[:most]
            most -= len(numbers)
            found.append(numbers)
            if is_last:
                break
            at = last + 1
        return self.runs(np.concatenate([np.empty(0, np.int64), *found]), by_time=by_time)

    def unknown(self, asked: CursorDraft, first: int, last: int, wall: int) -> tuple[np.ndarray, bool]:
        """The numbers first..last of its own entries that were never looked at, up to the first whose time has not come
        (where the clock was set back), and whether that is there. The others are noted as passed over."""
        numbers = np.arange(first, last + 1)
        entries = self.promotion.at(numbers)
        ripe = int(np.searchsorted(entries.times, wall, "right"))
        positions, numbers, is_last = entries.positions[:ripe], numbers[:ripe], ripe < len(entries)
        known = list((held.first, held.last) for held in self.cursor.ranges_between(virtual(first), virtual(last + 1)))
        acked = asked.acks
        is_unknown = ~inside(virtual(numbers), known) & ~inside(virtual(numbers), acked)
        is_apart = self.is_apart(positions) | inside(place_apart(positions), acked)
        is_apart |= np.isin(place_apart(positions), [*asked.ack_sets])
        is_own = (positions >= self.floor) & (entries.times[:ripe] > self.since) & ~is_apart
        for begin, end in ranges_of(numbers[is_unknown & ~is_own]):
            asked.passed.add(virtual(begin), virtual(end))
        return numbers[is_unknown & is_own], is_last

    def runs(self, numbers: np.ndarray, *, by_time: bool, lines: np.ndarray | None = None) -> list[UnreadRun]:
        """Entries with these numbers, which ascend, as runs that agree."""
        if not len(numbers):
            return []
        entries = self.promotion.at(numbers)
        sizes = self.ledgers.batch_sizes(entries.positions)
        is_new = (np.diff(numbers, prepend=-2) != 1) | (np.diff(sizes, prepend=-1) != 0)
        if by_time:
            is_new |= np.diff(entries.times, prepend=-1) != 0
        if lines is not None:
            is_new |= np.append(True, lines[1:] != lines[:-1])
        starts = np.flatnonzero(is_new)
        lasts = numbers[np.append(starts[1:], len(numbers)) - 1]
        columns = [virtual(numbers[starts]), virtual(lasts), sizes[starts], entries.times[starts]]
        names = [None] * len(starts) if lines is None else lines[starts].tolist()
        return [UnreadRun(*row, name) for *row, name in zip(*(column.tolist() for column in columns), names)]

    # Behind a round

    def settle(self) -> None:
        """Find the mark-delete that people see, behind a round that changed something: it runs on to the first entry
        that is not done."""
        first = self._blocker
        if first is not None and len(self.unfinished_between(first, first)):
            self.visible = visible_mark_delete(self.cursor.mark_delete, first)
            return
        self._blocker, at = None, self.visible + 1
        while at <= self.cursor.mark_delete and self._blocker is None:
            apart = self.cursor.find(place_apart(at))
            if apart is not None and apart.status == ACKNOWLEDGED:
                at = position_of(apart.last) + 1
                continue
            last = min(at + WINDOW - 1, self.cursor.mark_delete)
            found = self.unfinished_between(at, last)
            self._blocker = int(found[0]) if len(found) else None
            at = last + 1
        self.visible = visible_mark_delete(self.cursor.mark_delete, self._blocker)
        self.floor = max(self.floor, self.visible + 1)

    @property
    def is_over(self) -> bool:
        """Is nothing left of it: nothing waits, nothing is in motion, and nothing delayed lies ahead?"""
        cursor = self.cursor
        return (
            virtual(self.promotion.count) == self.mark_delete + 1
            and self.visible == cursor.mark_delete
            and cursor.read_position > self.ledgers.last_delayed_position
            and not (self.promotion.has_waiting or self.topic.newly_delayed)
            and all(held.status == ACKNOWLEDGED for held in cursor.ranges_between(APART_BASE, AXES_END))
        )


def _numbers(ranges: Iterable[Range]) -> np.ndarray:
    """The numbers of ranges of a due lane, ascending."""
    return expanded(*as_array((number_at(held.first), number_at(held.last)) for held in ranges))
