"""Delayed entries: which ones wait for their deliver time, and the order in which they come due.

Rule: semantics 5 with decisions 0.21 and 0.24. Numbering decides once."""

from collections.abc import Sequence

import numpy as np

from pulsar_spark.protocol.topics.message_id import MAX_LONG

LAST_TIME = MAX_LONG // 1000 * 1000
"""The last deliver time in whole milliseconds, in microseconds."""

MAX_MS = MAX_LONG // 1000 - 1
"""The last deliver time of a request, in milliseconds since 1970; tables hold microseconds in 64 bits."""

CANCEL = "cancel"
"""Property of an acknowledgement: only positions that wait for their deliver time."""

DELIVER_AT_MS = "deliver_at_ms"
"""Property of a request to reschedule: the new deliver time, in milliseconds since 1970."""

POSITIONS = "positions"
"""Property of a request to cancel or reschedule: only these positions between its first and last, as
:func:`~pulsar_spark.protocol.acknowledgement.packing.named` writes them."""


def whole_ms(times: np.ndarray) -> np.ndarray:
    """Deliver times in microseconds, rounded up to milliseconds as in Pulsar, so that none is early (0.21, 5.9).

    >>> whole_ms(np.array([1_000, 1_001, -1, 2**63 - 1])).tolist()
    [1000, 2000, 0, 9223372036854775000]
    """
    times = np.minimum(times, LAST_TIME)
    return times + (-(times % 1000)) % 1000


def are_delayed(times: np.ndarray, delayed_after: int | np.ndarray | None) -> np.ndarray:
    """Which entries of a run belong to the delay index: those with deliver *times* after the run's ``delayed_after``
    (microseconds; 5.2). None of them if ``delayed_after`` is None: an earlier release numbered the run.

    >>> are_delayed(np.array([11, 10]), 10).tolist(), are_delayed(np.array([11]), None).tolist()
    ([True, False], [False])
    """
    return np.zeros(len(times), bool) if delayed_after is None else times > delayed_after


def due_order(times: np.ndarray, positions: np.ndarray) -> np.ndarray:
    """Indexes of delayed entries by (deliver time, position), the order in which they come due (0.21).

    >>> due_order(np.array([30, 20, 30, 10]), np.array([1, 2, 0, 3])).tolist()
    [3, 1, 2, 0]
    """
    return np.lexsort((positions, times))


WIDEST_MERGE = 4
MAX_NUM_BUCKETS = 20
"""Default of Pulsar's ``delayedDeliveryMaxNumBuckets``, which there is -1 (no limit)."""


def buckets_to_merge(entries: Sequence[int], first_times: Sequence[int | None]) -> tuple[int, int] | None:
    """Which neighbouring buckets of a topic to merge, as (first, last), or None (5.14).

    Of four (else three, else two) neighbours, those with the fewest entries are chosen, then the earliest due.
    *first_times* are the first deliver times left; None excludes a bucket (empty, or being merged).

    >>> buckets_to_merge([9, 1, 1, 1, 1, 9], [0, 1, 2, 3, 4, 5]), buckets_to_merge([9, 5, 1], [0, None, 2])
    ((1, 4), None)
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
