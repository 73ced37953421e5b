"""A Key_Shared cursor's ranges by lane: the arithmetic of ranges whose positions are sparse.

A lane (protocol.lanes) has entries at some positions only, and what its ranges, here *tiles*, say of others does not
matter. A tile begins at an entry of its lane and reaches to just before the lane's next entry behind it, so what was
dealt or acknowledged in order adjoins, and is one tile. The lane's entries counted from 0 are its *ordinals*, on which
tiles are ranges without gaps: so every operation turns tiles into spans of ordinals, works on those, and turns them
back. Ordinals hold for one round; what is stored are positions.

What no tile holds was never delivered. The positions of all entries from the lowest mark-delete of the partition on are
known (:class:`LaneEntries`, four bytes each); below it nothing is asked.

Lanes of one owner are worth merging where nobody else holds entries of theirs and the merged tiles are no more than
theirs were: so lanes that come of a join or a leave are gone a few rounds later. A hash of which a former owner holds
entries waits (semantics 0.22); entries that wait between others that do not cut tiles, so how many are passed over is
bounded, as Pulsar bounds its look-ahead, and with it the rows.

Measured with 10^7 entries of 10^6 keys on two cores, 32 consumers by consistent hashing (3,099 arcs; auto split in
parentheses where it differs): hash to lane 0.11 s, all entries by lane 0.35 s; owners to a map of lanes 20 ms (< 1),
a join 23 ms (< 1); with 10^6 entries in flight: entries by lane 46 ms (16), tiles of all lanes after a join 2 ms,
the 21,000 hashes (9,800) that drain 4 ms (2), which of the next entries wait for them 3 ms (1). A run over that backlog
with 10^6 entries in flight, two deliveries a consumer, acknowledged out of step, rows of ranges at most, and a round's
milliseconds (4 * 10^6 entries in motion, nearly all spent on entries by lane):

| run | lanes | rows | ms | rows of slabs by arc |
|---|---|---|---|---|
| 32 consumers | 32 | 93 | 150-220 | 9,004 |
| one joins, six rounds later one leaves | 64, then 32 again | 216 | 200-430 | 9,238 |
| 4 to 32 consumers, one joins a round | 304 (28) | 804 (54) | 150-450 (80-150) | 5,143 (54) |
| the same, at most 100 waiting entries passed over a round and consumer | 288 | 1,307 | 170-510 | 11,356 |
| the same, all that wait passed over | 193 | 158,830 | 120-500 | 2,502,162 |

Exact ranges are a row an entry but for one in 32: 970,000. With 1 and 4 consumers hash to lane and entries by lane take
as long; there are as many lanes as consumers, and 2 and 12 rows.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple, Self

import numpy as np

from pulsar_spark.protocol.lanes import LaneMap

UNREAD = -1
"""The state of entries that no tile holds."""


class Tiles(NamedTuple):
    """Ranges of positions of one lane, in order, none overlaps the next; ``state`` numbers what else is said of them,
    equal where that is equal, and ``entries`` counts the entries of the lane each holds."""

    first: np.ndarray
    last: np.ndarray
    state: np.ndarray
    entries: np.ndarray

    @classmethod
    def of(cls, ranges: Iterable[tuple[int, int, int, int]]) -> Self:
        """Of (first, last, state, entries)."""
        columns = np.array(list(ranges), np.int64).reshape(-1, 4).T
        return cls(*columns)


class Spans(NamedTuple):
    """Ordinals ``start`` to before ``stop`` in one state, in order, none overlaps the next."""

    start: np.ndarray
    stop: np.ndarray
    state: np.ndarray

    def cut(self, ordinals: Sequence[int] | np.ndarray) -> Self:
        """The same, empty ones left out, and none reaches over one of *ordinals*: what a request names begins and ends
        there."""
        start, stop, state = (column[self.start < self.stop] for column in self)
        if not len(start):
            return type(self)(start, stop, state)
        found = np.union1d(start, ordinals)
        of = np.searchsorted(start, found, side="right") - 1
        is_inside = (of >= 0) & (found < stop[of])
        found, of = found[is_inside], of[is_inside]
        return type(self)(found, np.minimum(np.append(found[1:], stop[-1]), stop[of]), state[of])

    def joined(self) -> Self:
        """Without empty ones; those that adjoin and agree are one."""
        start, stop, state = (column[self.start < self.stop] for column in self)
        is_first = np.ones(len(start), bool)
        is_first[1:] = (start[1:] != stop[:-1]) | (state[1:] != state[:-1])
        firsts = np.flatnonzero(is_first)
        return type(self)(
            start[firsts], stop[np.append(firsts[1:], len(start)) - 1] if len(firsts) else stop, state[firsts]
        )

    def states(self, entries: int) -> np.ndarray:
        """The state of each of the first *entries* entries."""
        found = np.full(entries, UNREAD, np.int32)
        for start, stop, state in zip(*(column.tolist() for column in self)):
            found[start:stop] = state
        return found

    def gaps(self, start: int, stop: int, states: Iterable[int] | None = None) -> list[tuple[int, int]]:
        """What of ordinals *start* to before *stop* no span (of *states*) holds, as (start, stop)."""
        held = self if states is None else type(self)(*(column[np.isin(self.state, list(states))] for column in self))
        starts = np.append(start, np.clip(held.stop, start, stop))
        stops = np.append(np.clip(held.start, start, stop), stop)
        return [pair for pair in zip(starts.tolist(), stops.tolist()) if pair[0] < pair[1]]


class Lane(NamedTuple):
    """The entries of one lane: their ``positions``, ascending; ``end`` is behind the last position known, of any
    lane."""

    positions: np.ndarray
    end: int

    def ordinals(self, positions: Sequence[int] | np.ndarray) -> np.ndarray:
        """The lane's entries below each position."""
        return np.searchsorted(self.positions, positions)

    def spans(self, tiles: Tiles) -> Spans:
        """Tiles as ordinals; one that holds no entry of the lane is an empty span. So whatever covers the entries may
        be given: positions that were acknowledged, or tiles of a lane that this one was part of."""
        return Spans(self.ordinals(tiles.first), self.ordinals(tiles.last + 1), tiles.state)

    def tiles(self, spans: Spans) -> Tiles:
        """Spans as tiles, in as few as possible."""
        start, stop, state = spans.joined()
        ends = np.append(self.positions, self.end)
        return Tiles(ends[start], ends[stop] - 1, state, stop - start)

    def resolve(self, first: int, skip: int, entries: int) -> tuple[int, int]:
        """The exact positions of the first and the last of so many *entries*, behind the *skip* first ones of a tile
        that begins at *first*."""
        start = int(self.ordinals([first])[0]) + skip
        return int(self.positions[start]), int(self.positions[start + entries - 1])

    def first_outside(self, tiles: Tiles, states: Iterable[int], position: int) -> int:
        """The first entry at *position* or behind it that no tile of *states* holds: the first that is not
        acknowledged, which mark-delete stops before. The end of what is known where there is none."""
        gaps = self.spans(tiles).gaps(int(self.ordinals([position])[0]), len(self.positions), states)
        return int(self.positions[gaps[0][0]]) if gaps else self.end

    def count_above(self, tiles: Tiles, states: Iterable[int], position: int) -> int:
        """Entries above *position* that tiles of *states* hold."""
        start, stop, state = self.spans(tiles)
        above = np.maximum(stop - np.maximum(start, self.ordinals([position + 1])[0]), 0)
        return int(above[np.isin(state, list(states))].sum())


class LaneEntries:
    """Where the entries of each lane lie: of the *hashes* of entries at positions from *base* on."""

    def __init__(self, lane_map: LaneMap, base: int, hashes: np.ndarray):
        self._base, self._hashes = base, hashes
        numbers = lane_map.table.of(hashes)
        self._order = np.argsort(numbers, kind="stable").astype(np.int32)
        counts = np.bincount(numbers, minlength=len(lane_map.lanes))
        stops = np.cumsum(counts)
        self._slices = dict(zip(lane_map.lanes, zip((stops - counts).tolist(), stops.tolist())))

    @property
    def end(self) -> int:
        return self._base + len(self._hashes)

    def lane(self, lane: int) -> Lane:
        return Lane(self._order[slice(*self._slices[lane])].astype(np.int64) + self._base, self.end)

    def hashes(self, positions: np.ndarray) -> np.ndarray:
        return self._hashes[positions - self._base]

    def held_hashes(self, lane: Lane, tiles: Tiles, states: Iterable[int]) -> np.ndarray:
        """The hashes of entries that tiles of *states* hold, each once, ascending: those that drain where the states
        are deliveries to somebody who no longer owns the lane."""
        spans = lane.spans(tiles)
        found = np.isin(spans.states(len(lane.positions)), list(states))
        return np.unique(self.hashes(lane.positions[found]))


def merge_tiles(lanes: Sequence[tuple[Lane, Tiles]], merged: Lane) -> Tiles:
    """The tiles of several lanes as those of the lane they are merged into. All lanes of a map make the exact ranges of
    positions; and the other way round, exact ranges are tiles of every lane (:meth:`Lane.spans`)."""
    states = np.full(len(merged.positions), UNREAD, np.int32)
    for lane, tiles in lanes:
        states[merged.ordinals(lane.positions)] = lane.spans(tiles).states(len(lane.positions))
    return merged.tiles(spans_of(states))


def spans_of(states: np.ndarray) -> Spans:
    """The states of entries, one by one, as spans."""
    starts = np.flatnonzero(np.append(True, states[1:] != states[:-1])) if len(states) else np.zeros(0, np.int64)
    spans = Spans(starts, np.append(starts[1:], len(states)) if len(starts) else starts, states[starts])
    is_read = spans.state != UNREAD
    return Spans(*(column[is_read] for column in spans))
