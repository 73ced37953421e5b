"""Lanes by owner: each hash is of one lane, that of its owner, whatever the selector; looked up one by one and many at
once."""

import numpy as np
import pytest

from pulsar_spark.protocol.hash_ranges import Axis, OwnedRange, Owners, owner
from pulsar_spark.protocol.lanes import hashes_by_owner, lane_numbers
from pulsar_spark.protocol.selectors import AutoSplit, ConsistentHashing, ConsistentHashing4, Member, Sticky
from pulsar_spark.protocol.sticky_key import MAX_HASH

SELECTORS = [AutoSplit(), ConsistentHashing(points=5), ConsistentHashing4(points=5), Sticky()]


def member(number: int, names: int) -> Member:
    """With two sticky ranges."""
    ranges = ((number * 1000, number * 1000 + 99), (40_000 + number * 1000, 40_000 + number * 1000 + 500))
    return Member(f"c{number}", f"name{number % names}", ranges)


def hashes_near_borders(owned: list[OwnedRange], axis: Axis) -> np.ndarray:
    """Those at both sides of every border of the axis, low and high ones, and some others."""
    starts = np.array([border - axis.start for one in owned for border in (one.start, one.end + 1)])
    near = np.concatenate([starts - 1, starts, starts + 1])
    turns = MAX_HASH // axis.size
    others = np.random.default_rng(5).integers(0, MAX_HASH, 2000)
    found = np.concatenate([near, near + turns // 2 * axis.size, others, [0, MAX_HASH]])
    return found[(found >= 0) & (found <= MAX_HASH)].astype(np.int32)


@pytest.mark.parametrize("selector", SELECTORS, ids=lambda selector: type(selector).__name__)
@pytest.mark.parametrize("names", [1, 3])
def test_many_hashes_are_looked_up_as_one_is(selector, names):
    """Also where consumers share their stretches by the remainder of the hash: four of three names, or of one."""
    for number in range(4):
        selector = selector.joined(member(number, names))
        owned, axis = selector.owned(), selector.axis
        hashes = hashes_near_borders(owned, axis)
        expected = [owner(owned, axis, each) for each in hashes.tolist()]
        owners, lanes = Owners(owned, axis), hashes_by_owner(owned, axis)
        assert [[*owners.consumers, None][each] for each in owners.of(hashes)] == expected
        assert [list(lanes)[each] for each in lane_numbers(list(lanes.values())).of(hashes)] == expected
        assert {name for name, lane in lanes.items() if lane.holds(hashes).any()} == set(expected)


def test_no_hashes_are_in_no_lanes():
    (lane,) = hashes_by_owner([], AutoSplit().axis).values()
    assert lane.holds(np.zeros(0, np.int32)).tolist() == [] and lane.holds(np.array([0, MAX_HASH])).all()
