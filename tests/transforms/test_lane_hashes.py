"""Which hashes are of a lane, told by Spark: what the same lanes hold of the same hashes."""

import numpy as np
import pyarrow as pa
from pyspark.sql import functions as F

from pulsar_spark.protocol.keys.hash_ranges import HASHES, SLOTS, SLOTS_FROM_ONE, OwnedRange
from pulsar_spark.protocol.keys.lanes import HashRange, LaneHashes, hashes_by_owner
from pulsar_spark.protocol.keys.selectors import ConsistentHashing, Member
from pulsar_spark.protocol.keys.sticky_key import MAX_HASH
from pulsar_spark.transforms.lane_hashes import FEW, is_of_lane


def ring(consumers: int) -> list[LaneHashes]:
    selector = ConsistentHashing()
    for number in range(consumers):
        selector = selector.joined(Member(f"id-{number}", f"consumer-{number % (consumers - 2)}"))
    return list(hashes_by_owner(selector.owned(), selector.axis).values())


def crowded(axis) -> LaneHashes:
    """Many borders where others have none: single places side by side, at the ends of the axis too."""
    first, last = axis.start, axis.last
    middle = (first + last) // 2
    places = [first, *range(middle - 9, middle + 9, 2), last]
    return LaneHashes(axis, tuple(HashRange(place, place) for place in places))


LANES = [
    *ring(32)[:4],
    *ring(5),
    *(crowded(axis) for axis in (SLOTS, SLOTS_FROM_ONE, HASHES)),
    *hashes_by_owner([OwnedRange(0, 9, "a"), OwnedRange(10, 29, "b", 3, 1)], SLOTS).values(),
    LaneHashes(HASHES, (HashRange(0, MAX_HASH),)),
]


def test_it_is_what_the_lanes_hold(spark):
    assert {len(lane.ranges) > FEW for lane in LANES} == {True, False}
    borders = np.array(
        [
            place - lane.axis.start + more + turn * lane.axis.size
            for lane in LANES
            for held in lane.ranges
            for place in (held.start, held.end)
            for more in (-1, 0, 1)
            for turn in (0, 3)
        ]
    )
    random = np.random.default_rng(3).integers(0, MAX_HASH + 1, 20_000)
    hashes = np.unique(np.concatenate([borders[(borders >= 0) & (borders <= MAX_HASH)], random, [0, MAX_HASH]]))
    rows = spark.createDataFrame(pa.table({"hash": pa.array(hashes, pa.int32())})).repartition(1)
    found = rows.select("hash", *(is_of_lane(F.col("hash"), lane).alias(f"{at}") for at, lane in enumerate(LANES)))
    found = found.toArrow().sort_by("hash")
    assert found["hash"].to_numpy().tolist() == hashes.tolist()
    for at, lane in enumerate(LANES):
        assert (found[f"{at}"].to_numpy() == lane.holds(hashes)).all(), at
