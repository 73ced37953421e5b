"""Lanes: which sticky-key hashes a Key_Shared cursor keeps ranges of together.

With many keys the entries of one consumer lie between those of all others, and exact ranges of positions would be a row
an entry. A lane is a set of hashes; entries of other lanes do not matter to its ranges, so what is dealt and
acknowledged in order is one range, whatever the keys. Which lanes a cursor has is broker.lane_form's to say; whoever
reads its rows finds the hashes of each lane in them.

**Entries that are gone**, deleted or lost, have no key any more: their hash looks like that of no key at all, and
nobody knows of which lane they were. A range of a lane counts its entries, which tells whether any of those between its
ends is in doubt (:func:`are_told`). Where some are, the range means :func:`known_entries` for whoever keeps or decides
the state of entries, a broker that starts first of all: what is gone is of none, is handed out again, and whoever gets
it finds out. Who was sent the range, and who tells what was sent, takes it as :func:`sent_entries`: what is gone may
have been sent, and acknowledging it with the rest harms nobody. So no entry is ever forgotten by all.

A set of hashes is kept as stretches of the selector's axis. Consumers of one name share a stretch by the remainder of
the hash (semantics 2.27), so each has a modulus and a remainder.
"""

from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from math import lcm
from typing import NamedTuple

import numpy as np

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
        return _table_of(self).of(hashes) == 0

    @property
    def is_everything(self) -> bool:
        """Does it hold every hash, as that of the only consumer does? Then its ranges are ranges of positions.

        >>> from pulsar_spark.protocol.hash_ranges import SLOTS
        >>> [LaneHashes(SLOTS, (HashRange(0, end),)).is_everything for end in (65534, 65535)]
        [False, True]
        """
        return self.ranges == (HashRange(self.axis.start, self.axis.last),)


def are_told(found: int | np.ndarray, entries: int | np.ndarray) -> bool | np.ndarray:
    """Do hashes tell which entries a range of a lane means, if so many were *found* between its ends and it counts so
    many *entries*? Those that are gone are found with the lane of no key alone: there are more in it then, if they are
    others', and fewer in the others, if they are theirs."""
    return found == entries


def known_entries(found: np.ndarray, entries: int, are_gone: Callable[[], np.ndarray]) -> np.ndarray:
    """Which of the entries *found* between the ends of a range that counts so many *entries* are known to be its:
    places, as hashes say them and, if they must be asked, the flags *are_gone* of those that have none any more.

    >>> known_entries(np.array([0, 1]), 1, lambda: np.array([True, False, True])).tolist()
    [1]
    """
    return found if are_told(len(found), entries) else found[~are_gone()[found]]


def sent_entries(is_of_lane: np.ndarray, entries: int, are_gone: Callable[[], np.ndarray]) -> np.ndarray:
    """Which of the entries between its ends may have been sent with it: flags, as *is_of_lane* says by their hashes;
    also everything that is gone, where it lacks entries.

    >>> sent_entries(np.array([False, True, False]), 2, lambda: np.array([True, False, True])).tolist()
    [True, True, True]
    >>> sent_entries(np.array([True, True, False]), 1, lambda: np.array([True, False, True])).tolist()
    [False, True, False]
    """
    if are_told(np.count_nonzero(is_of_lane), entries):
        return is_of_lane
    gone = are_gone()
    known = is_of_lane & ~gone
    return known if are_told(np.count_nonzero(known), entries) else known | gone


@lru_cache(maxsize=64)
def _table_of(lane: LaneHashes) -> HashTable:
    """The number 0 for the hashes of a lane: it is asked of the same lanes again and again."""
    return lane_numbers([lane])


def hashes_by_owner(owned: Sequence[OwnedRange], axis: Axis) -> dict[str | None, LaneHashes]:
    """What each consumer owns as the hashes of a lane, and what nobody owns.

    >>> from pulsar_spark.protocol.hash_ranges import SLOTS
    >>> hashes_by_owner([OwnedRange(0, 9, "a"), OwnedRange(20, 65535, "a")], SLOTS)[None].ranges
    (HashRange(start=10, end=19, modulus=1, remainder=0),)
    """
    found: dict[str | None, list[HashRange]] = {}
    for start, end, shares in stretches(owned, axis):
        for remainder, consumer_id in enumerate(shares):
            found.setdefault(consumer_id, []).append(HashRange(start, end, len(shares), remainder))
    return {consumer_id: LaneHashes(axis, tuple(ranges)) for consumer_id, ranges in found.items()}


def lane_numbers(lanes: Sequence[LaneHashes]) -> HashTable:
    """The number of the lane, its index among *lanes*, of each of many hashes, -1 where it is of none. Lanes of one
    axis, not all of a map, as rows of several rounds say them: their borders need not agree.

    >>> from pulsar_spark.protocol.hash_ranges import SLOTS
    >>> lanes = [LaneHashes(SLOTS, (HashRange(0, 9, 2, 0),)), LaneHashes(SLOTS, (HashRange(5, 9, 4, 1),))]
    >>> lane_numbers(lanes).of(np.array([4, 5, 8, 9, 7, 10])).tolist()
    [0, 1, 0, 1, -1, -1]
    """
    return HashTable(lanes[0].axis, list(_stretches(lanes, lanes[0].axis)), number_type(len(lanes)))


def number_type(lanes: int) -> type[np.integer]:
    """The type of a lane's number, one for each of very many entries."""
    return np.int16 if lanes < 1 << 15 else np.int32


def split(
    lanes: Sequence[LaneHashes], owned: Mapping[str | None, LaneHashes]
) -> dict[tuple[int, str | None], LaneHashes]:
    """Each of *lanes* in parts by who has its hashes now: by index and owner. What is of no lane is of index -1, and so
    is everything where consumers of one name joined so quickly that hashes would be shared by more than
    :data:`MOST_SHARES`.

    >>> from pulsar_spark.protocol.hash_ranges import SLOTS
    >>> owned = hashes_by_owner([OwnedRange(0, 9, "a"), OwnedRange(10, 65535, "b")], SLOTS)
    >>> parts = split([LaneHashes(SLOTS, (HashRange(0, 19),))], owned)
    >>> [(part, held.start, held.end) for part, lane in parts.items() for held in lane.ranges]
    [((0, 'a'), 0, 9), ((0, 'b'), 10, 19), ((-1, 'b'), 20, 65535)]
    """
    axis, owners = next(iter(owned.values())).axis, list(owned)
    ours, theirs = (list(_stretches(each, axis)) for each in (lanes, [*owned.values()]))
    borders = sorted({held.start for held in (*ours, *theirs)})
    found: dict[tuple[int, str | None], list[HashRange]] = {}
    for start, end in zip(borders, [*(border - 1 for border in borders[1:]), axis.last], strict=True):
        lane, owner = (_at(each, start).shares for each in (ours, theirs))
        count = lcm(len(lane), len(owner))
        if lanes and count > max(MOST_SHARES, len(owner)):
            return split([], owned)
        both = [(lane[share % len(lane)], owners[owner[share % len(owner)]]) for share in range(count)]
        _add(found, start, end, both)
    return {part: LaneHashes(axis, tuple(ranges)) for part, ranges in found.items()}


def _at(held: Sequence[Stretch], place: int) -> Stretch:
    return held[bisect_right(held, place, key=lambda stretch: stretch.start) - 1]


def joined(lanes: Sequence[LaneHashes]) -> LaneHashes:
    """The hashes of several lanes as those of one.

    >>> from pulsar_spark.protocol.hash_ranges import SLOTS
    >>> halves = [LaneHashes(SLOTS, (HashRange(0, 9, 2, share),)) for share in (0, 1)]
    >>> joined([*halves, LaneHashes(SLOTS, (HashRange(10, 19),))]).ranges
    (HashRange(start=0, end=19, modulus=1, remainder=0),)
    """
    found: dict[bool, list[HashRange]] = {}
    for held in _stretches(lanes, lanes[0].axis):
        _add(found, held.start, held.end, [number >= 0 for number in held.shares])
    return LaneHashes(lanes[0].axis, tuple(found[True]))


def _add(found: dict, start: int, end: int, shares: Sequence) -> None:
    """Add a stretch to those of each of its *shares*, to the last one where that adjoins and is shared alike."""
    if len(set(shares)) == 1:
        shares = shares[:1]
    for remainder, part in enumerate(shares):
        ranges = found.setdefault(part, [])
        before = ranges[-1] if ranges else None
        if before and before.end + 1 == start and before[2:] == (len(shares), remainder):
            ranges[-1] = before._replace(end=end)
        else:
            ranges.append(HashRange(start, end, len(shares), remainder))


def _stretches(lanes: Sequence[LaneHashes], axis: Axis) -> Iterator[Stretch]:
    """The whole axis by the index of the lane that has it, -1 for none."""
    held = (
        OwnedRange(one.start, one.end, number, one.modulus, one.remainder)
        for number, lane in enumerate(lanes)
        for one in lane.ranges
    )
    return stretches(held, axis, nobody=-1)
