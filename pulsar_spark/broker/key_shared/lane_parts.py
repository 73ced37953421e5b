"""The lanes of a Key_Shared cursor (see lane_form), and the lane of each entry. New owners split lanes, so that former
owners' entries do not lie between theirs. An entry's lane is cached until then."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from pulsar_spark.broker.gathering.entry_hashes import EntryHashes
from pulsar_spark.protocol.keys.hash_ranges import Axis, HashTable
from pulsar_spark.protocol.keys.lanes import LaneHashes, hashes_by_owner, joined, lane_numbers, number_type, split
from pulsar_spark.protocol.keys.selectors import Selector


class Part(NamedTuple):
    """A lane, with or without ranges: its number, hashes and owner."""

    number: int
    hashes: LaneHashes
    owner: str | None


class LaneParts:
    """The lanes of a cursor, in an order valid until a split or merge; entries begin at *base*."""

    def __init__(self, hashes: EntryHashes, base: int, lanes: Mapping[int, LaneHashes]):
        self._hashes, self._base = hashes, base
        self._parts = [Part(number, lane, None) for number, lane in lanes.items()]
        self._selector: Selector | None = None
        self._table: HashTable | None = None
        """The index in the parts of each hash."""
        self._indexes = np.empty(0, np.int16)
        """The same of each entry from base on, as far as somebody asked."""
        self._next = max(lanes, default=-1) + 1

    def __iter__(self) -> Iterator[Part]:
        return iter(self._parts)

    def __len__(self) -> int:
        return len(self._parts)

    @property
    def owners(self) -> list[str | None]:
        return [part.owner for part in self._parts]

    @property
    def axis(self) -> Axis | None:
        """The axis of their hashes; None without lanes."""
        return self._parts[0].hashes.axis if self._parts else None

    def number(self, index: int) -> int:
        return self._parts[index].number

    def are_by(self, selector: Selector) -> bool:
        """Are the lanes split by *selector*?"""
        return selector is self._selector

    def of_entries(self, base: int, entries: int, selector: Selector) -> np.ndarray:
        """The lane indexes of *entries* entries from *base* on, after a split by *selector* if needed."""
        if not self.are_by(selector):
            self._split(selector)
        passed = base - self._base
        missing = passed + entries - len(self._indexes)
        if missing > 0:
            if self._table is None:
                self._table = lane_numbers([part.hashes for part in self._parts])
            hashes = self._hashes.between(base + entries - missing, base + entries - 1)
            self._indexes = np.append(self._indexes, self._table.of(hashes))
        return self._indexes[passed : passed + entries]

    def of_first(self, entries: int) -> np.ndarray:
        """The known lane indexes of the first *entries* entries."""
        return self._indexes[:entries]

    def begin_at(self, base: int) -> None:
        self._indexes, self._base = self._indexes[base - self._base :], base

    def _split(self, selector: Selector) -> None:
        found = split([part.hashes for part in self._parts], hashes_by_owner(selector.owned(), selector.axis))
        parts = Counter(index for index, _ in found)
        before, self._parts, self._table, self._selector = self._parts, [], None, selector
        self._indexes = np.empty(0, np.int16)
        for (index, owner), hashes in found.items():
            is_whole = index >= 0 and parts[index] == 1
            self._parts.append(before[index]._replace(owner=owner) if is_whole else self._new(hashes, owner))

    def _new(self, hashes: LaneHashes, owner: str | None) -> Part:
        self._next += 1
        return Part(self._next - 1, hashes, owner)

    def merge(self, groups: Sequence[Sequence[int]]) -> None:
        """Merge each of *groups* of lane indexes, which cover all, into one lane, in this order."""
        if [*groups] == [[index] for index in range(len(self._parts))]:
            return
        renumbered = np.empty(len(self._parts), number_type(len(self._parts)))
        before, self._parts, self._table = self._parts, [], None
        for number, members in enumerate(groups):
            renumbered[members] = number
            part, *others = (before[index] for index in members)
            for other in others:
                part = self._new(joined([part.hashes, other.hashes]), part.owner)
            self._parts.append(part)
        self._indexes = renumbered[self._indexes]
