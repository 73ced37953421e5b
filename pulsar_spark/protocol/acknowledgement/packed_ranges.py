"""Ranges of a cursor in columns: 17 or 18 bytes each instead of two hundred. Fields after first and last (the *tail*)
are stored once."""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from itertools import chain, groupby
from operator import itemgetter
from typing import overload

import numpy as np

from pulsar_spark.protocol.acknowledgement.cursor import Range
from pulsar_spark.protocol.acknowledgement.positions import distinct

TAIL = Range._fields[2:]
"""The names of a tail's fields."""


class PackedRanges(Sequence[Range]):
    """A sequence that makes its ranges on access. *ends* are rows of first and last positions; *which* holds each
    range's index in *tails*. Slices are packed too.

    >>> ranges = [Range(1, 1, "pending", "a"), Range(2, 9, "acknowledged"), Range(12, 12, "pending", "a")]
    >>> packed = joined([ranges])
    >>> packed == ranges, packed[1:] == ranges[1:], len(packed.tails)
    (True, True, 2)
    """

    __slots__ = ("ends", "tails", "which")

    def __init__(self, ends: np.ndarray, which: np.ndarray, tails: Sequence[tuple]):
        self.ends, self.tails = ends, tails
        self.which = which.astype(np.min_scalar_type(max(len(tails) - 1, 0)), copy=False)

    def __len__(self) -> int:
        return len(self.which)

    @overload
    def __getitem__(self, at: int) -> Range: ...
    @overload
    def __getitem__(self, at: slice) -> "PackedRanges": ...
    def __getitem__(self, at: int | slice) -> "Range | PackedRanges":
        if isinstance(at, slice):
            return PackedRanges(self.ends[:, at].copy(), self.which[at].copy(), self.tails)
        return Range(int(self.ends[0, at]), int(self.ends[1, at]), *self.tails[self.which[at]])

    def __iter__(self) -> Iterator[Range]:
        tails = map(self.tails.__getitem__, self.which.tolist())
        return map(Range._make, map(tuple.__add__, zip(*self.ends.tolist()), tails))

    def __eq__(self, other: object) -> bool:
        if isinstance(other, PackedRanges):
            return np.array_equal(self.ends, other.ends) and self._agrees_with(other)
        return isinstance(other, Sequence) and len(self) == len(other) and all(map(tuple.__eq__, self, other))

    def _agrees_with(self, other: "PackedRanges") -> bool:
        pairs = self.which.astype(np.int64) * len(other.tails) + other.which
        return all(
            self.tails[pair // len(other.tails)] == other.tails[pair % len(other.tails)]
            for pair in distinct(pairs).tolist()
        )

    __hash__ = None  # type: ignore[assignment]  # it equals lists

    def where(self, chosen: np.ndarray) -> "PackedRanges":
        """The ranges that the flags *chosen* mark."""
        return PackedRanges(self.ends[:, chosen], self.which[chosen], self.tails)

    def in_order(self) -> "PackedRanges":
        if (self.ends[0, 1:] > self.ends[0, :-1]).all():
            return self
        order = np.argsort(self.ends[0])
        return PackedRanges(self.ends[:, order], self.which[order], self.tails)


def used_numbers(numbers: np.ndarray, count: int) -> tuple[np.ndarray, np.ndarray]:
    """The distinct *numbers* (below *count*), ascending, and the index of each number among them.

    >>> [found.tolist() for found in used_numbers(np.array([7, 2, 7]), 9)]
    [[2, 7], [1, 0, 1]]
    """
    if count > len(numbers):
        return np.unique(numbers, return_inverse=True)
    are_used = np.zeros(count, bool)  # faster than sorting
    are_used[numbers] = True
    return np.flatnonzero(are_used), (np.cumsum(are_used) - 1)[numbers]


def ends_of(ranges: Sequence[Range]) -> np.ndarray:
    """First and last positions of *ranges*, packed or not, as two rows."""
    if isinstance(ranges, PackedRanges):
        return ranges.ends
    return np.array([np.fromiter(map(itemgetter(end), ranges), np.int64, len(ranges)) for end in (0, 1)])


def joined(parts: Sequence[Sequence[Range]]) -> PackedRanges:
    """The ranges of all *parts*, packed or not, in sequence."""
    numbers: defaultdict[tuple, int] = defaultdict()
    numbers.default_factory = numbers.__len__
    of_tails: dict[int, np.ndarray] = {}
    ends, which = [np.empty((2, 0), np.int64)], [np.empty(0, np.int64)]
    for is_packed, group in groupby(parts, lambda part: isinstance(part, PackedRanges)):
        alike = list(group)
        if not is_packed:
            ranges = list(chain.from_iterable(alike))
            ends.append(ends_of(ranges))
            which.append(np.array([numbers[range_[2:]] for range_ in ranges], np.int64))
        for part in alike:
            if isinstance(part, PackedRanges):
                if id(part.tails) not in of_tails:
                    of_tails[id(part.tails)] = np.array([numbers[tail] for tail in part.tails], np.int64)
                ends.append(part.ends)
                which.append(of_tails[id(part.tails)][part.which])
    return PackedRanges(np.concatenate(ends, axis=1), np.concatenate(which), list(numbers))
