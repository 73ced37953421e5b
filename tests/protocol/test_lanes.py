"""Lanes: sets of hashes by their owners' histories, over joins and leaves of every selector."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pulsar_spark.errors import CorruptState
from pulsar_spark.protocol.hash_ranges import HASHES, SLOTS, OwnedRange, Owners, Stretch, owner
from pulsar_spark.protocol.lanes import MOST_SHARES, HashRange, LaneMap
from pulsar_spark.protocol.selectors import AutoSplit, ConsistentHashing, ConsistentHashing4, Member, Sticky
from pulsar_spark.protocol.sticky_key import MAX_HASH

SELECTORS = [AutoSplit(), ConsistentHashing(points=5), ConsistentHashing4(points=5), Sticky()]
HASHES_TRIED = [0, 1, 65534, 65535, 65536, MAX_HASH - 1, MAX_HASH, *range(7, MAX_HASH, MAX_HASH // 200)]


def member(number: int) -> Member:
    """Two of a name, with two sticky ranges each."""
    ranges = ((number * 1000, number * 1000 + 99), (40_000 + number * 1000, 40_000 + number * 1000 + 500))
    return Member(f"c{number}", f"name{number // 2}", ranges)


@pytest.mark.parametrize("selector", SELECTORS, ids=lambda selector: type(selector).__name__)
@given(changes=st.lists(st.integers(0, 5), max_size=8))
@settings(max_examples=15, deadline=None)
def test_every_hash_is_its_owners_and_of_a_lane_with_one_history(selector, changes):
    """Who is there leaves, who is not joins."""
    lanes, pasts, present = LaneMap.whole(selector.axis), {each: () for each in HASHES_TRIED}, set()
    for number in changes:
        selector = selector.left(f"c{number}") if number in present else selector.joined(member(number))
        present ^= {number}
        owned = selector.owned()
        split = lanes.split(owned)
        for each in HASHES_TRIED:
            lane = split.lanes.lane_of(each)
            pasts[each] += (split.owners[lane],)
            assert pasts[each][-1] == owner(owned, selector.axis, each)
            assert split.parents[lane] == lanes.lane_of(each)
        lanes = split.lanes
        assert set(split.owners) == set(lanes.lanes)
        assert LaneMap.from_ranges(lanes.axis, lanes.ranges(), lanes.next_lane) == lanes
    by_lane = {}
    for each, past in pasts.items():
        by_lane.setdefault(lanes.lane_of(each), set()).add(past)
    assert all(len(found) == 1 for found in by_lane.values())


def hashes_near_borders(lanes: LaneMap) -> np.ndarray:
    """Those at both sides of every border of the axis, low and high ones, and some others."""
    starts = np.array([stretch.start - lanes.axis.start for stretch in lanes.stretches])
    near = np.concatenate([starts - 1, starts, starts + 1])
    turns = MAX_HASH // lanes.axis.size
    others = np.random.default_rng(5).integers(0, MAX_HASH, 2000)
    found = np.concatenate([near, near + turns // 2 * lanes.axis.size, others, [0, MAX_HASH]])
    return found[(found >= 0) & (found <= MAX_HASH)].astype(np.int32)


@pytest.mark.parametrize("selector", SELECTORS, ids=lambda selector: type(selector).__name__)
@pytest.mark.parametrize("names", [1, 3])
def test_many_hashes_are_looked_up_as_one_is(selector, names):
    """Also where consumers share their stretches by the remainder of the hash: four of three names."""
    lanes = LaneMap.whole(selector.axis)
    for number in range(4):
        selector = selector.joined(member(number)._replace(name=f"name{number % names}"))
        owned = selector.owned()
        lanes, owners = lanes.split(owned).lanes, Owners(owned, selector.axis)
        hashes = hashes_near_borders(lanes)
        assert [lanes.lanes[each] for each in lanes.table.of(hashes)] == [
            lanes.lane_of(each) for each in hashes.tolist()
        ]
        assert [[*owners.consumers, None][each] for each in owners.of(hashes)] == [
            owner(owned, selector.axis, each) for each in hashes.tolist()
        ]


def test_no_hashes_are_in_no_lanes():
    assert LaneMap.whole(HASHES).table.of(np.zeros(0, np.int32)).tolist() == []


def test_a_lane_that_is_not_cut_keeps_its_id_whoever_owns_it():
    first = LaneMap.whole(SLOTS).split([OwnedRange(0, 9, "a"), OwnedRange(10, 65535, "b")])
    second = first.lanes.split([OwnedRange(0, 9, "c"), OwnedRange(10, 99, "c"), OwnedRange(100, 65535, "b")])
    assert first.owners == {1: "a", 2: "b"}
    assert second.owners == {1: "c", 3: "c", 4: "b"} and second.parents == {1: 1, 3: 2, 4: 2}
    assert second.lanes.lanes == [1, 3, 4] and second.lanes.next_lane == 5


def test_what_nobody_owns_is_a_lane_too():
    split = LaneMap.whole(SLOTS).split([OwnedRange(5, 9, "a")])
    assert split.lanes.stretches == (Stretch(0, 4, (1,)), Stretch(5, 9, (2,)), Stretch(10, 65535, (1,)))
    assert split.owners == {1: None, 2: "a"}


def test_merged_lanes_are_as_few_stretches_as_before_they_were_split():
    selector = ConsistentHashing().joined(Member("a", "a")).joined(Member("b", "a")).joined(Member("c", "c"))
    split = LaneMap.whole(HASHES).split(selector.owned()).lanes
    merge = split.merged([set(split.lanes), {99}])
    assert merge.lanes == LaneMap.whole(HASHES, split.next_lane)
    assert merge.children == dict.fromkeys(split.lanes, split.next_lane)


def test_consumers_of_one_name_that_join_one_after_another_need_lanes_merged_at_some_point():
    """Of 1 to 32 that share all stretches by remainder, each step asks for as many classes as the numbers before it
    have in common; merging what is crowded keeps them few, and what is merged has one owner each again."""
    selector, lanes, merges = ConsistentHashing(points=3), LaneMap.whole(HASHES), 0
    for number in range(32):
        selector = selector.joined(Member(f"c{number:02}", "same"))
        owned = selector.owned()
        if groups := lanes.crowded(owned):
            lanes, merges = lanes.merged(groups).lanes, merges + 1
            assert lanes.crowded(owned) == []
        split = lanes.split(owned)
        lanes = split.lanes
        assert len(lanes.lanes) <= MOST_SHARES and set(split.owners.values()) == {
            held.consumer_id for held in selector.members
        }
        assert all(split.owners[lanes.lane_of(each)] == owner(owned, HASHES, each) for each in HASHES_TRIED)
    assert 0 < merges < 16


@pytest.mark.parametrize(
    ("ranges", "words"),
    [
        ({0: [HashRange(0, 99)]}, "100 to 65535 are in no lane"),
        ({0: [HashRange(1, 65535)]}, "from 0 to 65535 are not in one lane each"),
        ({0: [HashRange(0, 65535)], 1: [HashRange(9, 10)]}, "not in one lane each"),
        ({0: [HashRange(0, 65535)], 1: [HashRange(0, 65535)]}, "are in lanes 0 and 1"),
        ({0: [HashRange(0, 65535, 2, 1)]}, "not in one lane each"),
        ({0: [HashRange(0, 65535, 2, 0)], 1: [HashRange(0, 65535, 3, 1)]}, "not in one lane each"),
        ({0: []}, "0 to 65535 are in no lane"),
    ],
)
def test_rows_that_are_no_map_of_all_hashes_are_refused(ranges, words):
    with pytest.raises(CorruptState, match=words):
        LaneMap.from_ranges(SLOTS, ranges, 2)
