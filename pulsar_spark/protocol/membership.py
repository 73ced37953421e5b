"""Who may join a subscription, and who is active on it.

Rules: PersistentSubscription.addConsumer, AbstractDispatcherSingleActiveConsumer, Consumer; semantics 2.1-2.3,
2.7-2.10. A subscription has a type only while consumers are connected. Left out: the liveness check of an Exclusive
holder, because leases do it: who is not heard of is gone.
"""

from collections.abc import Collection

SINGLE_ACTIVE = ("Exclusive", "Failover")
SUBSCRIPTION_TYPES = ("Exclusive", "Failover", "Shared", "KeyShared")
IMPLEMENTED_TYPES = ("Exclusive", "Failover", "Shared")


def refusal(wanted: str, *, present: str | None, consumers: Collection, most: int) -> tuple[str, str] | None:
    """Why a consumer that wants type *wanted* may not join: (error name, words), None when it may.

    *present* is the type of the connected *consumers*, *most* the limit of consumers per subscription (0 = none).

    >>> refusal("Shared", present="Failover", consumers=["a"], most=0)[0]
    'SubscriptionBusy'
    """
    if wanted not in IMPLEMENTED_TYPES:
        return (
            "OperationNotSupported",
            f"subscription type {wanted!r} is not served: use one of {', '.join(IMPLEMENTED_TYPES)}",
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
            "an Exclusive subscription has a consumer already: close it first, or use Failover or Shared",
        )
    if 0 < most <= len(consumers):
        return (
            "ConsumerBusy",
            f"the subscription has {len(consumers)} consumers, which is the limit (max_consumers_per_subscription)",
        )
    return None
