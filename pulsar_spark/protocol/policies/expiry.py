"""Expiry of entries and subscriptions: time to live, backlog quotas, idle subscriptions, retention.

Rules: PersistentMessageExpiryMonitor, BacklogQuotaManager, PersistentTopic.checkInactiveSubscriptions; semantics
3.29-3.31 with 0.26. A delayed entry's time to live starts at its deliver time."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from pulsar_spark.protocol.policies.policies import EVICT

MINUTE = 60_000_000
EVICTION_TARGET = 0.9
SMALL_BACKLOG = 1000
"""A connected subscription's backlog below this number of entries is small (MINIMUM_BACKLOG_FOR_EXPIRY_CHECK)."""


class Delayed(NamedTuple):
    """Entries *first*..*last* with one deliver time."""

    first: int
    last: int
    due_time: int


def expired(mark_delete: int, last_old: int, delayed: Iterable[Delayed], *, dead_before: int) -> list[tuple[int, int]]:
    """Ranges after *mark_delete* that expire. *last_old* is the newest entry published before *dead_before*; *delayed*
    entries (by position) due at *dead_before* or later do not expire.

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
    """Whether a connected subscription's *backlog* is small enough to spare it while its oldest entry has not expired
    (3.29).

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
    """Whether a subscription with these *cursors*, one a partition, has been idle for more than *minutes* (3.31).

    Unlike in Pulsar, all partitions expire together, or a returning consumer would miss entries of some.

    >>> has_expired([Activity(False, 0)], 1, 60_000_001)
    True
    """
    return minutes > 0 and all(
        not cursor.is_connected and now - cursor.last_active > minutes * MINUTE for cursor in cursors
    )


class Stored(NamedTuple):
    """Entries *first*..*last* with their bytes in all: a run, or its share of a file."""

    first: int
    last: int
    bytes: int


def backlog_bytes(runs: Iterable[Stored], mark_delete: int) -> int:
    """Bytes of the entries after *mark_delete*; entries of a run count alike.

    >>> backlog_bytes([Stored(0, 9, 1000), Stored(10, 19, 500)], 4)
    1000
    """
    return sum(
        each.bytes * (each.last - max(each.first, mark_delete + 1) + 1) // (each.last - each.first + 1)
        for each in runs
        if each.last > mark_delete
    )


def evicted_up_to(runs: Sequence[Stored], mark_delete: int, limit: int) -> int:
    """Mark-delete after a quota of *limit* bytes evicts entries, down to nine tenths of it (3.30).

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
    """Whether *quota_policy* holds or refuses producers when a partition's slowest subscription *is_over* a quota
    (3.30).

    >>> holds_producers([False, True], "producer_request_hold"), holds_producers([True], "consumer_backlog_eviction")
    (True, False)
    """
    return quota_policy != EVICT and any(is_over)


class Retention(NamedTuple):
    """How long acknowledged entries are kept: 0 = no limit of that kind, both 0 = not at all, -1 = for ever. The first
    limit reached decides."""

    seconds: int
    bytes: int

    def releases(self, age_seconds: float, newer_bytes: int) -> bool:
        """Whether an entry of this age may be deleted, if it and the newer acknowledged ones take *newer_bytes*.

        >>> Retention(0, 0).releases(0, 0), Retention(60, 0).releases(59, 10**9)
        (True, False)
        >>> Retention(60, 100).releases(59, 101), Retention(-1, 0).releases(10**9, 0)
        (True, False)
        """
        if self.seconds == self.bytes == 0:
            return True
        return (self.seconds > 0 and age_seconds > self.seconds) or (self.bytes > 0 and newer_bytes > self.bytes)
