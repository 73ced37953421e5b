"""Test which numbers lie in given stretches of an axis, with code that does not depend on the stretches.

Numbers in a filter become generated code, compiled again for other bounds; arrays do not. So the axis is cut into equal
parts, and arrays hold each part's borders, nearly always at most two."""

from functools import reduce

import numpy as np
from pyspark.sql import Column
from pyspark.sql import functions as F

_MOST_PARTS = 1 << 12


class Stretches:
    """Places *firsts* to *lasts*, inclusive, on an axis of *size* places from 0; in order and disjoint."""

    def __init__(self, size: int, firsts: np.ndarray, lasts: np.ndarray):
        self._bits = max(0, (size - 1).bit_length() - (_MOST_PARTS - 1).bit_length())
        self._parts = (size - 1 >> self._bits) + 1
        self._never = size
        borders = np.column_stack((np.asarray(firsts, np.int64), np.asarray(lasts, np.int64) + 1)).ravel()
        self._borders = borders[borders < size]

    @property
    def most_borders(self) -> int:
        """The most borders in one part; each number is compared once more."""
        return int(np.bincount(self._within >> self._bits, minlength=1).max())

    @property
    def _within(self) -> np.ndarray:
        return self._borders[self._borders % (1 << self._bits) > 0]

    def holds(self, place: Column) -> Column:
        """Whether a number lies in a stretch: an odd number of its part's borders are at or below it."""
        part = F.shiftright(place, self._bits).cast("int")
        are_passed = [place > F.get(numbers(borders - 1), part) for borders in self._tables()]
        return reduce(lambda inside, is_passed: inside != is_passed, are_passed)

    def _tables(self) -> list[np.ndarray]:
        starts = np.arange(self._parts, dtype=np.int64) << self._bits
        is_inside = np.searchsorted(self._borders, starts, "right") % 2 == 1
        tables = [np.where(is_inside, starts, self._never)]
        within = self._within
        parts = within >> self._bits
        ordinals = np.arange(len(parts)) - np.searchsorted(parts, parts, "left")
        for ordinal in range(self.most_borders):
            table = np.full(self._parts, self._never)
            table[parts[ordinals == ordinal]] = within[ordinals == ordinal]
            tables.append(table)
        return tables


def numbers(values: np.ndarray) -> Column:
    """An array Column, parsed from one text, because Python would make a call for each number."""
    return F.split(F.lit(",".join(map(str, values.tolist()))), ",").cast("array<bigint>")
