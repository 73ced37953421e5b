"""Sets of positions, as disjoint ranges in order. Rule: LongPairRangeSet of ManagedCursorImpl."""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence

import numpy as np


def expanded(firsts: np.ndarray, lasts: np.ndarray) -> np.ndarray:
    """All positions of ranges, in sequence.

    >>> expanded(np.array([3, 9]), np.array([5, 9])).tolist()
    [3, 4, 5, 9]
    """
    entries = lasts - firsts + 1
    ends = np.cumsum(entries)
    return np.arange(int(ends[-1]) if len(ends) else 0) + np.repeat(firsts - (ends - entries), entries)


def distinct(values: np.ndarray) -> np.ndarray:
    """*values* in ascending order, each once. ``np.unique`` hashes whole numbers, which takes much longer.

    >>> distinct(np.array([9, 3, 4, 3])).tolist()
    [3, 4, 9]
    """
    values = np.sort(values, kind="stable")  # quick where parts ascend already
    return values[np.append(True, values[1:] != values[:-1])] if len(values) else values


def ranges_of(positions: np.ndarray | Sequence[int]) -> list[tuple[int, int]]:
    """Ascending positions as ranges (first, last).

    >>> ranges_of([3, 4, 5, 9]), ranges_of([])
    ([(3, 5), (9, 9)], [])
    """
    if not len(positions):
        return []
    if positions[-1] - positions[0] == len(positions) - 1:
        return [(int(positions[0]), int(positions[-1]))]
    return list(zip(*stretches_of(np.asarray(positions, np.int64)).tolist()))


def stretches_of(positions: np.ndarray) -> np.ndarray:
    """Ascending positions as two rows: first and last positions of ranges.

    >>> stretches_of(np.array([3, 4, 5, 9])).tolist()
    [[3, 9], [5, 9]]
    """
    ends = np.flatnonzero(np.diff(positions) != 1)
    return np.stack([np.append(positions[:1], positions[ends + 1]), np.append(positions[ends], positions[-1:])])


def as_array(spans: Iterable[tuple[int, int]]) -> np.ndarray:
    return np.array([*spans], np.int64).reshape(-1, 2).T


NEAR = 1024
"""The most entries between ranges that are read together."""


def clusters(firsts: np.ndarray, lasts: np.ndarray) -> list[tuple[int, int]]:
    """Slices (from, to) of ordered, disjoint ranges that are :data:`NEAR` enough to be read together.

    >>> clusters(np.array([1, 9, 5000]), np.array([3, 9, 5001]))
    [(0, 2), (2, 3)]
    """
    starts = np.flatnonzero(np.append(True, firsts[1:] - lasts[:-1] > NEAR))[: len(firsts)].tolist()
    return list(zip(starts, [*starts[1:], len(firsts)]))


def inside(positions: np.ndarray, spans: Iterable[tuple[int, int]]) -> np.ndarray:
    """Which of *positions* lie in *spans*.

    >>> inside(np.array([1, 4, 9]), [(3, 5), (4, 6)]).tolist()
    [False, True, False]
    """
    return overlap(positions, positions, spans)


def overlap(firsts: np.ndarray, lasts: np.ndarray, spans: Iterable[tuple[int, int]]) -> np.ndarray:
    """Which of the ranges *firsts*..*lasts* overlap *spans*."""
    span_firsts, span_lasts = as_array(spans)
    begun = np.searchsorted(np.sort(span_firsts), lasts, "right")
    return begun > np.searchsorted(np.sort(span_lasts), firsts, "left")


def shared(spans: Iterable[tuple[int, int]], others: Iterable[tuple[int, int]]) -> int:
    """How many positions both have; *spans* are disjoint, and so are *others*.

    >>> shared([(10, 12), (0, 4)], [(3, 3), (4, 10)])
    3
    """
    firsts, lasts = as_array(sorted(spans))
    borders = np.stack([firsts, lasts + 1], axis=1).ravel()
    before = np.cumsum(np.stack([np.zeros(len(firsts), np.int64), lasts + 1 - firsts], axis=1))
    other_firsts, other_lasts = as_array(others)
    return int((np.interp(other_lasts + 1, borders, before) - np.interp(other_firsts, borders, before)).sum())


class Positions:
    """A set of positions, made of inclusive ranges. Adding and looking up take a binary search.

    >>> found = Positions([(5, 5), (1, 2), (3, 3)])
    >>> list(found), 4 in found, bool(found)
    ([(1, 3), (5, 5)], False, True)
    """

    def __init__(self, ranges: Iterable[tuple[int, int]] = ()):
        self._firsts: list[int] = []
        self._lasts: list[int] = []
        for first, last in ranges:
            self.add(first, last)

    def add(self, first: int, last: int) -> None:
        """Add *first*..*last*; nothing if *last* is below *first*."""
        if last < first:
            return
        if not self._lasts or self._lasts[-1] < first - 1:
            self._firsts.append(first)
            self._lasts.append(last)
            return
        begin, end = bisect_left(self._lasts, first - 1), bisect_right(self._firsts, last + 1)
        if begin < end:
            first, last = min(first, self._firsts[begin]), max(last, self._lasts[end - 1])
        self._firsts[begin:end], self._lasts[begin:end] = [first], [last]

    def gaps(self, first: int, last: int) -> Iterator[tuple[int, int]]:
        """The missing parts of *first*..*last*, as ranges in order.

        >>> list(Positions([(2, 3), (6, 9)]).gaps(0, 7))
        [(0, 1), (4, 5)]
        """
        for index in range(bisect_left(self._lasts, first), bisect_right(self._firsts, last)):
            if first < self._firsts[index]:
                yield first, self._firsts[index] - 1
            first = self._lasts[index] + 1
        if first <= last:
            yield first, last

    def __contains__(self, position: int) -> bool:
        index = bisect_left(self._lasts, position)
        return index < len(self._firsts) and self._firsts[index] <= position

    def __iter__(self) -> Iterator[tuple[int, int]]:
        """The ranges, in order; none adjoins the next."""
        return zip(self._firsts, self._lasts)

    def __bool__(self) -> bool:
        return bool(self._firsts)
