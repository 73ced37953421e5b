"""A map from positions to state codes: all that a cursor knows of its entries.

Everything up to ``mark_delete`` is acknowledged, everything after the last page unread. A page that changes is kept as
it was, and ``take_changes`` compares the two. So a round learns which entries it changed.
"""

from collections.abc import Collection, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from pulsar_spark.protocol.entries.code_pages import SIGN_OF, SIGNS, CodePages
from pulsar_spark.protocol.entries.entry_codes import ACKNOWLEDGED_CODE, FIXED, UNREAD_CODE, EntryCodes, EntryState
from pulsar_spark.protocol.entries.entry_pages import PAGE, PAGE_BITS, unpack


class Change(NamedTuple):
    """New codes of so many *entries* from *first* on: one for all of them, or one for each; :data:`UNCHANGED` for an
    entry that keeps its code."""

    first: int
    entries: int
    codes: np.ndarray

    @property
    def last(self) -> int:
        return self.first + self.entries - 1

    @property
    def is_uniform(self) -> bool:
        return len(self.codes) < self.entries or self.entries == 1


UNCHANGED = -1


class EntryMap(CodePages):
    """The codes of the entries of a cursor. ``counts``: how many entries above mark-delete have each code, as of the
    changes last taken, without unread entries after the last page.

    >>> entries = EntryMap()
    >>> entries.set_span(0, 9_999, 4)
    >>> entries.set_at(np.array([0, 1, 7]), ACKNOWLEDGED_CODE)
    >>> [(change.first, change.last) for change in entries.take_changes()], entries.mark_delete
    ([(0, 4095), (4096, 9999)], 1)
    """

    def __init__(self, mark_delete: int = -1):
        super().__init__(mark_delete + 1 >> PAGE_BITS)
        self.mark_delete = mark_delete
        self.codes = EntryCodes()
        self.counts = np.zeros(len(FIXED), np.int64)

    # Reading

    def at(self, positions: np.ndarray) -> np.ndarray:
        """The codes of entries at *positions*, which ascend."""
        found = np.empty(len(positions), np.int32)
        for page, part in _by_page(positions):
            found[part] = self._codes(page)[positions[part] & PAGE - 1] if self._is_mixed(page) else self._code(page)
        found[: np.searchsorted(positions, self.mark_delete, "right")] = ACKNOWLEDGED_CODE
        return found

    def window(self, first: int, last: int) -> np.ndarray:
        """The codes of the entries *first*..*last*."""
        found = np.empty(last + 1 - first, np.int32)
        for page, begin, end in _parts(first, last):
            at = (page << PAGE_BITS) - first
            found[at + begin : at + end] = self._codes(page)[begin:end] if self._is_mixed(page) else self._code(page)
        found[: max(self.mark_delete + 1 - first, 0)] = ACKNOWLEDGED_CODE
        return found

    def runs(self, first: int, last: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """The entries *first*..*last* as runs of one code: first positions, last positions and codes, in order."""
        parts = [(np.empty(0, np.int64), np.empty(0, np.int32)), *self._parts_of_runs(first, last)]
        begins, codes = (np.concatenate(columns) for columns in zip(*parts))
        is_first = np.append(True, codes[1:] != codes[:-1])[: len(codes)]
        begins = begins[is_first]
        return begins, np.append(begins[1:] - 1, last)[: len(begins)], codes[is_first]

    def where(self, codes: Collection[int], first: int, last: int) -> np.ndarray:
        """The positions *first*..*last* of entries with one of *codes*, ascending."""
        codes, found = [*codes], [np.empty(0, np.int64)]
        for page, begin, end in self._parts_with(codes, first, last):
            if self._is_mixed(page):
                found.append((page << PAGE_BITS) + begin + np.flatnonzero(_have(self._codes(page)[begin:end], codes)))
            else:
                found.append(np.arange((page << PAGE_BITS) + begin, (page << PAGE_BITS) + end))
        return np.concatenate(found)

    def first_of(self, codes: Collection[int], first: int, last: int) -> int | None:
        """The first of the positions *first*..*last* whose entry has one of *codes*."""
        codes = [*codes]
        for page, begin, end in self._parts_with(codes, first, last):
            if not self._is_mixed(page):
                return (page << PAGE_BITS) + begin
            found = _have(self._codes(page)[begin:end], codes)
            if found.any():
                return (page << PAGE_BITS) + begin + int(found.argmax())
        return None

    def count(self, codes: Collection[int], first: int, last: int) -> int:
        """How many of the entries *first*..*last* above mark-delete have one of *codes*."""
        codes, counted = [*codes], 0
        if first <= self.mark_delete + 1 and last >= self.end - 1 and UNREAD_CODE not in codes and not self._before:
            return int(sum(self.counts[code] for code in codes if code < len(self.counts)))
        for page, begin, end in self._parts_with(codes, first, last):
            if self._is_mixed(page):
                counted += int(np.count_nonzero(_have(self._codes(page)[begin:end], codes)))
            else:
                counted += end - begin
        return counted

    @property
    def last_known(self) -> int:
        """The last position of which anything is known."""
        for page in range(self.end - 1 >> PAGE_BITS, self._first_page - 1, -1):
            if self._is_mixed(page):
                known = np.flatnonzero(self._codes(page) != UNREAD_CODE)
                if len(known):
                    return max((page << PAGE_BITS) + int(known[-1]), self.mark_delete)
            elif self._code(page) != UNREAD_CODE:
                return (page + 1 << PAGE_BITS) - 1
        return self.mark_delete

    # Changing

    def set_at(self, positions: np.ndarray, codes: np.ndarray | int) -> None:
        """Give the entries at *positions*, which ascend and lie above mark-delete, their *codes*."""
        if not len(positions):
            return
        self._grow(int(positions[-1]))
        for page, part in _by_page(positions):
            each = codes if isinstance(codes, int) else codes[part]
            self._open(page, each)[positions[part] & PAGE - 1] = each

    def set_window(self, first: int, codes: np.ndarray) -> None:
        """Give the entries from *first* on their *codes*; :data:`UNCHANGED` leaves one as it is."""
        last = first + len(codes) - 1
        self._grow(last)
        for page, begin, end in _parts(first, last):
            at = (page << PAGE_BITS) - first
            part = codes[at + begin : at + end]
            changes = part != UNCHANGED
            if changes.any():
                np.copyto(self._open(page, part[changes])[begin:end], part, where=changes, casting="unsafe")

    def set_span(self, first: int, last: int, code: int) -> None:
        """Give the entries *first*..*last* one code."""
        first = max(first, self.mark_delete + 1)
        if last < first:
            return
        self._grow(last)
        for page, begin, end in _parts(first, last):
            if end - begin == PAGE:
                self._fill(page, code)
            else:
                self._open(page, code)[begin:end] = code

    def replace(self, codes: Collection[int], first: int, last: int, after: int) -> int:
        """Give the entries *first*..*last* that have one of *codes* the code *after*; how many they were."""
        codes, replaced = [*codes], 0
        if UNREAD_CODE in codes:
            self._grow(last)
        for page, begin, end in self._parts_with(codes, first, last):
            if not self._is_mixed(page) and end - begin == PAGE:
                self._fill(page, after)
                replaced += PAGE
                continue
            mixed = self._is_mixed(page)
            hit = _have(self._codes(page)[begin:end], codes) if mixed else np.ones(end - begin, bool)
            count = int(np.count_nonzero(hit))
            if count:
                self._open(page, after)[begin:end][hit] = after
                replaced += count
        return replaced

    def take_changes(self) -> list[Change]:
        """What changed since this was last called, by position; then mark-delete passes what is acknowledged."""
        found: list[Change] = []
        for page in sorted(self._before):
            change = self._change_of(page, self._before[page])
            if change is not None:
                _append(found, change)
        self._fresh |= self._before.keys()
        self._before = {}
        self._pass_acknowledged()
        return found

    def everything(self) -> list[Change]:
        """What differs from a map in which nothing is known, by position."""
        found: list[Change] = []
        starts = np.flatnonzero(np.diff(self._uniform, prepend=-2))
        for begin, end in zip(starts.tolist(), [*starts[1:].tolist(), len(self._uniform)]):
            first, code = self._first_page + begin, int(self._uniform[begin])
            if self._is_mixed(first):
                for page in range(first, self._first_page + end):
                    codes = self._codes(page).astype(np.int32)
                    found.append(Change(page << PAGE_BITS, PAGE, np.where(codes == UNREAD_CODE, UNCHANGED, codes)))
            elif code != UNREAD_CODE:
                found.append(Change(first << PAGE_BITS, (end - begin) * PAGE, np.array([code], np.int32)))
        return found

    def _parts_with(self, codes: Collection[int], first: int, last: int) -> Iterator[tuple[int, int, int]]:
        """The pages of *first*..*last* above mark-delete that may have one of *codes*: (page, begin, end), with the
        part of the page that lies in *first*..*last*."""
        codes = [*codes]
        first, last = max(first, self.mark_delete + 1), last if UNREAD_CODE in codes else min(last, self.end - 1)
        if last < first or not codes:
            return
        wanted = SIGN_OF[codes[0] & SIGNS - 1]
        for code in codes[1:]:
            wanted |= SIGN_OF[code & SIGNS - 1]
        begin, end = (first >> PAGE_BITS) - self._first_page, (last >> PAGE_BITS) - self._first_page
        pages = (self._signs[begin : end + 1] & wanted).nonzero()[0] + (begin + self._first_page)
        beyond = range(max(self.end, first) >> PAGE_BITS, (last >> PAGE_BITS) + 1)
        for page in (*pages.tolist(), *beyond):
            at = page << PAGE_BITS
            yield page, max(first - at, 0), min(last + 1 - at, PAGE)

    def _parts_of_runs(self, first: int, last: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Where runs begin among *first*..*last*, and their codes; neighbours may have one code."""
        if first <= min(self.mark_delete, last):
            yield np.array([first]), np.array([ACKNOWLEDGED_CODE])
            first = self.mark_delete + 1
        known = min(last, self.end - 1)
        page = first >> PAGE_BITS
        until = known >> PAGE_BITS
        mixed = sorted(each for each in self._mixed if page <= each <= until)
        for each in [*mixed, until + 1]:
            if page < each and first <= known:
                numbers = np.arange(page, each)
                yield np.maximum(numbers << PAGE_BITS, first), self._uniform[numbers - self._first_page]
            if each <= until:
                at = each << PAGE_BITS
                begin, end = max(first - at, 0), min(known + 1 - at, PAGE)
                codes = self._codes(each)[begin:end].astype(np.int32)
                starts = np.flatnonzero(np.diff(codes, prepend=-1))
                yield at + begin + starts, codes[starts]
            page = each + 1
        if first <= last and known < last:
            yield np.array([max(first, self.end)]), np.array([UNREAD_CODE])

    # Taking changes

    def _change_of(self, page: int, before: int | np.ndarray | bytes) -> Change | None:
        """What changed in a page, added to ``counts``; None for nothing. If its entries agree, the page becomes one
        code."""
        at, skipped = page << PAGE_BITS, max(self.mark_delete + 1 - (page << PAGE_BITS), 0)
        if isinstance(before, int) and not self._is_mixed(page) and not skipped:
            code = self._code(page)
            if code == before:
                return None
            self._count(np.array([before]), -PAGE)
            self._count(np.array([code]), PAGE)
            return Change(at, PAGE, np.array([code], np.int32))
        was = unpack(before) if isinstance(before, bytes) else before
        now = self._codes(page) if self._is_mixed(page) else np.full(PAGE, self._code(page))
        is_changed = np.asarray(now[skipped:] != (was if isinstance(was, int) else was[skipped:]))
        if self._is_mixed(page):
            self._tidy(page, now, skipped)
        if is_changed.all() and not skipped and isinstance(was, int) and self._is_mixed(page):
            self._count(now, 1)
            self._count(np.array([was]), -PAGE)
            return Change(at, PAGE, now.astype(np.int32))
        places = np.flatnonzero(is_changed) + skipped
        if not len(places):
            return None
        codes = now[places]
        self._count(codes, 1)
        self._count(np.full(len(places), was) if isinstance(was, int) else was[places], -1)
        begin, end = int(places[0]), int(places[-1]) + 1
        if (codes == codes[0]).all() and end - begin == len(places):
            return Change(at + begin, end - begin, codes[:1].astype(np.int32))
        changed = np.full(end - begin, UNCHANGED, np.int32)
        changed[places - begin] = codes
        return Change(at + begin, end - begin, changed)

    def _count(self, codes: np.ndarray, entries: int) -> None:
        counted = np.bincount(codes)
        if len(counted) > len(self.counts):
            self.counts = np.append(self.counts, np.zeros(len(counted) - len(self.counts), np.int64))
        self.counts[: len(counted)] += counted * entries

    def _pass_acknowledged(self) -> None:
        """Let mark-delete pass what is acknowledged after it, and forget what lies below."""
        at, done = self.mark_delete + 1, self.codes.acknowledged
        if not self.counts[[code for code in done if code < len(self.counts)]].any():
            return
        first = (at >> PAGE_BITS) - self._first_page
        may_end = ~_have(self._uniform[first:], done)
        passed = np.zeros(len(self.counts), np.int64)
        for page in (np.flatnonzero(may_end) + first + self._first_page).tolist():
            passed += self._counted_until(at, page << PAGE_BITS, len(passed))
            at = max(at, page << PAGE_BITS)
            if not self._is_mixed(page):
                break
            codes = self._codes(page)[at - (page << PAGE_BITS) :]
            left = np.flatnonzero(~_have(codes, done))
            entries = int(left[0]) if len(left) else len(codes)
            passed += np.bincount(codes[:entries], minlength=len(passed))
            at += entries
            if len(left):
                break
        else:
            passed += self._counted_until(at, self.end, len(passed))
            at = max(at, self.end)
        if at > self.mark_delete + 1:
            self.counts -= passed
            self.mark_delete = at - 1
            self._forget(at >> PAGE_BITS)

    def _forget(self, page: int) -> None:
        """Forget the pages below *page*, and the codes of its entries below mark-delete."""
        gone = page - self._first_page
        self._uniform, self._signs = self._uniform[gone:].copy(), self._signs[gone:].copy()
        for each in [each for each in self._mixed if each < page] if gone else ():
            del self._mixed[each]
        self._first_page = page
        if self._is_mixed(page):
            self._tidy(page, self._codes(page), self.mark_delete + 1 - (page << PAGE_BITS))


def codes_at(entries: EntryMap, positions: np.ndarray) -> np.ndarray:
    """The codes of entries at *positions*, in any order."""
    order = np.argsort(positions, kind="stable")
    found = np.empty(len(positions), np.int32)
    found[order] = entries.at(positions[order])
    return found


def states_in(entries: EntryMap) -> Iterator[tuple[int, EntryState, int]]:
    """The states that entries above mark-delete have: code, state, and the number of entries (see ``counts``)."""
    for code, state in entries.codes.known():
        if code < len(entries.counts) and entries.counts[code]:
            yield code, state, int(entries.counts[code])


def _have(codes: np.ndarray, wanted: Sequence[int]) -> np.ndarray:
    """Which of *codes* are among those *wanted*."""
    if len(wanted) == 1:
        return codes == wanted[0]
    is_wanted = np.zeros(max(wanted, default=0) + 2, bool)  # the last stands for all that are higher
    is_wanted[list(wanted)] = True
    return is_wanted.take(codes, mode="clip")


def _by_page(positions: np.ndarray) -> Iterator[tuple[int, slice]]:
    """The pages in which ascending *positions* lie, each with the slice of *positions* that does."""
    if not len(positions):
        return
    page, last = int(positions[0]) >> PAGE_BITS, int(positions[-1]) >> PAGE_BITS
    if page == last:
        yield page, slice(0, len(positions))
        return
    pages = positions >> PAGE_BITS
    starts = [0, *(np.flatnonzero(pages[1:] != pages[:-1]) + 1).tolist()]
    for begin, end in zip(starts, [*starts[1:], len(positions)]):
        yield int(pages[begin]), slice(begin, end)


def _parts(first: int, last: int) -> Iterator[tuple[int, int, int]]:
    """The pages of *first*..*last*: (page, begin, end), with the part of the page that lies in *first*..*last*."""
    for page in range(first >> PAGE_BITS, (last >> PAGE_BITS) + 1):
        at = page << PAGE_BITS
        yield page, max(first - at, 0), min(last + 1 - at, PAGE)


def _append(changes: list[Change], change: Change) -> None:
    """Add a change; it is joined to the last one if it goes on with its code."""
    last = changes[-1] if changes else None
    if last and last.is_uniform and change.is_uniform and last.last + 1 == change.first:
        if last.codes[0] == change.codes[0]:
            changes[-1] = Change(last.first, last.entries + change.entries, last.codes)
            return
    changes.append(change)
