"""A cursor's exact ranges in pages, on up to three axes (protocol.delays): positions, numbers of due entries, and
positions apart."""

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from operator import itemgetter
from typing import TYPE_CHECKING

import numpy as np

from pulsar_spark.broker.cursors.pages import Page, Pages, chunks, most_ranges
from pulsar_spark.protocol.acknowledgement.cursor import Range, take_acknowledged
from pulsar_spark.protocol.acknowledgement.packed_ranges import PackedRanges
from pulsar_spark.protocol.delays.delays import APART_BASE, DUE_BASE, place_apart
from pulsar_spark.protocol.entries.entry_map import EntryMap
from pulsar_spark.protocol.entries.entry_ranges import ranges_of

if TYPE_CHECKING:
    from pulsar_spark.broker.chunks.chunked import Chunked
    from pulsar_spark.broker.delays.due_lane import DueLane


class PagedRanges:
    """The ranges of a cursor (state.Cursor)."""

    def __init__(self, mark_delete: int, read_position: int):
        self.mark_delete, self.read_position = mark_delete, read_position
        self.unacked = Counter()
        self.pages = Pages()
        self.entries: EntryMap | None = None
        """What is known of its entries where it is kept as a map; then there are no pages."""
        self.due: DueLane | None = None
        """What it keeps of delayed entries, once it has met any; then ``mark_delete`` passes over those."""
        self.chunked: Chunked | None = None
        """What it keeps of chunked messages, on a topic partition that has any."""
        self.changes = 0
        """Counts up with each change of its ranges."""

    def ranges_between(self, first: int, end: int) -> Iterator[Range]:
        """Ranges that overlap *first*..*end* - 1, on any axis, in order."""
        if self.entries is not None:
            yield from ranges_of(self.entries, first, end - 1)
            return
        for page in self.pages[max(self.page_index(first), 0) :]:
            if page.first >= end:
                return
            yield from (held for held in page.held if held.last >= first and held.first < end)

    @property
    def edges(self) -> set[int]:
        """Indexes of the first and last page; with a due lane, of each axis."""
        if not self.pages:
            return set()
        edges = {0, len(self.pages) - 1}
        for base in (DUE_BASE, APART_BASE) if self.due else ():
            index = self.place_of_page(base)
            edges |= {index - 1, index} & set(range(len(self.pages)))
        return edges

    def find(self, position: int) -> Range | None:
        """The range with *position*; None up to mark-delete, and without a state."""
        if self.entries is not None:
            return next(iter(ranges_of(self.entries, position, position)), None)
        index = self.page_index(position)
        page = self.pages[index] if 0 <= index < len(self.pages) else None
        at = bisect_right(page.held, position, key=itemgetter(0)) - 1 if page else -1
        return held if at >= 0 and (held := page.held[at]).last >= position else None

    def page_index(self, position: int) -> int:
        """The page for *position*; 0 before the first, -1 without pages."""
        return max(int(np.searchsorted(self.pages.firsts, position, "right")) - 1, 0) if self.pages else -1

    def load_pages(self, pages: Mapping[int, Sequence[Range]]) -> None:
        """Take over the table's pages, by first position."""
        self.pages = Pages(
            Page(first, ranges.in_order() if isinstance(ranges, PackedRanges) else sorted(ranges), is_used=False)
            for first, ranges in pages.items()
        )
        self._count_unacked(self.pages, 1)

    def replace(self, touched: set[int], ranges: Sequence[Range]) -> tuple[list[Page], list[int]]:
        """Replace pages *touched*, which include the last, by *ranges* (by position), and advance mark-delete. Returns
        changed pages and keys of removed ones."""
        self.changes += 1
        places = sorted(touched)
        before = [self.pages[index] for index in places]
        unchanged = {page.held[0].first: page for page in before}
        made, reached = [], -1
        borders = np.delete(self.pages.firsts, places)
        if self.due:
            borders = np.sort([*borders, DUE_BASE, APART_BASE])
        most = most_ranges(len(ranges) + int(np.delete(self.pages.sizes, places).sum()))
        for chunk in chunks(ranges, borders, most):
            page = unchanged.get(chunk[0].first)
            # A page may begin before its ranges, if mark-delete took some, unless other ranges lie there now.
            is_kept = page and page.held == chunk and page.first > reached
            made.append(page if is_kept else Page(chunk[0].first, chunk))
            reached = chunk[-1].last
        self._count_unacked(before, -1)
        self._count_unacked(made, 1)
        self.pages.replace(places, made)
        passed = self._advance_mark_delete()
        self.unacked += Counter()
        same = set(before).difference(passed)
        changed = {page.first: page for page in [*made, *passed] if page.held and page not in same}
        left = {page.first for page in [*made, *passed] if page.held}
        gone = {page.first for page in [*before, *passed]} - left
        return list(changed.values()), sorted(gone)

    def _count_unacked(self, pages: Iterable[Page], sign: int) -> None:
        """Add the unacknowledged messages in *pages*; a *sign* of -1 subtracts."""
        counted: dict[str, int] = {}
        for page in pages:
            for consumer_id, messages in page.unacked.items():
                counted[consumer_id] = counted.get(consumer_id, 0) + messages
        for consumer_id, messages in counted.items():
            self.unacked[consumer_id] += sign * messages

    def _advance_mark_delete(self) -> list[Page]:
        """Advance both mark-deletes; returns pages that lost ranges."""
        self.mark_delete, passed = self._pass_acknowledged(0, self.mark_delete)
        self.read_position = max(self.read_position, self.mark_delete + 1)
        if self.due:
            index = self.place_of_page(DUE_BASE)
            self.due.mark_delete, of_due = self._pass_acknowledged(index, self.due.mark_delete)
            passed += of_due
        return passed

    def _pass_acknowledged(self, index: int, mark_delete: int) -> tuple[int, list[Page]]:
        """The mark-delete after acknowledged ranges from page *index* on, and pages that lost ranges."""
        passed, end = [], index
        while end < len(self.pages):
            page = self.pages[end]
            mark_delete, taken = take_acknowledged(mark_delete, page.ranges)
            if not taken:
                break
            del page.ranges[:taken]
            passed.append(page)
            if page.ranges:
                break
            end += 1
        if end > index:
            self.pages.replace(range(index, end), [])
        return mark_delete, passed

    def drop_apart(self, until: int) -> tuple[list[Page], list[int]]:
        """Drop ranges apart up to position *until*, all done. Returns changed pages and keys of removed ones."""
        index = end = self.place_of_page(APART_BASE)
        changed, gone = [], []
        while end < len(self.pages) and self.pages[end].held[0].first <= place_apart(until):
            page, end = self.pages[end], end + 1
            left = [held for held in page.held if held.last > place_apart(until)]
            left[:1] = [held._replace(first=max(held.first, place_apart(until) + 1)) for held in left[:1]]
            gone.append(page.first)
            self.changes += 1
            if left:
                changed.append(Page(left[0].first, left))
                break
        if gone:
            self.pages.replace(range(index, end), changed)
        return changed, gone

    def place_of_page(self, first: int) -> int:
        """The first page that begins at or after *first*."""
        return int(np.searchsorted(self.pages.firsts, first))

    def first_unknown(self, place: int) -> int:
        """The first place from *place* on without a range."""
        while held := self.find(place):
            place = held.last + 1
        return place
