"""Lanes: which sticky-key hashes a Key_Shared cursor keeps ranges of together.

With many keys the entries of one consumer lie between those of all others, and exact ranges of positions would be a row
an entry. A lane is a set of hashes with one history of owners: all hashes are one lane at first; where owners change,
each lane is split by its new owner; lanes whose states agree again are merged. Entries of other lanes do not matter to
a lane's ranges, so what is dealt and acknowledged in order is one range, whatever the keys. One lane of all hashes is
the exact form, which every type of subscription has: who leaves Key_Shared merges all lanes.

A set of hashes is kept as stretches of the selector's axis. Consumers of one name share a stretch by the remainder of
the hash (semantics 2.27), so a stretch has a lane for each remainder; there is one more rule than Pulsar's:
where consumers of one name joined so quickly that a stretch would need more than :data:`MOST_SHARES` of them, its lanes
have to be merged first, which costs rows of state and nothing else. Ids of lanes are given once: a lane whose set of
hashes changes has another id.

Left out: an axis that changes, when the next consumers bring another selector. All lanes are merged before.
"""

from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import lcm
from typing import NamedTuple, Self

import numpy as np

from pulsar_spark.errors import CorruptState
from pulsar_spark.protocol.hash_ranges import Axis, HashTable, OwnedRange, Stretch, stretches

MOST_SHARES = 1024
"""Lanes of one stretch at most."""


class HashRange(NamedTuple):
    """Places *start* to *end*, inclusive; of the hashes there those whose remainder by *modulus* is *remainder*."""

    start: int
    end: int
    modulus: int = 1
    remainder: int = 0


class LaneHashes(NamedTuple):
    """The hashes of one lane: which entries its ranges mean."""

    axis: Axis
    ranges: tuple[HashRange, ...]

    def holds(self, hashes: np.ndarray) -> np.ndarray:
        """Which of *hashes* are the lane's.

        >>> from pulsar_spark.protocol.hash_ranges import SLOTS
        >>> lane = LaneHashes(SLOTS, (HashRange(0, 9), HashRange(20, 29, 2, 1)))
        >>> lane.holds(np.array([9, 10, 20, 21, 65536])).tolist()
        [True, False, False, True, True]
        """
        places = hashes.astype(np.int64) % self.axis.size + self.axis.start
        found = np.zeros(len(hashes), bool)
        for modulus, remainder in {held[2:] for held in self.ranges}:
            starts, ends = np.array(sorted(held[:2] for held in self.ranges if held[2:] == (modulus, remainder))).T
            at = np.searchsorted(starts, places, "right") - 1
            found |= (at >= 0) & (places <= ends[at]) & (hashes % modulus == remainder)
        return found


def lane_numbers(lanes: Sequence[LaneHashes]) -> HashTable:
    """The number of the lane, its index among *lanes*, of each of many hashes, -1 where it is of none. Lanes of one
    axis, not all of a map, as rows of several rounds say them: their borders need not agree.

    >>> from pulsar_spark.protocol.hash_ranges import SLOTS
    >>> lanes = [LaneHashes(SLOTS, (HashRange(0, 9, 2, 0),)), LaneHashes(SLOTS, (HashRange(5, 9, 4, 1),))]
    >>> lane_numbers(lanes).of(np.array([4, 5, 8, 9, 7, 10])).tolist()
    [0, 1, 0, 1, -1, -1]
    """
    axis = lanes[0].axis
    held = [(number, one) for number, lane in enumerate(lanes) for one in lane.ranges]
    borders = sorted({axis.start, *(one.start for _, one in held), *(one.end + 1 for _, one in held)} - {axis.last + 1})
    shares: list[list[tuple[int, HashRange]]] = [[] for _ in borders]
    for number, one in held:
        for at in range(bisect_left(borders, one.start), bisect_left(borders, one.end + 1)):
            shares[at].append((number, one))
    ends = [*(border - 1 for border in borders[1:]), axis.last]
    return HashTable(axis, list(map(_stretch, borders, ends, shares)), np.int64)


def _stretch(start: int, end: int, held: Sequence[tuple[int, HashRange]]) -> Stretch:
    numbers = [-1] * lcm(*(one.modulus for _, one in held))
    for number, one in held:
        numbers[one.remainder :: one.modulus] = [number] * (len(numbers) // one.modulus)
    return Stretch(start, end, tuple(numbers))


class Split(NamedTuple):
    """A map after owners changed; of each of its lanes which lane it was part of before, and whose it is now (None =
    nobody's)."""

    lanes: "LaneMap"
    parents: dict[int, int]
    owners: dict[int, str | None]


class Merge(NamedTuple):
    """A map after lanes were merged, and which lane each that was merged is part of now."""

    lanes: "LaneMap"
    children: dict[int, int]


@dataclass(frozen=True)
class LaneMap:
    """Every hash in one lane: ``stretches`` are in order and cover the axis; ``next_lane`` is the id the next new lane
    gets."""

    axis: Axis
    stretches: tuple[Stretch, ...]
    next_lane: int

    @classmethod
    def whole(cls, axis: Axis, lane: int = 0) -> Self:
        """All hashes in one lane."""
        return cls(axis, (Stretch(axis.start, axis.last, (lane,)),), lane + 1)

    @property
    def lanes(self) -> list[int]:
        """All ids, ascending."""
        return sorted({lane for stretch in self.stretches for lane in stretch.shares})

    def lane_of(self, hash_code: int) -> int:
        """The lane of one hash.

        >>> from pulsar_spark.protocol.hash_ranges import SLOTS
        >>> LaneMap(SLOTS, (Stretch(0, 99, (7,)), Stretch(100, 65535, (8, 9))), 10).lane_of(65536 + 101)
        9
        """
        index = bisect_right(self.stretches, self.axis.place(hash_code), key=lambda stretch: stretch.start) - 1
        lanes = self.stretches[index].shares
        return lanes[hash_code % len(lanes)]

    def split(self, owned: Sequence[OwnedRange]) -> Split:
        """Each lane in parts by the owners of its hashes; one that has one owner, or none, stays what it is. What is
        :meth:`crowded` has to be merged before.

        >>> from pulsar_spark.protocol.hash_ranges import SLOTS
        >>> split = LaneMap.whole(SLOTS).split([OwnedRange(0, 9, "a"), OwnedRange(10, 65535, "b")])
        >>> split.parents, split.owners, split.lanes.ranges()
        ({1: 0, 2: 0}, {1: 'a', 2: 'b'}, {1: [HashRange(start=0, end=9, modulus=1, remainder=0)], \
2: [HashRange(start=10, end=65535, modulus=1, remainder=0)]})
        """
        cut = list(self._cut(owned))
        parts = dict.fromkeys(part for lanes, owners in cut for part in _both(lanes, owners))
        counts = Counter(lane for lane, _ in parts)
        ids, next_lane = {}, self.next_lane
        for part in parts:
            is_whole = counts[part[0]] == 1
            ids[part] = part[0] if is_whole else next_lane
            next_lane += not is_whole
        found = (lanes._replace(shares=tuple(ids[part] for part in _both(lanes, owners))) for lanes, owners in cut)
        return Split(
            LaneMap(self.axis, _joined(found), next_lane),
            {ids[part]: part[0] for part in parts},
            {ids[part]: part[1] for part in parts},
        )

    def crowded(self, owned: Sequence[OwnedRange]) -> list[set[int]]:
        """Lanes to merge before :meth:`split`, in groups that become one each: those of stretches that would have too
        many shares."""
        groups: list[set[int]] = []
        for (_, _, lanes), (_, _, owners) in self._cut(owned):
            if lcm(len(lanes), len(owners)) > max(MOST_SHARES, len(owners)):
                group = set(lanes).union(*(other for other in groups if not other.isdisjoint(lanes)))
                groups = [other for other in groups if other.isdisjoint(lanes)] + [group]
        return groups

    def merged(self, groups: Iterable[Collection[int]]) -> Merge:
        """Every group of lanes as one, of a new id; a group of one stays as it is.

        >>> from pulsar_spark.protocol.hash_ranges import SLOTS
        >>> lanes = LaneMap(SLOTS, (Stretch(0, 99, (1,)), Stretch(100, 65535, (1, 2))), 3)
        >>> lanes.merged([{1, 2}]).lanes == LaneMap.whole(SLOTS, 3)
        True
        """
        children, next_lane = {}, self.next_lane
        for group in groups:
            if len(group) > 1:
                children.update(dict.fromkeys(group, next_lane))
                next_lane += 1
        found = (
            held._replace(shares=tuple(children.get(lane, lane) for lane in held.shares)) for held in self.stretches
        )
        return Merge(LaneMap(self.axis, _joined(found), next_lane), children)

    def ranges(self) -> dict[int, list[HashRange]]:
        """The hashes of each lane, as rows say them: in order of place, and of remainder."""
        found: dict[int, list[HashRange]] = {}
        for start, end, lanes in self.stretches:
            for remainder, lane in enumerate(lanes):
                found.setdefault(lane, []).append(HashRange(start, end, len(lanes), remainder))
        return found

    @classmethod
    def from_ranges(cls, axis: Axis, ranges: Mapping[int, Iterable[HashRange]], next_lane: int) -> Self:
        """What :meth:`ranges` said of a map; :class:`CorruptState` where a hash is of no lane or of two."""
        by_place: dict[tuple[int, int], dict[tuple[int, int], int]] = {}
        for lane, held in ranges.items():
            for start, end, modulus, remainder in held:
                shares = by_place.setdefault((start, end), {})
                if shares.setdefault((modulus, remainder), lane) != lane:
                    raise CorruptState(f"hashes {start} to {end} are in lanes {shares[modulus, remainder]} and {lane}")
        found, at = [], axis.start
        for (start, end), shares in sorted(by_place.items()):
            if start != at or end < start or sorted(shares) != [(len(shares), each) for each in range(len(shares))]:
                raise CorruptState(f"hashes from {at} to {end} are not in one lane each")
            found.append(Stretch(start, end, tuple(lane for _, lane in sorted(shares.items()))))
            at = end + 1
        if at != axis.last + 1:
            raise CorruptState(f"hashes from {at} to {axis.last} are in no lane")
        return cls(axis, tuple(found), next_lane)

    @cached_property
    def table(self) -> HashTable:
        """The number of the lane of each of many hashes: its index among :attr:`lanes`."""
        numbers = {lane: number for number, lane in enumerate(self.lanes)}
        numbered = [held._replace(shares=tuple(map(numbers.get, held.shares))) for held in self.stretches]
        return HashTable(self.axis, numbered, np.min_scalar_type(len(numbers)))  # small ones are sorted by radix

    def _cut(self, owned: Sequence[OwnedRange]) -> Iterator[tuple[Stretch, Stretch]]:
        """The stretches, cut where owners change, with their owners beside them."""
        borders = [stretch.start for stretch in self.stretches]
        for found in stretches(owned, self.axis, borders):
            held = self.stretches[bisect_right(borders, found.start) - 1]
            yield held._replace(start=found.start, end=found.end), found


def _both(lanes: Stretch, owners: Stretch) -> list[tuple[int, str | None]]:
    """The lane and the owner of each remainder by what both are shared by."""
    count = lcm(len(lanes.shares), len(owners.shares))
    return [
        (lanes.shares[share % len(lanes.shares)], owners.shares[share % len(owners.shares)]) for share in range(count)
    ]


def _joined(found: Iterable[Stretch]) -> tuple[Stretch, ...]:
    """In as few as possible: shares that repeat are one, neighbours that agree too."""
    joined: list[Stretch] = []
    for start, end, lanes in found:
        size = next(size for size in range(1, len(lanes) + 1) if lanes[:size] * (len(lanes) // size) == lanes)
        if joined and joined[-1].shares == lanes[:size]:
            joined[-1] = joined[-1]._replace(end=end)
        else:
            joined.append(Stretch(start, end, lanes[:size]))
    return tuple(joined)
