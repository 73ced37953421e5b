"""Policies of compaction, from the latest rows."""

from pulsar_spark.protocol.policies.policies import (
    COMPACTION_RETAIN_NULL_KEY,
    COMPACTION_THRESHOLD,
    policy_number,
    policy_owners,
    policy_text,
)
from pulsar_spark.storage.cursor_ledger.cursor_ledger import LatestRows, read_latest
from pulsar_spark.storage.layout import Layout
from pulsar_spark.storage.topics.bundles import layout_of
from pulsar_spark.storage.topics.topics import Topic


def retains_null_key(layout: Layout, topic: Topic) -> bool:
    latest = read_latest(layout_of(layout, topic.name), "policy")
    return _number(latest, str(topic.name), COMPACTION_RETAIN_NULL_KEY) == 1


def compaction_thresholds(layout: Layout) -> dict[str, int]:
    """The topics that a broker compacts by itself, by full name, and their thresholds in bytes."""
    latest = read_latest(layout, "policy", "topic")
    owners = {owner for owner, name in latest.policies if name == COMPACTION_THRESHOLD}
    names = {row["topic"] for row in latest.topics.values()}
    chosen = sorted(name for name in names if not owners.isdisjoint(policy_owners(name)))
    found = {name: _number(latest, name, COMPACTION_THRESHOLD) for name in chosen}
    return {name: threshold for name, threshold in found.items() if threshold}


def _number(latest: LatestRows, topic: str, name: str) -> int:
    return policy_number(name, policy_text(latest.policies, topic, name))
