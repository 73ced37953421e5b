"""Which ranges of a cursor a round plans, and which pages it rewrites.

Only ranges touched by requests, due times and candidates are planned, so a round's cost follows what it changes. The
first and last page are always rewritten, since mark-delete and the read position move there, but only committed if
changed. Nothing is decided here: an unneeded range passes the plan unchanged.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from heapq import heappop, heappush, merge
from itertools import accumulate, chain, pairwise, takewhile
from operator import itemgetter
from typing import NamedTuple

import numpy as np

from pulsar_spark.broker.cursors.pages import NEVER, Page
from pulsar_spark.broker.cursors.state import Cursor
from pulsar_spark.broker.requests.drafts import CursorDraft, Return
from pulsar_spark.protocol.acknowledgement.cursor import PENDING, Range, spliced
from pulsar_spark.protocol.acknowledgement.packed_ranges import PackedRanges, ends_of, joined
from pulsar_spark.protocol.acknowledgement.positions import Positions, as_array, expanded

PACKED_FROM = 32
"""Average ranges per page from which the touched ranges stay packed, which is quicker from then on."""


class Affected(NamedTuple):
    """Indexes of rewritten pages, their ranges by position, and the ascending numbers of planned ranges."""

    pages: set[int]
    ranges: Sequence[Range]
    numbers: list[int]

    @property
    def planned(self) -> list[Range]:
        return [self.ranges[number] for number in self.numbers]

    def with_outcome(self, planned: Sequence[Range]) -> Sequence[Range]:
        """Its ranges, with the planned ones replaced by *planned*, by position."""
        if isinstance(self.ranges, PackedRanges):
            return self.ranges.spliced(self.numbers, planned)
        return spliced(self.ranges, self.numbers, planned)


def affected_ranges(
    changes: CursorDraft, *, now: int, offered: Iterable[tuple[int, int]], unread: Iterable[tuple[int, int]]
) -> Affected:
    """What a round touches for the requests in *changes*, due times up to *now*, *offered* ranges (page, number) and
    *unread* stretches."""
    pages = changes.cursor.pages
    if not pages:
        return Affected(set(), [], [])
    leaving, offered = returning(changes, now), list(offered)
    given_back = np.flatnonzero(pages.returns_at <= now).tolist()
    if leaving:
        given_back = sorted({*given_back, *(i for i, page in enumerate(pages) if leaving & page.unacked.keys())})
    spans = as_array(_spans(changes, unread))
    touched = {*changes.cursor.edges, *_overlapped(pages.firsts, *spans), *given_back, *(index for index, _ in offered)}
    indexes = sorted(touched)
    begins = dict(zip(indexes, accumulate((len(pages[index].held) for index in indexes), initial=0)))
    ranges = _ranges_of([pages[index] for index in indexes])
    is_planned = _is_hit(ranges, *spans)
    for index in given_back:
        for number, held in enumerate(pages[index].held, begins[index]):
            if held.status == PENDING and (held.consumer_id in leaving or is_due(held, now)):
                is_planned[number] = True
    for index, number in offered:
        is_planned[begins[index] + number] = True
    return Affected(touched, ranges, np.flatnonzero(is_planned).tolist())


def _ranges_of(pages: list[Page]) -> Sequence[Range]:
    if sum(len(page.held) for page in pages) >= PACKED_FROM * len(pages):
        return joined([page.held for page in pages])
    return list(chain.from_iterable(page.ranges for page in pages))


def effective_returns(changes: CursorDraft, planned: Iterable[Range]) -> list[Return]:
    """What consumers give back of their own entries, disjoint; the last request for an entry counts (4.16, 4.21)."""
    requests: dict[str, list[Return]] = defaultdict(list)
    for each in changes.returns:
        requests[each.consumer_id].append(each)
    held: dict[str, list[Range]] = defaultdict(list)
    for each in planned if requests else ():
        if each.status == PENDING and each.consumer_id in requests:
            held[each.consumer_id].append(each)
    return [
        each for consumer_id, given_back in requests.items() for each in _inside(_latest(given_back), held[consumer_id])
    ]


def _latest(requests: list[Return]) -> Iterator[Return]:
    """One consumer's *requests*, cut by position so that none overlap; the last one counts."""
    ordered = sorted(requests, key=itemgetter(0))
    if all(before.last < after.first for before, after in pairwise(ordered)):
        yield from ordered
        return
    open_requests: list[int] = []
    at = 0

    def cut(until: int | None) -> Iterator[Return]:
        nonlocal at
        while open_requests and (until is None or at < until):
            each = requests[-open_requests[0]]
            if each.last < at:
                heappop(open_requests)
                continue
            end = each.last if until is None else min(each.last, until - 1)
            yield each._replace(first=at, last=end)
            at = end + 1

    for number in sorted(range(len(requests)), key=lambda number: requests[number].first):
        first = requests[number].first
        yield from cut(first)
        at = first
        heappush(open_requests, -number)
    yield from cut(None)


def _inside(returns: Iterable[Return], held: list[Range]) -> Iterator[Return]:
    returns = list(returns)
    firsts, lasts, held_firsts, held_lasts = (
        np.array([*map(itemgetter(end), ranges)], np.int64) for ranges in (returns, held) for end in (0, 1)
    )
    begins, ends = np.searchsorted(held_lasts, firsts), np.searchsorted(held_firsts, lasts, "right")
    inside, of = expanded(begins, ends - 1), np.repeat(np.arange(len(returns)), ends - begins)
    firsts, lasts = np.maximum(firsts[of], held_firsts[inside]), np.minimum(lasts[of], held_lasts[inside])
    for first, last, number in zip(firsts.tolist(), lasts.tolist(), of.tolist()):
        each = returns[number]
        yield each if each[:2] == (first, last) else each._replace(first=first, last=last)


def replaying_pages(cursor: Cursor, wall: int) -> Iterator[tuple[int, Page]]:
    """Pages with entries to deliver again now, and their indexes. Exclusive and Failover ignore deliver times (2.6)."""
    until = NEVER - 1 if cursor.is_single_active else wall
    return ((index, cursor.pages[index]) for index in np.flatnonzero(cursor.pages.replays_at <= until).tolist())


def offered_ranges(changes: CursorDraft, wall: int, permits: int) -> Iterator[tuple[int, int]]:
    """(page, range) of entries to deliver again, until permits are used up; ranges count as a whole, and entries that
    this round acknowledges take none.

    Ordered by position on Exclusive and Failover; otherwise returned entries first, then due ones by deliver time.
    """

    def in_order(index: int, page: Page) -> Iterator[tuple[int, int, int, int]]:
        due = page.replays
        if cursor.is_single_active:
            due = [(0, first) for _, first in sorted(due, key=itemgetter(1))]
        ripe = takewhile(lambda replay: replay[0] <= wall, due)
        return ((time, first, index, page.number_of(first)) for time, first in ripe)

    cursor, found = changes.cursor, 0
    pages = list(replaying_pages(cursor, wall))
    gone = Positions(sorted(changes.acknowledged_whole) if pages else ())
    for _, _, index, number in merge(*(in_order(index, page) for index, page in pages)):
        if found >= permits:
            return
        held = cursor.pages[index].ranges[number]
        found += sum(last - first + 1 for first, last in gone.gaps(held.first, held.last))
        yield index, number


def is_due(held: Range, now: int) -> bool:
    return held.due_time is not None and held.due_time <= now


def _spans(changes: CursorDraft, unread: Iterable[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    yield from changes.acks
    yield from changes.passed
    yield from ((position, position) for position in changes.ack_sets)
    yield from ((each.first, each.last) for each in changes.returns)
    yield from unread


def _overlapped(page_firsts: np.ndarray, firsts: np.ndarray, lasts: np.ndarray) -> list[int]:
    """The indexes of pages, which begin at *page_firsts*, that contain any of *firsts*..*lasts*, except the first and
    the last page."""
    if len(page_firsts) < 3:  # quick for many small cursors
        return []
    begins, ends = (np.maximum(np.searchsorted(page_firsts, ats, "right") - 1, 0) for ats in (firsts, lasts))
    return np.unique(expanded(begins, ends)).tolist()


def _is_hit(ranges: Sequence[Range], firsts: np.ndarray, lasts: np.ndarray) -> np.ndarray:
    if not len(firsts) or not ranges:
        return np.zeros(len(ranges), bool)
    held_firsts, held_lasts = ends_of(ranges)
    begun = np.zeros(len(ranges) + 1, np.int64)
    np.add.at(begun, np.searchsorted(held_lasts, firsts), 1)
    np.add.at(begun, np.searchsorted(held_firsts, lasts, "right"), -1)
    return np.cumsum(begun[:-1]) > 0


def returning(changes: CursorDraft, now: int) -> set[str]:
    """Consumers whose entries all come back: they left or asked for it, or anything is given back on Exclusive and
    Failover (2.12)."""
    cursor, found = changes.cursor, changes.left | changes.redelivered
    if cursor.is_single_active and (changes.returns or changes.redelivered or (cursor.pages.returns_at <= now).any()):
        found = found | cursor.unacked.keys()
    return found
