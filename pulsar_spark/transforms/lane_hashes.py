"""Which hashes are of a lane, as an expression: what protocol.lanes.LaneHashes.holds says of arrays.

A lane of consistent hashing is a hundred arcs. So many comparisons would make code too long for Java's compiler, so
the axis is cut into equal parts, few enough for a processor's cache, and for each part a table says where in it the
lane begins and ends: two of these borders at most, nearly always.
"""

from functools import reduce
from itertools import groupby
from operator import attrgetter, or_

import numpy as np
from pyspark.sql import Column
from pyspark.sql import functions as F

from pulsar_spark.protocol.hash_ranges import Axis
from pulsar_spark.protocol.lanes import HashRange, LaneHashes
from pulsar_spark.protocol.sticky_key import MAX_HASH

FEW = 4
"""So many ranges of hashes are compared one by one."""
_MOST_PARTS = 1 << 12
_NEVER = MAX_HASH + 1


def is_of_lane(hash_code: Column, lane: LaneHashes) -> Column:
    """Whether a 31-bit hash, which is not null, is one of the lane's."""
    by_share = attrgetter("modulus", "remainder")
    shares = groupby(sorted(lane.ranges, key=lambda held: (*by_share(held), held.start)), key=by_share)
    return reduce(or_, (_is_in(hash_code, lane.axis, *share, list(ranges)) for share, ranges in shares))


def _is_in(hash_code: Column, axis: Axis, modulus: int, remainder: int, ranges: list[HashRange]) -> Column:
    place = hash_code if axis.size > MAX_HASH else hash_code % F.lit(axis.size)
    if len(ranges) <= FEW:
        within = reduce(or_, (place.between(held.start - axis.start, held.end - axis.start) for held in ranges))
    else:
        within = _by_table(place, axis, ranges)
    return within if modulus == 1 else within & (hash_code % F.lit(modulus) == remainder)


def _by_table(place: Column, axis: Axis, ranges: list[HashRange]) -> Column:
    """Of the borders in the part of a place those up to it are counted: an odd number is inside."""
    bits, tables = _tables(axis, ranges)
    part = F.shiftright(place, bits)
    are_passed = [place > F.get(_literal(borders - 1), part) for borders in tables]
    return reduce(lambda inside, is_passed: inside != is_passed, are_passed)


def _tables(axis: Axis, ranges: list[HashRange]) -> tuple[int, list[np.ndarray]]:
    """The bits of a place within its part, and as many tables as there are borders in any part; in the first the lane
    begins where a part does, if the part begins inside it."""
    borders = np.array([border for held in ranges for border in (held.start, held.end + 1)], np.int64) - axis.start
    bits = max(0, (axis.size - 1).bit_length() - (_MOST_PARTS - 1).bit_length())
    parts = (axis.size - 1 >> bits) + 1
    starts = np.arange(parts) << bits
    is_inside = np.searchsorted(borders, starts, "right") % 2 == 1
    tables = [np.where(is_inside, starts, _NEVER)]
    within = borders[(borders % (1 << bits) > 0) & (borders < axis.size)]
    for part, found in groupby(within.tolist(), key=lambda border: border >> bits):
        for number, border in enumerate(found, 1):
            if number == len(tables):
                tables.append(np.full(parts, _NEVER))
            tables[number][part] = border
    return bits, tables


def _literal(numbers: np.ndarray) -> Column:
    """An array that is computed once, of a text, for which Python makes one call and not one for each number."""
    return F.split(F.lit(",".join(map(str, numbers.tolist()))), ",").cast("array<int>")
