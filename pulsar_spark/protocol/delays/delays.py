"""Delayed entries: which entries wait for their deliver time, and the numbers they get when due.

Rule: semantics 5 with decisions 0.21 and 0.24. Numbering decides once whether an entry is *delayed*. When due, it
is *promoted*: it gets the next number of its topic partition, for all subscriptions. Cursors keep ranges of
*virtual positions*: the number plus :data:`DUE_BASE`.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple, TypeVar

import numpy as np

from pulsar_spark.protocol.topics.message_id import MAX_LONG

DUE_BASE = 1 << 60
"""The virtual position of number 0."""

APART_BASE = 1 << 61
"""The virtual position of position 0 as an entry *apart*: a delayed entry kept by position, because it was
acknowledged, at least in part, or rescheduled before it was due."""

AXES_END = 1 << 62
"""Above all positions, virtual ones included."""

LAST_TIME = MAX_LONG // 1000 * 1000
"""The last deliver time in whole milliseconds, in microseconds."""

MAX_MS = MAX_LONG // 1000 - 1
"""The last deliver time of a request, in milliseconds since 1970: tables count microseconds in 64 bits."""

DUE_LANE = "due"
"""The name, in rows, of the lane with ranges of virtual positions."""

CANCEL = "cancel"
"""Property of an acknowledgement: it includes only positions that wait for their deliver time."""

DELIVER_AT_MS = "deliver_at_ms"
"""Property of a request to reschedule: the new deliver time, in milliseconds since 1970."""

POSITIONS = "positions"
"""Property of a request to cancel or reschedule: only these positions between its first and last, as written by
:func:`~pulsar_spark.protocol.acknowledgement.packing.named`. So one request can name thousands of scattered ones."""


OneOrMany = TypeVar("OneOrMany", int, np.ndarray)


def virtual(number: OneOrMany) -> OneOrMany:
    """The virtual position of a number, or of each in an array.

    >>> number_at(virtual(7)), is_virtual(virtual(0)), is_virtual(7)
    (7, True, False)
    """
    return DUE_BASE + number


def number_at(place: OneOrMany) -> OneOrMany:
    """The number of a virtual position."""
    return place - DUE_BASE


def place_apart(position: OneOrMany) -> OneOrMany:
    """The place of the entry at *position* if it is kept apart.

    >>> position_of(place_apart(7)), position_of(7)
    (7, 7)
    """
    return APART_BASE + position


def position_of(place: OneOrMany) -> OneOrMany:
    """The position of the entry at a place, apart or not."""
    return place % APART_BASE


def is_virtual(position: int) -> bool:
    """Whether a position is virtual: it stands for a number or an entry kept apart."""
    return position >= DUE_BASE


def lane_name(position: int) -> str | None:
    """The name of a virtual position's lane, as in rows; None for a real position."""
    return DUE_LANE if is_virtual(position) else None


def whole_ms(times: np.ndarray) -> np.ndarray:
    """Round deliver times in microseconds up to milliseconds, as in Pulsar, so that none is early (0.21) and the index
    is smaller (5.9).

    >>> whole_ms(np.array([1_000, 1_001, -1, 2**63 - 1])).tolist()
    [1000, 2000, 0, 9223372036854775000]
    """
    times = np.minimum(times, LAST_TIME)
    return times + (-(times % 1000)) % 1000


def are_delayed(times: np.ndarray, delayed_after: int | None) -> np.ndarray:
    """Which entries of a run belong to the delay index, by deliver time and the run's ``delayed_after``
    (microseconds). A deliver time in the past at numbering does not count (5.2). Without ``delayed_after`` none
    does: an earlier release numbered the run.

    >>> are_delayed(np.array([11, 10]), 10).tolist(), are_delayed(np.array([11]), None).tolist()
    ([True, False], [False])
    """
    return np.zeros(len(times), bool) if delayed_after is None else times > delayed_after


class Checkpoint(NamedTuple):
    """Numbers *first*..*last*: the delayed entries with *after* < deliver time <= *until* (microseconds)."""

    first: int
    last: int
    after: int
    until: int

    @property
    def numbers(self) -> int:
        """The number of its entries."""
        return self.last - self.first + 1


def promoted(checkpoints: Sequence[Checkpoint]) -> tuple[int, int]:
    """The time up to which all due entries have a number, and how many numbers were given.

    >>> promoted([Checkpoint(0, 4, 0, 9), Checkpoint(5, 9, 9, 12)]), promoted([])
    ((12, 10), (0, 0))
    """
    return (checkpoints[-1].until, checkpoints[-1].last + 1) if checkpoints else (0, 0)


def cut(checkpoints: Iterable[Checkpoint], numbers: np.ndarray) -> Iterator[tuple[Checkpoint, slice]]:
    """The checkpoints of ascending *numbers*, each with the slice of *numbers* it includes.

    >>> [(each.first, at) for each, at in cut([Checkpoint(0, 4, 0, 9), Checkpoint(5, 9, 9, 12)], np.array([6, 7]))]
    [(5, slice(0, 2, None))]
    """
    for each in checkpoints:
        first, end = np.searchsorted(numbers, (each.first, each.last + 1)).tolist()
        if first < end:
            yield each, slice(first, end)


def due_order(times: np.ndarray, positions: np.ndarray) -> np.ndarray:
    """Indexes of delayed entries in the order in which they come due: by (deliver time, position) (0.21).

    >>> due_order(np.array([30, 20, 30, 10]), np.array([1, 2, 0, 3])).tolist()
    [3, 1, 2, 0]
    """
    return np.lexsort((positions, times))


def certain_states(states: np.ndarray, left: int) -> np.ndarray:
    """The certain states of the *left* entries of a checkpoint after unknown ones are gone; -1 for uncertain. *states*
    are those of all its numbers, -1 for none.

    With g entries gone, entry n had one of the numbers n..n+g; a state that all of these share is certain.

    >>> certain_states(np.array([1, 1, 1, 5, 5, 1, 5, 5]), 7).tolist()
    [1, 1, -1, 5, -1, -1, 5]
    >>> certain_states(np.array([1, 1, 1, 1]), 1).tolist(), certain_states(np.array([1, 2]), 0).tolist()
    ([1], [])
    """
    ends = np.append(np.flatnonzero(np.diff(states)), len(states) - 1)
    places = np.arange(left)
    until = ends[np.searchsorted(ends, places)]
    return np.where(until >= places + len(states) - left, states[:left], -1)


def visible_mark_delete(mark_delete: int, first_waiting: int | None) -> int:
    """Mark-delete for users and trimming (5.20): before the first delayed or due unacknowledged entry, and at most
    *mark_delete*, up to which all others are acknowledged.

    >>> visible_mark_delete(9, None), visible_mark_delete(9, 4), visible_mark_delete(9, 12)
    (9, 3, 9)
    """
    return mark_delete if first_waiting is None else min(mark_delete, first_waiting - 1)


WIDEST_MERGE = 4
MAX_NUM_BUCKETS = 20
"""Default of Pulsar's ``delayedDeliveryMaxNumBuckets``; there it is -1, without limit."""


def buckets_to_merge(entries: Sequence[int], first_times: Sequence[int | None]) -> tuple[int, int] | None:
    """Which neighbouring buckets of a topic to merge, as (first, last): the window of four (else three, else two) with
    the fewest entries, then the earliest due (5.14; there, a later window must also be due earlier). *first_times*
    are the first deliver times left; windows exclude buckets with None (empty, or being merged).

    >>> buckets_to_merge([9, 1, 1, 1, 1, 9], [0, 1, 2, 3, 4, 5])
    (1, 4)
    >>> buckets_to_merge([9, 5, 1], [0, None, 2]), buckets_to_merge([9, 5, 0], [0, 7, None])
    (None, (0, 1))
    """
    for width in range(WIDEST_MERGE, 1, -1):
        windows = [
            (sum(entries[first : first + width]), min(times), first)
            for first in range(len(entries) - width + 1)
            if len(times := [time for time in first_times[first : first + width] if time is not None]) == width
        ]
        if windows:
            first = min(windows)[-1]
            return first, first + width - 1
    return None
