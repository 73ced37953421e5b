"""Pages: a cursor's exact ranges in parts that are read and written together.

A round reads and rewrites only the pages that its requests, due times and candidates touch. What it changes in random
places costs it the pages around these, so pages are small; but each page costs something by itself, so those of a
cursor with very many ranges are larger (:func:`most_ranges`). Of each page are known: who holds how many unacknowledged
messages in it, and when its next entry falls due, so that limits and timers need no scan. Pages that no round touches
are packed (protocol.packed_ranges): of ranges as objects a cursor has few, however many it has.

Acknowledgements in random order among 50,000 ranges hit a page each: with pages of 8 ranges a round takes four fifths
of the processor time in Python that it takes with pages of 16; with pages of 4, of which there are twice as many to
load, it takes little less. Of 10^6 holes 50,000 pages of 40 ranges: 10,000 acknowledgements all over them take less
than half of the time that they take with 10,000 pages, since a fifth of the rows is written again; a snapshot takes a
third longer, and of 100,000 pages twice as long.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from itertools import pairwise
from operator import attrgetter

import numpy as np

from pulsar_spark.protocol.cursor import PENDING, REPLAY, Range
from pulsar_spark.protocol.message_id import MAX_LONG
from pulsar_spark.protocol.packed_ranges import PackedRanges, ends_of, pack

MIN_PAGE_RANGES, MAX_PAGE_RANGES = 8, 1000
MANY_PAGES = 50_000
REST_AFTER = 100_000
"""Pages are let rest each time that rounds have made so many ranges: packing takes half a microsecond a range."""
NEVER = MAX_LONG

_SIDES = ("left", "right")


def most_ranges(ranges: int) -> int:
    """How many ranges a page takes of a cursor that has so many: few, as long as that makes no more than
    :data:`MANY_PAGES` full ones.

    >>> [most_ranges(ranges) for ranges in (10, 100_000, 10_000_000)]
    [8, 8, 200]
    """
    return min(max(ranges // MANY_PAGES, MIN_PAGE_RANGES), MAX_PAGE_RANGES)


class Page:
    """Ranges by position, and the facts about them that are asked for without reading them."""

    def __init__(self, first: int, ranges: Sequence[Range], *, is_used: bool = True):
        self.first, self.held = first, ranges
        """``held`` are its ranges for who only reads them: a list, or packed while no round touches them."""
        self.is_used = is_used
        """Have rounds had to do with it since it was last asked whether it may be packed?"""
        self.out: tuple | None = None
        """What a Key_Shared round has found out about its pending entries (see keyed_pages)."""
        self.returns_at: int | None = None
        self.replays_at: int | None = None
        self.unacked: dict[str, int] = {}
        if isinstance(ranges, PackedRanges):
            self._look_at_tails(ranges)
        else:
            self._look_at(ranges)

    def _look_at_tails(self, ranges: PackedRanges) -> None:
        """Note the facts, for all ranges that agree at once."""
        for alike, entries in ranges.by_tail():
            self._look_at([alike])
            if alike.status == PENDING:
                self.unacked[alike.consumer_id] += (entries - 1) * alike.unacked_messages

    def _look_at(self, ranges: Iterable[Range]) -> None:
        unacked = self.unacked
        for held in ranges:
            status = held[2]
            if status == PENDING:
                first, last, _, consumer_id, _, _, due_time, ack_set, batch_size, entries = held
                is_plain = ack_set is None and entries is None  # nearly all are: half the time of asking the range
                messages = (last - first + 1) * batch_size if is_plain else held.unacked_messages
                unacked[consumer_id] = unacked.get(consumer_id, 0) + messages
                if due_time is not None and (self.returns_at is None or due_time < self.returns_at):
                    self.returns_at = due_time
            elif status == REPLAY and (self.replays_at is None or (held.due_time or 0) < self.replays_at):
                self.replays_at = held.due_time or 0

    @property
    def ranges(self) -> list[Range]:
        """Its ranges as objects, which they stay until it is let rest."""
        self.is_used = True
        if not isinstance(self.held, list):
            self.held = list(self.held)
        return self.held

    @cached_property
    def replays(self) -> list[tuple[int, int]]:
        """(deliver time, first position) of the ranges to be delivered again, in that order; 0 where they need not be
        waited for."""
        return sorted((held.due_time or 0, held.first) for held in self.held if held.status == REPLAY)

    @cached_property
    def spans(self) -> np.ndarray:
        """The first positions of its ranges and the last ones, as they were when the page was made."""
        return ends_of(self.held)

    def next_replay(self, wall: int) -> int | None:
        """The earliest instant after *wall* at which a range may be delivered again that may not be before."""
        if self.replays_at is None or self.replays_at > wall:
            return self.replays_at
        at = bisect_right(self.replays, wall, key=lambda replay: replay[0])
        return self.replays[at][0] if at < len(self.replays) else None

    def number_of(self, first: int) -> int:
        """Which range begins at position *first*."""
        return bisect_left(self.held, first, key=lambda held: held.first)


class Pages(Sequence[Page]):
    """A cursor's pages by position. What every round asks of all of them is kept beside them in arrays: it touches some
    hundred of ten thousand pages, and to look at each of the others would take longer than all it does to these."""

    def __init__(self, pages: Iterable[Page] = ()):
        self._pages = sorted(pages, key=attrgetter("first"))
        self._made = 0
        """Ranges of pages put here since they were last let rest."""
        self._note_made(self._pages)
        self._facts = _facts(self._pages) if self._pages else _NO_FACTS

    def __len__(self) -> int:
        return len(self._pages)

    def __getitem__(self, at):
        return self._pages[at]

    def __iter__(self) -> Iterator[Page]:
        return iter(self._pages)

    @property
    def firsts(self) -> np.ndarray:
        """The positions they begin at."""
        return self._facts[0]

    @property
    def returns_at(self) -> np.ndarray:
        """When the next pending entry of each comes back by itself, or :data:`NEVER`."""
        return self._facts[1]

    @property
    def replays_at(self) -> np.ndarray:
        """When the next entry of each may be delivered again, 0 for at once, or :data:`NEVER`."""
        return self._facts[2]

    @property
    def sizes(self) -> np.ndarray:
        """How many ranges each had when it was put here."""
        return self._facts[3]

    def replace(self, touched: Sequence[int], made: list[Page]) -> None:
        """Put *made* (by position, none where another is that stays) in the place of those at the indexes *touched*,
        which ascend."""
        kept = np.delete(self._facts, touched, axis=1)
        before_touched = np.asarray(touched, np.int64) - np.arange(len(touched))
        before_made = np.searchsorted(kept[0], [page.first for page in made])
        before = np.unique(np.concatenate([before_touched, before_made]))  # so many pages that stay lie before these
        spans = [np.searchsorted(each, before, side) for each in (before_touched, before_made) for side in _SIDES]
        for stays, begin, end, first, behind in reversed([*zip(*(each.tolist() for each in (before, *spans)))]):
            self._pages[stays + begin : stays + end] = made[first:behind]
        facts = np.concatenate([kept, _facts(made)], axis=1)
        self._facts = facts[:, np.argsort(facts[0], kind="stable")]
        self._note_made(made)

    def _note_made(self, made: Sequence[Page]) -> None:
        self._made += sum(len(page.held) for page in made)
        if self._made >= REST_AFTER:
            self._let_rest()

    def _let_rest(self) -> None:
        """Pack the pages that no round has used since this was done before: objects are as many as rounds touched of
        late, however many ranges there are."""
        idle = [page for page in self._pages if not page.is_used and isinstance(page.held, list)]
        for page, packed in zip(idle, pack([page.held for page in idle])):
            page.held = packed
        for page in self._pages:
            page.is_used = False
        self._made = 0


def _facts(pages: list[Page]) -> np.ndarray:
    """A row a fact, a column a page."""
    facts = [
        (
            page.first,
            NEVER if page.returns_at is None else page.returns_at,
            NEVER if page.replays_at is None else page.replays_at,
            len(page.held),
        )
        for page in pages
    ]
    return np.array(facts, np.int64).reshape(-1, 4).T


_NO_FACTS = _facts([])
"""Those of no pages, which most of very many cursors have."""


def chunks(ranges: Sequence[Range], borders: np.ndarray, most: int) -> Iterator[Sequence[Range]]:
    """*ranges* cut at *borders* (first positions of other pages), and what lies between two of them into parts of like
    size, of at most so many ranges."""
    cuts = np.unique(np.searchsorted(ends_of(ranges)[0], borders)).tolist()
    for first, last in pairwise([0, *cuts, len(ranges)]):
        parts = -(-(last - first) // most)
        for part in range(parts):
            yield ranges[first + part * (last - first) // parts : first + (part + 1) * (last - first) // parts]
