"""The states of entries as numbers, and ranges made of them."""

from collections.abc import Callable, Iterator
from functools import cached_property

import numpy as np

from pulsar_spark.protocol.acknowledgement.cursor import Range

UNREAD = -1
"""The state of an entry that was never delivered."""

NEVER = np.iinfo(np.int64).max


class EntryStates:
    """Numbers for states: a range's columns without positions and size. :attr:`due` and the flags end with a value for
    :data:`UNREAD`."""

    def __init__(self):
        self._tails: list[tuple] = []
        self._numbers: dict[tuple, int] = {}

    def __len__(self) -> int:
        return len(self._tails)

    def number(self, held: Range) -> int:
        said = held[2:-1]
        number = self._numbers.get(said)
        if number is None:
            number = self._numbers[said] = len(self._tails)
            self._tails.append(said)
        return number

    def range(self, number: int, first: int, last: int, entries: int | None = None) -> Range:
        return Range(first, last, *self._tails[number], entries)

    def are(self, status: str) -> np.ndarray:
        return np.array([said[0] == status for said in self._tails] + [False])

    def consumers(self) -> np.ndarray:
        return np.array([said[1] for said in self._tails] + [None], object)

    def rounds(self) -> np.ndarray:
        return np.array([-1 if said[2] is None else said[2] for said in self._tails] + [-1], np.int64)

    def due(self) -> np.ndarray:
        """When each comes back or may be delivered; :data:`NEVER` without such a time."""
        return np.array([NEVER if said[4] is None else said[4] for said in self._tails] + [NEVER], np.int64)


class EntryCodes:
    """The state number of each of a form's entries, computed at first use. *touched* is their number if none is
    unread."""

    def __init__(self, make: Callable[[], np.ndarray], touched: int | None = None):
        self._make, self._touched = make, touched

    @cached_property
    def all(self) -> np.ndarray:
        return self._make()

    def __len__(self) -> int:
        return len(self.all) if self._touched is None else self._touched

    def first_unread(self, at: int) -> int:
        """The first unread index from *at* on; all after the last are."""
        unread = np.flatnonzero(self.all[at:] == UNREAD) if self._touched is None else []
        return at + int(unread[0]) if len(unread) else max(at, len(self))


def by_number(numbers: np.ndarray) -> np.ndarray:
    """Indexes sorted by number, stable; small numbers are sorted quickly."""
    return np.argsort(numbers.astype(np.int16 if numbers.max(initial=0) < 1 << 15 else np.int64), kind="stable")


def lane_ranges(states: EntryStates, codes: np.ndarray, positions: np.ndarray) -> Iterator[Range]:
    """Entries of one lane as ranges with their size."""
    starts = np.flatnonzero(np.diff(codes, prepend=-2))
    stops = np.append(starts[1:], len(codes))[: len(starts)]
    rows = zip(
        codes[starts].tolist(), positions[starts].tolist(), positions[stops - 1].tolist(), (stops - starts).tolist()
    )
    return (states.range(code, first, last, entries) for code, first, last, entries in rows if code != UNREAD)


def exact_ranges(states: EntryStates, codes: np.ndarray, positions: np.ndarray) -> Iterator[Range]:
    """Entries at ascending *positions* as exact ranges."""
    is_first = (np.diff(codes, prepend=-2) != 0) | (np.diff(positions, prepend=-2) != 1)
    starts = np.flatnonzero(is_first)
    stops = np.append(starts[1:], len(codes))[: len(starts)]
    rows = zip(codes[starts].tolist(), positions[starts].tolist(), positions[stops - 1].tolist())
    return (states.range(code, first, last) for code, first, last in rows if code != UNREAD)
