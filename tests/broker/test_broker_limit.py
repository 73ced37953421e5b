"""The broker's limit of unacknowledged messages over restarts, with the same limit, another or none. The rule itself is
in the specification."""

import pytest

from pulsar_spark.admin import Admin
from pulsar_spark.protocol.policies.policies import BROKER, BROKER_BLOCKED
from tests.support.requests import On
from tests.support.spark_engine import SparkEngine, new_engine

TOPIC = "persistent://public/default/t"
ON, OTHER = On(TOPIC), On(TOPIC, subscription="other")
LIMIT = "max_unacked_messages_per_broker"


@pytest.fixture
def engine(tmp_path) -> SparkEngine:
    """A broker with a limit of 40, blocked with 25 out; of its two subscriptions one is held back with less than its
    share of 6."""
    engine = new_engine(None, tmp_path / "root", **{LIMIT: 40})
    engine.create_topic(TOPIC)
    engine.publish(TOPIC, -1, [1] * 60)
    engine.round(
        [on.subscribe(name, lease_ms=10**7) for on, name in ((ON, "A"), (OTHER, "B"))]
        + [ON.flow("A", 20), OTHER.flow("B", 20)],
        0,
    )
    engine.round([ON.ack(0, 14), ON.flow("A", 3), OTHER.flow("B", 3)], 1)
    assert held(engine) == {"s": 5, "other": 20}
    assert (engine.latest.policies, blocked(engine)) == ({(BROKER, BROKER_BLOCKED): "true"}, ["other", "s"])
    return engine


def blocked(engine: SparkEngine) -> list[str]:
    return [name for name in engine.subscriptions(TOPIC) if engine.state(TOPIC, -1, name)["is_blocked_by_broker"]]


def held(engine: SparkEngine) -> dict[str, int]:
    return {
        name: sum(consumer["unacked"] for consumer in engine.state(TOPIC, -1, name)["consumers"].values())
        for name in ("s", "other")
    }


@pytest.mark.parametrize("snapshots", [1, 1000])
def test_who_is_held_back_stays_so(engine, monkeypatch, snapshots):
    monkeypatch.setattr("pulsar_spark.broker.committing.snapshots.SNAPSHOT_EVERY", snapshots)
    engine.restart(2)
    engine.round([], 2)
    assert (blocked(engine), held(engine)) == (["other", "s"], {"s": 5, "other": 20})
    engine.round([OTHER.ack(0, 5)], 3)
    assert engine.latest.policies[BROKER, BROKER_BLOCKED] == "false"
    engine.restart(4)
    engine.round([], 4)
    assert (blocked(engine), held(engine)) == ([], {"s": 8, "other": 17})


def test_without_the_limit_nobody_is_held_back(engine):
    del engine.options[LIMIT]
    engine.restart(2)
    engine.round([], 2)
    assert (blocked(engine), held(engine)) == ([], {"s": 8, "other": 23})
    engine.options[LIMIT] = 40
    engine.restart(3)
    engine.committed()
    assert (engine.latest.policies[BROKER, BROKER_BLOCKED], blocked(engine)) == ("false", [])


def test_a_lower_limit_holds_from_the_start(engine):
    engine.round([ON.ack(15, 19), OTHER.ack(0, 9)], 2)
    engine.round([], 2)
    assert (blocked(engine), held(engine)) == ([], {"s": 3, "other": 13})
    engine.options[LIMIT] = 16
    engine.restart(3)
    engine.round([ON.flow("A", 1), OTHER.flow("B", 1)], 3)
    assert (blocked(engine), held(engine)) == (["other", "s"], {"s": 3, "other": 13})


def test_the_stats_say_who_is_held_back(engine):
    stats = Admin(f"delta:{engine.layout.root}").stats(TOPIC)
    assert [stats["subscriptions"][name]["blockedSubscriptionOnUnackedMsgs"] for name in ("s", "other")] == [True, True]
    engine.round([OTHER.ack(0, 19)], 2)
    stats = Admin(f"delta:{engine.layout.root}").stats(TOPIC)
    assert [stats["subscriptions"][name]["blockedSubscriptionOnUnackedMsgs"] for name in ("s", "other")] == [
        False,
        False,
    ]


def test_what_the_broker_says_of_itself_is_no_policy_of_a_namespace(engine):
    admin = Admin(f"delta:{engine.layout.root}")
    assert admin.get_policies("public/default") == admin.get_policies(TOPIC) == {}
