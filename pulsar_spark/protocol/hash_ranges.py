"""Ranges of sticky-key hashes: who owns which, as rows an assignment joins with, and what moves when owners change.

An axis says where the hash of a key lies. Selectors before 4.0 that split or fix ranges use *slots*, the hash modulo
65536; their ring of consistent hashing lies over the hash itself; that of 4.0 over slots that begin at 1 (semantics
2.23, 2.27, 2.28). A hash no range holds has no owner: its entries wait (2.31).
"""

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from pulsar_spark.protocol.sticky_key import DEFAULT_RANGE_SIZE, MAX_HASH


class Axis(NamedTuple):
    """Where hashes lie: at ``hash % size + start``.

    >>> SLOTS.place(964695987), HASHES.place(964695987), SLOTS_FROM_ONE.place(65535)
    (6067, 964695987, 1)
    """

    size: int
    start: int

    @property
    def last(self) -> int:
        """The last place there is."""
        return self.start + self.size - 1

    def place(self, hash_code: int) -> int:
        return hash_code % self.size + self.start


SLOTS = Axis(DEFAULT_RANGE_SIZE, 0)
SLOTS_FROM_ONE = Axis(DEFAULT_RANGE_SIZE - 1, 1)
HASHES = Axis(MAX_HASH + 1, 0)


class OwnedRange(NamedTuple):
    """Places start to end, inclusive, are *consumer_id*'s; where several share them, its hashes are those whose
    remainder by *sharers* is *share*."""

    start: int
    end: int
    consumer_id: str
    sharers: int = 1
    share: int = 0


def owner(ranges: Sequence[OwnedRange], axis: Axis, hash_code: int) -> str | None:
    """The consumer that owns a hash, None where nobody does; *ranges* are in order of start.

    >>> ranges = [OwnedRange(0, 9, "a"), OwnedRange(20, 29, "b", 2, 0), OwnedRange(20, 29, "c", 2, 1)]
    >>> [owner(ranges, SLOTS, place) for place in (9, 10, 20, 21)]
    ['a', None, 'b', 'c']
    """
    place = axis.place(hash_code)
    index = bisect_right(ranges, place, key=lambda owned: owned.start) - 1
    while index >= 0 and ranges[index].start <= place <= ranges[index].end:
        if hash_code % ranges[index].sharers == ranges[index].share:
            return ranges[index].consumer_id
        index -= 1
    return None


NOBODY = -1
"""The number of no consumer."""


class Owners:
    """Who owns which hash, for very many hashes at once: :func:`owner`, vectorised.

    >>> owners = Owners([OwnedRange(0, 9, "a"), OwnedRange(20, 29, "b", 2, 0), OwnedRange(20, 29, "c", 2, 1)], SLOTS)
    >>> owners.consumers, owners.of(np.array([9, 10, 20, 21])).tolist()
    (['a', 'b', 'c'], [0, -1, 1, 2])
    """

    def __init__(self, ranges: Iterable[OwnedRange], axis: Axis):
        self.axis = axis
        self.consumers: list[str] = []
        """Ids, by number."""
        self._numbers: dict[str, int] = {}
        shares: dict[tuple[int, int], list[tuple[int, int, int]]] = defaultdict(list)
        for owned in ranges:
            number = self._numbers.setdefault(owned.consumer_id, len(self._numbers))
            shares[owned.sharers, owned.share].append((owned.start, owned.end, number))
        self.consumers = list(self._numbers)
        self._shares = [(*share, np.array(sorted(held), np.int64).T) for share, held in shares.items()]

    def number(self, consumer_id: str | None) -> int:
        """The number of a consumer; of one that owns nothing :data:`NOBODY`."""
        return self._numbers.get(consumer_id, NOBODY)

    def of(self, hashes: np.ndarray) -> np.ndarray:
        """The number of each hash's owner."""
        places = hashes.astype(np.int64) % self.axis.size + self.axis.start
        found = np.full(len(hashes), NOBODY)
        for sharers, share, (starts, ends, numbers) in self._shares:
            at = np.searchsorted(starts, places, "right") - 1
            is_in = (at >= 0) & (places <= ends[at])
            if sharers > 1:
                is_in &= hashes % sharers == share
            found[is_in] = numbers[at[is_in]]
        return found


def joined_ranges(ranges: Iterable[OwnedRange]) -> list[OwnedRange]:
    """The same in as few rows as possible: in order, neighbours that agree are one.

    >>> joined_ranges([OwnedRange(5, 9, "a"), OwnedRange(0, 4, "a"), OwnedRange(11, 12, "a")])
    [OwnedRange(start=0, end=9, consumer_id='a', sharers=1, share=0), OwnedRange(start=11, end=12, consumer_id='a', \
sharers=1, share=0)]
    """
    joined: list[OwnedRange] = []
    open_ranges: dict[tuple, int] = {}
    for owned in sorted(ranges):
        index = open_ranges.get(owned[2:])
        if index is not None and joined[index].end + 1 == owned.start:
            joined[index] = joined[index]._replace(end=owned.end)
        else:
            open_ranges[owned[2:]] = len(joined)
            joined.append(owned)
    return joined


class Moved(NamedTuple):
    """What each consumer lost and gained, as (start, end) by its id."""

    lost: dict[str, list[tuple[int, int]]]
    gained: dict[str, list[tuple[int, int]]]


def moved_ranges(before: Sequence[OwnedRange], after: Sequence[OwnedRange]) -> Moved:
    """Which ranges change hands: what a consumer held and another one, or nobody, holds now, and the other way round
    (4.0.8: impacted consumers). Ranges that are shared do not occur in what is compared.

    >>> moved_ranges([OwnedRange(0, 99, "a")], [OwnedRange(0, 49, "b"), OwnedRange(50, 99, "a")])
    Moved(lost={'a': [(0, 49)]}, gained={'b': [(0, 49)]})
    """
    borders = sorted({border for owned in (*before, *after) for border in (owned.start, owned.end + 1)})
    lost, gained = defaultdict(list), defaultdict(list)
    for start, until in zip(borders, borders[1:], strict=False):
        old, new = _holder(before, start), _holder(after, start)
        if old == new:
            continue
        for ranges, consumer_id in ((lost, old), (gained, new)):
            if consumer_id is None:
                continue
            held = ranges[consumer_id]
            if held and held[-1][1] + 1 == start:
                held[-1] = (held[-1][0], until - 1)
            else:
                held.append((start, until - 1))
    return Moved(dict(lost), dict(gained))


def _holder(ranges: Sequence[OwnedRange], place: int) -> str | None:
    index = bisect_right(ranges, place, key=lambda owned: owned.start) - 1
    return ranges[index].consumer_id if index >= 0 and place <= ranges[index].end else None
