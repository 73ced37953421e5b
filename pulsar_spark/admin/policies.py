"""Policies of namespaces and topics, with the verbs of ``pulsar-admin``. Each call takes effect in one round."""

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from pulsar_spark.client.arguments import check_type, checked_each
from pulsar_spark.errors import InvalidConfiguration
from pulsar_spark.link.requester import Requester, require_root
from pulsar_spark.protocol.policies.policies import (
    BROKER,
    COMPACTION_THRESHOLD,
    DEDUPLICATION,
    DELAYED_DELIVERY_ACTIVE,
    DELAYED_DELIVERY_MAX_DELAY_MS,
    DELAYED_DELIVERY_TICK_MS,
    HOLD,
    POLICIES,
    check_policy,
    is_number,
    policy_number,
    policy_text,
)
from pulsar_spark.protocol.topics.topic_name import parse_namespace
from pulsar_spark.storage.cursor_ledger.cursor_ledger import read_latest
from pulsar_spark.storage.layout import Layout
from pulsar_spark.storage.topics.bundles import layout_of
from pulsar_spark.storage.topics.namespaces import check_namespace
from pulsar_spark.storage.topics.topics import read_topic

F = TypeVar("F", bound=Callable[..., Any])
POLICIES_OF: dict[str, tuple[str, ...]] = {
    "message_ttl": ("message_ttl_seconds",),
    "retention": ("retention_seconds", "retention_bytes"),
    "backlog_quota": ("backlog_quota_policy", "backlog_quota_bytes", "backlog_quota_seconds"),
    "subscription_expiration_time": ("subscription_expiration_minutes",),
    "max_unacked_per_consumer": ("max_unacked_messages_per_consumer",),
    "max_unacked_per_subscription": ("max_unacked_messages_per_subscription",),
    "max_consumers_per_subscription": ("max_consumers_per_subscription",),
    "delayed_delivery": (DELAYED_DELIVERY_ACTIVE, DELAYED_DELIVERY_TICK_MS, DELAYED_DELIVERY_MAX_DELAY_MS),
    "deduplication": (DEDUPLICATION,),
    "compaction_threshold": (COMPACTION_THRESHOLD,),
}
"""The policies that the verbs ``set_``, ``get_`` and ``remove_`` of each subject mean."""
Value = int | str | None


def _getter(subject: str) -> "Callable[[Policies, str], Value | dict[str, Value]]":
    """The method ``get_<subject>``."""
    names = POLICIES_OF[subject]

    def get(self: "Policies", scope: str) -> Value | dict[str, Value]:
        found = self.get_policies(scope)
        values = {name: _value(name, found.get(name)) for name in names}
        if len(names) == 1:
            return values[names[0]]
        return values if found.keys() & values.keys() else None

    shape = "The value" if len(names) == 1 else f"The values of {', '.join(f'``{name}``' for name in names)}, by name,"
    return _named(get, f"get_{subject}", f"{shape} set on *scope* itself; None if there is none.")


def _remover(subject: str) -> "Callable[[Policies, str], None]":
    """The method ``remove_<subject>``."""

    def remove(self: "Policies", scope: str) -> None:
        self.remove_policies(scope, *POLICIES_OF[subject])

    return _named(remove, f"remove_{subject}", f"Undo :meth:`set_{subject}`.")


def _named(method: F, name: str, text: str) -> F:
    method.__name__, method.__qualname__, method.__doc__ = name, f"Policies.{name}", text
    return method


def _value(name: str, text: str | None) -> Value:
    return policy_number(name, text) if text is not None and is_number(name) else text


class Policies:
    """Part of ``Admin`` for policies. A topic named ``broker`` has the scope
    ``persistent://public/default/broker``."""

    def __init__(self, layout: Layout, requester: Requester):
        self.layout, self._requester = layout, requester

    def set_policy(self, scope: str, name: str, value: str | int) -> None:
        """Set a policy of a namespace, a topic or the whole root."""
        check_type(str, name, "name")
        self._ask_policies(scope, {name: str(value)})

    def set_policies(self, scope: str, policies: Mapping[str, str | int]) -> None:
        """Set several *policies* (values by name) in one round."""
        check_type(Mapping, policies, "policies")
        self._ask_policies(scope, {name: str(value) for name, value in policies.items()})

    def get_policies(self, scope: str) -> dict[str, str]:
        """The policies set on a namespace, a topic or the root, as texts by name; for a topic without those of its
        namespace."""
        wanted = self._owner(scope)
        policies = read_latest(layout_of(self.layout, wanted), "policy").policies
        return {
            name: value for (where, name), value in sorted(policies.items()) if where == wanted and name in POLICIES
        }

    def effective_policy(self, scope: str, name: str) -> str:
        """The value of a policy that applies to a *scope*: its own, its namespace's, the root's or the default."""
        check_policy(name, None)
        owner = self._owner(scope)
        return policy_text(read_latest(layout_of(self.layout, owner), "policy").policies, owner, name)

    def remove_policy(self, scope: str, name: str) -> None:
        """Remove a policy, if it is set; a wider setting or the default then applies."""
        self.remove_policies(scope, name)

    def remove_policies(self, scope: str, *names: str) -> None:
        """Remove the policies *names*."""
        self._ask_policies(scope, dict.fromkeys(checked_each(str, names, "names")))

    def set_message_ttl(self, scope: str, seconds: int) -> None:
        """Acknowledge entries older than this many *seconds* without delivery, but none before its deliver time; 0 =
        never."""
        self.set_policy(scope, "message_ttl_seconds", _limit(seconds))

    def set_backlog_quota(self, scope: str, limit_size: int = 0, limit_time: int = 0, policy: str = HOLD) -> None:
        """Limit the backlog of the slowest subscription to *limit_size* bytes and *limit_time* seconds of age (0 = no
        limit).

        *policy* says what happens beyond it (the policy ``backlog_quota_policy``). The broker checks every
        ``ttl_check_seconds``, also a policy.
        """
        limits = {"backlog_quota_bytes": _limit(limit_size), "backlog_quota_seconds": _limit(limit_time)}
        self._ask_policies(
            scope, {"backlog_quota_policy": policy, **{name: str(limit) for name, limit in limits.items()}}
        )

    def set_retention(self, scope: str, seconds: int, size: int) -> None:
        """Set for how many *seconds* and up to how many bytes (*size*) trimming keeps acknowledged messages. 0 = no
        limit of that kind, both 0 = nothing is kept, -1 = for ever."""
        self._ask_policies(scope, {"retention_seconds": str(seconds), "retention_bytes": str(size)})

    def set_subscription_expiration_time(self, scope: str, minutes: int) -> None:
        """Delete subscriptions without a consumer for more than this many *minutes*; 0 = never."""
        self.set_policy(scope, "subscription_expiration_minutes", _limit(minutes))

    def set_delayed_delivery(self, scope: str, active: bool, tick_ms: int = 1000, max_delay_ms: int = 0) -> None:
        """Set whether (*active*) Shared and Key_Shared subscriptions respect deliver times. If not, all messages are
        delivered at once, including those that wait already.

        *tick_ms* is the least time between two rounds that the broker runs only for due messages, so a message may be
        this late; none is early, unlike in Pulsar. Producers refuse messages whose deliver time is more than
        *max_delay_ms* after their publish time (0 = no limit) while delays are active. Rows that SQL inserts and retry
        letters are not checked.
        """
        check_type(bool, active, "active")
        check_type(int, max_delay_ms, "max_delay_ms")
        if _limit(tick_ms) < 1:
            raise InvalidConfiguration(f"tick_ms {tick_ms!r}: give at least 1")
        policies: dict[str, str | None] = {
            DELAYED_DELIVERY_ACTIVE: str(int(active)),
            DELAYED_DELIVERY_TICK_MS: str(tick_ms),
            DELAYED_DELIVERY_MAX_DELAY_MS: str(_limit(max_delay_ms)),
        }
        self._ask_policies(scope, policies)

    def get_delayed_delivery(self, scope: str) -> dict | None:
        """``active``, ``tickTime`` and ``maxDeliveryDelayInMillis`` as set on a namespace or topic, or None."""
        found = self.get_policies(scope)
        if DELAYED_DELIVERY_ACTIVE not in found:
            return None
        tick_ms, max_delay_ms = (
            policy_number(name, found.get(name, ""))
            for name in (DELAYED_DELIVERY_TICK_MS, DELAYED_DELIVERY_MAX_DELAY_MS)
        )
        return {
            "active": found[DELAYED_DELIVERY_ACTIVE] != "0",
            "tickTime": tick_ms,
            "maxDeliveryDelayInMillis": max_delay_ms,
        }

    def set_deduplication(self, scope: str, enabled: bool) -> None:
        """Set whether (*enabled*) repeated messages are dropped by producer name and sequence id, from now on."""
        check_type(bool, enabled, "enabled")
        self.set_policy(scope, DEDUPLICATION, int(enabled))

    def get_deduplication(self, scope: str) -> bool | None:
        """Whether deduplication is on for *scope* itself; None if nothing is set there."""
        found = self.get_policies(scope).get(DEDUPLICATION)
        return None if found is None else policy_number(DEDUPLICATION, found) == 1

    def set_compaction_threshold(self, scope: str, threshold: int) -> None:
        """Set the uncompacted bytes (*threshold*) above which a broker compacts a topic automatically; 0 = never."""
        self.set_policy(scope, COMPACTION_THRESHOLD, _limit(threshold))

    def set_max_unacked_per_consumer(self, namespace: str, limit: int) -> None:
        """Set how many unacknowledged messages (*limit*) a Shared consumer of the *namespace* may hold; 0 = no
        limit."""
        self.set_policy(namespace, "max_unacked_messages_per_consumer", _limit(limit))

    def set_max_unacked_per_subscription(self, namespace: str, limit: int) -> None:
        """Set how many unacknowledged messages (*limit*) a Shared subscription of the *namespace* may have; 0 = no
        limit."""
        self.set_policy(namespace, "max_unacked_messages_per_subscription", _limit(limit))

    def set_max_consumers_per_subscription(self, namespace: str, limit: int) -> None:
        """Set how many consumers (*limit*) a subscription of the *namespace* may have; 0 = no limit."""
        self.set_policy(namespace, "max_consumers_per_subscription", _limit(limit))

    get_message_ttl, remove_message_ttl = _getter("message_ttl"), _remover("message_ttl")
    get_backlog_quota, remove_backlog_quota = _getter("backlog_quota"), _remover("backlog_quota")
    get_retention, remove_retention = _getter("retention"), _remover("retention")
    get_subscription_expiration_time = _getter("subscription_expiration_time")
    remove_subscription_expiration_time = _remover("subscription_expiration_time")
    get_max_unacked_per_consumer = _getter("max_unacked_per_consumer")
    remove_max_unacked_per_consumer = _remover("max_unacked_per_consumer")
    get_max_unacked_per_subscription = _getter("max_unacked_per_subscription")
    remove_max_unacked_per_subscription = _remover("max_unacked_per_subscription")
    get_max_consumers_per_subscription = _getter("max_consumers_per_subscription")
    remove_max_consumers_per_subscription = _remover("max_consumers_per_subscription")
    get_compaction_threshold = _getter("compaction_threshold")
    remove_compaction_threshold = _remover("compaction_threshold")
    remove_delayed_delivery, remove_deduplication = _remover("delayed_delivery"), _remover("deduplication")

    def _ask_policies(self, scope: str, policies: dict[str, str | None]) -> None:
        """In one round; None removes a policy."""
        for name, value in policies.items():
            check_policy(name, value)
        owner = self._owner(scope)
        of_topic, where = ({"topic": owner}, {}) if _is_topic(scope) else ({}, {"namespace": owner})
        self._requester.ask(
            [
                {
                    "kind": "policy",
                    **of_topic,
                    "properties": {"name": name} | ({} if value is None else {"value": value}) | where,
                }
                for name, value in policies.items()
            ]
        )

    def _owner(self, scope: str) -> str:
        if _is_topic(scope):
            return str(read_topic(self.layout, scope).name)
        if scope != BROKER:
            parse_namespace(scope)
        require_root(self.layout)
        return scope if scope == BROKER else "/".join(check_namespace(self.layout, scope))


def _is_topic(scope: str) -> bool:
    """Other types count as namespaces, and are refused as such."""
    return isinstance(scope, str) and scope != BROKER and ("://" in scope or scope.count("/") != 1)


def _limit(limit: int) -> int:
    if not isinstance(limit, int) or isinstance(limit, bool) or limit < 0:
        raise InvalidConfiguration(f"limit {limit!r}: give a number, 0 for no limit")
    return limit
