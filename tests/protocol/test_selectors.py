"""Key_Shared's selectors: who owns which hash, operation by operation (golden b, c, d), and what moves (golden l)."""

from itertools import pairwise

import pytest

from pulsar_spark.errors import ConsumerAssignError
from pulsar_spark.protocol.keys.hash_ranges import SLOTS, SLOTS_FROM_ONE, OwnedRange, owner
from pulsar_spark.protocol.keys.selectors import (
    AutoSplit,
    ConsistentHashing,
    ConsistentHashing4,
    Member,
    Sticky,
    ring_points,
)
from pulsar_spark.protocol.keys.sticky_key import sticky_key_hash
from tests.protocol.golden import cases, named
from tests.support.hash_owners import select


def ranges_by_consumer(owned: list[OwnedRange]) -> dict[str, list[list[int]]]:
    held: dict[str, list[list[int]]] = {}
    for one in owned:
        held.setdefault(one.consumer_id, []).append([one.start, one.end])
    return held


def after_each(selector, case, member):
    """(selector, expected) after each operation; refused joins leave it as it was."""
    for operation, expected in zip(case["input"]["ops"], case["expected"]["after_each_op"], strict=True):
        error = None
        if operation["op"] == "remove":
            selector = selector.left(operation["consumer"])
        else:
            try:
                selector = selector.joined(member(operation))
            except ConsumerAssignError:
                error = "ConsumerAssignException"
        assert error == expected.get("error")
        yield selector, expected


def by_name(operation: dict) -> Member:
    return Member(operation["consumer"], operation.get("name", operation["consumer"]))


def by_ranges(operation: dict) -> Member:
    return Member(operation["consumer"], ranges=tuple(tuple(pair) for pair in operation["ranges"]))


def assert_selects(selector, expected) -> None:
    owned = selector.owned()
    by_key, by_hash = expected.get("select", {}), expected.get("select_hash", {})
    assert by_key or by_hash
    assert {key: owner(owned, selector.axis, sticky_key_hash(key.encode())) for key in by_key} == by_key
    assert {text: owner(owned, selector.axis, int(text)) for text in by_hash} == by_hash


@pytest.mark.parametrize("case", cases("b_autosplit"), ids=named)
def test_auto_split(case):
    for selector, expected in after_each(AutoSplit(range_size=case["input"]["range_size"]), case, by_name):
        assert ranges_by_consumer(selector.owned()) == expected["ranges"]
        assert_selects(selector, expected)


def test_auto_split_gives_the_smaller_half_of_an_odd_range_to_the_newcomer_wherever_the_range_lies():
    """The split point is the upper end less half the length, rounded down, of the first range, too (2.24)."""
    held = AutoSplit(((3, "a"), (6, "b"), (8, "c")), range_size=8)
    assert held.joined(Member("d")).borders == ((2, "d"), (3, "a"), (6, "b"), (8, "c"))
    assert held.joined(Member("d")).joined(Member("e")).borders == ((2, "d"), (3, "a"), (5, "e"), (6, "b"), (8, "c"))


@pytest.mark.parametrize("case", cases("c_consistent_323"), ids=named)
def test_consistent_hashing(case):
    """Pulsar's list of ranges leaves out what lies behind the ring's last point; ours is whole."""
    for selector, expected in after_each(ConsistentHashing(points=case["input"]["points"]), case, by_name):
        assert_selects(selector, expected)
        owned = selector.owned()
        assert (owned[0].start, owned[-1].end) == (0, 2**31 - 1) if owned else not selector.members


@pytest.mark.parametrize("case", cases("c_consistent_408"), ids=named)
def test_consistent_hashing_from_4_0(case):
    for selector, expected in after_each(ConsistentHashing4(points=case["input"]["points"]), case, by_name):
        assert_selects(selector, expected)
        assert ranges_by_consumer(selector.owned()) == expected.get("ranges", ranges_by_consumer(selector.owned()))


@pytest.mark.parametrize("case", cases("c_ring_points_323"), ids=lambda case: case["input"]["name"] or "no name")
def test_ring_points(case):
    assert ring_points(**case["input"]) == case["expected"]["points_in_index_order"]


@pytest.mark.parametrize("case", cases("d_exclusive"), ids=named)
def test_sticky_ranges(case):
    """Pulsar's own list lacks single slots and what nests; who owns a slot decides."""
    for selector, expected in after_each(Sticky(), case, by_ranges):
        assert_selects(selector, expected)


@pytest.mark.parametrize("case", cases("d_exclusive_408"), ids=named)
def test_sticky_ranges_from_4_0(case):
    for selector, expected in after_each(Sticky(is_exact=True), case, by_ranges):
        assert ranges_by_consumer(selector.owned()) == expected["ranges"]
        assert_selects(selector, expected)


@pytest.mark.parametrize(
    "asked, owned",
    [
        ({"a": [(0, 9), (10, 19)]}, [(0, 19, "a")]),
        ({"a": [(10, 19), (0, 9), (20, 20)]}, [(0, 20, "a")]),
        ({"a": [(0, 9), (11, 19)]}, [(0, 9, "a"), (11, 19, "a")]),
        ({"a": [(0, 9)], "b": [(10, 19), (20, 29)]}, [(0, 9, "a"), (10, 29, "b")]),
        ({"a": [(0, 9), (20, 29)], "b": [(10, 19)]}, [(0, 9, "a"), (10, 19, "b"), (20, 29, "a")]),
        ({"a": [(5, 5), (6, 6)], "b": [(7, 7)]}, [(5, 6, "a"), (7, 7, "b")]),
    ],
)
def test_adjoining_sticky_ranges_of_one_consumer_are_one(asked, owned):
    """As the range map of 4.0 has them, whatever they were asked for as (2.29)."""
    selector = Sticky(is_exact=True)
    for name, ranges in asked.items():
        selector = selector.joined(Member(name, name, tuple(ranges)))
    assert [(one.start, one.end, one.consumer_id) for one in selector.owned()] == owned


def moved_ranges(before: list[OwnedRange], after: list[OwnedRange]) -> dict[str, dict[str, list[list[int]]]]:
    """What each consumer held and another one, or nobody, holds now, and the other way round. Ranges that are shared do
    not occur in what is compared."""
    borders = sorted({border for one in (*before, *after) for border in (one.start, one.end + 1)})
    moved = {"ranges_lost": {}, "ranges_gained": {}}
    for start, until in pairwise(borders):
        old, new = holder(before, start), holder(after, start)
        for ranges, consumer_id in zip(moved.values(), (old, new)):
            if old == new or consumer_id is None:
                continue
            held = ranges.setdefault(consumer_id, [])
            if held and held[-1][1] + 1 == start:
                held[-1][1] = until - 1
            else:
                held.append([start, until - 1])
    return moved


def holder(ranges: list[OwnedRange], place: int) -> str | None:
    return next((one.consumer_id for one in ranges if one.start <= place <= one.end), None)


@pytest.mark.parametrize("case", cases("l_impacted_ranges_408"), ids=lambda case: case["input"]["selector"])
def test_what_moves(case):
    before = AutoSplit() if case["input"]["selector"] == "auto split" else ConsistentHashing4(points=5)
    for selector, expected in after_each(before, case, by_name):
        assert moved_ranges(before.owned(), selector.owned()) == expected
        before = selector


@pytest.mark.parametrize("case", cases("a3_slots_408"), ids=lambda case: case["input"]["key_hex"][:16] or "empty")
def test_slots_from_4_0(case):
    """In 4.0 slot 0 means unset, so that auto split and sticky ranges take it for 1; ours need no such value."""
    code = sticky_key_hash(bytes.fromhex(case["input"]["key_hex"]))
    assert max(1, SLOTS.place(code)) == case["expected"]["auto_split_or_sticky"]
    assert SLOTS_FROM_ONE.place(code) == case["expected"]["consistent_hashing"]


@pytest.mark.parametrize("ranges", [(), ((5, 4),), ((-1, 4),), ((0, 4), (9, 8))])
def test_no_such_ranges(ranges):
    with pytest.raises(ConsumerAssignError, match="'c'"):
        Sticky().joined(Member("c", ranges=ranges))


def test_a_gap_has_no_owner_and_a_place_beyond_the_last_slot_none_either():
    selector = Sticky().joined(Member("a", ranges=((0, 9), (70_000, 70_001)))).joined(Member("b", ranges=((20, 29),)))
    assert [select(selector, place) for place in (9, 10, 19, 20, 29, 30, 65_535, 70_000 % 65_536)] == [
        "a", None, None, "b", "b", None, None, None,
    ]  # fmt: skip


def test_the_ring_of_4_owns_what_the_recorded_scenarios_say():
    """Recorded on 4.0.8 (conformance key_shared_same_consumer_name and key_shared_out_of_order_allowed_no_wait)."""
    keys = [f"key-{number}" for number in range(40)]
    namesakes = ConsistentHashing4().joined(Member("a", "same")).joined(Member("b", "same"))
    shares = [select(namesakes, sticky_key_hash(key.encode())) for key in keys]
    assert sorted(map(shares.count, "ab")) == [14, 26]
    two = ConsistentHashing4().joined(Member("c1", "c1")).joined(Member("c2", "c2"))
    of_c2 = {number for number in range(20) if select(two, sticky_key_hash(keys[number].encode())) == "c2"}
    assert of_c2 == {1, 3, 5, 7, 8, 9, 15, 17}
