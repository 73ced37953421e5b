"""Ranges of a Key_Shared cursor's lanes that change as a whole (see lane_form), without entry states. Every entry up to
the end must have been touched, so that ranges follow each other without gaps."""

from collections.abc import Iterable, Sequence

import numpy as np

from pulsar_spark.protocol.acknowledgement.cursor import ACKNOWLEDGED, Range

_WINDOW = 4096


def joined(ranges: Iterable[Range]) -> list[Range]:
    """*ranges* of a lane, by position, with equal neighbours joined.

    >>> [held[:2] + held[-1:] for held in joined([Range(0, 4, "acknowledged", entries=2), Range(6, 9, "acknowledged",
    ... entries=3), Range(12, 12, "pending", "c", entries=1)])]
    [(0, 9, 5), (12, 12, 1)]
    """
    found: list[Range] = []
    for held in ranges:
        if found and found[-1][2:-1] == held[2:-1]:
            found[-1] = found[-1]._replace(last=held.last, entries=found[-1].size + held.size)
        else:
            found.append(held)
    return found


def first_left(ranges_of: Iterable[Sequence[Range]], end: int) -> int:
    """The first unacknowledged entry of all lanes, or *end*."""
    left = (next((held.first for held in ranges if held.status != ACKNOWLEDGED), end) for ranges in ranges_of)
    return min(left, default=end)


def begun_at(ranges_of: Sequence[Sequence[Range]], base: int, passed: np.ndarray, later: np.ndarray) -> list:
    """The ranges of each lane from *base* on, before which all is acknowledged. *passed* are lanes of entries between
    the old base and this one, *later* those of later entries."""
    gone = np.bincount(passed, minlength=len(ranges_of)).tolist()
    cut = [bool(ranges and count and ranges[0].size > count) for ranges, count in zip(ranges_of, gone, strict=True)]
    firsts = (base + first_met(later, np.array(cut))).tolist() if any(cut) else [base] * len(cut)
    found = []
    for ranges, count, is_cut, first in zip(ranges_of, gone, cut, firsts, strict=True):
        if is_cut:
            ranges = [ranges[0]._replace(first=first, entries=ranges[0].size - count), *ranges[1:]]
        elif count:
            ranges = ranges[1:]
        found.append([*ranges])
    return found


def first_met(lanes: np.ndarray, wanted: np.ndarray) -> np.ndarray:
    """The first index of each *wanted* lane in *lanes*; -1 for others.

    >>> first_met(np.array([2, 0, 0, 2, 1]), np.array([True, False, True])).tolist()
    [1, -1, 0]
    """
    found, at, width = np.full(len(wanted), -1, np.int64), 0, _WINDOW
    missing = int(np.count_nonzero(wanted))
    while missing:
        window = lanes[at : at + width]
        met = np.full(len(wanted), -1, np.int64)
        met[window[::-1]] = np.arange(at + len(window) - 1, at - 1, -1)  # the last assignment counts: the first place
        is_new = (found < 0) & (met >= 0) & (wanted > 0)
        found[is_new] = met[is_new]
        missing -= int(np.count_nonzero(is_new))
        at, width = at + len(window), 4 * width
    return found
