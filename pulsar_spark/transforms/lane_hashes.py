"""A test for a lane's hashes as an expression; LaneHashes.holds in protocol.keys.lanes does this for arrays.

A lane of consistent hashing has about a hundred arcs, for which see transforms.stretches.
"""

from functools import reduce
from itertools import groupby
from operator import attrgetter, or_

import numpy as np
from pyspark.sql import Column
from pyspark.sql import functions as F

from pulsar_spark.protocol.keys.hash_ranges import Axis
from pulsar_spark.protocol.keys.lanes import HashRange, LaneHashes
from pulsar_spark.protocol.keys.sticky_key import MAX_HASH
from pulsar_spark.transforms.stretches import Stretches

FEW = 4
"""Up to this many ranges of hashes are compared one by one."""


def is_of_lane(hash_code: Column, lane: LaneHashes) -> Column:
    """Whether a non-null 31-bit hash belongs to the lane."""
    by_share = attrgetter("modulus", "remainder")
    shares = groupby(sorted(lane.ranges, key=lambda range_: (*by_share(range_), range_.start)), key=by_share)
    return reduce(or_, (_is_in(hash_code, lane.axis, *share, list(ranges)) for share, ranges in shares))


def _is_in(hash_code: Column, axis: Axis, modulus: int, remainder: int, ranges: list[HashRange]) -> Column:
    place = hash_code if axis.size > MAX_HASH else hash_code % F.lit(axis.size)
    if len(ranges) <= FEW:
        within = reduce(or_, (place.between(range_.start - axis.start, range_.end - axis.start) for range_ in ranges))
    else:
        within = _by_stretches(axis, ranges).holds(place)
    return within if modulus == 1 else within & (hash_code % F.lit(modulus) == remainder)


def _by_stretches(axis: Axis, ranges: list[HashRange]) -> Stretches:
    firsts, lasts = np.array([range_[:2] for range_ in ranges], np.int64).T - axis.start
    return Stretches(axis.size, firsts, lasts)
