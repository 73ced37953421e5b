"""Who owns which sticky-key hashes: Pulsar's selectors of Key_Shared, as immutable values.

Rules: semantics 2.24-2.30 and 0.2-0.4, 0.11 (HashRangeAutoSplitStickyKeyConsumerSelector,
ConsistentHashingStickyKeyConsumerSelector and HashRangeExclusiveStickyKeyConsumerSelector of 3.2.3, and PIP-379 for
4.0)."""

from bisect import bisect_left
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import NamedTuple, Protocol, Self

from pulsar_spark.errors import ConsumerAssignError
from pulsar_spark.protocol.keys.hash_ranges import HASHES, SLOTS, SLOTS_FROM_ONE, Axis, OwnedRange, joined_ranges
from pulsar_spark.protocol.keys.sticky_key import DEFAULT_RANGE_SIZE, sticky_key_hash
from pulsar_spark.protocol.subscriptions.failover import java_order

POINTS = 100
"""Default points of a consumer on a ring (subscriptionKeySharedConsistentHashingReplicaPoints)."""


class Member(NamedTuple):
    """A consumer as selectors know it; *ranges* are the sticky ranges it requests, as (start, end)."""

    consumer_id: str
    name: str = ""
    ranges: tuple[tuple[int, int], ...] = ()

    @property
    def label(self) -> str:
        return self.name or self.consumer_id


class Selector(Protocol):
    def __hash__(self) -> int: ...
    @property
    def axis(self) -> Axis: ...

    def joined(self, member: Member) -> Self:
        """Add the consumer; :class:`ConsumerAssignError` if it cannot get ranges."""

    def left(self, consumer_id: str) -> Self:
        """Remove the consumer, if it is there."""

    def owned(self) -> list[OwnedRange]:
        """The owned ranges, in order of start."""


@dataclass(frozen=True)
class AutoSplit:
    """A newcomer takes the lower half of the biggest (lowest) range; a leaving consumer's range goes to the right
    neighbour, the last one to the left.

    ``borders`` are (inclusive upper end, consumer) in order.

    >>> selector = AutoSplit().joined(Member("C1")).joined(Member("C2")).joined(Member("C3"))
    >>> [(owned.start, owned.end, owned.consumer_id) for owned in selector.owned()]
    [(0, 16384, 'C3'), (16385, 32768, 'C2'), (32769, 65536, 'C1')]
    """

    borders: tuple[tuple[int, str], ...] = ()
    range_size: int = DEFAULT_RANGE_SIZE

    @property
    def axis(self) -> Axis:
        return Axis(self.range_size, 0)

    def joined(self, member: Member) -> Self:
        if not self.borders:
            return replace(self, borders=((self.range_size, member.consumer_id),))
        lengths = [end - start for start, end in pairwise([0, *(border for border, _ in self.borders)])]
        index = lengths.index(max(lengths))
        if lengths[index] <= 1:
            raise ConsumerAssignError(
                f"consumer {member.label!r}: a hash range of {self.range_size} can be split for at most "
                f"{len(self.borders)} consumers: close one first"
            )
        end = self.borders[index][0]
        taken = (end - lengths[index] // 2, member.consumer_id)
        return replace(self, borders=(*self.borders[:index], taken, *self.borders[index:]))

    def left(self, consumer_id: str) -> Self:
        kept = [(border, owner) for border, owner in self.borders if owner != consumer_id]
        if kept and len(kept) < len(self.borders) and self.borders[-1][1] == consumer_id:
            kept[-1] = (self.range_size, kept[-1][1])
        return replace(self, borders=tuple(kept))

    def owned(self) -> list[OwnedRange]:
        starts = [0, *(border + 1 for border, _ in self.borders)]
        return [OwnedRange(start, end, owner) for start, (end, owner) in zip(starts, self.borders, strict=False)]


@dataclass(frozen=True)
class ConsistentHashing:
    """Consistent hashing before 4.0, the default: a hash belongs to the first point at or after it, cyclically.

    Point i is the hash of ``name NUL i``. Consumers of one name share points: of those on a point, by name, the one at
    ``hash % count`` owns a hash."""

    members: tuple[Member, ...] = ()
    points: int = POINTS
    axis: Axis = field(default=HASHES, repr=False)

    def joined(self, member: Member) -> Self:
        return replace(self, members=(*self.members, member))

    def left(self, consumer_id: str) -> Self:
        return replace(self, members=tuple(each for each in self.members if each.consumer_id != consumer_id))

    def owned(self) -> list[OwnedRange]:
        ring: dict[int, list[Member]] = {}
        for member in self.members:
            for point in ring_points(member.name, self.points):
                holders = ring.setdefault(point, [])
                if member not in holders:
                    holders.append(member)
        in_order = {
            point: [member.consumer_id for member in sorted(holders, key=lambda member: java_order(member.name))]
            for point, holders in ring.items()
        }
        return joined_ranges(_arcs(in_order, self.axis))


@dataclass(frozen=True)
class ConsistentHashing4:
    """Consistent hashing from 4.0 on (PIP-379): points are slots 1 to 65535, each owned by the first consumer on it.

    Point i is the slot of ``name NUL index NUL i``, with the lowest free index of that name. ``members`` are (index,
    consumer) in order of joining."""

    members: tuple[tuple[int, Member], ...] = ()
    points: int = POINTS
    ring: tuple[tuple[int, str], ...] = ()
    axis: Axis = field(default=SLOTS_FROM_ONE, repr=False)

    def joined(self, member: Member) -> Self:
        taken = {index for index, each in self.members if each.name == member.name}
        index = next(index for index in range(len(taken) + 1) if index not in taken)
        ring = list(self.ring)
        for point in points_of_index(member.name, index, self.points, self.axis):
            at = bisect_left(ring, (point,))
            if at == len(ring) or ring[at][0] != point:
                ring.insert(at, (point, member.consumer_id))
        return replace(self, members=(*self.members, (index, member)), ring=tuple(ring))

    def left(self, consumer_id: str) -> Self:
        return replace(
            self,
            members=tuple(each for each in self.members if each[1].consumer_id != consumer_id),
            ring=tuple(point for point in self.ring if point[1] != consumer_id),
        )

    def holder(self, point: int) -> str | None:
        at = bisect_left(self.ring, (point,))
        return self.ring[at][1] if at < len(self.ring) and self.ring[at][0] == point else None

    def owned(self) -> list[OwnedRange]:
        return joined_ranges(_arcs({point: [owner] for point, owner in self.ring}, self.axis))


@dataclass(frozen=True)
class Sticky:
    """Ranges that consumers request, without overlap between consumers or, if *is_exact* (from 4.0 on), within one.

    Unless *is_exact*, a consumer also owns holes between two of its borders."""

    members: tuple[Member, ...] = ()
    is_exact: bool = False
    axis: Axis = field(default=SLOTS, repr=False)

    def joined(self, member: Member) -> Self:
        if not member.ranges:
            raise ConsumerAssignError(f"consumer {member.label!r} has no hash range: give at least one")
        for start, end in member.ranges:
            if not 0 <= start <= end:
                raise ConsumerAssignError(
                    f"consumer {member.label!r}: {start} to {end} is not a hash range: it must begin at 0 or "
                    "later and not end before it begins"
                )
        self._require_apart(member)
        return replace(self, members=(*self.members, member))

    def _require_apart(self, member: Member) -> None:
        """Compare each range, in order of start, with the farthest-reaching ones before it: the newcomer's and the
        others'."""
        new_ranges = [(*pair, True, member.label) for pair in member.ranges]
        known_ranges = [(*pair, False, other.label) for other in self.members for pair in other.ranges]
        farthest: dict[bool, tuple[int, int, bool, str]] = {}
        for each in sorted([*new_ranges, *known_ranges]):
            start, end, is_new, _ = each
            for was_new, before in farthest.items():
                if before[1] >= start and (was_new != is_new or (is_new and self.is_exact)):
                    own, other = (each, before) if is_new else (before, each)
                    raise ConsumerAssignError(
                        f"consumer {member.label!r}: hash range {own[0]} to {own[1]} overlaps {other[0]} to {other[1]} "
                        f"of consumer {other[3]!r}: give ranges that no other consumer has"
                    )
            if is_new not in farthest or farthest[is_new][1] < end:
                farthest[is_new] = each

    def left(self, consumer_id: str) -> Self:
        return replace(self, members=tuple(member for member in self.members if member.consumer_id != consumer_id))

    def owned(self) -> list[OwnedRange]:
        if self.is_exact:
            return joined_ranges(
                OwnedRange(*pair, member.consumer_id) for member in self.members for pair in member.ranges
            )
        borders = sorted(
            {(border, member.consumer_id) for member in self.members for pair in member.ranges for border in pair}
        )
        single = [OwnedRange(border, border, owner) for border, owner in borders]
        between = [
            OwnedRange(low + 1, high - 1, owner)
            for (low, owner), (high, other) in pairwise(borders)
            if owner == other and low + 1 < high
        ]
        return joined_ranges([*single, *between])


def ring_points(name: str, points: int = POINTS) -> list[int]:
    """A consumer's points on the ring before 4.0."""
    return [sticky_key_hash(f"{name}\0{number}".encode()) for number in range(points)]


def points_of_index(name: str, index: int, points: int, axis: Axis) -> list[int]:
    """A consumer's points on the ring from 4.0 on, including those that others own.

    >>> points_of_index("consumer1", 0, 2, SLOTS_FROM_ONE)
    [60442, 18366]
    """
    return [axis.place(sticky_key_hash(f"{name}\0{index}\0{number}".encode())) for number in range(points)]


def _arcs(ring: dict[int, list[str]], axis: Axis) -> list[OwnedRange]:
    """The range of each point; the range after the last point belongs to the first."""
    points = sorted(ring)
    if not points:
        return []
    arcs = [(low + 1, high, ring[high]) for low, high in pairwise([axis.start - 1, *points])]
    if points[-1] < axis.last:
        arcs.append((points[-1] + 1, axis.last, ring[points[0]]))
    return [
        OwnedRange(start, end, owner, len(holders), share)
        for start, end, holders in arcs
        for share, owner in enumerate(holders)
    ]
