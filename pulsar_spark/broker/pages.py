"""Pages: a cursor's exact ranges in parts that are read and written together.

A page has at most :data:`MAX_PAGE_RANGES` ranges, and a round reads and rewrites only the pages that its requests, due
times and candidates touch. Of each page are known: who holds how many unacknowledged messages in it, and when its next
entry falls due, so that limits and timers need no scan.
"""

from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterator
from functools import cached_property
from itertools import pairwise

import numpy as np

from pulsar_spark.protocol.cursor import PENDING, REPLAY, Range

MAX_PAGE_RANGES = 1000


class Page:
    """Ranges by position, and the facts about them that are asked for without reading them."""

    def __init__(self, first: int, ranges: list[Range]):
        self.first, self.ranges = first, ranges
        self.unacked = Counter()
        self.out: tuple | None = None
        """What a Key_Shared round has found out about its pending entries (see keyed_pages)."""
        self.returns_at: int | None = None
        self.replays_at: int | None = None
        for held in ranges:
            if held.status == PENDING:
                self.unacked[held.consumer_id] += held.unacked_messages
                if held.due_time is not None:
                    self.returns_at = held.due_time if self.returns_at is None else min(self.returns_at, held.due_time)
            elif held.status == REPLAY:
                self.replays_at = min(
                    held.due_time or 0, self.replays_at if self.replays_at is not None else held.due_time or 0
                )

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


def chunks(ranges: list[Range], borders: list[int]) -> Iterator[list[Range]]:
    """*ranges* cut at *borders* (first positions of other pages), and what lies between two of them into parts of like
    size that fit a page."""
    cuts = [bisect_left(ranges, border, key=lambda held: held.first) for border in borders]
    for first, last in pairwise([0, *cuts, len(ranges)]):
        region = ranges[first:last]
        parts = -(-len(region) // MAX_PAGE_RANGES)
        for part in range(parts):
            yield region[part * len(region) // parts : (part + 1) * len(region) // parts]
