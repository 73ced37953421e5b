"""A producer whose topic's backlog is above its quota: refused, or held until subscriptions have caught up or its send
timeout has passed."""

import threading

import pytest

import pulsar_spark as pulsar
from pulsar_spark.errors import ProducerBlockedQuotaExceededError, ProducerBlockedQuotaExceededException
from pulsar_spark.link import quota
from pulsar_spark.link.quota import BacklogQuota
from pulsar_spark.storage.cursor_ledger.cursor_ledger import LatestRows
from pulsar_spark.storage.topics.topics import read_topic
from tests.support.commands import say
from tests.support.requests import On
from tests.support.spark_engine import SparkEngine, new_engine

TOPIC = "persistent://public/default/t"
ON = On(TOPIC)


@pytest.fixture
def engine(tmp_path, monkeypatch) -> SparkEngine:
    """A root whose topic has two entries in its backlog; the broker has looked once. A producer looks at every send."""
    monkeypatch.setattr(quota, "LOOK_SECONDS", 0.0)
    engine = new_engine(None, tmp_path)
    engine.create_topic(TOPIC)
    engine.publish(TOPIC, -1, [1, 1])
    engine.round([ON.create_subscription("Earliest"), ON.policy("backlog_quota_bytes", 10**9)], 0)
    return engine


@pytest.fixture
def client(engine):
    client = pulsar.Client(f"delta:{engine.layout.root}")
    yield client
    client.close()


def exceed(engine: SparkEngine, policy: str) -> None:
    engine.round([ON.policy("backlog_quota_policy", policy), ON.policy("backlog_quota_bytes", 1)], 60_000)


def test_below_its_quota_it_publishes(engine, client):
    assert client.create_producer(TOPIC).send(b"x").ledger_id() == 2


def test_it_is_refused_and_publishes_again_when_the_backlog_is_gone(engine, client):
    producer = client.create_producer(TOPIC)
    exceed(engine, "producer_exception")
    with pytest.raises(ProducerBlockedQuotaExceededException, match="let its subscriptions catch up"):
        producer.send(b"x")
    told = []
    producer.send_async(b"x", lambda result, message_id: told.append((result, message_id)))
    assert told == [(pulsar.Result.ProducerBlockedQuotaExceededException, None)]
    engine.round([ON.clear_backlog()], 61_000)
    engine.round([], 62_000)
    assert producer.send(b"x").ledger_id() == 2


def test_a_producer_made_while_the_backlog_is_exceeded_knows(engine, client):
    exceed(engine, "producer_exception")
    for number in range(3):
        engine.round([ON.policy("max_consumers_per_subscription", number)], 60_001)
    with pytest.raises(ProducerBlockedQuotaExceededException):
        client.create_producer(TOPIC).send(b"x")


def test_it_is_held_until_its_send_timeout(engine, client):
    exceed(engine, "producer_request_hold")
    with pytest.raises(ProducerBlockedQuotaExceededError, match="for 0.2 s"):
        client.create_producer(TOPIC, send_timeout_millis=200).send(b"x")


def test_the_time_it_is_held_is_its_clock_s(engine):
    exceed(engine, "producer_request_hold")
    now = [1000.0]
    held = BacklogQuota(
        engine.layout,
        read_topic(engine.layout, TOPIC),
        clock=lambda: now[0],
        wait=lambda seconds: now.append(now.pop() + seconds),
    )
    assert isinstance(held.refusal(30), ProducerBlockedQuotaExceededError)
    assert 1030 <= now[0] < 1031


def test_it_is_held_until_the_backlog_is_gone(engine, client):
    exceed(engine, "producer_request_hold")
    producer, sent = client.create_producer(TOPIC, send_timeout_millis=60_000), []
    sending = threading.Thread(target=lambda: sent.append(producer.send(b"x")))
    sending.start()
    sending.join(0.2)
    assert sending.is_alive() and not sent
    engine.round([ON.clear_backlog()], 61_000)
    engine.round([], 62_000)
    sending.join(60)
    assert [message_id.ledger_id() for message_id in sent] == [2]


def test_closing_ends_the_hold(engine, client):
    exceed(engine, "producer_request_hold")
    producer, told = client.create_producer(TOPIC), []
    sending = threading.Thread(target=lambda: producer.send_async(b"x", lambda result, message_id: told.append(result)))
    sending.start()
    sending.join(0.2)
    producer.close()
    sending.join(60)
    assert told == [pulsar.Result.AlreadyClosed]


def test_other_topics_are_not_concerned(engine, client):
    exceed(engine, "producer_exception")
    assert client.create_producer("other").send(b"x").ledger_id() == 1


def test_what_the_broker_says_is_read_once_for_all_producers_of_the_process(engine, monkeypatch):
    topic = read_topic(engine.layout, TOPIC)
    quotas = [BacklogQuota(engine.layout, topic) for _ in range(5)]
    assert [each.refusal(0.0) for each in quotas] == [None] * 5
    engine.round([ON.policy("max_message_size", 77)], 60_000)
    read, apply = [], LatestRows._apply_round
    monkeypatch.setattr(LatestRows, "_apply_round", lambda self, found: (read.append(found), apply(self, found)))
    for each in quotas:
        each.look()
    assert [each.max_message_size for each in quotas] == [77] * 5
    assert len(read) == 1


@pytest.mark.parametrize("messages", [("x",), ("x", "y")])
def test_the_command_line_says_what_the_refusal_says(engine, messages):
    exceed(engine, "producer_exception")
    with pytest.raises(ProducerBlockedQuotaExceededException) as refused:
        say(engine.layout.root, "produce", TOPIC, *messages)
    assert "let its subscriptions catch up, or raise the quota; a broker checks every 60 s" in str(refused.value)
