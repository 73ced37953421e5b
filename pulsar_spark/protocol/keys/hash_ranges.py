"""Ranges of sticky-key hashes: who owns which, for one hash or for many at once.

An axis maps hashes to *slots* (the hash modulo 65536), to themselves on the ring before 4.0, or to slots from 1 in 4.0
(semantics 2.23, 2.27, 2.28). Entries of a hash without an owner wait (2.31)."""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from math import lcm
from typing import NamedTuple

import numpy as np

from pulsar_spark.protocol.keys.sticky_key import DEFAULT_RANGE_SIZE, MAX_HASH


class Axis(NamedTuple):
    """Maps a hash to the place ``hash % size + start``.

    >>> SLOTS.place(964695987), HASHES.place(964695987), SLOTS_FROM_ONE.place(65535)
    (6067, 964695987, 1)
    """

    size: int
    start: int

    @property
    def last(self) -> int:
        return self.start + self.size - 1

    def place(self, hash_code: int) -> int:
        return hash_code % self.size + self.start


SLOTS = Axis(DEFAULT_RANGE_SIZE, 0)
SLOTS_FROM_ONE = Axis(DEFAULT_RANGE_SIZE - 1, 1)
HASHES = Axis(MAX_HASH + 1, 0)


class OwnedRange(NamedTuple):
    """Places *start* to *end*, inclusive, of *consumer_id*. If shared, it owns hashes with remainder *share* modulo
    *sharers*."""

    start: int
    end: int
    consumer_id: str
    sharers: int = 1
    share: int = 0


def owner(ranges: Sequence[OwnedRange], axis: Axis, hash_code: int) -> str | None:
    """The consumer that owns a hash, or None; *ranges* are in order.

    >>> ranges = [OwnedRange(0, 9, "a"), OwnedRange(20, 29, "b", 2, 0), OwnedRange(20, 29, "c", 2, 1)]
    >>> [owner(ranges, SLOTS, place) for place in (9, 10, 20, 21)]
    ['a', None, 'b', 'c']
    """
    place = axis.place(hash_code)
    index = bisect_right(ranges, place, key=lambda owned: owned.start) - 1
    while index >= 0 and ranges[index].start <= place <= ranges[index].end:
        if hash_code % ranges[index].sharers == ranges[index].share:
            return ranges[index].consumer_id
        index -= 1
    return None


NOBODY = -1
"""The number for no consumer."""

_TABLE_BITS = 17
"""Bits of the most rows of a table, so that it fits into a processor's cache."""


class Stretch(NamedTuple):
    """Places *start* to *end*, inclusive: a hash there belongs to ``shares[hash % len(shares)]``."""

    start: int
    end: int
    shares: tuple


def stretches(ranges: Iterable[OwnedRange], axis: Axis, nobody: object = None) -> Iterator[Stretch]:
    """The whole axis in order, cut where owners change; *nobody* stands for no owner.

    >>> [*stretches([OwnedRange(0, 9, "a"), OwnedRange(5, 9, "b", 2, 1)], Axis(12, 0))][1:]
    [Stretch(start=5, end=9, shares=('a', 'b')), Stretch(start=10, end=11, shares=(None,))]
    """
    ranges = list(ranges)
    found = {axis.start, *(border for owned in ranges for border in (owned.start, owned.end + 1))}
    starts = sorted(start for start in found if axis.start <= start <= axis.last)
    holders: list[list[OwnedRange]] = [[] for _ in starts]
    for owned in sorted(ranges, key=lambda owned: owned.sharers):
        for index in range(bisect_left(starts, owned.start), bisect_left(starts, owned.end + 1)):
            holders[index].append(owned)
    for start, until, owned_ranges in zip(starts, [*starts[1:], axis.last + 1], holders, strict=True):
        shares = [nobody] * lcm(*(owned.sharers for owned in owned_ranges))
        for owned in owned_ranges:  # ranges with more sharers replace those with fewer
            shares[owned.share :: owned.sharers] = [owned.consumer_id] * (len(shares) // owned.sharers)
        yield Stretch(start, until - 1, tuple(shares))


class HashTable:
    """The numbers, of type *dtype*, of many hashes. *stretches* cover *axis* in order.

    A table by upper bits answers most lookups; rows with a border are searched.

    >>> table = HashTable(SLOTS, [Stretch(0, 9, (5,)), Stretch(10, 65535, (6, 7))], np.uint8)
    >>> table.of(np.array([9, 10, 11, 65536])).tolist()
    [5, 6, 7, 5]
    """

    def __init__(self, axis: Axis, stretches: Sequence[Stretch], dtype: np.dtype | type):
        self._size = axis.size
        self._starts = np.array([stretch.start - axis.start for stretch in stretches], np.int64)
        self._shares = np.array([len(stretch.shares) for stretch in stretches], np.int64)
        self._offsets = np.cumsum(self._shares) - self._shares
        self._numbers = np.array([number for stretch in stretches for number in stretch.shares], dtype)
        self._shift = max(0, (axis.size - 1).bit_length() - _TABLE_BITS)
        rows = (axis.size - 1 >> self._shift) + 1
        at_start, at_end = (
            np.cumsum(np.bincount(self._starts + more >> self._shift, minlength=rows)[:rows]) - 1
            for more in ((1 << self._shift) - 1, 0)
        )
        self._rows = np.where(at_start == at_end, at_end, -1).astype(np.int32)

    def of(self, hashes: np.ndarray) -> np.ndarray:
        places = hashes if self._size > hashes.max(initial=0) else hashes % self._size
        found = self._rows[places >> self._shift]
        divided = np.flatnonzero(found < 0)
        found[divided] = np.searchsorted(self._starts, places[divided], side="right") - 1
        if len(self._numbers) == len(self._starts):
            return self._numbers[found]
        return self._numbers[self._offsets[found] + hashes % self._shares[found]]


class Owners:
    """:func:`owner` for many hashes at once, with consumers as numbers.

    >>> owners = Owners([OwnedRange(0, 9, "a"), OwnedRange(20, 29, "b")], SLOTS)
    >>> owners.consumers, owners.of(np.array([9, 10, 20])).tolist()
    (['a', 'b'], [0, -1, 1])
    """

    def __init__(self, ranges: Iterable[OwnedRange], axis: Axis):
        ranges = list(ranges)
        self.consumers = list(dict.fromkeys(owned.consumer_id for owned in ranges))
        """Ids, by number."""
        self._numbers = {consumer_id: number for number, consumer_id in enumerate(self.consumers)}
        numbered = [
            stretch._replace(shares=tuple(map(self.number, stretch.shares))) for stretch in stretches(ranges, axis)
        ]
        self._table = HashTable(axis, numbered, np.int16 if len(self.consumers) < 1 << 15 else np.int32)
        numbers = {number for stretch in numbered for number in stretch.shares}
        self.sole = None if len(numbers) > 1 or NOBODY in numbers else numbers.pop()
        """The number of the consumer that owns every hash, or None."""

    def number(self, consumer_id: str | None) -> int:
        """The number of a consumer; :data:`NOBODY` if it owns nothing."""
        return NOBODY if consumer_id is None else self._numbers.get(consumer_id, NOBODY)

    def of(self, hashes: np.ndarray) -> np.ndarray:
        return self._table.of(hashes)


def joined_ranges(ranges: Iterable[OwnedRange]) -> list[OwnedRange]:
    """The ranges in order, with adjoining ranges of one owner and share joined.

    >>> [each[:3] for each in joined_ranges([OwnedRange(5, 9, "a"), OwnedRange(0, 4, "a")])]
    [(0, 9, 'a')]
    """
    joined: list[OwnedRange] = []
    open_ranges: dict[tuple, int] = {}
    for owned in sorted(ranges):
        index = open_ranges.get(owned[2:])
        if index is not None and joined[index].end + 1 == owned.start:
            joined[index] = joined[index]._replace(end=owned.end)
        else:
            open_ranges[owned[2:]] = len(joined)
            joined.append(owned)
    return joined
