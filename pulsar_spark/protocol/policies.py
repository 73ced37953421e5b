"""Policies by name, and the rules of expiry and backlog quotas.

Rules: PersistentMessageExpiryMonitor, BacklogQuotaManager, PersistentTopic.checkInactiveSubscriptions; semantics
3.29-3.31 with 0.26. Time to live deletes what is older, cumulatively, whoever holds it, but never an entry before its
deliver time: such an entry lives as long from that instant on, or it would be deleted in the very round in which it
falls due. A connected subscription with a small backlog is spared while its oldest entry is not due, which matters only
where publish times are not in order; left out is that Pulsar gives that entry half its time more. A quota measures the
backlog of the slowest subscription: what lies above its mark-delete, acknowledged or not. Left out: the precise and the
imprecise form of the time quota, because ages are known by entry here. A subscription expires when it had no consumer
for long enough; what an administrator does to it, and acknowledgements that come without a consumer, do not keep it.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from pulsar_spark.errors import InvalidConfiguration, shown

HOLD, REFUSE, EVICT = "producer_request_hold", "producer_exception", "consumer_backlog_eviction"
QUOTA_POLICIES = (HOLD, REFUSE, EVICT)

POLICIES: dict[str, int | str] = {
    "max_unacked_messages_per_consumer": 50_000,
    "max_unacked_messages_per_subscription": 200_000,
    "max_consumers_per_subscription": 0,
    "active_consumer_failover_delay_ms": 1_000,
    "message_ttl_seconds": 0,
    "ttl_check_seconds": 60,
    "backlog_quota_bytes": 0,
    "backlog_quota_seconds": 0,
    "backlog_quota_policy": HOLD,
    "retention_seconds": 0,
    "retention_bytes": 0,
    "subscription_expiration_minutes": 0,
    "delayed_delivery_active": 1,
    "delayed_delivery_tick_ms": 1_000,
}
"""Policies and their defaults; topics go before namespaces, namespaces before these. 0 is off, but for retention, where
it is none and -1 is for ever. The tick of delayed delivery is kept for who asks and has no effect: nothing comes early
(semantics 0.21)."""

UNACKED_LIMITS = ("max_unacked_messages_per_consumer", "max_unacked_messages_per_subscription")
"""Policies that hold back who has too many unacknowledged messages."""

CHECKED = ("message_ttl_seconds", "backlog_quota_bytes", "backlog_quota_seconds", "subscription_expiration_minutes")
"""Policies that a broker looks after every ``ttl_check_seconds``."""

BACKLOG_EXCEEDED = "backlog_exceeded"
"""What the broker says of a topic whose producers are to be held or refused: "true" or "false". A fact among the
policies, nobody's to set."""

TOPIC_STOPPED = "topic_stopped"
"""Likewise: what stops a topic, in words; absent while nothing does."""

BROKER, BROKER_BLOCKED = "broker", "broker_dispatching_blocked"
"""Likewise what it says of itself: whether too many messages are unacknowledged on all its subscriptions together
(protocol.unacked_limit)."""

MINUTE = 60_000_000
EVICTION_TARGET = 0.9
SMALL_BACKLOG = 1000
"""Below so many entries a connected subscription's backlog is small (MINIMUM_BACKLOG_FOR_EXPIRY_CHECK)."""

MOST_INT32 = (1 << 31) - 1
_MOST = {"_seconds": 10**9, "_minutes": 10**9 // 60, "_ms": 10**9, "_bytes": 10**18}
_NUMBER = re.compile("-?[0-9]{1,19}", re.ASCII)
_LEAST = {"ttl_check_seconds": 1, "retention_seconds": -1, "retention_bytes": -1}


def check_policy(name: str | None, value: str | None) -> None:
    """:class:`InvalidConfiguration` for a policy that does not exist, or a value it cannot have; None, which removes a
    policy, any can.

    >>> check_policy("backlog_quota_policy", "drop")  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    pulsar_spark.errors.InvalidConfiguration: policy backlog_quota_policy: 'drop' is none of ...
    """
    if name not in POLICIES:
        raise InvalidConfiguration(f"policy {shown(name)} is not known: use one of {', '.join(POLICIES)}")
    if value is None:
        return
    if name == "backlog_quota_policy":
        if value not in QUOTA_POLICIES:
            raise InvalidConfiguration(f"policy {name}: {shown(value)} is none of {', '.join(QUOTA_POLICIES)}")
        return
    least = _LEAST.get(name, 0)
    most = most_of(name)
    if not _NUMBER.fullmatch(value) or not least <= int(value) <= most:
        raise InvalidConfiguration(f"policy {name}: {shown(value)} is not a whole number from {least} to {most}")


def most_of(name: str) -> int:
    """The highest number a policy takes: thirty years of time, what a table can hold of bytes, and Pulsar's int of
    everything else.

    >>> most_of("message_ttl_seconds"), most_of("max_consumers_per_subscription")
    (1000000000, 2147483647)
    """
    return next((most for ending, most in _MOST.items() if name.endswith(ending)), MOST_INT32)


def policy_owners(topic: str) -> tuple[str, str]:
    """Whose policies hold for a topic, by its full name: first its own, then its namespace's.

    >>> policy_owners("persistent://public/default/t")
    ('persistent://public/default/t', 'public/default')
    """
    _, _, tenant, namespace, _ = topic.split("/")  # it was parsed before: this is asked of every topic
    return topic, f"{tenant}/{namespace}"


def set_policy_text(policies: Mapping[tuple[str, str], str], topic: str, name: str) -> str | None:
    """A policy of a topic as it was set, on the topic or else on its namespace; None where it is on neither. *policies*
    are texts by owner and name."""
    return next((policies[owner, name] for owner in policy_owners(topic) if (owner, name) in policies), None)


def policy_text(policies: Mapping[tuple[str, str], str], topic: str, name: str) -> str:
    """The same, else the default.

    >>> topic, name = "persistent://public/default/t", "message_ttl_seconds"
    >>> policy_text({(topic, name): "1", ("public/default", name): "2"}, topic, name)
    '1'
    >>> policy_text({("public/default", name): "2"}, topic, name), policy_text({}, topic, name)
    ('2', '0')
    """
    found = set_policy_text(policies, topic, name)
    return str(POLICIES[name]) if found is None else found


def policy_number(name: str, text: str) -> int:
    """The number a policy was set to. One that an earlier release let through, above what the policy takes, is the
    highest that it takes.

    >>> policy_number("message_ttl_seconds", "60"), policy_number("message_ttl_seconds", "9" * 5000)
    (60, 1000000000)
    """
    if not _NUMBER.fullmatch(text):
        return most_of(name) if text.isdecimal() else int(POLICIES[name])
    return max(min(int(text), most_of(name)), _LEAST.get(name, 0))


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


class Activity(NamedTuple):
    """Of a cursor: whether a consumer is connected, and when (microseconds) one last came or left, or the cursor was
    created."""

    is_connected: bool
    last_active: int


def has_expired(cursors: Iterable[Activity], minutes: int, now: int) -> bool:
    """Has a subscription with these *cursors*, one a partition, been idle for more than so many minutes (3.31)?

    Pulsar asks each partition by itself. Here all go together or none, as an unsubscribe takes them: where one was
    missing, a consumer that comes back would make it anew at its initial position and miss what lay there, while the
    subscription still stood in every list.

    >>> has_expired([Activity(False, 0)], 1, 60_000_001)
    True
    >>> has_expired([Activity(False, 0), Activity(True, 0)], 1, 60_000_001)
    False
    """
    return minutes > 0 and all(
        not cursor.is_connected and now - cursor.last_active > minutes * MINUTE for cursor in cursors
    )


class Stretch(NamedTuple):
    """Entries *first*..*last* that take so many bytes together."""

    first: int
    last: int
    bytes: int


def backlog_bytes(stretches: Iterable[Stretch], mark_delete: int) -> int:
    """Bytes of the entries behind *mark_delete*; within a stretch all entries count alike."""
    return sum(
        each.bytes * (each.last - max(each.first, mark_delete + 1) + 1) // (each.last - each.first + 1)
        for each in stretches
        if each.last > mark_delete
    )


def evicted_up_to(stretches: Sequence[Stretch], mark_delete: int, limit: int) -> int:
    """Where mark-delete comes to when a quota of *limit* bytes evicts: as far as it takes to leave nine tenths of it
    (3.30).

    >>> evicted_up_to([Stretch(0, 9, 1000), Stretch(10, 19, 1000)], -1, 1000)
    10
    """
    target = int(limit * EVICTION_TARGET)
    left = backlog_bytes(stretches, mark_delete)
    for each in stretches:
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
