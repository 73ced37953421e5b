"""The rows that the plan gets of one cursor: ranges of places, and where the entries of these places lie (see
coded_work)."""

from typing import NamedTuple

import numpy as np

from pulsar_spark.broker.gathering.coded_work import Labelled, Listed, Stretch
from pulsar_spark.protocol.acknowledgement.cursor import UNREAD, Range
from pulsar_spark.protocol.entries.entry_codes import ACKNOWLEDGED_CODE, FIXED, EntryState
from pulsar_spark.protocol.entries.entry_map import EntryMap

Part = Stretch | Listed | Labelled
NO_LINE = None, None
"""Columns ``line`` and ``is_held`` of all subscriptions but Key_Shared."""


class Requested(NamedTuple):
    """What requests do to the entries of a row: columns of a range of the plan."""

    is_acked: bool | None = None
    left_of_batch: tuple[int, ...] | None = None
    return_time: int | None = None
    is_unseen: bool | None = None


class CodedRows:
    """Rows of one cursor in dealing order; each takes the next places."""

    def __init__(self, entries: EntryMap):
        self._entries = entries
        self.parts: list[Part] = []
        self.places = 0
        self.planned: list[Range] = []
        """Ranges of places of entries of which something is known."""
        self.rows: list[tuple] = []
        """The ranges of the plan, by their columns: :attr:`planned`, and ranges of entries never delivered."""
        self.line: tuple[str | None, bool | None] = NO_LINE
        """Columns ``line`` (the owner) and ``is_held`` of the rows that are added now."""

    def add_by_code(self, positions: np.ndarray, *, is_acked: bool = False) -> None:
        """Add entries at *positions*, which ascend, that are not acknowledged yet, code by code."""
        codes = self._entries.at(positions)
        positions, codes = positions[codes != ACKNOWLEDGED_CODE], codes[codes != ACKNOWLEDGED_CODE]
        if len(codes) and (codes == codes[0]).all():
            self.add_listed(int(codes[0]), positions, Requested(is_acked))
            return
        order = np.argsort(codes, kind="stable")
        starts = starts_of(codes[order])
        for begin, end in zip(starts, [*starts[1:], len(order)]):
            self.add_listed(int(codes[order[begin]]), positions[order[begin:end]], Requested(is_acked))

    def add_stretch(self, code: int, first: int, last: int, *, is_acked: bool = False) -> None:
        places = self._entries.count([code], first, last)
        if places:
            self.add_row(code, self.places, self.places + places - 1, Requested(is_acked))
            self.add_part(Stretch(places, first, last, code))

    def add_listed(self, code: int, positions: np.ndarray, requested: Requested) -> None:
        """Add entries at *positions* that have a code, in this order."""
        self.add_row(code, self.places, self.places + len(positions) - 1, requested)
        self.add_part(Listed(positions))

    def add_row(self, code: int, first: int, last: int, requested: Requested) -> None:
        """Add a row for the places *first*..*last*, of entries that have a code. Never delivered ones have a row only
        if requests acknowledge them."""
        if code >= len(FIXED):
            state = self._entries.codes.state(code)
            self.planned.append(Range(first, last, *state))
            self.rows.append((first, last, *state, *self.line, *requested))
        elif requested.is_acked:
            self.add_unread(first, last, None, None, requested)

    def add_unread(self, first: int, last: int, size: int | None, due: int | None, requested: Requested) -> None:
        """Add a row for the places *first*..*last*, of entries that were never delivered."""
        state = EntryState(UNREAD, due_time=due, batch_size=size)
        self.rows.append((first, last, *state, *self.line, *requested))

    def add_new(self, part: Part, batch_size: int, due_time: int | None) -> None:
        self.add_unread(self.places, self.places + part.places - 1, batch_size, due_time, Requested())
        self.add_part(part)

    def add_part(self, part: Part) -> None:
        self.parts.append(part)
        self.places += part.places


def starts_of(*columns: np.ndarray) -> list[int]:
    """Where rows begin that differ from the one before in any of *columns*."""
    if not len(columns[0]):
        return []
    is_first = np.zeros(len(columns[0]), bool)
    is_first[0] = True
    for column in columns:
        is_first[1:] |= column[1:] != column[:-1]
    return np.flatnonzero(is_first).tolist()
