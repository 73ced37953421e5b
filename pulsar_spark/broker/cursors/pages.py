"""Pages: parts of a cursor's exact ranges that are read and written together.

A round rewrites only the pages it touches. Small pages suit random changes, but each has a cost, so they grow with the
number of ranges (:func:`most_ranges`). A page knows its unacknowledged messages and next due time. Unused pages are
packed (protocol.acknowledgement.packed_ranges).
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from itertools import pairwise
from operator import attrgetter

import numpy as np

from pulsar_spark.protocol.acknowledgement.cursor import PENDING, REPLAY, Range
from pulsar_spark.protocol.acknowledgement.packed_ranges import PackedRanges, ends_of, pack
from pulsar_spark.protocol.topics.message_id import MAX_LONG

MIN_PAGE_RANGES, MAX_PAGE_RANGES = 8, 1000
MANY_PAGES = 50_000
REST_AFTER = 100_000
"""Unused pages are packed each time rounds have made this many ranges."""
NEVER = MAX_LONG

_SIDES = ("left", "right")


def most_ranges(ranges: int) -> int:
    """The most ranges in a page of a cursor with *ranges*: few, up to :data:`MANY_PAGES` full pages.

    >>> [most_ranges(ranges) for ranges in (10, 100_000, 10_000_000)]
    [8, 8, 200]
    """
    return min(max(ranges // MANY_PAGES, MIN_PAGE_RANGES), MAX_PAGE_RANGES)


class Page:
    """Ranges by position, and facts about them."""

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
                is_plain = ack_set is None and entries is None  # nearly all are, and this is quicker
                messages = (last - first + 1) * batch_size if is_plain else held.unacked_messages
                unacked[consumer_id] = unacked.get(consumer_id, 0) + messages
                if due_time is not None and (self.returns_at is None or due_time < self.returns_at):
                    self.returns_at = due_time
            elif status == REPLAY and (self.replays_at is None or (held.due_time or 0) < self.replays_at):
                self.replays_at = held.due_time or 0

    @property
    def ranges(self) -> list[Range]:
        """Its ranges as objects, until the page is packed."""
        self.is_used = True
        if not isinstance(self.held, list):
            self.held = list(self.held)
        return self.held

    @cached_property
    def replays(self) -> list[tuple[int, int]]:
        """Sorted (deliver time, first position) to deliver again; time 0 for now."""
        return sorted((held.due_time or 0, held.first) for held in self.held if held.status == REPLAY)

    @cached_property
    def spans(self) -> np.ndarray:
        """First and last positions of its original ranges."""
        return ends_of(self.held)

    def next_replay(self, wall: int) -> int | None:
        """When, after *wall*, another range may be delivered again."""
        if self.replays_at is None or self.replays_at > wall:
            return self.replays_at
        at = bisect_right(self.replays, wall, key=lambda replay: replay[0])
        return self.replays[at][0] if at < len(self.replays) else None

    def number_of(self, first: int) -> int:
        """The index of the range from position *first*."""
        return bisect_left(self.held, first, key=lambda held: held.first)


class Pages(Sequence[Page]):
    """A cursor's pages by position, with arrays of the facts that each round needs of all."""

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
        return self._facts[0]

    @property
    def returns_at(self) -> np.ndarray:
        """When each page's next pending entry comes back, or :data:`NEVER`."""
        return self._facts[1]

    @property
    def replays_at(self) -> np.ndarray:
        """When each page's next entry may be delivered again, 0 for now, or :data:`NEVER`."""
        return self._facts[2]

    @property
    def sizes(self) -> np.ndarray:
        """The ranges of each page when it was added."""
        return self._facts[3]

    def replace(self, touched: Sequence[int], made: list[Page]) -> None:
        """Replace pages at the ascending indexes *touched* by *made*, sorted."""
        kept = np.delete(self._facts, touched, axis=1)
        before_touched = np.asarray(touched, np.int64) - np.arange(len(touched))
        before_made = np.searchsorted(kept[0], [page.first for page in made])
        before = np.unique(np.concatenate([before_touched, before_made]))  # the number of kept pages before each
        spans = [np.searchsorted(each, before, side) for each in (before_touched, before_made) for side in _SIDES]
        for stays, begin, end, first, until in reversed([*zip(*(each.tolist() for each in (before, *spans)))]):
            self._pages[stays + begin : stays + end] = made[first:until]
        facts = np.concatenate([kept, _facts(made)], axis=1)
        self._facts = facts[:, np.argsort(facts[0], kind="stable")]
        self._note_made(made)

    def _note_made(self, made: Sequence[Page]) -> None:
        self._made += sum(len(page.held) for page in made)
        if self._made >= REST_AFTER:
            self._let_rest()

    def _let_rest(self) -> None:
        """Pack the pages unused since the last call."""
        idle = [page for page in self._pages if not page.is_used and isinstance(page.held, list)]
        for page, packed in zip(idle, pack([page.held for page in idle])):
            page.held = packed
        for page in self._pages:
            page.is_used = False
        self._made = 0


def _facts(pages: list[Page]) -> np.ndarray:
    """One row per fact, one column per page."""
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
"""The facts of a cursor without pages; most of very many cursors have none."""


def chunks(ranges: Sequence[Range], borders: np.ndarray, most: int) -> Iterator[Sequence[Range]]:
    """*ranges* cut at *borders* (first positions of other pages), then into similar parts of at most *most*."""
    cuts = np.unique(np.searchsorted(ends_of(ranges)[0], borders)).tolist()
    for first, last in pairwise([0, *cuts, len(ranges)]):
        parts = -(-(last - first) // most)
        for part in range(parts):
            yield ranges[first + part * (last - first) // parts : first + (part + 1) * (last - first) // parts]
