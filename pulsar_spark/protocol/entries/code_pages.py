"""Pages of the state codes of entries, as they lie in memory.

A page whose entries agree is one code. The others are arrays of codes, or packed (see entry_pages) while no round
touches them. What a page was before it was first changed is kept until changes are taken.
"""

import numpy as np

from pulsar_spark.protocol.entries.entry_codes import ACKNOWLEDGED_CODE, UNREAD_CODE
from pulsar_spark.protocol.entries.entry_pages import PAGE, PAGE_BITS, pack, unpack

_MIXED = -1
SIGNS = 64
"""Bits of a page that show which codes it may have: the bit of a code is its number modulo so many."""
ALL_SIGNS = np.uint64(2**SIGNS - 1)
SIGN_OF = np.uint64(1) << np.arange(SIGNS, dtype=np.uint64)


class CodePages:
    """Pages from number *first_page* on. Entries of earlier pages are acknowledged, of later ones unread."""

    def __init__(self, first_page: int):
        self._first_page = first_page
        self._uniform = np.empty(0, np.int32)
        """The code of each page whose entries agree; :data:`_MIXED` for the others."""
        self._signs = np.empty(0, np.uint64)
        self._mixed: dict[int, np.ndarray | bytes] = {}
        self._before: dict[int, int | np.ndarray | bytes] = {}
        self._fresh: set[int] = set()
        """Pages that changed since pages were last packed."""

    @property
    def end(self) -> int:
        """The first position after the last page."""
        return self._first_page + len(self._uniform) << PAGE_BITS

    @property
    def nbytes(self) -> int:
        """Bytes in memory, about."""
        mixed = sum(len(page) if isinstance(page, bytes) else page.nbytes for page in self._mixed.values())
        return self._uniform.nbytes + self._signs.nbytes + mixed + 100 * len(self._mixed)

    @property
    def stretches(self) -> int:
        """About how many stretches there are in which entries agree; the ends of pages may be counted too."""
        borders = (np.count_nonzero(np.diff(self._codes(page))) for page in self._mixed)
        return int(np.count_nonzero(np.diff(self._uniform, prepend=_MIXED))) + int(sum(borders))

    @property
    def has_changes(self) -> bool:
        """Did anything change since changes were last taken?"""
        return bool(self._before)

    def pack_unchanged(self, *, with_fresh: bool = False) -> None:
        """Pack the pages that did not change since this was last called, or *with_fresh* all of them."""
        fresh = self._before.keys() if with_fresh else self._fresh | self._before.keys()
        for page, codes in self._mixed.items():
            if page not in fresh and not isinstance(codes, bytes):
                self._mixed[page] = pack(codes)
        self._fresh = set()

    def _is_mixed(self, page: int) -> bool:
        return page in self._mixed

    def _code(self, page: int) -> int:
        """The code of a page whose entries agree."""
        at = page - self._first_page
        return int(self._uniform[at]) if 0 <= at < len(self._uniform) else UNREAD_CODE if at >= 0 else ACKNOWLEDGED_CODE

    def _codes(self, page: int) -> np.ndarray:
        """The codes of a mixed page, to be read."""
        codes = self._mixed[page]
        return unpack(codes) if isinstance(codes, bytes) else codes

    def _counted_until(self, first: int, end: int, codes: int) -> np.ndarray:
        """How many entries of pages that agree have each code, from *first* on before *end*, where a page begins."""
        pages = self._uniform[(first >> PAGE_BITS) - self._first_page : (end >> PAGE_BITS) - self._first_page]
        counted = np.bincount(pages, minlength=codes) * PAGE
        if len(pages):
            counted[pages[0]] -= first & PAGE - 1
        return counted

    def _open(self, page: int, new: int | np.ndarray) -> np.ndarray:
        """The codes of a page, some of which are to be changed to the *new* ones."""
        at = page - self._first_page
        if isinstance(new, int):
            signs, highest = self._signs[at] | _sign(new), new
        else:
            signs = self._signs[at] | np.bitwise_or.reduce(SIGN_OF[new & SIGNS - 1])
            highest = int(new.max())
        before = self._mixed[page] if self._is_mixed(page) else self._code(page)
        if isinstance(before, bytes):
            codes = unpack(before)
        elif isinstance(before, int):
            codes = np.full(PAGE, before, _type_of(before))
        else:
            codes = before if page in self._before else before.copy()
        self._before.setdefault(page, before)
        if highest > np.iinfo(codes.dtype).max:
            codes = codes.astype(_type_of(highest))
        self._put(page, codes)
        self._signs[at] = signs
        return codes

    def _fill(self, page: int, code: int) -> None:
        """Let all entries of a page have one code."""
        self._before.setdefault(page, self._mixed[page] if self._is_mixed(page) else self._code(page))
        self._put(page, code)

    def _put(self, page: int, codes: int | np.ndarray | bytes) -> None:
        at = page - self._first_page
        if isinstance(codes, int):
            self._mixed.pop(page, None)
            self._uniform[at], self._signs[at] = codes, _sign(codes)
        else:
            self._mixed[page] = codes
            self._uniform[at], self._signs[at] = _MIXED, ALL_SIGNS

    def _grow(self, last: int) -> None:
        more = (last >> PAGE_BITS) + 1 - self._first_page - len(self._uniform)
        if more > 0:
            self._uniform = np.append(self._uniform, np.full(more, UNREAD_CODE, np.int32))
            self._signs = np.append(self._signs, np.full(more, _sign(UNREAD_CODE), np.uint64))

    def _tidy(self, page: int, codes: np.ndarray, skipped: int) -> None:
        """Ignore the first *skipped* entries of a page, which lie below mark-delete. If the others agree, the page
        becomes one code."""
        codes[:skipped] = codes[skipped]
        if codes[0] == codes[-1] and (codes == codes[0]).all():
            self._put(page, int(codes[0]))
            return
        signs = self._signs[page - self._first_page]
        self._put(page, codes)
        if signs == ALL_SIGNS:  # it may have lost most of them
            signs = np.bitwise_or.reduce(SIGN_OF[np.flatnonzero(np.bincount(codes)) & SIGNS - 1])
        self._signs[page - self._first_page] = signs


def _type_of(code: int) -> type[np.unsignedinteger]:
    """The type of the codes of a page up to *code*."""
    return np.uint16 if code < 1 << 16 else np.uint32


def _sign(code: int) -> np.uint64:
    """The bit that says that a page may have entries of a code."""
    return SIGN_OF[code & SIGNS - 1]
