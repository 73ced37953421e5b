"""Bundles: slices of a root's topics by the hash of their names, and which broker serves which.

Hash and names are Pulsar's: CRC-32 of a topic's full name (``NamespaceBundleFactory.getLongHashCode``), and
``0x00000000_0x80000000`` without its upper end, except in the last slice. Ours: bundles belong to a root, and all
partitions of a topic share one."""

import re
import zlib
from collections.abc import Collection, Iterable, Mapping
from typing import NamedTuple

from pulsar_spark.errors import CorruptState, InvalidConfiguration, shown

HIGHEST = 0xFFFFFFFF
_RANGE = re.compile(r"0x([0-9a-f]{8})_0x([0-9a-f]{8})")


def topic_hash(topic: str) -> int:
    """The hash of a topic's full name without a partition, 0 to :data:`HIGHEST`.

    >>> hex(topic_hash("persistent://public/default/flights"))
    '0x34f7fe2e'
    """
    return zlib.crc32(topic.encode())


class BundleRange(NamedTuple):
    """Hashes from *lower* to below *upper*; the highest hash belongs to the last slice."""

    lower: int
    upper: int

    def __str__(self) -> str:
        return f"0x{self.lower:08x}_0x{self.upper:08x}"

    def holds(self, topic: str) -> bool:
        """Whether the slice includes the topic."""
        return self.is_whole or self.lower <= topic_hash(topic) < self.upper + (self.upper == HIGHEST)

    @property
    def is_whole(self) -> bool:
        """Whether the slice includes all hashes."""
        return self == WHOLE

    def split(self, at: int | None = None) -> "tuple[BundleRange, BundleRange]":
        """Two slices, the second from the hash *at* on; by default the middle (``range_equally_divide``).
        :class:`InvalidConfiguration` if one would be empty.

        >>> [str(half) for half in WHOLE.split()]
        ['0x00000000_0x7fffffff', '0x7fffffff_0xffffffff']
        """
        at = self.lower + (self.upper - self.lower) // 2 if at is None else at
        if not self.lower < at < self.upper:
            raise InvalidConfiguration(
                f"bundle {self} cannot be split at 0x{at:08x}: give a hash above 0x{self.lower:08x} and below "
                f"0x{self.upper:08x}"
            )
        return BundleRange(self.lower, at), BundleRange(at, self.upper)


WHOLE = BundleRange(0, HIGHEST)


def parse_range(text: str) -> BundleRange:
    """The slice with this name; :class:`InvalidConfiguration` for an invalid one."""
    found = _RANGE.fullmatch(text) if isinstance(text, str) else None
    given = BundleRange(int(found[1], 16), int(found[2], 16)) if found else None
    if given is None or given.lower >= given.upper:
        raise InvalidConfiguration(
            f"bundle {shown(text)} is not valid: give a range such as {WHOLE}, as 'pulsar-spark bundles list' shows it"
        )
    return given


def check_cover(ranges: Iterable[BundleRange]) -> None:
    """:class:`CorruptState` unless the slices, in order, cover each hash once."""
    at = 0
    for each in ranges:
        if each.lower != at:
            raise CorruptState(f"bundle {each} does not begin where the one before ends, at 0x{at:08x}")
        at = each.upper
    if at != HIGHEST:
        raise CorruptState(f"the bundles end at 0x{at:08x}, not at 0x{HIGHEST:08x}")


def quotas(served: Mapping[str, Collection[str]], bundles: int) -> dict[str, int]:
    """How many of *bundles* each broker in *served* is to serve. The remainder goes to brokers that now serve more, so
    that few bundles move.

    >>> quotas({"a": ["0", "1"], "b": ["2", "3"], "c": []}, 4)
    {'a': 2, 'b': 1, 'c': 1}
    """
    order = sorted(served, key=lambda broker: (-len(served[broker]), broker))
    each, rest = divmod(bundles, len(order)) if order else (0, 0)
    return {broker: each + (place < rest) for place, broker in enumerate(order)}


class Share(NamedTuple):
    """A broker's next step: take this many free bundles, or give these up."""

    take: int
    give_up: list[str]


def share(me: str, served: Mapping[str, Collection[str]], free: int) -> Share:
    """The next step of broker *me*, with *free* unserved bundles. Once none is free, it gives up bundles above its
    quota, the last by name.

    >>> share("c", {"a": ["0", "1"], "c": []}, free=1)
    Share(take=1, give_up=[])
    >>> share("a", {"a": ["0", "1"], "c": []}, free=0)
    Share(take=0, give_up=['1'])
    """
    mine = sorted(served[me])
    quota = quotas(served, free + sum(map(len, served.values())))[me]
    if len(mine) < quota:
        return Share(min(free, quota - len(mine)), [])
    return Share(0, mine[quota:] if not free else [])
