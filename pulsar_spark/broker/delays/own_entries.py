"""Which delayed entries are a cursor's own, and their state: queries of its due lane (see due_lane)."""

from collections.abc import Iterable, Iterator
from typing import NamedTuple, Protocol

import numpy as np

from pulsar_spark.broker.bundle.topic_state import TopicState
from pulsar_spark.broker.delays.deliver_times import delayed_between
from pulsar_spark.broker.delays.promotion import Promotion
from pulsar_spark.protocol.acknowledgement.cursor import ACKNOWLEDGED, Range
from pulsar_spark.protocol.acknowledgement.positions import as_array, expanded, inside, ranges_of
from pulsar_spark.protocol.delays.delays import APART_BASE, DUE_BASE, number_at, place_apart, position_of, virtual
from pulsar_spark.storage.cursor_ledger.cursor_ledger import CursorKey
from pulsar_spark.storage.ledgers.partition_ledgers import PartitionLedgers

WINDOW = 1 << 20
"""Positions whose deliver times are read in one go."""


class Motion(NamedTuple):
    """Entries looked at and not acknowledged: ascending *positions*, and *numbers*; *ahead* are positions looked at
    before lower numbers."""

    positions: np.ndarray
    numbers: np.ndarray
    ahead: np.ndarray


class CursorRanges(Protocol):
    """What is asked of a cursor about its entries."""

    key: CursorKey
    mark_delete: int
    read_position: int
    changes: int

    @property
    def ranges(self) -> Iterator[Range]: ...

    def find(self, position: int) -> Range | None: ...

    def ranges_between(self, first: int, end: int) -> Iterator[Range]: ...

    def first_unknown(self, place: int) -> int: ...


class OwnEntries:
    """Delayed entries due after *since*, from position *floor* on. Numbers up to *mark_delete* are done, and positions
    up to *visible*."""

    def __init__(
        self,
        cursor: CursorRanges,
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
        self._motion: tuple[int, Motion] | None = None

    @property
    def ledgers(self) -> PartitionLedgers:
        return self.topic.ledgers(self.cursor.key.partition)

    @property
    def read(self) -> int:
        """The first number that was never looked at."""
        return number_at(self.cursor.first_unknown(self.mark_delete + 1))

    @property
    def motion(self) -> Motion:
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
        """A range's positions, by number."""
        return self.real(np.arange(held.first, held.last + 1))

    def real(self, axis: np.ndarray) -> np.ndarray:
        """Positions at ascending places on any axis."""
        numbered, apart = np.searchsorted(axis, (DUE_BASE, APART_BASE))
        if numbered == len(axis):
            return axis
        due = self.promotion.at(number_at(axis[numbered:apart])).positions
        return np.concatenate((axis[:numbered], due, position_of(axis[apart:])))

    def is_own(self, positions: np.ndarray, times: np.ndarray) -> np.ndarray:
        """Which entries are of this lane; *times* are 0 for entries not delayed."""
        return (times > self.since) & (positions >= self.floor)

    def waiting_between(self, first: int, last: int) -> np.ndarray:
        """Its own positions in first..last neither looked at nor apart."""
        return self.unlooked(*self._own_between(first, last))

    def unfinished_between(self, first: int, last: int) -> np.ndarray:
        """Its own in first..last that wait or are in motion."""
        positions, times = self._own_between(first, last)
        if not len(positions):
            return positions
        waiting = self.unlooked(positions, times)
        is_unfinished = np.isin(positions, waiting) | np.isin(positions, self.motion.positions)
        return positions[is_unfinished | inside(positions, self._apart_between(first, last, but=ACKNOWLEDGED))]

    def own_between(self, first: int, last: int) -> np.ndarray:
        """Its own positions in first..last, in any state."""
        return self._own_between(first, last)[0]

    def _own_between(self, first: int, last: int) -> tuple[np.ndarray, np.ndarray]:
        positions, times = delayed_between(self.topic, self.cursor.key.partition, max(first, self.floor), last)
        is_own = self.is_own(positions, times)
        return positions[is_own], times[is_own]

    def unlooked(self, positions: np.ndarray, times: np.ndarray) -> np.ndarray:
        """Its own among the given entries, neither looked at nor apart."""
        is_own = self.is_own(positions, times)
        positions, times = positions[is_own], times[is_own]
        if not len(positions):
            return positions
        time, position = self.promotion.key_of(self.read)
        is_later = (times > time) | ((times == time) & (positions >= position))
        is_known = np.isin(positions, self.motion.ahead) | self.is_apart(positions)
        return positions[is_later & ~is_known]

    def done_stretches(self) -> Iterator[tuple[int, int]]:
        """Acknowledged stretches after the visible mark-delete, in order: of the main lane without unfinished entries,
        and of this one ahead of it."""
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
        if not len(positions):
            return np.zeros(0, bool)
        return inside(positions, self._apart_between(int(positions.min()), int(positions.max())))

    def _apart_between(self, first: int, last: int, but: str | None = None) -> list[tuple[int, int]]:
        """Stretches apart that overlap *first*..*last*, without status *but*."""
        held = self.cursor.ranges_between(place_apart(first), place_apart(last) + 1)
        return [(position_of(each.first), position_of(each.last)) for each in held if each.status != but]

    def place(self, position: int) -> int:
        """Where on the axes the state of *position* is, or would be."""
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


def _numbers(ranges: Iterable[Range]) -> np.ndarray:
    return expanded(*as_array((number_at(held.first), number_at(held.last)) for held in ranges))
