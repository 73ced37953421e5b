"""Pages: a cursor's exact ranges in parts that are read and written together.

A round reads and rewrites only the pages that its requests, due times and candidates touch. What it changes in random
places costs it the pages around these, so pages are small; but each page costs something by itself, so those of a
cursor with very many ranges are larger (:func:`most_ranges`). Of each page are known: who holds how many unacknowledged
messages in it, and when its next entry falls due, so that limits and timers need no scan.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from functools import cached_property
from itertools import pairwise
from operator import itemgetter

import numpy as np

from pulsar_spark.protocol.cursor import PENDING, REPLAY, Range

MIN_PAGE_RANGES, MAX_PAGE_RANGES = 16, 1000
MANY_PAGES = 4000


def most_ranges(ranges: int) -> int:
    """How many ranges a page takes of a cursor that has so many: few, as long as that makes no more than
    :data:`MANY_PAGES` full ones.

    >>> [most_ranges(ranges) for ranges in (10, 100_000, 10_000_000)]
    [16, 25, 1000]
    """
    return min(max(ranges // MANY_PAGES, MIN_PAGE_RANGES), MAX_PAGE_RANGES)


class Page:
    """Ranges by position, and the facts about them that are asked for without reading them."""

    def __init__(self, first: int, ranges: list[Range]):
        self.first, self.ranges = first, ranges
        self.out: tuple | None = None
        """What a Key_Shared round has found out about its pending entries (see keyed_pages)."""
        self.returns_at: int | None = None
        self.replays_at: int | None = None
        self.unacked: dict[str, int] = {}
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

    @cached_property
    def replays(self) -> list[tuple[int, int]]:
        """(deliver time, first position) of the ranges to be delivered again, in that order; 0 where they need not be
        waited for."""
        return sorted((held.due_time or 0, held.first) for held in self.ranges if held.status == REPLAY)

    @cached_property
    def spans(self) -> np.ndarray:
        """The first positions of its ranges and the last ones, as they were when the page was made."""
        return np.array([(held.first, held.last) for held in self.ranges], np.int64).reshape(-1, 2).T

    def next_replay(self, wall: int) -> int | None:
        """The earliest instant after *wall* at which a range may be delivered again that may not be before."""
        if self.replays_at is None or self.replays_at > wall:
            return self.replays_at
        at = bisect_right(self.replays, wall, key=lambda replay: replay[0])
        return self.replays[at][0] if at < len(self.replays) else None

    def number_of(self, first: int) -> int:
        """Which range begins at position *first*."""
        return bisect_left(self.ranges, first, key=lambda held: held.first)

    def has_returns(self, now: int) -> bool:
        """Does the page hold entries whose time to be given back has come?"""
        return self.returns_at is not None and self.returns_at <= now


def chunks(ranges: list[Range], borders: list[int], most: int) -> Iterator[list[Range]]:
    """*ranges* cut at *borders* (first positions of other pages), and what lies between two of them into parts of like
    size, of at most so many ranges."""
    firsts = np.fromiter(map(itemgetter(0), ranges), np.int64, len(ranges))
    cuts = np.unique(np.searchsorted(firsts, np.array(borders, np.int64))).tolist()
    for first, last in pairwise([0, *cuts, len(ranges)]):
        parts = -(-(last - first) // most)
        for part in range(parts):
            yield ranges[first + part * (last - first) // parts : first + (part + 1) * (last - first) // parts]
