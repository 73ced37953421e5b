"""Policies: their names and values, and which one applies to a topic.

A topic's policy precedes its namespace's, then the root's (:data:`BROKER`, like ``broker.conf``), then the default. The
broker stores facts among them, under reserved names."""

import re
from collections.abc import Mapping, Sequence

from pulsar_spark.errors import InvalidConfiguration, shown
from pulsar_spark.protocol.chunks.chunking import MAX_MESSAGE_SIZE
from pulsar_spark.protocol.suggestions import close_names, did_you_mean

HOLD, REFUSE, EVICT = "producer_request_hold", "producer_exception", "consumer_backlog_eviction"
QUOTA_POLICIES = (HOLD, REFUSE, EVICT)

DELAYED_DELIVERY_ACTIVE, DELAYED_DELIVERY_TICK_MS, DELAYED_DELIVERY_MAX_DELAY_MS = (
    "delayed_delivery_active",
    "delayed_delivery_tick_ms",
    "delayed_delivery_max_delay_ms",
)
"""Policies of delayed delivery: whether it is active, the least time between rounds for due messages alone, and the
longest delay, 0 for no limit (:func:`max_delay_ms`)."""

HOUSEKEEPING, HISTORY_SECONDS, TIME_TRAVEL_SECONDS = (
    "housekeeping",
    "history_retention_seconds",
    "time_travel_retention_seconds",
)
"""Policies of housekeeping: whether brokers do it, and how long they keep old rounds and requests, and files and log
entries of older versions."""

SCHEMA_COMPATIBILITY_STRATEGY, ALLOW_AUTO_UPDATE_SCHEMA, SCHEMA_VALIDATION_ENFORCED = (
    "schema_compatibility_strategy",
    "is_allow_auto_update_schema",
    "schema_validation_enforced",
)
"""Policies of a topic's schemas (protocol.schemas.schema_compatibility)."""
SCHEMA_STRATEGIES = tuple(
    (
        "UNDEFINED ALWAYS_INCOMPATIBLE ALWAYS_COMPATIBLE BACKWARD FORWARD FULL BACKWARD_TRANSITIVE FORWARD_TRANSITIVE "
        "FULL_TRANSITIVE"
    ).split()
)

DEDUPLICATION, INACTIVITY_TIMEOUT = "deduplication_enabled", "deduplication_producer_inactivity_timeout_minutes"
"""Policies of deduplication: whether it is on, and when a producer's name is forgotten, 0 for never."""

COMPACTION_THRESHOLD, COMPACTION_RETAIN_NULL_KEY = "compaction_threshold", "topic_compaction_retain_null_key"
"""Policies of compaction: the uncompacted bytes above which a broker compacts a topic, 0 for never, and whether
messages without a key stay."""

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
    "max_message_size": MAX_MESSAGE_SIZE,
    DELAYED_DELIVERY_ACTIVE: 1,
    DELAYED_DELIVERY_TICK_MS: 1_000,
    DELAYED_DELIVERY_MAX_DELAY_MS: 0,
    "subscription_key_shared_use_consistent_hashing": 1,
    "subscription_key_shared_consistent_hashing_replica_points": 100,
    "subscription_key_shared_one_owner_per_point": 0,
    "subscription_key_shared_use_classic_persistent_implementation": 0,
    "key_shared_look_ahead_msg_in_replay_threshold_per_consumer": 2_000,
    "key_shared_look_ahead_msg_in_replay_threshold_per_subscription": 20_000,
    DEDUPLICATION: 0,
    INACTIVITY_TIMEOUT: 6 * 60,
    COMPACTION_THRESHOLD: 0,
    COMPACTION_RETAIN_NULL_KEY: 0,
    HOUSEKEEPING: 1,
    HISTORY_SECONDS: 7 * 24 * 60 * 60,
    TIME_TRAVEL_SECONDS: 7 * 24 * 60 * 60,
    SCHEMA_COMPATIBILITY_STRATEGY: "FULL",
    ALLOW_AUTO_UPDATE_SCHEMA: 1,
    SCHEMA_VALIDATION_ENFORCED: 0,
}
"""Policies and their defaults (see policy_descriptions). 0 is off, except in retention: 0 is none, -1 for ever."""

UNACKED_LIMITS = ("max_unacked_messages_per_consumer", "max_unacked_messages_per_subscription")

CHECK_SECONDS = "ttl_check_seconds"
"""The policy for how often a broker checks :data:`CHECKED`."""

CHECKED = ("message_ttl_seconds", "backlog_quota_bytes", "backlog_quota_seconds", "subscription_expiration_minutes")
"""Policies that take effect at a broker's check, every :data:`CHECK_SECONDS`."""

BACKLOG_EXCEEDED = "backlog_exceeded"
"""A fact, which users cannot set: whether a topic's producers are held or refused ("true" or "false")."""

TOPIC_STOPPED = "topic_stopped"
"""A fact: why a topic is stopped; absent otherwise."""

DEDUPLICATION_SINCE = "deduplication_since"
"""A fact: the round in which an owner's deduplication was last switched on."""

DEDUPLICATION_GOES_ON = "deduplication_goes_on"
"""A fact about an owner whose own policy was removed while its namespace or the root deduplicates: since when they do.
That period does not count for the owner."""

BROKER, BROKER_BLOCKED = "broker", "broker_dispatching_blocked"
"""The owner of a root's policies; and a fact about it: whether all its subscriptions together have too many
unacknowledged messages (see unacked_limit)."""

MOST_INT32 = (1 << 31) - 1
_MOST = {
    DELAYED_DELIVERY_MAX_DELAY_MS: 10**12,
    "_seconds": 10**9,
    "_minutes": 10**9 // 60,
    "_ms": 10**9,
    "_bytes": 10**18,
    COMPACTION_THRESHOLD: 10**18,
    COMPACTION_RETAIN_NULL_KEY: 1,
    "max_message_size": 1 << 30,
    "_use_consistent_hashing": 1,
    "_replica_points": 10_000,
    "_one_owner_per_point": 1,
    "_use_classic_persistent_implementation": 1,
    DEDUPLICATION: 1,
    HOUSEKEEPING: 1,
    ALLOW_AUTO_UPDATE_SCHEMA: 1,
    SCHEMA_VALIDATION_ENFORCED: 1,
}
_TEXTS = {"backlog_quota_policy": QUOTA_POLICIES, SCHEMA_COMPATIBILITY_STRATEGY: SCHEMA_STRATEGIES}
"""The values of policies that are not numbers."""
_NUMBER = re.compile("-?[0-9]{1,19}", re.ASCII)
_LEAST = {
    "ttl_check_seconds": 1,
    "max_message_size": 1,
    "retention_seconds": -1,
    "retention_bytes": -1,
    HISTORY_SECONDS: 60 * 60,
    TIME_TRAVEL_SECONDS: 60 * 60,
    "subscription_key_shared_consistent_hashing_replica_points": 1,
}


def check_policy(name: str | None, value: str | None) -> None:
    """:class:`InvalidConfiguration` for an unknown policy or an invalid value; None, which removes a policy, is valid.

    >>> check_policy("backlog_quota_policy", "drop")  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    pulsar_spark.errors.InvalidConfiguration: policy backlog_quota_policy: 'drop' is not one of ...
    """
    if name not in POLICIES:
        close = close_names(str(name), POLICIES)
        one = "use one that 'pulsar-spark policies list' shows"
        raise InvalidConfiguration(f"policy {shown(name)} is unknown: {one}{did_you_mean(close)}")
    if value is None:
        return
    if name in _TEXTS:
        if value not in _TEXTS[name]:
            raise InvalidConfiguration(f"policy {name}: {shown(value)} is not one of {values_of(name)}")
    elif not _NUMBER.fullmatch(value) or not _LEAST.get(name, 0) <= int(value) <= most_of(name):
        raise InvalidConfiguration(f"policy {name}: {shown(value)} is not {values_of(name)}")


def values_of(name: str) -> str:
    """The values a policy takes, in words."""
    if name in _TEXTS:
        return ", ".join(_TEXTS[name])
    return f"a whole number from {_LEAST.get(name, 0)} to {most_of(name)}"


def most_of(name: str) -> int:
    """The highest number a policy takes, by its unit; by default the highest Java int."""
    return next((most for ending, most in _MOST.items() if name.endswith(ending)), MOST_INT32)


def policy_owners(owner: str) -> tuple[str, ...]:
    """Whose policies apply to *owner*, by precedence: a topic (its full name), its namespace, the root.

    >>> policy_owners("persistent://public/default/t")
    ('persistent://public/default/t', 'public/default', 'broker')
    """
    if "://" not in owner:
        return (owner,) if owner == BROKER else (owner, BROKER)
    _, _, tenant, namespace, _ = owner.split("/")  # not parsed again: this runs for every topic
    return owner, f"{tenant}/{namespace}", BROKER


def set_policy_text(policies: Mapping[tuple[str, str], str], topic: str, name: str) -> str | None:
    """The policy set on the topic, else its namespace, else the root, else None. *policies* are texts by owner and
    name."""
    return next((policies[owner, name] for owner in policy_owners(topic) if (owner, name) in policies), None)


def policy_text(policies: Mapping[tuple[str, str], str], topic: str, name: str) -> str:
    """The policy of a topic by precedence, else the default.

    >>> topic, name = "persistent://public/default/t", "message_ttl_seconds"
    >>> policy_text({(topic, name): "1", ("public/default", name): "2"}, topic, name), policy_text({}, topic, name)
    ('1', '0')
    """
    found = set_policy_text(policies, topic, name)
    return default_text(name) if found is None else found


def default_text(name: str) -> str:
    return str(POLICIES[name])


def max_delay_ms(policies: Mapping[tuple[str, str], str], topic: str) -> int:
    """The longest delay after publish time (5.1, as in 4.x); 0 for no limit, or if delayed delivery is inactive.

    >>> topic, limited = "persistent://public/default/t", {("public/default", DELAYED_DELIVERY_MAX_DELAY_MS): "5000"}
    >>> max_delay_ms(limited, topic), max_delay_ms(limited | {(topic, DELAYED_DELIVERY_ACTIVE): "0"}, topic)
    (5000, 0)
    """
    if not policy_number(DELAYED_DELIVERY_ACTIVE, policy_text(policies, topic, DELAYED_DELIVERY_ACTIVE)):
        return 0
    return policy_number(DELAYED_DELIVERY_MAX_DELAY_MS, policy_text(policies, topic, DELAYED_DELIVERY_MAX_DELAY_MS))


def deduplication_since(policies: Mapping[tuple[str, str], str], topic: str) -> int | None:
    """The round since which a topic is deduplicated, or None. If the topic's own policy is on, changes of its
    namespace's do not matter.

    >>> topic, on = "persistent://public/default/t", {("public/default", DEDUPLICATION): "1"}
    >>> on[topic, DEDUPLICATION_SINCE], on["public/default", DEDUPLICATION_SINCE] = "5", "9"
    >>> deduplication_since(on, topic), deduplication_since(on | {(topic, DEDUPLICATION): "1"}, topic)
    (9, 5)
    """
    return _deduplication_since(policies, policy_owners(topic))


def _deduplication_since(policies: Mapping[tuple[str, str], str], owners: Sequence[str]) -> int | None:
    """:func:`deduplication_since` of the first of *owners*, by precedence."""
    set_by = next((owner for owner in owners if (owner, DEDUPLICATION) in policies), None)
    if set_by is None or not policy_number(DEDUPLICATION, policies[set_by, DEDUPLICATION]):
        return None
    own = int(policies.get((owners[0], DEDUPLICATION_SINCE), 0))
    if set_by == owners[0]:
        return own
    others = _deduplication_since(policies, owners[1:]) or 0
    return own if policies.get((owners[0], DEDUPLICATION_GOES_ON)) == str(others) else max(own, others)


def deduplication_marks(
    policies: Mapping[tuple[str, str], str], owner: str, value: str | None, round_number: int
) -> dict[str, str]:
    """The facts that a round stores for *owner* as its policy becomes *value* (None: removed). Deduplication that
    another policy had switched on continues.

    >>> topic, on = "persistent://public/default/t", {("public/default", DEDUPLICATION): "1"}
    >>> on["public/default", DEDUPLICATION_SINCE] = "5"
    >>> deduplication_marks({}, topic, "1", 9), deduplication_marks(on, topic, "1", 9)
    ({'deduplication_since': '9'}, {'deduplication_since': '5'})
    """
    owners = policy_owners(owner)
    wanted = {place: text for place, text in policies.items() if place != (owner, DEDUPLICATION)}
    if value is not None:
        wanted[owner, DEDUPLICATION] = value
    if _deduplication_since(wanted, owners) is None:
        return {}
    before = _deduplication_since(policies, owners)
    marks = {DEDUPLICATION_SINCE: str(round_number if before is None else before)}
    if value is None:
        marks[DEDUPLICATION_GOES_ON] = str(_deduplication_since(policies, owners[1:]))
    return marks


def is_number(name: str) -> bool:
    """Whether the values of the policy *name* are whole numbers.

    >>> is_number("ttl_check_seconds")
    True
    """
    return isinstance(POLICIES[name], int)


def default_number(name: str) -> int:
    return int(POLICIES[name])


def policy_number(name: str, text: str) -> int:
    """The number a policy was set to, cut to its range, because an earlier release allowed more.

    >>> policy_number("message_ttl_seconds", "60"), policy_number("message_ttl_seconds", "9" * 5000)
    (60, 1000000000)
    """
    if not _NUMBER.fullmatch(text):
        return most_of(name) if text.isdecimal() else int(POLICIES[name])
    return max(min(int(text), most_of(name)), _LEAST.get(name, 0))
