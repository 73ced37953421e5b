"""Which ranges of a cursor a round plans, and which pages it rewrites.

Only what requests, due times and candidates touch goes through the plan; the ranges beside it stay as they are, even in
a page that is rewritten. So a cursor with a million holes costs a round no more than one without, and acknowledgements
all over it cost as many ranges as they hit. The first and the last page are always among those rewritten, because
mark-delete and the read position move there; they are not committed where nothing changed.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from heapq import merge
from itertools import takewhile
from operator import itemgetter
from typing import NamedTuple

from pulsar_spark.broker.drafts import CursorDraft
from pulsar_spark.broker.state import Cursor, Page
from pulsar_spark.protocol.cursor import PENDING, Range
from pulsar_spark.protocol.positions import Positions


class Concerned(NamedTuple):
    """Indexes of the pages that are rewritten; of their ranges those to plan, and those that stay, each by position."""

    pages: set[int]
    planned: list[Range]
    kept: list[Range]


def concerned_ranges(
    asked: CursorDraft, *, now: int, wall: int, permits: int, unread: tuple[int, int] | None
) -> Concerned:
    """What a round concerns that does what is *asked*, gives back what is due *now*, and by the *wall* clock hands out
    so many messages, of the *unread* positions last."""
    pages = asked.cursor.pages
    if not pages:
        return Concerned(set(), [], [])
    chosen: dict[int, set[int]] = {0: set(), len(pages) - 1: set()}
    for first, last in _spans(asked, unread):
        for index in range(asked.cursor.page_index(first), asked.cursor.page_index(last) + 1):
            chosen.setdefault(index, set()).update(_overlapping(pages[index].ranges, first, last))
    returning = _returning(asked, now)
    for index, page in enumerate(pages):
        if returning & page.unacked.keys() or page.has_returns(now):
            chosen.setdefault(index, set()).update(
                number
                for number, held in enumerate(page.ranges)
                if held.status == PENDING and (held.consumer_id in returning or is_due(held, now))
            )
    for index, number in _offered(asked.cursor, wall, permits):
        chosen.setdefault(index, set()).add(number)
    planned, kept = [], []
    for index in sorted(chosen):
        for number, held in enumerate(pages[index].ranges):
            (planned if number in chosen[index] else kept).append(held)
    return Concerned(set(chosen), planned, kept)


def effective_returns(asked: CursorDraft, planned: list[Range]) -> Iterator[tuple[int, int, str, int]]:
    """(first, last, consumer, due time) of what was given back by whoever holds it, disjoint: of each entry the request
    made last counts (4.16, 4.21)."""
    settled = Positions()
    for first, last, consumer_id, due in reversed(asked.returns):
        for number in _overlapping(planned, first, last):
            held = planned[number]
            if held.status == PENDING and held.consumer_id == consumer_id:
                gaps = list(settled.gaps(max(first, held.first), min(last, held.last)))
                for gap in gaps:
                    settled.add(*gap)
                    yield *gap, consumer_id, due


def has_replays(cursor: Cursor, page: Page, wall: int) -> bool:
    """Does the page hold entries to be delivered again now? Exclusive and Failover know no deliver times (2.6)."""
    return page.replays_at is not None and (cursor.is_single_active or page.replays_at <= wall)


def _offered(cursor: Cursor, wall: int, permits: int) -> Iterator[tuple[int, int]]:
    """(page, range) of what is to be delivered again and comes first, as many entries as permits allow: of each range
    as a whole.

    By position on Exclusive and Failover; else what came back goes first and what has come due follows in order of
    deliver time. Each page knows that order of its own ranges, so no more of them are looked at than go out.
    """

    def in_order(index: int, page: Page) -> Iterator[tuple[int, int, int, int]]:
        due = page.replays
        if cursor.is_single_active:
            due = [(0, first) for _, first in sorted(due, key=itemgetter(1))]
        ripe = takewhile(lambda replay: replay[0] <= wall, due)
        return ((time, first, index, page.number_of(first)) for time, first in ripe)

    pages = [(index, page) for index, page in enumerate(cursor.pages) if has_replays(cursor, page, wall)]
    found = 0
    for _, _, index, number in merge(*(in_order(index, page) for index, page in pages)):
        if found >= permits:
            return
        found += cursor.pages[index].ranges[number].entries
        yield index, number


def is_due(held: Range, now: int) -> bool:
    """Is it time to give a pending range back?"""
    return held.due_time is not None and held.due_time <= now


def _spans(asked: CursorDraft, unread: tuple[int, int] | None) -> Iterator[tuple[int, int]]:
    yield from asked.acks
    yield from ((position, position) for position in asked.ack_sets)
    yield from ((first, last) for first, last, _, _ in asked.returns)
    if unread:
        yield unread


def _overlapping(ranges: list[Range], first: int, last: int) -> range:
    """Numbers of those of the *ranges*, which are in order, that hold any of the positions."""
    return range(
        bisect_left(ranges, first, key=lambda held: held.last), bisect_right(ranges, last, key=lambda held: held.first)
    )


def _returning(asked: CursorDraft, now: int) -> set[str]:
    """Consumers all of whose entries are given back: they left or asked for it, or, on Exclusive and Failover, anything
    is given back (2.12)."""
    cursor, returning = asked.cursor, asked.left | asked.redelivered
    if cursor.is_single_active and (
        asked.returns or asked.redelivered or any(page.has_returns(now) for page in cursor.pages)
    ):
        returning = returning | cursor.unacked.keys()
    return returning
