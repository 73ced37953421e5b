"""The effect and unit of each policy, short enough for one line of 80 columns with name and default."""

from typing import NamedTuple

from pulsar_spark.protocol.delays.durations import shown_seconds
from pulsar_spark.protocol.policies.policies import CHECK_SECONDS, CHECKED, default_text

_NAMES, _DEFAULTS = 37, 7


class Description(NamedTuple):
    """A unit, empty if the value is a name, and the effect in a few words."""

    unit: str
    text: str


_DESCRIPTIONS = {
    "max_unacked_messages_per_consumer": ("msgs", "a Shared consumer may hold"),
    "max_unacked_messages_per_subscription": ("msgs", "its consumers may hold"),
    "max_consumers_per_subscription": ("", "consumers at once, 0 = any"),
    "active_consumer_failover_delay_ms": ("ms", "until the next takes over"),
    "message_ttl_seconds": ("s", "then messages expire"),
    "ttl_check_seconds": ("s", "between two looks at these"),
    "backlog_quota_bytes": ("bytes", "largest backlog, 0 = any"),
    "backlog_quota_seconds": ("s", "oldest backlog, 0 = any"),
    "backlog_quota_policy": ("", "what a full backlog does"),
    "retention_seconds": ("s", "keep acknowledged; -1 ever"),
    "retention_bytes": ("bytes", "keep of these; -1 all"),
    "subscription_expiration_minutes": ("min", "idle ones are deleted"),
    "max_message_size": ("bytes", "of a message or a chunk"),
    "delayed_delivery_active": ("on/off", "deliver times count"),
    "delayed_delivery_tick_ms": ("ms", "how late what is due may be"),
    "delayed_delivery_max_delay_ms": ("ms", "longest delay, 0 = any"),
    "subscription_key_shared_use_consistent_hashing": ("on/off", "keys by a ring"),
    "subscription_key_shared_consistent_hashing_replica_points": ("", "per consumer"),
    "subscription_key_shared_one_owner_per_point": ("on/off", "points have 1 owner"),
    "subscription_key_shared_use_classic_persistent_implementation": ("on/off", "as in 3.x"),
    "key_shared_look_ahead_msg_in_replay_threshold_per_consumer": ("msgs", "most"),
    "key_shared_look_ahead_msg_in_replay_threshold_per_subscription": ("msgs", "most"),
    "deduplication_enabled": ("on/off", "drop what is sent again"),
    "deduplication_producer_inactivity_timeout_minutes": ("min", "name forgotten"),
    "compaction_threshold": ("bytes", "until a broker compacts"),
    "topic_compaction_retain_null_key": ("on/off", "messages without key stay"),
    "housekeeping": ("on/off", "brokers keep tables small"),
    "history_retention_seconds": ("s", "history of rounds is kept"),
    "time_travel_retention_seconds": ("s", "old table versions kept"),
    "schema_compatibility_strategy": ("", "which new schemas fit"),
    "is_allow_auto_update_schema": ("on/off", "producers bring new schemas"),
    "schema_validation_enforced": ("on/off", "producers need a schema"),
}


def description(name: str) -> Description:
    """The unit and effect of a policy."""
    return Description(*_DESCRIPTIONS[name])


def takes_effect(name: str, check_seconds: int) -> str:
    """When a newly set policy takes effect, as the end of a sentence; empty if at once. The broker checks some every
    *check_seconds*.

    >>> takes_effect("retention_seconds", 60), takes_effect("max_message_size", 60)
    (", which takes effect when topics are trimmed ('pulsar-spark maintain trim')", '')
    """
    if name in CHECKED or name == CHECK_SECONDS:
        return (
            f", which takes effect at the next check of the broker, every {shown_seconds(check_seconds)} (policy "
            f"{CHECK_SECONDS})"
        )
    if name.startswith("retention_"):
        return ", which takes effect when topics are trimmed ('pulsar-spark maintain trim')"
    return ""


def policy_line(name: str) -> str:
    """A policy as one line: name, default, unit and effect.

    >>> print(policy_line("message_ttl_seconds"))
    message_ttl_seconds                        0 s       then messages expire
    """
    unit, text = description(name)
    default = default_text(name)
    first = f"{name} {default.rjust(_NAMES + _DEFAULTS - len(name) - 1)}"
    if len(first) > _NAMES + _DEFAULTS:
        return " ".join(filter(None, (first, unit, text)))
    return f"{first} {unit:7} {text}".rstrip()
