"""What becomes of what nobody acknowledges: time to live, backlog quotas, the end of idle subscriptions, retention.

Rules: PersistentMessageExpiryMonitor, BacklogQuotaManager, PersistentTopic.checkInactiveSubscriptions; semantics
3.29-3.31 with 0.26. Time to live deletes what is older, cumulatively, whoever holds it, but never an entry before its
deliver time: such an entry lives as long from that instant on, or it would be deleted in the very round in which it
falls due. A connected subscription with a small backlog is spared while its oldest entry is not due, which matters only
where publish times are not in order; left out is that Pulsar gives that entry half its time more. A quota measures the
backlog of the slowest subscription: what lies above its mark-delete, acknowledged or not. Left out: the precise and the
imprecise form of the time quota, because ages are known by entry here. A subscription expires when it had no consumer
for long enough; what an administrator does to it, and acknowledgements that come without a consumer, do not keep it.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from pulsar_spark.protocol.policies import EVICT

MINUTE = 60_000_000
EVICTION_TARGET = 0.9
SMALL_BACKLOG = 1000
"""Below so many entries a connected subscription's backlog is small (MINIMUM_BACKLOG_FOR_EXPIRY_CHECK)."""


class Delayed(NamedTuple):
    """Entries *first*..*last* with one deliver time."""

    first: int
    last: int
    due_time: int


def expired(mark_delete: int, last_old: int, delayed: Iterable[Delayed], *, dead_before: int) -> list[tuple[int, int]]:
    """What expires of the entries behind *mark_delete* when *last_old* is the newest that was published before
    *dead_before*: all up to it, but for those whose deliver time (by position) is not before that instant too.

    >>> expired(1, 9, [Delayed(3, 4, 700), Delayed(6, 6, 100)], dead_before=500)
    [(2, 2), (5, 9)]
    """
    ranges, at = [], mark_delete + 1
    for first, last, due_time in delayed:
        if due_time >= dead_before and last >= at:
            ranges.append((at, min(first - 1, last_old)))
            at = last + 1
    ranges.append((at, last_old))
    return [(first, last) for first, last in ranges if first <= last]


def is_spared(backlog: int) -> bool:
    """Is a connected subscription, whose oldest entry has not expired, spared for its small backlog (3.29)?

    >>> is_spared(999), is_spared(1000)
    (True, False)
    """
    return backlog < SMALL_BACKLOG


class Activity(NamedTuple):
    """Of a cursor: whether a consumer is connected, and when (microseconds) one last came or left, or the cursor was
    created."""

    is_connected: bool
    last_active: int


def has_expired(cursors: Iterable[Activity], minutes: int, now: int) -> bool:
    """Has a subscription with these *cursors*, one a partition, been idle for more than so many minutes (3.31)?

    Pulsar asks each partition by itself. Here all go together or none, as an unsubscribe takes them: where one was
    missing, a consumer that comes back would create it again at its initial position and miss what lay there, while the
    subscription still stood in every list.

    >>> has_expired([Activity(False, 0)], 1, 60_000_001)
    True
    >>> has_expired([Activity(False, 0), Activity(True, 0)], 1, 60_000_001)
    False
    """
    return minutes > 0 and all(
        not cursor.is_connected and now - cursor.last_active > minutes * MINUTE for cursor in cursors
    )


class Stored(NamedTuple):
    """Entries *first*..*last* that take so many bytes together: a run of them, or its share of a file."""

    first: int
    last: int
    bytes: int


def backlog_bytes(runs: Iterable[Stored], mark_delete: int) -> int:
    """Bytes of the entries behind *mark_delete*; within a run all entries count alike.

    >>> backlog_bytes([Stored(0, 9, 1000), Stored(10, 19, 500)], 4)
    1000
    """
    return sum(
        each.bytes * (each.last - max(each.first, mark_delete + 1) + 1) // (each.last - each.first + 1)
        for each in runs
        if each.last > mark_delete
    )


def evicted_up_to(runs: Sequence[Stored], mark_delete: int, limit: int) -> int:
    """Where mark-delete comes to when a quota of *limit* bytes evicts: as far as it takes to leave nine tenths of it
    (3.30).

    >>> evicted_up_to([Stored(0, 9, 1000), Stored(10, 19, 1000)], -1, 1000)
    10
    """
    target = int(limit * EVICTION_TARGET)
    left = backlog_bytes(runs, mark_delete)
    for each in runs:
        if left <= target:
            break
        if each.last <= mark_delete:
            continue
        first = max(each.first, mark_delete + 1)
        entries = each.last - first + 1
        share = each.bytes * entries // (each.last - each.first + 1)
        if left - share > target:
            mark_delete, left = each.last, left - share
            continue
        mark_delete = first - 1 + -(-(left - target) * entries // max(share, 1))
        break
    return mark_delete


def holds_producers(is_over: Iterable[bool], quota_policy: str) -> bool:
    """Are producers held or refused, some partition's slowest subscription being above a quota? Not where what is too
    much is evicted (3.30).

    >>> holds_producers([False, True], "producer_request_hold"), holds_producers([True], "consumer_backlog_eviction")
    (True, False)
    """
    return quota_policy != EVICT and any(is_over)


class Retention(NamedTuple):
    """How long what every subscription has acknowledged is kept: 0 = no limit of that kind, both 0 = not at all, -1 =
    for ever. The first limit reached decides."""

    seconds: int
    bytes: int

    def releases(self, age_seconds: float, newer_bytes: int) -> bool:
        """May something go that was published so long ago, when it and what came since and is acknowledged take so many
        bytes?

        >>> Retention(0, 0).releases(0, 0), Retention(60, 0).releases(59, 10**9)
        (True, False)
        >>> Retention(60, 100).releases(59, 101), Retention(-1, 0).releases(10**9, 0)
        (True, False)
        """
        if self.seconds == self.bytes == 0:
            return True
        return (self.seconds > 0 and age_seconds > self.seconds) or (self.bytes > 0 and newer_bytes > self.bytes)
