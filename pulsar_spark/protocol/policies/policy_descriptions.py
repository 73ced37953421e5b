"""The effect and unit of each policy, in one line of 80 columns and in sentences."""

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

_EFFECTS = {
    "max_unacked_messages_per_consumer": "A Shared or Key_Shared consumer with this many unacknowledged messages gets "
    "no more until half of them are acknowledged. 0: no limit.",
    "max_unacked_messages_per_subscription": "The same limit for all consumers of a Shared or Key_Shared subscription "
    "together. 0: no limit.",
    "max_consumers_per_subscription": "A further consumer is refused with ConsumerBusy. 0: no limit.",
    "active_consumer_failover_delay_ms": "How long the next consumer of a Failover subscription waits before it takes "
    "over.",
    "message_ttl_seconds": "Time to live: older messages expire, which acknowledges them on every subscription. 0: "
    "never.",
    "ttl_check_seconds": "How often the broker checks time to live, quotas and idle subscriptions.",
    "backlog_quota_bytes": "The largest backlog of a topic. 0: no limit.",
    "backlog_quota_seconds": "The greatest age of a message in the backlog. 0: no limit.",
    "backlog_quota_policy": "What a full backlog does: hold or refuse producers, or acknowledge the oldest messages.",
    "retention_seconds": "How long trimming keeps acknowledged messages. -1: forever.",
    "retention_bytes": "How many bytes of acknowledged messages trimming keeps. -1: all.",
    "subscription_expiration_minutes": "A subscription that had no consumers for so long is deleted. 0: never.",
    "max_message_size": "A larger message is refused, or sent in chunks. It also limits a chunk.",
    "delayed_delivery_active": "Whether Shared and Key_Shared subscriptions wait for deliver times.",
    "delayed_delivery_tick_ms": "The least time between two rounds that are run only for due messages.",
    "delayed_delivery_max_delay_ms": "A message with a longer delay is refused with NotAllowedError. 0: no limit.",
    "subscription_key_shared_use_consistent_hashing": "1: a ring of hashes decides which consumer owns a key. 0: "
    "ranges that are split in halves.",
    "subscription_key_shared_consistent_hashing_replica_points": "Points of each consumer on the ring.",
    "subscription_key_shared_one_owner_per_point": "1: each point of the ring has one owner, as in Pulsar 4.0. 0: "
    "several consumers may share a point, as in 3.2.",
    "subscription_key_shared_use_classic_persistent_implementation": "1: as in Pulsar 3.2, a new consumer gets no "
    "later message until all that were delivered before it joined are acknowledged. 0: only keys that move wait, each "
    "for its former consumer.",
    "key_shared_look_ahead_msg_in_replay_threshold_per_consumer": "A round looks past messages whose keys must wait, "
    "to find others: past this many for each consumer.",
    "key_shared_look_ahead_msg_in_replay_threshold_per_subscription": "The most messages that a round looks past for "
    "all consumers of a subscription together.",
    "deduplication_enabled": "Whether a message is dropped if its producer name has stored its sequence id or a "
    "higher one before.",
    "deduplication_producer_inactivity_timeout_minutes": "The sequence ids of a producer name that stored nothing for "
    "so long are forgotten. 0: never.",
    "compaction_threshold": "A broker compacts a topic once this many bytes are not compacted yet. 0: never.",
    "topic_compaction_retain_null_key": "Whether messages without a key stay in the compacted view.",
    "housekeeping": "Whether brokers join small files and remove old ones in the tables of these topics.",
    "history_retention_seconds": "How long the views history and rounds reach back.",
    "time_travel_retention_seconds": "How long older versions of a table can be read. For the broker's own tables the "
    "default is an hour, or the last 400 versions if they are younger.",
    "schema_compatibility_strategy": "Which new schemas fit those that the topic has.",
    "is_allow_auto_update_schema": "Whether producers may bring a new version of the schema.",
    "schema_validation_enforced": "Whether producers without a schema are refused.",
}


def description(name: str) -> Description:
    """The unit and effect of a policy."""
    return Description(*_DESCRIPTIONS[name])


def effect(name: str) -> str:
    """The effect of a policy, in sentences."""
    return _EFFECTS[name]


def holds_from(name: str) -> str:
    """When a newly set policy starts to apply, in a few words.

    >>> holds_from("message_ttl_seconds"), holds_from("max_message_size")
    ('the next check', 'the next round')
    """
    if name in CHECKED:
        return "the next check"
    if name.startswith("retention_"):
        return "the next trim"
    return "the next first consumer" if name.startswith("subscription_key_shared") else "the next round"


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
