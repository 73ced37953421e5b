"""Which numbers lie in given stretches of an axis, as an expression whose code is the same whatever the stretches are.

Spark writes a number that a filter compares with into the code that it generates. So each delivery with bounds of its
own is compiled anew, by Spark and then by Java; and where bounds are many the method becomes larger than what Java's
compiler takes, and each row is interpreted: 32 bounds make a read of 6 * 10^6 rows take 1.7 times as long as no bounds
do, 200 of them five times (CPU time). An array is not written into code but handed to it. So the axis is cut into equal
parts, few enough for a processor's cache, and for each part arrays say where in it a stretch begins and ends: two of
these borders at most, nearly always.
"""

from functools import reduce

import numpy as np
from pyspark.sql import Column
from pyspark.sql import functions as F

_MOST_PARTS = 1 << 12


class Stretches:
    """Places *firsts* to *lasts*, inclusive, of an axis of *size* places from 0 on: in order, none overlaps the
    next."""

    def __init__(self, size: int, firsts: np.ndarray, lasts: np.ndarray):
        self._bits = max(0, (size - 1).bit_length() - (_MOST_PARTS - 1).bit_length())
        self._parts = (size - 1 >> self._bits) + 1
        self._never = size
        borders = np.column_stack((np.asarray(firsts, np.int64), np.asarray(lasts, np.int64) + 1)).ravel()
        self._borders = borders[borders < size]

    @property
    def most_borders(self) -> int:
        """The most borders in one part: so many comparisons, and one more, are made for each number."""
        return int(np.bincount(self._within >> self._bits, minlength=1).max())

    @property
    def _within(self) -> np.ndarray:
        """The borders that are not the beginning of a part."""
        return self._borders[self._borders % (1 << self._bits) > 0]

    def holds(self, place: Column) -> Column:
        """Whether a number of the axis is in a stretch. Of the borders in its part those up to it are counted: an odd
        number is inside."""
        part = F.shiftright(place, self._bits).cast("int")
        are_passed = [place > F.get(numbers(borders - 1), part) for borders in self._tables()]
        return reduce(lambda inside, is_passed: inside != is_passed, are_passed)

    def _tables(self) -> list[np.ndarray]:
        """As many tables as there are borders in any part, and one before them, in which a stretch begins where a part
        does, if the part begins inside it."""
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
    """An array that is computed once, of a text, for which Python makes one call and not one for each number."""
    return F.split(F.lit(",".join(map(str, values.tolist()))), ",").cast("array<bigint>")
