"""Lanes by owner: each hash is of one lane, that of its owner, whatever the selector; looked up one by one and many at
once."""

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from pulsar_spark.protocol.keys.hash_ranges import Axis, OwnedRange, Owners, owner
from pulsar_spark.protocol.keys.lanes import LaneHashes, hashes_by_owner, joined, lane_numbers, split
from pulsar_spark.protocol.keys.selectors import AutoSplit, ConsistentHashing, ConsistentHashing4, Member, Sticky
from pulsar_spark.protocol.keys.sticky_key import MAX_HASH

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


HASHES = np.arange(0, 1 << 31, 524_287)


def held_by(lane: LaneHashes) -> np.ndarray:
    """Which of :data:`HASHES` are a lane's, by what its ranges say: a table for each of a thousand lanes takes long."""
    places = HASHES % lane.axis.size + lane.axis.start
    held = np.zeros(len(HASHES), bool)
    for start, end, modulus, remainder in lane.ranges:
        held |= (places >= start) & (places <= end) & (HASHES % modulus == remainder)
    return held


@settings(deadline=None, max_examples=25)
@given(st.lists(st.sampled_from([("join", name) for name in "aab"] + [("leave", "")]), max_size=9))
@example([("join", "a")] * 8)
def test_lanes_split_by_each_set_of_owners_have_one_history_each(changes):
    """Consumers of one name share hashes; whatever came and went, each lane's hashes have had the same owners since
    lanes were begun (anew), no hash is of two lanes or none, and joined they are all."""
    selector, histories = ConsistentHashing(points=3).joined(Member("first", "a")), np.full(len(HASHES), "", object)
    lanes = []
    for number, (change, name) in enumerate(changes):
        joins = change == "join" or len(selector.members) == 1
        consumer = selector.members[0].consumer_id
        selector = selector.joined(Member(f"c{number}", name)) if joins else selector.left(consumer)
        parts = split(lanes, hashes_by_owner(selector.owned(), selector.axis))
        table = Owners(selector.owned(), selector.axis)
        owners = np.array([*table.consumers, None], object)[table.of(HASHES)]
        if all(index < 0 for index, _ in parts):  # begun anew: shared by too many of one name
            histories = np.full(len(HASHES), "", object)
        histories = histories + np.array([f"/{owner}" for owner in owners], object)
        lanes = list(parts.values())
        held = np.array([held_by(lane) for lane in lanes])
        assert (held.sum(axis=0) == 1).all() and (lane_numbers(lanes).of(HASHES) == held.argmax(axis=0)).all()
        for (_, whose), of_lane in zip(parts, held):
            assert set(owners[of_lane]) <= {whose} and len(set(histories[of_lane])) <= 1
    if lanes:
        assert joined(lanes).holds(HASHES).all()
