"""Read entries of a cursor that were never delivered, from its read position on. A read passes over entries that wait
for their deliver time, and over parts of chunked messages."""

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from pulsar_spark.broker.bundle.bundle import Bundle
from pulsar_spark.broker.chunks.chunk_walk import ChunkWalk
from pulsar_spark.broker.delays.deliver_times import honours_delays, unread_ranges
from pulsar_spark.broker.delays.waiting import to_wait
from pulsar_spark.broker.gathering.marks import Marks
from pulsar_spark.broker.gathering.planned_entries import Listed, SpanOfCode, unread_span
from pulsar_spark.broker.requests.drafts import CursorChanges, RoundDraft
from pulsar_spark.protocol.entries.entry_codes import PART_CODE, UNREAD_CODE, WAITING_CODE

MAX_ROUND_ENTRIES = 20_000_000
"""Most new entries that one cursor delivers in a round."""

WINDOW_ENTRIES = 1 << 12, 1 << 20
"""First and largest number of positions looked at in one go."""

MOST_LOOKED_AT = 1 << 21
"""Most positions looked at in a round if all are passed over."""


class New(NamedTuple):
    """Entries never delivered, of one batch size and deliver time."""

    part: SpanOfCode | Listed
    batch_size: int
    due_time: int | None


class Read:
    """The read of one cursor in one round, without entries that requests name, by *marks*. ``passed``: positions of
    entries that it passes over, with the code that they get."""

    def __init__(self, bundle: Bundle, draft: RoundDraft, changes: CursorChanges, marks: Marks):
        self._bundle, self._draft, self._cursor, self._entries = bundle, draft, changes.cursor, changes.cursor.entries
        self._marks, self._chunked = marks, changes.cursor.chunked
        self._walk = None if self._chunked is None else ChunkWalk(bundle, changes, self._chunked, marks.stay_away)
        self.passed: list[tuple[np.ndarray, int]] = []

    def new(self, permits: int) -> list[New]:
        """The entries that may be delivered the first time, by position, up to the *permits*."""
        cursor, topic = self._cursor, self._bundle.topics.get(self._cursor.topic)
        cursor.advance_read_position()
        if topic is None or permits <= 0:
            return []
        self.begin()
        most, first, found = min(permits, MAX_ROUND_ENTRIES), cursor.read_position, []
        end, at, width = topic.end_position(cursor.key.partition), first, WINDOW_ENTRIES[0]
        last_passed = self._last_passed()
        while most > 0 and at < end:
            if at > last_passed:
                last, parts = min(at + most, end) - 1, None
            elif at - first < MOST_LOOKED_AT:
                last, parts = self._look(at, min(at + max(width, min(most, WINDOW_ENTRIES[1])), end) - 1, most)
                width = min(4 * width, WINDOW_ENTRIES[1])
            else:
                break
            for new in self._parts(at, last, parts):
                found.append(new)
                most -= new.part.places
            at = last + 1
        return found

    @property
    def is_with_passed(self) -> bool:
        """May the read pass over anything?"""
        return self._cursor.read_position <= self._last_passed()

    def begin(self) -> None:
        """Apply limits of chunked messages up to the read position."""
        if self._walk is not None:
            self._walk.pass_by(self._cursor.read_position - 1)

    def _last_passed(self) -> int:
        """The last position that a read may pass over."""
        ledgers = self._bundle.topics[self._cursor.topic].ledgers(self._cursor.key.partition)
        last_delayed = ledgers.last_delayed_position if honours_delays(self._bundle, self._cursor) else -1
        return max(last_delayed, ledgers.last_chunk_position if self._chunked else -1)

    def _look(self, first: int, last: int, most: int) -> tuple[int, np.ndarray]:
        """Read *first*..*last*, or up to the entry that is the *most*-th not passed over; returns where it ended, and
        the positions not passed over."""
        positions = self._marks.unread(first, last)
        codes, is_offered = self._codes(positions), self._are_offered(positions, last)
        is_offered &= codes == UNREAD_CODE
        others = np.flatnonzero(is_offered)
        if len(others) >= most:
            others = others[:most]
            last, stop = int(positions[others[-1]]), int(others[-1]) + 1
            positions, codes = positions[:stop], codes[:stop]
        self._pass(positions, codes)
        if self._walk is not None:
            self._walk.pass_by(last)
        return last, positions[others]

    def pass_over(self, positions: np.ndarray, last: int) -> np.ndarray:
        """Pass over unread entries at ascending *positions* that are not offered; returns those that are."""
        if not len(positions) or positions[0] > self._last_passed():
            return positions
        codes = self._codes(positions)
        self._pass(positions, codes)
        return positions[(codes == UNREAD_CODE) & self._are_offered(positions, last)]

    def cut(self, last: int) -> None:
        """Let the read end at *last*."""
        self.passed = [(positions[positions <= last], code) for positions, code in self.passed]
        if self._walk is not None:
            topic = self._bundle.topics[self._cursor.topic]
            self._walk.pass_by(min(last, topic.end_position(self._cursor.key.partition) - 1))

    def _pass(self, positions: np.ndarray, codes: np.ndarray) -> None:
        for code in (WAITING_CODE, PART_CODE):
            if (codes == code).any():
                self.passed.append((positions[codes == code], code))

    def _codes(self, positions: np.ndarray) -> np.ndarray:
        """The codes of unread entries at ascending *positions* after a read met them."""
        codes = np.full(len(positions), UNREAD_CODE)
        if self._chunked is not None:
            codes[self._chunked.groups.are_parts(positions)] = PART_CODE
        if honours_delays(self._bundle, self._cursor):
            codes[to_wait(self._bundle, self._cursor, positions, self._draft.wall) & (codes == UNREAD_CODE)] = (
                WAITING_CODE
            )
        return codes

    def _are_offered(self, positions: np.ndarray, last: int) -> np.ndarray:
        if self._walk is None:
            return np.ones(len(positions), bool)
        return ~np.isin(positions, self._walk.evicted(last))

    def _parts(self, first: int, last: int, positions: np.ndarray | None) -> Iterable[New]:
        """The entries at *positions*, or all unread ones, among *first*..*last*."""
        ranges = unread_ranges(self._bundle, self._cursor, first, last, self._draft.wall)
        if positions is None and self._is_whole(first, last):
            return [New(unread_span(begin, end), size, due) for begin, end, size, due in ranges]
        positions = self._marks.unread(first, last) if positions is None else positions
        found = []
        for since, until, size, due in ranges:
            begin, end = np.searchsorted(positions, (since, until + 1)).tolist()
            if begin < end:
                found.append(New(Listed(positions[begin:end]), size, due))
        return found

    def _is_whole(self, first: int, last: int) -> bool:
        """Are all entries *first*..*last* unread, and named by no request?"""
        is_named = self._marks.has_requests(first, last)
        return not is_named and self._entries.count([UNREAD_CODE], first, last) == last + 1 - first
