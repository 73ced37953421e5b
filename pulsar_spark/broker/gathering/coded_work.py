"""What a round does to a cursor whose entries are kept as a map: which entries its rows stand for, and how the result
is put into the map.

The plan counts *places*: entries in the order in which they would be dealt, those that cannot be dealt first. So
entries that agree are one row, wherever they lie.
"""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

import numpy as np

from pulsar_spark.protocol.acknowledgement.cursor import ACKNOWLEDGED, DEAD, Range
from pulsar_spark.protocol.acknowledgement.positions import ranges_of
from pulsar_spark.protocol.entries.entry_map import EntryMap
from pulsar_spark.protocol.entries.entry_ranges import changed_ranges, state_of


class Stretch(NamedTuple):
    """The entries *first*..*last* that have a *code*: so many places, by position."""

    places: int
    first: int
    last: int
    code: int

    @property
    def spans(self) -> list[tuple[int, int]]:
        """Where its entries lie, if no others lie between."""
        return [(self.first, self.last)]

    def positions(self, entries: EntryMap, begin: int, end: int) -> list[tuple[int, int]] | np.ndarray:
        """Where the entries at its places *begin* to *end* - 1 lie: a span, or positions."""
        if self.places == self.last + 1 - self.first:
            return [(self.first + begin, self.first + end - 1)]
        return entries.where([self.code], self.first, self.last)[begin:end]


class Listed(NamedTuple):
    """Entries at *at*, a place each, which ascend."""

    at: np.ndarray

    @property
    def places(self) -> int:
        return len(self.at)

    @property
    def spans(self) -> list[tuple[int, int]]:
        """Where its entries lie."""
        return ranges_of(self.at)

    def positions(self, entries: EntryMap, begin: int, end: int) -> np.ndarray:
        """Where the entries at its places *begin* to *end* - 1 lie."""
        return self.at[begin:end]


class CodedWork:
    """What is planned for one cursor: *planned* are the ranges of places of entries of which something is known,
    *parts* where the entries of all places lie, in order of place."""

    def __init__(self, entries: EntryMap, planned: list[Range], parts: list[Stretch | Listed]):
        self.planned, self._entries, self._parts = planned, entries, parts
        self._firsts = np.cumsum([0, *(part.places for part in parts)])

    def acknowledged(self, ranges: Iterable[Range]) -> int:
        """How many entries are acknowledged: none of them was before."""
        return sum(held.size for held in ranges if held.status == ACKNOWLEDGED)

    def dead(self, ranges: Iterable[Range]) -> Iterator[Range]:
        """Those of *ranges*, which are of places, whose entries died, by position."""
        for held in ranges:
            for part, begin, end in self._cut(held) if held.status == DEAD else ():
                found = self._parts[part].positions(self._entries, begin, end)
                for first, last in found if isinstance(found, list) else ranges_of(found):
                    yield held._replace(first=first, last=last)

    def store(self, ranges: Iterable[Range]) -> list[Range]:
        """Put what the plan says of places into the map, and let mark-delete pass; what changed above it."""
        spans: list[tuple[int, int, int]] = []
        listed: dict[int, np.ndarray] = {}
        scattered: list[tuple[np.ndarray, int]] = []
        for held in ranges:
            code = self._entries.codes.code(
                state_of(held._replace(status=ACKNOWLEDGED) if held.status == DEAD else held)
            )
            for number, begin, end in self._cut(held):
                part = self._parts[number]
                if isinstance(part, Listed):
                    listed.setdefault(number, np.full(part.places, -1, np.int64))[begin:end] = code
                    continue
                found = part.positions(self._entries, begin, end)
                if isinstance(found, list):
                    spans += ((first, last, code) for first, last in found)
                else:
                    scattered.append((found, code))
        for number, codes in listed.items():
            is_said = codes >= 0
            scattered.append((self._parts[number].at[is_said], codes[is_said]))
        for span in spans:
            self._entries.set_span(*span)
        for positions, codes in scattered:
            self._entries.set_at(positions, codes)
        changes = self._entries.take_changes()
        changed = changed_ranges(changes, self._entries.codes, self._entries.mark_delete)
        self._entries.codes.take_changes()
        self._entries.codes.free(self._entries.counts)
        return changed

    def _cut(self, held: Range) -> Iterator[tuple[int, int, int]]:
        """The parts that the places of a range lie in, each with the places in it: from and behind."""
        first = int(np.searchsorted(self._firsts, held.first, "right")) - 1
        at = held.first
        while at <= held.last:
            begin = at - int(self._firsts[first])
            end = min(self._parts[first].places, held.last + 1 - int(self._firsts[first]))
            yield first, begin, end
            at, first = at + end - begin, first + 1
