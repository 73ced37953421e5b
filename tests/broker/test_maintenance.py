"""Quotas of size and time on real tables, when a broker looks, and what it says to producers; what outlives it of how
long subscriptions are idle.

Time to live itself, and the end of idle subscriptions, are in the specification.
"""

from datetime import UTC, datetime

import pytest

from pulsar_spark.broker.applying import absorb
from pulsar_spark.broker.bundle.load_bundle import load_bundle
from pulsar_spark.broker.committing import snapshots
from pulsar_spark.protocol.policies.policies import BACKLOG_EXCEEDED
from pulsar_spark.storage.cursor_ledger.cursor_ledger import read_latest
from pulsar_spark.storage.ledgers import publish_times
from pulsar_spark.storage.topics.topics import delete_topic
from pulsar_spark.table_specs import MESSAGES
from tests.support.model import Model
from tests.support.next_due import next_due
from tests.support.requests import On, request
from tests.support.spark_engine import SparkEngine

TOPIC = "persistent://public/default/t"
ON, SLOW = On(TOPIC), On(TOPIC, subscription="slow")
FILES = 10


def fill(engine: SparkEngine, now_ms: int) -> int:
    """Ten files of ten entries; the bytes they take, alike but for some."""
    for _ in range(FILES):
        engine.publish(TOPIC, -1, [1] * 10, publish_time_ms=now_ms)
    engine.round([], now_ms)
    return sum(run.bytes for run in engine.rounds.bundle.topic(TOPIC).ledgers(-1).runs)


def exceeded(engine: SparkEngine) -> str | None:
    return engine.latest.policies.get((TOPIC, BACKLOG_EXCEEDED))


def mark_deletes(engine: SparkEngine) -> list[int]:
    return [engine.state(TOPIC, -1, name)["mark_delete_position"] for name in ("s", "slow")]


def test_eviction_by_size_leaves_nine_tenths_to_the_slowest(engine):
    engine.round(
        [
            ON.create_subscription("Earliest"),
            SLOW.create_subscription("Earliest"),
            ON.policy("backlog_quota_policy", "consumer_backlog_eviction"),
        ],
        0,
    )
    size = fill(engine, 0)
    engine.round([ON.ack(0, 79), ON.policy("backlog_quota_bytes", size)], 1)
    assert mark_deletes(engine) == [79, -1], "at the limit is not above it"
    engine.round([ON.policy("backlog_quota_bytes", -(-size // 2))], 60_001)
    assert mark_deletes(engine) == [79, 54], "55 entries of 100 are dropped, 45 are nine tenths of a half"
    assert exceeded(engine) is None


def test_a_consumer_of_what_is_evicted_is_told_nothing_and_goes_on_behind_it(engine):
    engine.round(
        [ON.subscribe("A"), ON.flow("A", 3), ON.policy("backlog_quota_policy", "consumer_backlog_eviction")], 0
    )
    size = fill(engine, 0)
    result = engine.round([ON.policy("backlog_quota_bytes", -(-size // 2)), ON.flow("A", 2)], 60_000)
    assert [delivery.position for delivery in result["deliveries"]] == [55, 56]
    assert engine.state(TOPIC, -1, "s")["consumers"]["A"]["unacked"] == 2


@pytest.mark.parametrize("policy", ["producer_request_hold", "producer_exception"])
def test_producers_are_told_and_told_otherwise_a_second_after_the_backlog_is_gone(engine, policy):
    engine.round(
        [
            ON.create_subscription("Earliest"),
            ON.policy("backlog_quota_policy", policy),
            ON.policy("backlog_quota_bytes", 100),
        ],
        0,
    )
    assert exceeded(engine) is None
    fill(engine, 60_000)
    assert exceeded(engine) == "true"
    assert load_bundle(engine.layout).policies[TOPIC, BACKLOG_EXCEEDED] == "true", "it outlives the broker"
    engine.round([ON.clear_backlog()], 60_500)
    assert (exceeded(engine), next_due(engine.rounds.bundle, 60_500_000)) == ("true", 61_000_000)
    engine.round([], 61_000)
    assert exceeded(engine) == "false"
    assert next_due(engine.rounds.bundle, 61_000_000) == 121_000_000


def test_a_quota_of_time_looks_at_the_oldest_entry(engine):
    engine.round(
        [
            ON.create_subscription("Earliest"),
            SLOW.create_subscription("Earliest"),
            ON.policy("backlog_quota_seconds", 100),
        ],
        0,
    )
    fill(engine, 0)
    engine.round([ON.ack(0, 99)], 60_000)
    assert exceeded(engine) is None
    engine.round([], 120_000)
    assert exceeded(engine) == "true"
    engine.round([SLOW.clear_backlog()], 120_001)
    engine.round([], 121_001)
    assert exceeded(engine) == "false"


def test_a_quota_taken_away_or_a_topic_gone_holds_nobody(engine):
    engine.round([ON.create_subscription("Earliest"), ON.policy("backlog_quota_bytes", 100)], 0)
    fill(engine, 60_000)
    engine.round([ON.policy("backlog_quota_bytes", 0)], 61_000)
    assert exceeded(engine) == "false"
    assert next_due(engine.rounds.bundle, 61_000_000) is None
    engine.round([ON.policy("backlog_quota_bytes", 100)], 62_000)
    engine.round([], 122_000)
    assert exceeded(engine) == "true"
    delete_topic(engine.layout, TOPIC)
    engine.round([], 123_000)
    assert exceeded(engine) == "false"


def test_a_topic_made_again_has_none_of_the_policies_of_the_one_deleted(engine):
    engine.round([ON.policy("message_ttl_seconds", 5), ON.policy("max_consumers_per_subscription", 1)], 0)
    delete_topic(engine.layout, TOPIC)
    engine.create_topic(TOPIC)
    engine.round([ON.policy("max_consumers_per_subscription", 2)], 1)
    assert engine.latest.policies == {(TOPIC, "max_consumers_per_subscription"): "2"}
    engine.start()
    assert engine.rounds.bundle.policies == {(TOPIC, "max_consumers_per_subscription"): "2"}


@pytest.mark.parametrize("is_made_again", [True, False])
def test_nor_has_one_that_was_deleted_while_no_broker_ran(engine, is_made_again):
    of_namespace = {"name": "ttl_check_seconds", "value": "7", "namespace": "public/default"}
    engine.round([ON.policy("message_ttl_seconds", 5), request("policy", properties=of_namespace)], 0)
    delete_topic(engine.layout, TOPIC)
    if is_made_again:
        engine.create_topic(TOPIC)
    for _ in range(2):
        engine.start()
        assert engine.rounds.bundle.policies == {("public/default", "ttl_check_seconds"): "7"}
        engine.rounds.take_over()
        assert read_latest(engine.layout).policies == {("public/default", "ttl_check_seconds"): "7"}


def test_a_topic_without_subscriptions_has_no_backlog(engine):
    engine.round([ON.policy("backlog_quota_bytes", 1), ON.policy("backlog_quota_seconds", 1)], 0)
    fill(engine, 0)
    engine.round([], 60_000)
    assert exceeded(engine) is None


def test_the_namespace_s_policy_holds_for_its_topics_and_theirs_goes_before(engine):
    other = "persistent://public/other/t"
    engine.create_topic(other)
    policy = dict(ON.policy("message_ttl_seconds", 1), topic=None)
    policy["properties"] = {**policy["properties"], "namespace": "public/default"}
    engine.publish(TOPIC, -1, [1], publish_time_ms=0)
    engine.publish(other, -1, [1], publish_time_ms=0)
    engine.round([ON.create_subscription("Earliest"), On(other).create_subscription("Earliest"), policy], 0)
    engine.round([], 60_000)
    assert engine.state(TOPIC, -1, "s")["mark_delete_position"] == 0
    assert engine.state(other, -1, "s")["mark_delete_position"] == -1
    engine.publish(TOPIC, -1, [1], publish_time_ms=60_000)
    engine.round([ON.policy("message_ttl_seconds", 0)], 61_000)
    engine.round([], 200_000)
    assert engine.state(TOPIC, -1, "s")["mark_delete_position"] == 0


def test_the_root_s_policy_holds_where_topic_and_namespace_have_none(engine):
    other = "persistent://public/other/t"
    engine.create_topic(other)

    def policy(owner: str, seconds: int) -> dict:
        given = dict(ON.policy("message_ttl_seconds", seconds), topic=None)
        return given | {"properties": {**given["properties"], "namespace": owner}}

    engine.publish(TOPIC, -1, [1], publish_time_ms=0)
    engine.publish(other, -1, [1], publish_time_ms=0)
    subscribed = [ON.create_subscription("Earliest"), On(other).create_subscription("Earliest")]
    engine.round([*subscribed, policy("broker", 1), policy("public/other", 0)], 0)
    engine.round([], 60_000)
    assert engine.state(TOPIC, -1, "s")["mark_delete_position"] == 0
    assert engine.state(other, -1, "s")["mark_delete_position"] == -1


def test_a_broker_that_starts_finds_the_entries_it_left(engine):
    engine.publish(TOPIC, -1, [1, 1, 1], publish_time_ms=0, deliver_at_ms=[None, 4000, None])
    engine.round(
        [ON.create_subscription("Earliest"), ON.policy("message_ttl_seconds", 1), ON.policy("ttl_check_seconds", 1)], 0
    )
    for second, requests in enumerate(
        [[ON.subscribe("A"), ON.flow("A", 1)], [], [], [ON.flow("A", 1)], [], []], start=1
    ):
        engine.round(requests, 1000 * second)
        mine, found = (
            next(iter(bundle.cursors.values())) for bundle in (engine.rounds.bundle, load_bundle(engine.layout))
        )
        assert list(found.ranges()) == list(mine.ranges())
        assert (found.mark_delete, found.read_position) == (mine.mark_delete, mine.read_position)
    assert mine.mark_delete == 2


@pytest.mark.parametrize("files", [1, 2])
@pytest.mark.parametrize("entries, is_connected, mark_delete", [(999, True, -1), (1000, True, 999), (999, False, 998)])
def test_publish_times_out_of_order_spare_small_backlogs_of_consumers(
    engine, files, entries, is_connected, mark_delete
):
    """While the oldest entry is not due nothing expires of them, whatever is due behind it (3.29)."""
    model, times = Model(), [5_000] + [1_000] * (entries - 1)
    model.create_topic(TOPIC)
    for at in times:
        model.publish(TOPIC, -1, [1], publish_time_ms=at)
    for file in [times] if files == 1 else [times[:1], times[1:]]:
        publish_file(engine, file)
    for broker in (model, engine):
        broker.round(
            [
                ON.subscribe("A") if is_connected else ON.create_subscription("Earliest"),
                ON.policy("message_ttl_seconds", 2),
            ],
            5_000,
        )
        assert broker.state(TOPIC, -1, "s")["mark_delete_position"] == mark_delete
        broker.round([], 67_000)
        assert broker.state(TOPIC, -1, "s")["mark_delete_position"] == entries - 1, "the oldest is due as well"


def publish_file(engine: SparkEngine, times_ms: list[int]) -> None:
    """One commit of an entry for each publish time."""
    engine.tables[TOPIC].append(
        MESSAGES.rows(
            [
                dict(
                    publish_id=f"{times_ms[-1]:032x}",
                    entry_id=number,
                    batch_size=1,
                    partition=-1,
                    publish_time=datetime.fromtimestamp(at / 1000, UTC),
                    payload=b"x",
                )
                for number, at in enumerate(times_ms)
            ]
        )
    )


def test_publish_times_in_order_are_not_read_again(engine, monkeypatch):
    """The file whose times lie on both sides of the instant is the only one read, as ever."""
    for second in (1, 2):
        engine.publish(TOPIC, -1, [1, 1], publish_time_ms=1000 * second)
    engine.round([ON.subscribe("A"), ON.policy("message_ttl_seconds", 10), ON.policy("ttl_check_seconds", 1)], 2_000)
    monkeypatch.setattr(publish_times.EntryReader, "read", lambda *_, **__: pytest.fail("a file is read"))
    for second, mark_delete in ((11, -1), (12, 1), (13, 3)):
        engine.round([], 1000 * second)
        engine.round([], 1000 * second)
        assert engine.state(TOPIC, -1, "s")["mark_delete_position"] == mark_delete


def subscriptions(engine: SparkEngine, topic: str = TOPIC) -> list[tuple[int, str]]:
    return sorted(
        (key.partition, key.subscription) for key in engine.latest.cursors if key.topic_id == engine.topic_ids[topic]
    )


def test_a_consumer_of_one_partition_keeps_its_subscription_on_all(engine):
    """Where the cursor of a partition was missing, a consumer that comes back would begin again there and miss its
    backlog (3.31)."""
    topic = "persistent://public/default/p"
    engine.create_topic(topic, 2)
    first, second = On(topic, 0), On(topic, 1)
    engine.round(
        [
            first.subscribe("A", lease_ms=10**7),
            second.create_subscription(),
            first.policy("subscription_expiration_minutes", 1),
        ],
        0,
    )
    engine.round([], 1_000_000)
    assert subscriptions(engine, topic) == [(0, "s"), (1, "s")]
    engine.round([first.close("A")], 1_000_001)
    engine.round([second.subscribe("B"), second.close("B")], 1_060_001)
    engine.round([], 1_120_001)
    assert subscriptions(engine, topic) == [(0, "s"), (1, "s")]
    engine.round([], 1_180_002)
    assert subscriptions(engine, topic) == []
    assert load_bundle(engine.layout).cursors == {}


@pytest.mark.parametrize("is_snapshot", [False, True])
def test_how_long_a_subscription_is_idle_outlives_the_broker(engine, monkeypatch, is_snapshot):
    monkeypatch.setattr(snapshots, "SNAPSHOT_EVERY", 2 if is_snapshot else 1000)
    engine.round(
        [ON.subscribe("A"), ON.policy("subscription_expiration_minutes", 1), ON.policy("ttl_check_seconds", 1)], 0
    )
    engine.round([ON.close("A")], 5_000)
    engine.restart(50_000)
    engine.round([], 65_000)
    assert subscriptions(engine) == [(-1, "s")]
    assert next_due(engine.rounds.bundle, 65_000_000) == 66_000_000
    engine.round([], 66_000)
    assert subscriptions(engine) == []
    assert next_due(engine.rounds.bundle, 66_000_000) == 67_000_000


def test_subscriptions_of_an_older_release_are_idle_from_when_a_broker_sees_them(engine, monkeypatch):
    monkeypatch.setattr(snapshots, "cursor_row", lambda cursor: absorb.cursor_row(cursor) | {"round_time": None})
    monkeypatch.setattr(
        absorb, "cursor_row", lambda cursor, cursor_row=absorb.cursor_row: cursor_row(cursor) | {"round_time": None}
    )
    engine.round(
        [ON.create_subscription(), ON.policy("subscription_expiration_minutes", 1), ON.policy("ttl_check_seconds", 1)],
        0,
    )
    monkeypatch.undo()
    engine.restart(500_000)
    engine.restart(550_000)
    engine.round([], 560_000)
    assert subscriptions(engine) == [(-1, "s")]
    engine.round([], 560_001)
    assert subscriptions(engine) == [(-1, "s")], "it is not yet time to look"
    engine.round([], 561_000)
    assert subscriptions(engine) == []


def test_what_was_asked_of_a_subscription_in_the_round_that_deletes_it_is_forgotten(engine):
    engine.publish(TOPIC, -1, [1, 4], publish_time_ms=0)
    engine.round(
        [
            ON.create_subscription("Earliest"),
            ON.policy("subscription_expiration_minutes", 1),
            ON.policy("message_ttl_seconds", 1),
        ],
        0,
    )
    result = engine.round(
        [ON.ack(0, receipt=True), ON.ack(1, ack_set=[1]), ON.seek(1), ON.create_subscription()], 60_001
    )
    assert [reply.error for reply in result["replies"]] == [None, None, "NotAllowedError"]
    assert subscriptions(engine) == []
    assert load_bundle(engine.layout).cursors == {}
