"""The ranges of one cursor that a plan decides about, as ranges of *places*, and which entry each place stands for (see
planned_entries)."""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from pulsar_spark.broker.gathering.marks import Marks, Returned
from pulsar_spark.broker.gathering.planned_entries import Listed, Part, SpanOfCode
from pulsar_spark.protocol.acknowledgement.cursor import UNREAD, Range
from pulsar_spark.protocol.acknowledgement.positions import as_array, expanded, inside
from pulsar_spark.protocol.entries.entry_codes import ACKNOWLEDGED_CODE, FIXED, UNREAD_CODE, EntryState
from pulsar_spark.protocol.entries.entry_map import EntryMap
from pulsar_spark.protocol.entries.entry_ranges import by_code

NO_LINE = None, None
"""Columns ``line`` and ``is_held`` of all subscriptions but Key_Shared."""

ONE_BY_ONE = 1 << 18
"""Up to so many acknowledged entries, each is looked up in the map; of more, whole stretches are counted."""


class Requested(NamedTuple):
    """What requests do to the entries of a range: its last columns in the plan."""

    is_acked: bool | None = None
    left_of_batch: tuple[int, ...] | None = None
    return_time: int | None = None
    is_unseen: bool | None = None


class PlacedRanges:
    """The ranges of one cursor, in dealing order; each takes the next places."""

    def __init__(self, entries: EntryMap):
        self._entries = entries
        self.parts: list[Part] = []
        self.places = 0
        self.planned: list[Range] = []
        """The ranges of entries that were delivered before, or wait for redelivery."""
        self.rows: list[tuple] = []
        """All ranges, by their columns: :attr:`planned`, and those of entries never delivered."""
        self.line: tuple[str | None, bool | None] = NO_LINE
        """Columns ``line`` (the owner) and ``is_held`` of the ranges that are added now."""

    # Entries that no consumer gets in this round

    def add_acknowledged(self, marks: Marks) -> None:
        """Add what requests acknowledge."""
        count = sum(last - first + 1 for first, last in marks.acked)
        if 0 < count <= ONE_BY_ONE:
            self.add_by_code(expanded(*as_array(marks.acked)), is_acked=True)
        else:
            for span in marks.acked:
                for code in (UNREAD_CODE, *marks.known):
                    self._add_span(code, *span, is_acked=True)
        for code, spans in marks.delivered_acks.items():
            for span in spans:
                if any(first <= span[1] and last >= span[0] for first, last in marks.acked):
                    positions = self._entries.where([code], *span)
                    self.add_by_code(positions[~inside(positions, marks.acked)], is_acked=True)
                else:
                    self._add_span(code, *span, is_acked=True)

    def add_leaving(self, marks: Marks) -> None:
        """Add all entries of the codes that come back as a whole."""
        apart = [(position, position) for position in marks.left_of_batches.tolist()]
        for code in marks.leaving:
            if marks.acked or marks.delivered_acks or apart:
                positions = self._entries.where([code], 0, self._entries.end - 1)
                is_apart = marks.are_acked(positions, np.full(len(positions), code)) | inside(positions, apart)
                self.add_by_code(positions[~is_apart])
            else:
                self._add_span(code, self._entries.mark_delete + 1, self._entries.end - 1)

    def add_returned(self, returned: Returned) -> None:
        """Add what consumers give back; entries whose states and requests agree are one range."""
        codes = self._entries.at(returned.positions)
        order = np.lexsort((returned.positions, returned.unseen, returned.dues, codes))
        columns = [column[order] for column in (codes, returned.dues, returned.unseen.astype(np.int64))]
        for begin, end in runs_of(*columns):
            positions = returned.positions[order[begin:end]]
            code, due, is_unseen = (int(column[begin]) for column in columns)
            self._add_listed(code, positions, Requested(return_time=due, is_unseen=bool(is_unseen)))

    def add_by_code(self, positions: np.ndarray, *, is_acked: bool = False) -> None:
        """Add entries at ascending *positions*, a range for each code, without those acknowledged before."""
        codes = self._entries.at(positions)
        is_left = codes != ACKNOWLEDGED_CODE
        for code, of_code in by_code(codes[is_left], positions[is_left]):
            self._add_listed(code, of_code, Requested(is_acked))

    def _add_span(self, code: int, first: int, last: int, *, is_acked: bool = False) -> None:
        """Add the entries *first*..*last* that have a code."""
        places = self._entries.count([code], first, last)
        if places:
            self.add_range(code, self.places, self.places + places - 1, Requested(is_acked))
            self.add_part(SpanOfCode(places, first, last, code))

    def _add_listed(self, code: int, positions: np.ndarray, requested: Requested) -> None:
        """Add entries at *positions* that have a code, in this order."""
        self.add_range(code, self.places, self.places + len(positions) - 1, requested)
        self.add_part(Listed(positions, code))

    # Single ranges

    def add_new(self, part: Part, batch_size: int, due_time: int | None) -> None:
        """Add entries to deliver the first time."""
        self.add_unread(self.places, self.places + part.places - 1, batch_size, due_time, Requested())
        self.add_part(part)

    def add_range(self, code: int, first: int, last: int, requested: Requested) -> None:
        """Add the places *first*..*last*, of entries that have a code. Unread, waiting or part entries are added only
        if requests acknowledge them."""
        if code >= len(FIXED):
            state = self._entries.codes.state(code)
            self.planned.append(Range(first, last, *state))
            self.rows.append((first, last, *state, *self.line, *requested))
        elif requested.is_acked:
            self.add_unread(first, last, None, None, requested)

    def add_unread(self, first: int, last: int, size: int | None, due: int | None, requested: Requested) -> None:
        """Add the places *first*..*last*, of entries that were never delivered."""
        state = EntryState(UNREAD, due_time=due, batch_size=size)
        self.rows.append((first, last, *state, *self.line, *requested))

    def add_part(self, part: Part) -> None:
        """Let the next places stand for the entries of *part*."""
        self.parts.append(part)
        self.places += part.places


def runs_of(*columns: np.ndarray) -> Iterator[tuple[int, int]]:
    """Where neighbours agree in all *columns*: (begin, end) of each such run, in order."""
    if not len(columns[0]):
        return
    is_first = np.zeros(len(columns[0]), bool)
    is_first[0] = True
    for column in columns:
        is_first[1:] |= column[1:] != column[:-1]
    starts = np.flatnonzero(is_first).tolist()
    yield from zip(starts, [*starts[1:], len(columns[0])])
