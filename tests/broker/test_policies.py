"""Policies that are set and removed: whose applies, and that what was removed comes back neither by a snapshot nor by a
restart."""

import pytest

from pulsar_spark.broker.bundle.load_bundle import load_bundle
from pulsar_spark.broker.committing import snapshots
from pulsar_spark.errors import ProducerBlockedQuotaExceededException
from pulsar_spark.link.quota import BacklogQuota
from pulsar_spark.protocol.policies.policies import POLICIES
from pulsar_spark.storage.cursor_ledger.cursor_ledger import read_latest
from pulsar_spark.storage.topics.topics import read_topic
from tests.support.requests import On, request
from tests.support.spark_engine import SparkEngine

TOPIC, NAMESPACE = "persistent://public/default/t", "public/default"
ON = On(TOPIC)
LIMIT = "max_consumers_per_subscription"


def of_namespace(name: str, **value: str) -> dict:
    """Set the namespace's policy to ``value=``, or remove it."""
    return request("policy", client="admin", properties={"namespace": NAMESPACE, "name": name, **value})


def applies(engine: SparkEngine) -> int:
    """What the running broker goes by, which is what one that starts now would."""
    started = load_bundle(engine.layout)
    assert (
        started.policies
        == engine.rounds.bundle.policies
        == read_latest(engine.layout).policies
        == engine.latest.policies
    )
    assert started.policy(TOPIC, LIMIT) == engine.rounds.bundle.policy(TOPIC, LIMIT)
    return started.policy(TOPIC, LIMIT)


@pytest.mark.parametrize("snapshot_every", [1, 2, 3, 50])
def test_without_its_own_the_namespace_s_applies_and_then_the_default(engine, monkeypatch, snapshot_every):
    monkeypatch.setattr(snapshots, "SNAPSHOT_EVERY", snapshot_every)
    seen = []
    for asked in (
        [of_namespace(LIMIT, value="5"), ON.policy(LIMIT, 3)],
        [ON.policy(LIMIT)],
        [ON.policy(LIMIT, 2)],
        [of_namespace(LIMIT)],
        [ON.policy(LIMIT), ON.policy(LIMIT, 1)],
        [ON.policy(LIMIT, 4), ON.policy(LIMIT)],
        [of_namespace(LIMIT)],
    ):
        engine.round(asked, 0)
        seen.append(applies(engine))
    assert seen == [3, 5, 2, 2, 1, POLICIES[LIMIT], POLICIES[LIMIT]]


@pytest.mark.parametrize("snapshot_every", [1, 50])
def test_producers_learn_of_it(engine, monkeypatch, snapshot_every):
    monkeypatch.setattr(snapshots, "SNAPSHOT_EVERY", snapshot_every)
    engine.publish(TOPIC, -1, [1, 1])
    engine.round(
        [
            ON.create_subscription("Earliest"),
            of_namespace("backlog_quota_policy", value="producer_exception"),
            ON.policy("backlog_quota_policy", "producer_request_hold"),
            ON.policy("backlog_quota_bytes", 1),
        ],
        0,
    )
    quota = BacklogQuota(engine.layout, read_topic(engine.layout, TOPIC))
    monkeypatch.setattr("pulsar_spark.link.quota.LOOK_SECONDS", 0.0)
    assert "above its quota for 0 s" in str(quota.refusal(0, lambda: False))
    engine.round([ON.policy("backlog_quota_policy")], 1)
    assert isinstance(quota.refusal(0, lambda: False), ProducerBlockedQuotaExceededException)
    engine.round([ON.policy("backlog_quota_bytes")], 1_001)
    assert quota.refusal(0, lambda: False) is None
