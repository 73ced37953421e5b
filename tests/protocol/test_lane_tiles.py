"""Ranges of a lane against what is said of each entry, position by position."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from pulsar_spark.protocol.hash_ranges import SLOTS, OwnedRange, owner
from pulsar_spark.protocol.lane_tiles import UNREAD, Lane, LaneEntries, Tiles, merge_tiles, spans_of
from pulsar_spark.protocol.lanes import LaneMap

BASE = 100
QUICK = settings(max_examples=60, deadline=None)
HASHES = st.lists(st.integers(0, 11), max_size=40)
"""Of entries at :data:`BASE` and behind it; twelve hashes make neighbours of one lane and gaps between them."""


@st.composite
def owners(draw, places: int = 12) -> list[OwnedRange]:
    """Ranges that leave gaps, and are shared by two or three here and there."""
    borders = sorted(draw(st.sets(st.integers(0, places), max_size=4)))
    found = []
    for start, end in zip(borders, borders[1:]):
        sharers = draw(st.integers(0, 3))
        found += [OwnedRange(start, end - 1, draw(st.sampled_from("abc")), sharers, each) for each in range(sharers)]
    return found


@st.composite
def histories(draw):
    """Hashes, a map after a few changes of owners, and a state of each entry."""
    hashes, lanes = draw(HASHES), LaneMap.whole(SLOTS)
    for owned in draw(st.lists(owners(), max_size=3)):
        lanes = lanes.split(owned).lanes
    states = draw(st.lists(st.integers(UNREAD, 2), min_size=len(hashes), max_size=len(hashes)))
    return np.array(hashes, np.int32), lanes, states


def tiles_of(lane: Lane, states: list[int]) -> Tiles:
    """The tiles of a lane whose entries are in these states, which are given for all positions."""
    return lane.tiles(spans_of(np.array(states, np.int32)[lane.positions - BASE]))


def states_of(lane: Lane, tiles: Tiles) -> dict[int, int]:
    """What tiles say of each position of the lane, one by one."""
    found = dict.fromkeys(lane.positions.tolist(), UNREAD)
    for first, last, state, entries in zip(*(column.tolist() for column in tiles)):
        held = [position for position in found if first <= position <= last]
        assert len(held) == entries and held[0] == first
        found.update(dict.fromkeys(held, state))
    return found


@given(histories())
@QUICK
def test_each_entry_is_in_the_lane_of_its_hash(history):
    hashes, lanes, _ = history
    entries = LaneEntries(lanes, BASE, hashes)
    found = {position: lane for lane in lanes.lanes for position in entries.lane(lane).positions.tolist()}
    assert found == {BASE + index: lanes.lane_of(each) for index, each in enumerate(hashes.tolist())}


@given(histories())
@QUICK
def test_tiles_say_what_is_said_of_each_entry_in_as_few_as_there_are_changes(history):
    hashes, lanes, states = history
    entries = LaneEntries(lanes, BASE, hashes)
    for lane in map(entries.lane, lanes.lanes):
        tiles, expected = tiles_of(lane, states), [states[position - BASE] for position in lane.positions.tolist()]
        assert states_of(lane, tiles) == dict(zip(lane.positions.tolist(), expected))
        changes = sum(1 for before, state in zip([UNREAD, *expected], expected) if state != before and state != UNREAD)
        assert len(tiles.first) == changes
        following = np.append(lane.positions, lane.end)[lane.ordinals(tiles.last + 1)]
        assert tiles.last.tolist() == (following - 1).tolist()


@given(histories(), owners())
@QUICK
def test_tiles_of_a_lane_are_those_of_the_lanes_it_is_split_into(history, owned):
    hashes, lanes, states = history
    split, before = lanes.split(owned), LaneEntries(lanes, BASE, hashes)
    after = LaneEntries(split.lanes, BASE, hashes)
    for lane, parent in split.parents.items():
        child, whole = after.lane(lane), before.lane(parent)
        found = child.tiles(child.spans(tiles_of(whole, states)))
        assert [column.tolist() for column in found] == [column.tolist() for column in tiles_of(child, states)]


@given(histories())
@QUICK
def test_all_lanes_merged_are_exact_ranges_and_exact_ranges_are_tiles_of_each_lane(history):
    hashes, lanes, states = history
    entries, whole = LaneEntries(lanes, BASE, hashes), LaneMap.whole(SLOTS)
    exact = LaneEntries(whole, BASE, hashes).lane(0)
    held = [(lane, tiles_of(lane, states)) for lane in map(entries.lane, lanes.lanes)]
    found = merge_tiles(held, exact)
    assert states_of(exact, found) == {BASE + index: state for index, state in enumerate(states)}
    assert (found.last - found.first + 1 == found.entries).all()
    for lane, tiles in held:
        again = lane.tiles(lane.spans(found))
        assert [column.tolist() for column in again] == [column.tolist() for column in tiles]


@given(histories(), st.lists(st.tuples(st.integers(0, 45), st.integers(0, 6)), max_size=3))
@QUICK
def test_what_a_request_names_is_cut_out(history, named):
    """Positions that requests name, each with what follows it, are acknowledged in every lane they have entries of,
    and no others."""
    hashes, lanes, states = history
    entries = LaneEntries(lanes, BASE, hashes)
    ranges = [(BASE + first, BASE + first + more) for first, more in named]
    for lane in map(entries.lane, lanes.lanes):
        spans = lane.spans(tiles_of(lane, states))
        borders = lane.ordinals([border for first, last in ranges for border in (first, last + 1)])
        cut = spans.cut(borders)
        assert [column.tolist() for column in lane.tiles(cut)] == [column.tolist() for column in lane.tiles(spans)]
        for start, stop in zip(cut.start.tolist(), cut.stop.tolist()):
            of = [
                {first <= position <= last for position in lane.positions[start:stop].tolist()}
                for first, last in ranges
            ]
            assert start < stop and all(len(each) == 1 for each in of)


def test_an_acknowledgement_reaches_to_before_the_next_entry_of_the_lane():
    lanes = LaneMap.whole(SLOTS).split([OwnedRange(0, 5, "a"), OwnedRange(6, 65535, "b")]).lanes
    lane = LaneEntries(lanes, BASE, np.array([1, 9, 9, 2, 1, 9], np.int32)).lane(1)
    acknowledged = Tiles.of([(BASE, BASE, 0, 1), (BASE + 3, BASE + 3, 0, 1)])
    assert [column.tolist() for column in lane.tiles(lane.spans(acknowledged))] == [[BASE], [BASE + 3], [0], [2]]


def test_a_part_of_a_tile_is_found_by_how_many_entries_come_before_it():
    lanes = LaneMap.whole(SLOTS).split([OwnedRange(0, 5, "a"), OwnedRange(6, 65535, "b")]).lanes
    lane = LaneEntries(lanes, BASE, np.array([9, 1, 9, 2, 1, 9, 3], np.int32)).lane(1)
    assert [lane.resolve(BASE + 1, skip, 2) for skip in (0, 1, 2)] == [(101, 103), (103, 104), (104, 106)]


@given(histories(), st.integers(0, 45))
@QUICK
def test_the_first_that_is_not_acknowledged_and_how_many_are(history, behind):
    hashes, lanes, states = history
    entries, position = LaneEntries(lanes, BASE, hashes), BASE + behind
    for lane in map(entries.lane, lanes.lanes):
        tiles, said = tiles_of(lane, states), [(at, states[at - BASE]) for at in lane.positions.tolist()]
        first = next((at for at, state in said if at >= position and state not in (0, 1)), lane.end)
        assert lane.first_outside(tiles, (0, 1), position) == first
        assert lane.count_above(tiles, (0, 1), position) == sum(state in (0, 1) for at, state in said if at > position)


@given(histories())
@QUICK
def test_hashes_that_are_held_somewhere(history):
    hashes, lanes, states = history
    entries = LaneEntries(lanes, BASE, hashes)
    for lane in map(entries.lane, lanes.lanes):
        held = entries.held_hashes(lane, tiles_of(lane, states), (2,))
        assert held.tolist() == sorted({int(hashes[at - BASE]) for at in lane.positions if states[at - BASE] == 2})


@given(st.lists(owners(), max_size=4), owners())
@QUICK
def test_a_lane_has_one_owner_and_hashes_of_one_lane_had_the_same_owners(joins, owned):
    """The lanes of twelve hashes are just what their histories say; ids are given once."""
    lanes, pasts = LaneMap.whole(SLOTS), {each: () for each in range(12)}
    for owners_then in [*joins, owned]:
        split, former = lanes.split(owners_then), lanes
        for each in pasts:
            pasts[each] += (owner(sorted(owners_then), SLOTS, each),)
            lane = split.lanes.lane_of(each)
            assert split.owners[lane] == pasts[each][-1] and split.parents[lane] == former.lane_of(each)
            assert lane == former.lane_of(each) or lane >= former.next_lane
        lanes = split.lanes
    by_lane = {}
    for each, past in pasts.items():
        by_lane.setdefault(lanes.lane_of(each), set()).add(past)
    assert all(len(found) == 1 for found in by_lane.values())
