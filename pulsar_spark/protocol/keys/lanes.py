"""Lanes: sets of sticky-key hashes for which a Key_Shared cursor keeps ranges together.

With many keys, consumers' entries interleave; a range of a lane ignores other lanes' entries. Rows contain the
hashes of lanes, which broker.key_shared.lane_form decides.

Entries that are gone, deleted or lost, look like entries without a key. A range counts its entries, which shows if
any are in doubt (:func:`are_certain`). Code that decides state then uses :func:`known_entries`, so gone entries are
handed out again; consumers use :func:`sent_entries`, because acknowledging gone ones is harmless.

Consumers of one name share a stretch by the remainder of the hash (semantics 2.27).
"""

from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from math import lcm
from typing import NamedTuple

import numpy as np

from pulsar_spark.protocol.keys.hash_ranges import Axis, HashTable, OwnedRange, Stretch, stretches

MOST_SHARES = 1024
"""The most lanes that share one stretch."""


class HashRange(NamedTuple):
    """Places *start* to *end*, inclusive: the hashes with this *remainder* by *modulus*."""

    start: int
    end: int
    modulus: int = 1
    remainder: int = 0


class LaneHashes(NamedTuple):
    """The hashes of one lane: which entries its ranges include."""

    axis: Axis
    ranges: tuple[HashRange, ...]

    def holds(self, hashes: np.ndarray) -> np.ndarray:
        """Which of *hashes* belong to the lane.

        >>> from pulsar_spark.protocol.keys.hash_ranges import SLOTS
        >>> lane = LaneHashes(SLOTS, (HashRange(0, 9), HashRange(20, 29, 2, 1)))
        >>> lane.holds(np.array([9, 10, 20, 21, 65536])).tolist()
        [True, False, False, True, True]
        """
        return _table_of(self).of(hashes) == 0

    @property
    def is_everything(self) -> bool:
        """Does it include every hash, as with a single consumer? Then its ranges are ranges of positions.

        >>> from pulsar_spark.protocol.keys.hash_ranges import SLOTS
        >>> [LaneHashes(SLOTS, (HashRange(0, end),)).is_everything for end in (65534, 65535)]
        [False, True]
        """
        return self.ranges == (HashRange(self.axis.start, self.axis.last),)


def are_certain(found: int | np.ndarray, entries: int | np.ndarray) -> bool | np.ndarray:
    """Do hashes determine the entries of a lane's range: are as many *found* between its ends as it has *entries*?
    Gone entries are all found in the lane of no key.
    """
    return found == entries


def known_entries(found: np.ndarray, entries: int, are_gone: Callable[[], np.ndarray]) -> np.ndarray:
    """Places of the *found* entries that certainly belong to a range of *entries*; *are_gone*, called only in doubt,
    flags entries without a key.

    >>> known_entries(np.array([0, 1]), 1, lambda: np.array([True, False, True])).tolist()
    [1]
    """
    return found if are_certain(len(found), entries) else found[~are_gone()[found]]


def sent_entries(is_of_lane: np.ndarray, entries: int, are_gone: Callable[[], np.ndarray]) -> np.ndarray:
    """Flags of entries that may have been sent with a range: its lane's, and all gone ones if it lacks entries.

    >>> sent_entries(np.array([False, True, False]), 2, lambda: np.array([True, False, True])).tolist()
    [True, True, True]
    >>> sent_entries(np.array([True, True, False]), 1, lambda: np.array([True, False, True])).tolist()
    [False, True, False]
    """
    if are_certain(np.count_nonzero(is_of_lane), entries):
        return is_of_lane
    gone = are_gone()
    known = is_of_lane & ~gone
    return known if are_certain(np.count_nonzero(known), entries) else known | gone


@lru_cache(maxsize=64)
def _table_of(lane: LaneHashes) -> HashTable:
    """The table in which hashes of the lane have number 0, cached because the same lanes recur."""
    return lane_numbers([lane])


def hashes_by_owner(owned: Sequence[OwnedRange], axis: Axis) -> dict[str | None, LaneHashes]:
    """The hashes of each owner as a lane, and of None what has no owner.

    >>> from pulsar_spark.protocol.keys.hash_ranges import SLOTS
    >>> hashes_by_owner([OwnedRange(0, 9, "a"), OwnedRange(20, 65535, "a")], SLOTS)[None].ranges
    (HashRange(start=10, end=19, modulus=1, remainder=0),)
    """
    found: dict[str | None, list[HashRange]] = {}
    for start, end, shares in stretches(owned, axis):
        for remainder, consumer_id in enumerate(shares):
            found.setdefault(consumer_id, []).append(HashRange(start, end, len(shares), remainder))
    return {consumer_id: LaneHashes(axis, tuple(ranges)) for consumer_id, ranges in found.items()}


def lane_numbers(lanes: Sequence[LaneHashes]) -> HashTable:
    """The index among *lanes* of each hash, -1 outside. Lanes share an axis; they may come from several rounds and
    need not cover it.

    >>> from pulsar_spark.protocol.keys.hash_ranges import SLOTS
    >>> lanes = [LaneHashes(SLOTS, (HashRange(0, 9, 2, 0),)), LaneHashes(SLOTS, (HashRange(5, 9, 4, 1),))]
    >>> lane_numbers(lanes).of(np.array([4, 5, 8, 9, 7, 10])).tolist()
    [0, 1, 0, 1, -1, -1]
    """
    return HashTable(lanes[0].axis, list(_stretches(lanes, lanes[0].axis)), number_type(len(lanes)))


def number_type(lanes: int) -> type[np.integer]:
    """The integer type of lane numbers."""
    return np.int16 if lanes < 1 << 15 else np.int32


def split(
    lanes: Sequence[LaneHashes], owned: Mapping[str | None, LaneHashes]
) -> dict[tuple[int, str | None], LaneHashes]:
    """The parts of *lanes* by present owner, by (index, owner). Hashes outside all lanes have index -1; so has
    everything if a hash would have more than :data:`MOST_SHARES` sharers.

    >>> from pulsar_spark.protocol.keys.hash_ranges import SLOTS
    >>> owned = hashes_by_owner([OwnedRange(0, 9, "a"), OwnedRange(10, 65535, "b")], SLOTS)
    >>> parts = split([LaneHashes(SLOTS, (HashRange(0, 19),))], owned)
    >>> [(part, range_.start, range_.end) for part, lane in parts.items() for range_ in lane.ranges]
    [((0, 'a'), 0, 9), ((0, 'b'), 10, 19), ((-1, 'b'), 20, 65535)]
    """
    axis, owners = next(iter(owned.values())).axis, list(owned)
    ours, theirs = (list(_stretches(each, axis)) for each in (lanes, [*owned.values()]))
    borders = sorted({each.start for each in (*ours, *theirs)})
    found: dict[tuple[int, str | None], list[HashRange]] = {}
    for start, end in zip(borders, [*(border - 1 for border in borders[1:]), axis.last], strict=True):
        lane, owner = (_at(each, start).shares for each in (ours, theirs))
        count = lcm(len(lane), len(owner))
        if lanes and count > max(MOST_SHARES, len(owner)):
            return split([], owned)
        both = [(lane[share % len(lane)], owners[owner[share % len(owner)]]) for share in range(count)]
        _add(found, start, end, both)
    return {part: LaneHashes(axis, tuple(ranges)) for part, ranges in found.items()}


def _at(stretches: Sequence[Stretch], place: int) -> Stretch:
    return stretches[bisect_right(stretches, place, key=lambda stretch: stretch.start) - 1]


def joined(lanes: Sequence[LaneHashes]) -> LaneHashes:
    """The hashes of several lanes as one lane.

    >>> from pulsar_spark.protocol.keys.hash_ranges import SLOTS
    >>> halves = [LaneHashes(SLOTS, (HashRange(0, 9, 2, share),)) for share in (0, 1)]
    >>> joined([*halves, LaneHashes(SLOTS, (HashRange(10, 19),))]).ranges
    (HashRange(start=0, end=19, modulus=1, remainder=0),)
    """
    found: dict[bool, list[HashRange]] = {}
    for stretch in _stretches(lanes, lanes[0].axis):
        _add(found, stretch.start, stretch.end, [number >= 0 for number in stretch.shares])
    return LaneHashes(lanes[0].axis, tuple(found[True]))


def _add(found: dict, start: int, end: int, shares: Sequence) -> None:
    """Add a stretch to each of its *shares*, extending the last range if it adjoins with equal remainder."""
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
    """The whole axis by the index of the lane, -1 for none."""
    owned_ranges = (
        OwnedRange(one.start, one.end, number, one.modulus, one.remainder)
        for number, lane in enumerate(lanes)
        for one in lane.ranges
    )
    return stretches(owned_ranges, axis, nobody=-1)
