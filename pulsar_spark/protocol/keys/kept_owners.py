"""Restore the exact selector from rows, which have name, request and ranges of each consumer, in order of joining; for
the ring of 4.0 also its index among consumers of its name, and the points it did not get."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from pulsar_spark.protocol.keys.key_shared import KeySharedRules, hash_ranges_of, new_selector
from pulsar_spark.protocol.keys.selectors import (
    AutoSplit,
    ConsistentHashing,
    ConsistentHashing4,
    Member,
    Selector,
    Sticky,
    points_of_index,
)

NAME_INDEX, LOST_POINTS = "key_shared_name_index", "key_shared_lost_points"
KEPT_PROPERTIES = (NAME_INDEX, LOST_POINTS)


class KeptMember(NamedTuple):
    """A consumer as its row describes it: ``owned`` are its ranges as (start, end)."""

    member: Member
    owned: tuple[tuple[int, int], ...] = ()
    properties: Mapping[str, str] = {}


def kept_member(row: Mapping) -> KeptMember:
    properties = dict(row["properties"] or [])
    member = Member(row["consumer_id"], row["consumer_name"], hash_ranges_of(properties.get("hash_ranges") or ""))
    return KeptMember(
        member, tuple((range_["start"], range_["end"]) for range_ in row["hash_ranges"] or ()), properties
    )


def kept_properties(selector: Selector | None, consumer_id: str) -> dict[str, str]:
    """The :data:`KEPT_PROPERTIES` of a consumer.

    >>> selector = ConsistentHashing4(points=2).joined(Member("a", "a"))
    >>> kept_properties(selector, "a")
    {'key_shared_name_index': '0', 'key_shared_lost_points': ''}
    """
    if not isinstance(selector, ConsistentHashing4):
        return {}
    index, member = next(each for each in selector.members if each[1].consumer_id == consumer_id)
    points = points_of_index(member.name, index, selector.points, selector.axis)
    lost = sorted({point for point in points if selector.holder(point) != consumer_id})
    return {NAME_INDEX: str(index), LOST_POINTS: ",".join(map(str, lost))}


def kept_selector(rules: KeySharedRules, kept: Sequence[KeptMember]) -> Selector | None:
    """The selector of these consumers, in order of joining; None without any.

    >>> made = AutoSplit().joined(Member("a")).joined(Member("b")).joined(Member("c")).left("b")
    >>> rows = [KeptMember(Member("a"), ((16385, 65536),)), KeptMember(Member("c"), ((0, 16384),))]
    >>> kept_selector(KeySharedRules(use_consistent_hashing=0), rows) == made
    True
    """
    if not kept:
        return None
    empty = new_selector(rules)
    members = tuple(each.member for each in kept)
    if isinstance(empty, AutoSplit):
        return AutoSplit(tuple(sorted((end, each.member.consumer_id) for each in kept for _, end in each.owned)))
    if isinstance(empty, ConsistentHashing4):
        return _kept_ring(empty, kept)
    if isinstance(empty, ConsistentHashing):
        return ConsistentHashing(members, empty.points)
    return Sticky(members, is_exact=not rules.is_classic)


def _kept_ring(empty: ConsistentHashing4, kept: Sequence[KeptMember]) -> ConsistentHashing4:
    members, ring = [], {}
    for each in kept:
        index = int(each.properties.get(NAME_INDEX) or 0)
        lost = {int(point) for point in (each.properties.get(LOST_POINTS) or "").split(",") if point}
        members.append((index, each.member))
        for point in points_of_index(each.member.name, index, empty.points, empty.axis):
            if point not in lost:
                ring[point] = each.member.consumer_id
    return ConsistentHashing4(tuple(members), empty.points, tuple(sorted(ring.items())))
