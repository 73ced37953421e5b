"""A number of the whole root that differs from a topic's stats, or from what really happened, is found here."""

import shutil
from contextlib import closing
from datetime import timedelta

import pytest

import pulsar_spark as pulsar
from pulsar_spark.admin import Admin
from pulsar_spark.broker.bundle.split import split_bundle
from pulsar_spark.broker.upkeep.activity import ActivityUpkeep
from pulsar_spark.storage.delta.log import TableLog
from pulsar_spark.storage.layout import Layout
from pulsar_spark.storage.topics.bundles import layouts_of
from pulsar_spark.storage.topics.topics import prepare_root, read_topic
from pulsar_spark.testing.plain_broker import PlainBroker
from pulsar_spark.views.overview import Overview
from pulsar_spark.views.overview.published import PublishedIndex
from pulsar_spark.views.overview.rounds import round_state
from tests.broker.test_bundles import HIGH, LOW, both
from tests.support.waiting import DEADLINE_SECONDS, send

WAIT = DEADLINE_SECONDS * 1000
SHARED = {"consumer_type": pulsar.ConsumerType.Shared, "consumer_name": "worker"}
LETTERS = {"dead_letter_policy": pulsar.ConsumerDeadLetterPolicy(1), "negative_ack_redelivery_delay_ms": 60_000}
TOPIC = "persistent://public/default/t"


@pytest.fixture
def look(pulsar_broker, pulsar_clock):
    """Settle the broker, and look at its root at the clock's time."""
    overview = Overview(pulsar_broker.layout)

    def look():
        pulsar_broker.settle()
        return overview.look(pulsar_clock.now())

    return look


def of(root, subscription, topic=TOPIC, partition=None):
    """A subscription's sum, or its state on a *partition*."""
    found = root.totals if partition is None else root.subscriptions
    (state,) = (
        each
        for each in found
        if (each.topic, each.subscription) == (topic, subscription) and partition in (None, each.partition)
    )
    return state


NAMES = {
    "subscription_type": "type",
    "backlog": "msgBacklog",
    "delayed": "msgDelayed",
    "unacked": "unackedMessages",
    "oldest_unacked_seconds": "oldestUnackedSeconds",
    "delivered": "msgOutCounter",
    "redelivered": "msgRedeliverCounter",
    "waiting_letters": "waitingLetters",
    "letterless": "letterlessMessages",
}
NAMES_OF_CONSUMER = {
    "consumer_name": "consumerName",
    "permits": "availablePermits",
    "unacked": "unackedMessages",
    "delivered": "msgOutCounter",
    "redelivered": "msgRedeliverCounter",
    "is_blocked": "blockedConsumerOnUnackedMsgs",
}


def assert_as_in_stats(root, layout):
    """Each subscription has the numbers that the stats of its topic have."""
    admin = Admin(f"delta:{layout.root}")
    stats = {topic: admin.stats(topic) for topic in {state.topic for state in root.totals}}
    for state in root.totals:
        found = stats[state.topic]["subscriptions"][state.subscription]
        expected = {name: found[theirs] for name, theirs in NAMES.items() if not name.endswith("seconds")}
        expected["subscription_type"] = (expected["subscription_type"] or "").replace("_", "") or None
        assert {name: getattr(state, name) for name in expected} == expected
        assert (state.oldest_unacked_seconds is None) == (found["oldestUnackedSeconds"] is None)
        for consumer, theirs in zip(state.consumers, found["consumers"], strict=True):
            expected = {name: theirs[theirs_name] for name, theirs_name in NAMES_OF_CONSUMER.items()}
            assert {name: getattr(consumer, name) for name in expected} == expected


def test_the_numbers_of_a_subscription(pulsar_client, pulsar_broker, pulsar_clock, look):
    consumer = pulsar_client.subscribe("t", "s", **SHARED, **LETTERS)
    pulsar_client.subscribe("t", "idle").close()
    producer = pulsar_client.create_producer("t")
    for number in range(4):
        producer.send(b"%d" % number)
    producer.send(b"later", deliver_after=timedelta(minutes=5))
    first, second = consumer.receive(WAIT), consumer.receive(WAIT)
    consumer.acknowledge(first)
    consumer.negative_acknowledge(second)
    rounds = look().rounds
    pulsar_clock.advance(seconds=30)
    root = look()
    state = of(root, "s")
    assert (state.backlog, state.delayed, state.backlog_no_delayed, state.unacked) == (4, 1, 3, 3)
    assert (state.delivered, state.redelivered, state.blocked) == (4, 0, None)
    assert 30 <= state.backlog_age_seconds <= 60 and 30 <= state.oldest_unacked_seconds <= 60
    assert (of(root, "idle").backlog, of(root, "idle").blocked) == (5, "no_consumers")
    assert [each.subscription for each in root.totals] == ["idle", "s"], "the worst backlog comes first"
    assert (root.topics[0].entries, root.topics[0].messages, root.topics[0].subscriptions) == (5, 5, 2)
    assert root.brokers[0].is_serving and root.brokers[0].round == [*rounds, *root.rounds][-1].round
    assert_as_in_stats(root, pulsar_broker.layout)


def test_age_is_that_of_the_oldest_entry_that_is_not_delayed(pulsar_client, pulsar_clock, look):
    consumer = pulsar_client.subscribe("t", "s", **SHARED)
    producer = pulsar_client.create_producer("t")
    producer.send(b"later", deliver_after=timedelta(minutes=5))
    look()
    consumer.close()
    assert (of(look(), "s").backlog_age_seconds, of(look(), "s").blocked) == (None, "all_delayed")
    pulsar_clock.advance(minutes=1)
    producer.send(b"now")
    pulsar_clock.advance(minutes=1)
    assert 60 <= of(look(), "s").backlog_age_seconds < 120
    pulsar_clock.advance(minutes=4)
    state = of(look(), "s")
    assert (state.delayed, state.blocked) == (0, "no_consumers"), "time alone changes it"
    assert 360 <= state.backlog_age_seconds < 400, "the delayed one is due, and the oldest"


def test_why_a_backlog_is_not_delivered(pulsar_client, pulsar_broker, look):
    pulsar_client.subscribe("t", "full", pulsar.ConsumerType.Shared, receiver_queue_size=2)
    pulsar_client.subscribe("t", "limited", pulsar.ConsumerType.Shared)
    with pulsar_broker.paused():
        pulsar_broker.rounds.bundle.set_policy(TOPIC, "max_unacked_messages_per_consumer", "1")
    producer = pulsar_client.create_producer("t")
    for _ in range(3):
        producer.send(b"x")
        look()
    root = look()
    assert of(root, "full").blocked in ("no_permits", "unacked_limit")
    limited = of(root, "limited")
    assert (limited.blocked, limited.unacked, limited.consumers[0].is_blocked) == ("unacked_limit", 1, True)


def test_without_a_broker_nothing_that_waits_is_delivered(pulsar_client, pulsar_broker, pulsar_clock, look):
    for name in ("idle", "empty"):
        pulsar_client.subscribe("t" if name == "idle" else "u", name).close()
    send(pulsar_client, "t", "a")
    assert of(look(), "idle").blocked == "no_consumers"
    overview = Overview(pulsar_broker.layout)
    overview.look(pulsar_clock.now())
    pulsar_broker.close()
    root = overview.look(pulsar_clock.now())
    assert of(root, "idle").blocked == "no_broker"
    assert of(root, "empty", "persistent://public/default/u").blocked is None


def test_keys_that_drain(pulsar_client, pulsar_broker, look):
    kept = {"consumer_type": pulsar.ConsumerType.KeyShared, "receiver_queue_size": 1000}
    first = pulsar_client.subscribe("t", "keys", consumer_name="first", **kept)
    producer = pulsar_client.create_producer("t")
    for number in range(20):
        producer.send(b"x", partition_key=f"key {number}")
    pulsar_broker.settle()
    second = pulsar_client.subscribe("t", "keys", consumer_name="second", **kept)
    pulsar_broker.settle()
    for number in range(20):
        producer.send(b"y", partition_key=f"key {number}")
    state = of(look(), "keys")
    assert state.blocked == "key_drains" and state.backlog > state.unacked
    for _ in range(20):
        first.acknowledge(first.receive(WAIT))
    assert of(look(), "keys").blocked is None
    second.close()


def test_partitions_are_summed(pulsar_client, pulsar_broker, look):
    Admin(pulsar_broker.service_url).create_partitioned_topic("parts", 3)
    consumer = pulsar_client.subscribe("parts", "s", **SHARED)
    send(pulsar_client, "parts", *"abcdef")
    root = look()
    parts = [each for each in root.subscriptions if each.subscription == "s"]
    state = of(root, "s", "persistent://public/default/parts")
    assert [each.partition for each in sorted(parts, key=lambda each: each.partition)] == [0, 1, 2]
    assert (state.partition, state.backlog, state.unacked, state.delivered) == (None, 6, 6, 6)
    assert (len(state.consumers), state.consumers[0].unacked) == (1, 6)
    assert sum(each.messages for each in root.topics) == 6
    assert_as_in_stats(root, pulsar_broker.layout)
    consumer.close()


def test_rates_are_differences_between_looks(pulsar_client, pulsar_broker, pulsar_clock):
    consumer = pulsar_client.subscribe("t", "s", **SHARED)
    send(pulsar_client, "t", *"abcdef")
    pulsar_broker.settle()
    overview = Overview(pulsar_broker.layout)
    state = of(overview.look(pulsar_clock.now()), "s")
    assert (state.rate_in, state.rate_out) == (0.1, 0.1), "at first of the last minute"
    assert state.consumers[0].rate_out == 0.1
    pulsar_clock.advance(seconds=60)
    overview.look(pulsar_clock.now())
    before = pulsar_clock.now()
    send(pulsar_client, "t", "g", "h")
    pulsar_broker.settle()
    pulsar_clock.advance(seconds=20)
    now = pulsar_clock.now()
    state = of(overview.look(now), "s")
    seconds = (now - before).total_seconds()
    assert state.rate_out == pytest.approx(2 / seconds, rel=0.1) == state.rate_in
    consumer.close()


def test_what_was_published_is_counted_after_a_look_that_failed(pulsar_client, pulsar_broker, look, monkeypatch):
    pulsar_client.subscribe("t", "s").close()
    send(pulsar_client, "t", "a")
    assert look().topics[0].messages == 1
    read, calls = PublishedIndex._rows_of, []

    def fail_at_second(self, commit):
        calls.append(commit)
        if len(calls) == 2:
            raise OSError("the disk is gone for a moment")
        return read(self, commit)

    monkeypatch.setattr(PublishedIndex, "_rows_of", fail_at_second)
    for text in "bc":
        send(pulsar_client, "t", text)
        pulsar_broker.settle()
    with pytest.raises(OSError):
        look()
    assert look().topics[0].messages == 3


def test_a_topic_that_is_deleted_is_gone(pulsar_client, pulsar_broker, look):
    for name in ("t", "u"):
        pulsar_client.subscribe(name, "s").close()
        send(pulsar_client, name, "a")
    assert len(look().totals) == 2
    Admin(pulsar_broker.service_url).delete_topic("u", force=True)
    root = look()
    assert [each.topic for each in root.topics] == [TOPIC] == [each.topic for each in root.totals]


def test_no_topic_is_opened(pulsar_client, pulsar_broker, pulsar_clock, look):
    pulsar_client.subscribe("t", "s").close()
    send(pulsar_client, "t", "a", "b")
    expected = look()
    pulsar_client.close()
    with pulsar_broker.paused():
        shutil.rmtree(pulsar_broker.layout.root / "public")
        found = Overview(pulsar_broker.layout).look(expected.time)
    assert found.totals[0].backlog == 2
    assert found.totals[0]._replace(rate_in=0.0) == expected.totals[0]._replace(rate_in=0.0)


def send_delayed(client, topic):
    client.create_producer(topic).send(b"later", deliver_after=timedelta(minutes=5))


def send_chunks(client, topic):
    client.create_producer(topic, chunking_enabled=True, chunk_max_message_size=10).send(b"x" * 25)


@pytest.mark.parametrize(
    "publish, consumer_type", [(send_delayed, pulsar.ConsumerType.Shared), (send_chunks, pulsar.ConsumerType.Exclusive)]
)
def test_a_topic_that_is_deleted_without_a_broker_hides_no_other(
    pulsar_client, pulsar_broker, pulsar_clock, look, publish, consumer_type
):
    pulsar_client.subscribe("u", "s").close()
    pulsar_client.subscribe("t", "s", consumer_type)
    send(pulsar_client, "u", "a")
    publish(pulsar_client, "t")
    look()
    overview = Overview(pulsar_broker.layout)
    with pulsar_broker.paused():
        shutil.rmtree(read_topic(pulsar_broker.layout, TOPIC).path)
        for _ in range(2):
            root = overview.look(pulsar_clock.now())
            assert of(root, "s", "persistent://public/default/u").backlog == 1
            assert of(root, "s").backlog and of(root, "s").error.startswith("TopicNotFound")


def test_a_topic_that_cannot_be_read_says_so(pulsar_client, pulsar_broker, look):
    pulsar_client.subscribe("t", "s").close()
    send(pulsar_client, "t", "a")
    look()
    log = TableLog(read_topic(pulsar_broker.layout, TOPIC).path)
    log.file(log.latest() + 1).write_bytes(b"no commit\n")
    root = look()
    assert of(root, "s").blocked == root.topics[0].error_kind == "stopped"
    assert of(root, "s").error == root.topics[0].error and "commit" in root.topics[0].error


def test_what_was_acknowledged_and_what_is_dead(pulsar_client, pulsar_clock, look):
    consumer = pulsar_client.subscribe("t", "s", **SHARED, **LETTERS)
    send(pulsar_client, "t", *"abc")
    consumer.acknowledge(consumer.receive(WAIT))
    for _ in range(2):
        consumer.negative_acknowledge(consumer.receive(WAIT))
        consumer.receive(WAIT)
        look()
        consumer.redeliver_unacknowledged_messages()
        pulsar_clock.advance(minutes=1)
    state = of(look(), "s")
    assert (state.acknowledged, state.acknowledged + state.dead + state.backlog) == (1, 3)
    assert state.dead and state.redelivered
    look()


def test_a_root_without_rounds_is_empty(layout):
    overview = Overview(layout)
    for _ in range(2):
        root = overview.look()
        assert (root.topics, root.subscriptions, root.totals, root.rounds) == ((), (), (), ())
        assert [(broker.is_serving, broker.round) for broker in root.brokers] == [(False, 0)]


def test_after_a_split_each_topic_is_there_once_with_its_counters(root):
    prepare_root(Layout(root))
    with closing(pulsar.Client(f"delta:{root}")) as client, PlainBroker(root) as broker:
        upkeep = ActivityUpkeep(broker.layout, broker.rounds, broker._batches.lock)
        for topic in (LOW, HIGH):
            consumer = client.subscribe(topic, "s", **SHARED)
            send(client, topic, "a", "b")
            consumer.acknowledge(consumer.receive(WAIT))
        broker.settle()
        upkeep.close()
    before = Overview(Layout(root)).look()
    split_bundle(Layout(root))
    lower, upper = both(root)
    with lower, upper:
        after = Overview(Layout(root)).look()
    for name in ("topic", "backlog", "delivered", "acknowledged", "end_position"):
        assert [getattr(each, name) for each in after.totals] == [getattr(each, name) for each in before.totals]
    assert {each.topic: each.acknowledged for each in after.totals} == {LOW: 1, HIGH: 1}
    assert [each.is_serving for each in after.brokers] == [True, True]
    assert all(each.broker_table("activity").exists() for each in layouts_of(Layout(root)))


def test_a_round_has_the_time_that_the_round_before_took_to_write():
    row = {"round": 2, "round_time": None, "broker_id": "b", "epoch": 1, "is_snapshot": False}
    assert round_state("all", row | {"counts": [("write_us", 3000)]}).write_before_ms == 3.0
