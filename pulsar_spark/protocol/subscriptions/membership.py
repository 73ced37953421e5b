"""Who may join a subscription and end it, its type, and leases of consumers.

Rules: PersistentSubscription.addConsumer, AbstractDispatcherSingleActiveConsumer, Consumer; semantics 2.1-2.3,
2.7-2.10. Leases replace Pulsar's liveness check; instants are microseconds by the broker's clock."""

import re
from collections.abc import Collection, Iterator, Mapping

SINGLE_ACTIVE = ("Exclusive", "Failover")
KEY_SHARED = "KeyShared"
SUBSCRIPTION_TYPES = (*SINGLE_ACTIVE, "Shared", KEY_SHARED)

CONNECTED, CONNECTED_BEFORE = "connected", "connected before"
"""Replies to a subscribe request: of a new consumer, and of one that was there and keeps what it has."""

DEFAULT_LEASE_MS = 30_000
MOST_LEASE_MS = 24 * 60 * 60 * 1000
"""The longest lease that a client can request."""


def refusal(wanted: str, *, present: str | None, consumers: Collection, most: int) -> tuple[str, str] | None:
    """Why a consumer of type *wanted* may not join the *consumers* of type *present*, as (error name, text); None if it
    may. *most* is the limit of consumers (0 = none).

    >>> refusal("Shared", present="Failover", consumers=["a"], most=0)[0]
    'SubscriptionBusy'
    """
    if wanted not in SUBSCRIPTION_TYPES:
        return (
            "OperationNotSupported",
            f"subscription type {wanted!r} is not served: use one of {', '.join(SUBSCRIPTION_TYPES)}",
        )
    if not consumers:
        return None
    if wanted != present:
        return (
            "SubscriptionBusy",
            f"consumers of type {present} are connected: close them first, or subscribe as {present}",
        )
    if wanted == "Exclusive":
        return (
            "ConsumerBusy",
            "an Exclusive subscription has a consumer already: close it first, or use Failover, Shared or KeyShared",
        )
    if 0 < most <= len(consumers):
        return (
            "ConsumerBusy",
            f"the subscription has {len(consumers)} consumers, which is the limit (max_consumers_per_subscription)",
        )
    return None


def type_of(subscription_type: str | None, consumers: Collection) -> str | None:
    """The type of a subscription with these *consumers*; None without any (2.1).

    >>> type_of("Shared", ["a"]), type_of("Shared", [])
    ('Shared', None)
    """
    return subscription_type if consumers else None


def allows_cumulative(subscription_type: str | None) -> bool:
    """Whether this type, None if unknown, allows cumulative acknowledgement: not with several receivers (2.5).

    >>> [allows_cumulative(each) for each in ("Exclusive", "Shared", None)]
    [True, False, True]
    """
    return subscription_type is None or subscription_type in SINGLE_ACTIVE


def unsubscribe_refusal(others: Collection, *, is_forced: bool, by_consumer: bool = False) -> tuple[str, str] | None:
    """Why a subscription with *others* than the requester may not end, as (error name, text); None if it may. A
    consumer's error is Pulsar's ServerMetadataException.

    >>> unsubscribe_refusal(["a"], is_forced=False)[0], unsubscribe_refusal(["a"], is_forced=True)
    ('SubscriptionBusy', None)
    >>> unsubscribe_refusal(["a"], is_forced=False, by_consumer=True)[0]
    'BrokerMetadataError'
    """
    if is_forced or not others:
        return None
    words = f"has {len(others)} other consumers: close them first, or force it"
    return "BrokerMetadataError" if by_consumer else "SubscriptionBusy", words


def lease_ms_of(text: str | None) -> int:
    """The lease in a consumer's row, at most a day; the default if it is absent or invalid.

    >>> lease_ms_of("5000"), lease_ms_of(None), lease_ms_of("9" * 18) == MOST_LEASE_MS
    (5000, 30000, True)
    """
    return min(int(text), MOST_LEASE_MS) if text and re.fullmatch("[0-9]{1,18}", text) else DEFAULT_LEASE_MS


def lease_end(now: int, lease_ms: int) -> int:
    """When the lease of a client that gave a sign of life at *now* ends.

    >>> lease_end(5, 30_000)
    30000005
    """
    return now + lease_ms * 1000


def ended_leases(leases: Mapping[str, int], now: int) -> Iterator[str]:
    """The clients whose lease has ended.

    >>> list(ended_leases({"a": 10, "b": 11}, 10))
    ['a']
    """
    return (client_id for client_id, until in leases.items() if until <= now)
