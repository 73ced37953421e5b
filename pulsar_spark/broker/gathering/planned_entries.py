"""Which entries the planned ranges of a cursor stand for, and how the plan's result gets into the cursor's map.

The plan knows no positions. It counts *places*: the entries of a cursor, numbered from 0 in the order in which they
would be dealt. So entries that agree are one range, wherever they lie.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cached_property
from itertools import zip_longest
from typing import NamedTuple

import numpy as np

from pulsar_spark.protocol.acknowledgement.cursor import ACKNOWLEDGED, DEAD, PENDING, REPLAY, Range
from pulsar_spark.protocol.acknowledgement.positions import ranges_of, shared
from pulsar_spark.protocol.entries.entry_codes import UNREAD_CODE
from pulsar_spark.protocol.entries.entry_map import UNCHANGED, EntryMap
from pulsar_spark.protocol.entries.entry_ranges import (
    ChangedRanges,
    acknowledge_all,
    by_code,
    changed_ranges,
    set_all,
    state_of,
)

_WINDOW = 1 << 20
"""Entries that are counted at a time."""


class SpanOfCode(NamedTuple):
    """Those of the entries *first*..*last* that have a *code*, by position; ``places`` is their number."""

    places: int
    first: int
    last: int
    code: int

    @property
    def spans(self) -> list[tuple[int, int]]:
        """Where its entries lie, if no others lie between."""
        return [(self.first, self.last)]

    def positions(self, entries: EntryMap, begin: int, end: int) -> list[tuple[int, int]] | np.ndarray:
        """Where the entries at its places *begin* to *end* - 1 lie: one span (first, last), or positions."""
        if self.places == self.last + 1 - self.first:
            return [(self.first + begin, self.first + end - 1)]
        return entries.where([self.code], self.first, self.last)[begin:end]

    def is_all(self, entries: EntryMap) -> bool:
        """Are these all pending entries with the code, and do others lie between them?"""
        is_pending = entries.codes.state(self.code).status == PENDING
        return is_pending and self.places == entries.counts[self.code] < self.last + 1 - self.first


def unread_span(first: int, last: int) -> SpanOfCode:
    """The entries *first*..*last*, all of them unread."""
    return SpanOfCode(last + 1 - first, first, last, UNREAD_CODE)


class Listed(NamedTuple):
    """Entries at the positions *at*, one at each place. Positions of entries never delivered ascend. *code* is the code
    of all; None: not known."""

    at: np.ndarray
    code: int | None = None

    @property
    def places(self) -> int:
        return len(self.at)

    @property
    def spans(self) -> list[tuple[int, int]]:
        return ranges_of(self.at)

    def positions(self, entries: EntryMap, begin: int, end: int) -> np.ndarray:
        return self.at[begin:end]


class Labels:
    """The owners of the entries from position *first* on, by number; negative for no owner."""

    def __init__(self, first: int, owners: np.ndarray):
        self.first, self.last, self._owners = first, first + len(owners) - 1, owners

    @cached_property
    def counts(self) -> list[int]:
        """How many entries each owner has, by number."""
        parts = range(0, len(self._owners), _WINDOW)
        counted = [np.bincount(self._owners[begin : begin + _WINDOW] + 1)[1:] for begin in parts]
        return [sum(each) for each in zip_longest(*(each.tolist() for each in counted), fillvalue=0)]

    def positions(self, owner: int) -> np.ndarray:
        return np.flatnonzero(self._owners == owner) + self.first

    def all_positions(self) -> np.ndarray:
        return np.flatnonzero(self._owners >= 0) + self.first

    def codes(self, of_owners: dict[int, int]) -> np.ndarray:
        """The new code of each entry: the code in *of_owners* for its owner, UNCHANGED for others."""
        codes = np.full(len(self.counts) + 1, UNCHANGED, np.int32)  # the last is for entries without an owner
        codes[[*of_owners]] = [*of_owners.values()]
        return codes[self._owners]


class Labelled(NamedTuple):
    """The entries of one *owner* in *labels*, by position; ``places`` is their number."""

    places: int
    labels: Labels
    owner: int

    def positions(self, entries: EntryMap, begin: int, end: int) -> np.ndarray:
        return self.labels.positions(self.owner)[begin:end]


Part = SpanOfCode | Listed | Labelled
"""Consecutive places."""


class PlannedEntries:
    """The entries of one cursor in a plan. *planned* are the ranges, by place, of pending entries and replays; *parts*
    say where the entries of all places lie. The entries that a read *passed* over get a code. *acknowledge_parts* is
    called once the result is in the map: parts of chunked messages follow their messages."""

    def __init__(
        self,
        entries: EntryMap,
        planned: list[Range],
        parts: list[Part],
        passed: Sequence[tuple[np.ndarray, int]] = (),
        acknowledge_parts: Callable[[], None] | None = None,
    ):
        self.planned, self._entries, self._parts, self._passed = planned, entries, parts, passed
        self._acknowledge_parts = acknowledge_parts
        self._firsts = np.cumsum([0, *(part.places for part in parts)])

    def count_acknowledged(self, ranges: Iterable[Range]) -> int:
        """How many entries the plan's *ranges* acknowledge; none was acknowledged before."""
        return sum(range_.size for range_ in ranges if range_.status == ACKNOWLEDGED)

    def parts_of(self, ranges: Iterable[Range], status: str) -> Iterator[tuple[Range, Part, int, int]]:
        """Those of the plan's *ranges* that have a *status*, and the places *begin* to *end* - 1 of parts in them."""
        for range_ in ranges:
            for number, begin, end in self._cut(range_) if range_.status == status else ():
                yield range_, self._parts[number], begin, end

    def dead(self, ranges: Iterable[Range]) -> Iterator[Range]:
        """The dead ones of the plan's *ranges*, with positions instead of places."""
        for range_, part, begin, end in self.parts_of(ranges, DEAD):
            found = part.positions(self._entries, begin, end)
            for first, last in found if isinstance(found, list) else ranges_of(found):
                yield range_._replace(first=first, last=last)

    def count_returned(self, ranges: Iterable[Range], number: int) -> int:
        """How many entries that were pending the plan's *ranges* give back, also those that round *number* delivers
        again."""
        before = [(range_.first, range_.last) for range_ in self.planned if range_.status == PENDING]
        returned = [
            (range_.first, range_.last)
            for range_ in ranges
            if range_.status in (REPLAY, DEAD) or (range_.status == PENDING and range_.delivery_round == number)
        ]
        return shared(before, returned) if before and returned else 0

    def put(self, ranges: Iterable[Range]) -> ChangedRanges:
        """Put the plan's *ranges* into the map, which moves mark-delete; returns what changed above it."""
        entries, codes = self._entries, self._entries.codes
        puts = _Puts(entries)
        for range_ in ranges:
            code = codes.code(state_of(range_))
            for number, begin, end in self._cut(range_):
                puts.add(number, self._parts[number], begin, end, range_.status, code)
        for positions, code in self._passed:
            entries.set_at(positions, code)
        puts.put()
        if self._acknowledge_parts is not None:
            self._acknowledge_parts()
        changed = changed_ranges(entries.take_changes(), codes, entries.mark_delete, puts.dealt)
        codes.free(entries.counts)
        return changed._replace(ranges=[*changed.ranges, *puts.acknowledged_deliveries])

    def _cut(self, range_: Range) -> Iterator[tuple[int, int, int]]:
        """The parts in which the places of a range lie: each part's number, and the places within it (begin, end)."""
        first = int(np.searchsorted(self._firsts, range_.first, "right")) - 1
        at = range_.first
        while at <= range_.last:
            begin = at - int(self._firsts[first])
            end = min(self._parts[first].places, range_.last + 1 - int(self._firsts[first]))
            yield first, begin, end
            at, first = at + end - begin, first + 1


class _Puts:
    """Collects what a round puts into a map, and puts it there at once.

    * ``acknowledged_deliveries``: a range for each delivery of which all pending entries are acknowledged.
    * ``dealt``: by code, positions of entries that were dealt in another order.
    """

    def __init__(self, entries: EntryMap):
        self._entries = entries
        self.acknowledged_deliveries: list[Range] = []
        self.dealt: list[tuple[int, np.ndarray]] = []
        self._spans: list[tuple[int, int, int]] = []
        self._scattered: list[tuple[np.ndarray, np.ndarray | int]] = []
        self._listed: dict[int, tuple[Listed, np.ndarray]] = {}
        self._labelled: dict[Labels, dict[int, int]] = {}

    def add(self, number: int, part: Part, begin: int, end: int, status: str, code: int) -> None:
        """Let the entries at the places *begin* to *end* - 1 of a part have a *code*, which means a *status*."""
        is_whole, entries = end - begin == part.places, self._entries
        if isinstance(part, Listed):
            _, codes = self._listed.setdefault(number, (part, np.full(part.places, UNCHANGED, np.int32)))
            codes[begin:end] = code
        elif isinstance(part, Labelled) and is_whole:
            self._labelled.setdefault(part.labels, {})[part.owner] = code
        elif isinstance(part, SpanOfCode) and is_whole and status == ACKNOWLEDGED and part.is_all(entries):
            self.acknowledged_deliveries.append(acknowledge_all(entries.codes, part.code, part.first, part.last))
        else:
            found = part.positions(entries, begin, end)
            if isinstance(found, list):
                self._spans += ((first, last, code) for first, last in found)
            else:
                self._scattered.append((found, code))

    def put(self) -> None:
        for part, codes in self._listed.values():
            is_new = codes != UNCHANGED
            at, codes = part.at[is_new], codes[is_new]
            if (at[1:] < at[:-1]).any():
                self._note_dealt(at, codes)
                order = np.argsort(at, kind="stable")
                at, codes = at[order], codes[order]
            self._scattered.append((at, codes))
        for span in self._spans:
            self._entries.set_span(*span)
        set_all(self._entries, self._scattered)
        for labels, of_owners in self._labelled.items():
            self._entries.set_window(labels.first, labels.codes(of_owners))

    def _note_dealt(self, positions: np.ndarray, codes: np.ndarray) -> None:
        for code, places in by_code(codes, np.arange(len(codes))):
            at = positions[places]
            if self._entries.codes.state(code).status == PENDING and (at[1:] < at[:-1]).any():
                self.dealt.append((code, at))
