"""Clients and a broker on a root in an object store (an S3 server in this process): what is sent is delivered, what is
acknowledged stays so, whoever is killed and whatever becomes of the store's answers. ``pytest tests/client --store s3``
runs all tests of clients there."""

import contextlib
import os
import signal

import pytest

import pulsar_spark as pulsar
from pulsar_spark.broker.bundle.split import split_bundle
from pulsar_spark.storage.delta.scan import dataset_of
from pulsar_spark.storage.layout import Layout
from pulsar_spark.storage.processes import lease as lease_module
from pulsar_spark.storage.store import store_bucket
from pulsar_spark.storage.topics.bundles import layouts_of
from pulsar_spark.table_specs import CURSOR_LEDGER
from pulsar_spark.testing.plain_broker import PlainBroker
from tests.broker.test_bundles import HIGH
from tests.support.object_store import asking, new_root
from tests.support.processes import Program
from tests.support.s3_proxy import LOST_BEHIND, PASS, SLOW_DOWN, Answer, Asked, s3_proxy
from tests.support.waiting import eventually, nothing_comes, receive_values, send

SHARED = dict(consumer_type=pulsar.ConsumerType.Shared, negative_ack_redelivery_delay_ms=100)
A_BROKER = """
from pulsar_spark.testing.plain_broker import PlainBroker
with PlainBroker(url) as broker:
    print("up")
    broker.wait()
"""
A_SLEEPER = """
from pulsar_spark.storage.processes import lease
from pulsar_spark.testing.plain_broker import PlainBroker
lease.LEASE_SECONDS = 1.0
with PlainBroker(url) as broker:
    print("up")
    broker.wait()
"""
A_CONSUMER = """
client = pulsar.Client(f"delta:{url}", lease_seconds=2)
consumer = client.subscribe("t", "s", consumer_type=pulsar.ConsumerType.Shared)
consumer.acknowledge(consumer.receive())
print(consumer.receive().data().decode())
threading.Event().wait()
"""


@pytest.fixture
def url(s3) -> str:
    return new_root()


def client_of(url: str) -> pulsar.Client:
    return pulsar.Client(f"delta:{url}", operation_timeout_seconds=30)


def test_what_is_acknowledged_stays_so_from_broker_to_broker(url):
    with PlainBroker(url):
        client = client_of(url)
        consumer = client.subscribe("t", "s", **SHARED)
        send(client, "t", *"abcdef")
        messages = [consumer.receive(60_000) for _ in range(6)]
        assert [message.data().decode() for message in messages] == [*"abcdef"]
        for message in messages[::2]:
            consumer.acknowledge(message)
        consumer.negative_acknowledge(messages[1])
        assert receive_values(consumer, 1) == ["b"]
        client.close()
    with PlainBroker(url):
        client = client_of(url)
        consumer = client.subscribe("t", "s", **SHARED)
        assert sorted(receive_values(consumer, 3)) == [*"bdf"]
        assert nothing_comes(consumer)
        client.close()


def test_a_killed_broker_is_replaced_and_nothing_is_lost(url, monkeypatch):
    monkeypatch.setattr(lease_module, "LEASE_SECONDS", 2.0)
    with Program(A_BROKER, url) as broker:
        broker.say("up")
        client = client_of(url)
        consumer = client.subscribe("t", "s", **SHARED)
        send(client, "t", *"abc")
        messages = [consumer.receive(60_000) for _ in range(3)]
        consumer.acknowledge(messages[0])
        os.killpg(broker.process.pid, signal.SIGKILL)
        broker.process.wait()
    send(client, "t", "d")
    with PlainBroker(url):
        assert receive_values(consumer, 1) == ["d"], "what was delivered is not delivered again"
        client.close()
        client = client_of(url)
        assert sorted(receive_values(client.subscribe("t", "s", **SHARED), 3)) == [*"bcd"]
        client.close()


def test_what_a_killed_consumer_had_is_delivered_to_another_when_its_lease_ends(url):
    with PlainBroker(url) as broker:
        client = client_of(url)
        client.subscribe("t", "s", **SHARED).close()
        send(client, "t", *"abc")
        with Program(A_CONSUMER, url) as program:
            program.say("b")
            eventually(lambda: broker.cursor("t", "s").mark_delete == 0)
            os.killpg(program.process.pid, signal.SIGKILL)
        assert sorted(receive_values(client.subscribe("t", "s", **SHARED), 2)) == ["b", "c"]
        client.close()


def test_a_bundle_is_split_there_and_clients_follow(url):
    with contextlib.closing(client_of(url)) as client:
        with PlainBroker(url):
            consumer = client.subscribe(HIGH, "s", **SHARED)
            send(client, HIGH, *"abc")
            messages = [consumer.receive(60_000) for _ in range(3)]
            consumer.acknowledge(messages[0])
        split_bundle(Layout(url))
        lower, upper = (PlainBroker(url, bundle=each.bundle) for each in layouts_of(Layout(url)))
        with lower, upper:
            assert sorted(receive_values(consumer, 2)) == ["b", "c"]
            send(client, HIGH, "d")
            assert receive_values(consumer, 1) == ["d"] and nothing_comes(consumer)
            assert set(upper.rounds.bundle.topics) == {HIGH} and not lower.rounds.bundle.topics


def test_a_store_on_a_bad_day_neither_loses_nor_doubles_anything(s3, monkeypatch):
    """Of all requests every ninth is told to come later, of all puts every fifth gets no answer though it took
    place."""
    monkeypatch.setattr(store_bucket, "ANSWER_SECONDS", 5)
    counts = {"all": 0, "PUT": 0, "bad": 0}

    def answer(asked: Asked) -> Answer:
        counts["all"] += 1
        counts["PUT"] += asked.method == "PUT"
        is_late, is_lost = counts["all"] % 9 == 0, asked.method == "PUT" and counts["PUT"] % 5 == 0
        counts["bad"] += is_late or is_lost
        return LOST_BEHIND if is_lost else SLOW_DOWN if is_late else PASS

    with s3_proxy(s3, answer) as proxy, asking(proxy):
        url, sent = new_root(), [f"m{number}" for number in range(12)]
        with PlainBroker(url):
            client = client_of(url)
            consumer = client.subscribe("t", "s", **SHARED)
            send(client, "t", *sent)
            for value in sent:
                message = consumer.receive(60_000)
                assert message.data().decode() == value
                consumer.acknowledge(message)
            assert nothing_comes(consumer)
            client.close()
        with PlainBroker(url) as broker:
            eventually(lambda: broker.cursor("t", "s").mark_delete == len(sent) - 1)  # as requests that wait say
            assert broker.cursor("t", "s").read_position == len(sent), "none was stored twice"
    assert counts["bad"] > 15


def test_a_store_that_answers_late_or_later_than_anybody_waits_neither_loses_nor_doubles_anything(s3, monkeypatch):
    """Of all requests every fifth is slow; of all puts every twelfth takes place, and is answered when who asked has
    given up."""
    monkeypatch.setattr(store_bucket, "ANSWER_SECONDS", 1)
    counts = {"all": 0, "PUT": 0, "bad": 0}

    def answer(asked: Asked) -> Answer:
        counts["all"] += 1
        counts["PUT"] += asked.method == "PUT"
        is_slow, is_too_late = counts["all"] % 5 == 0, asked.method == "PUT" and counts["PUT"] % 12 == 0
        counts["bad"] += is_too_late
        return Answer(seconds=1.2 if is_too_late else 0.1 if is_slow else 0.0)

    with s3_proxy(s3, answer) as proxy, asking(proxy):
        url, sent = new_root(), [f"m{number}" for number in range(4)]
        with PlainBroker(url):
            client = client_of(url)
            consumer = client.subscribe("t", "s", **SHARED)
            send(client, "t", *sent)
            for value in sent:
                message = consumer.receive(60_000)
                assert message.data().decode() == value
                consumer.acknowledge(message)
            assert nothing_comes(consumer)
            client.close()
    assert counts["bad"] >= 3
    with asking(s3), PlainBroker(url) as broker:
        eventually(lambda: broker.cursor("t", "s").mark_delete == len(sent) - 1)
        assert broker.cursor("t", "s").read_position == len(sent), "none was stored twice"


def test_a_broker_that_was_stopped_for_longer_than_its_lease_commits_nothing_behind_who_took_over(url, monkeypatch):
    monkeypatch.setattr(lease_module, "LEASE_SECONDS", 1.0)
    with Program(A_SLEEPER, url) as sleeper, contextlib.closing(client_of(url)) as client:
        sleeper.say("up")
        consumer = client.subscribe("t", "s", **SHARED)
        send(client, "t", "a")
        assert receive_values(consumer, 1) == ["a"]
        os.killpg(sleeper.process.pid, signal.SIGSTOP)
        send(client, "t", "b")  # it has something to do when it goes on
        with PlainBroker(url) as second:
            assert receive_values(consumer, 1) == ["b"]
            send(client, "t", "c")
            os.killpg(sleeper.process.pid, signal.SIGCONT)
            code, said, error = sleeper.end()
            assert code == 1 and "BrokerFenced" in error
            assert receive_values(consumer, 1) == ["c"] and nothing_comes(consumer)
            assert second.failure is None
    rows = dataset_of(Layout(url).broker_table(CURSOR_LEDGER.name)).to_table(columns=["kind", "round", "broker_id"])
    rounds = sorted((row["round"], row["broker_id"]) for row in rows.to_pylist() if row["kind"] == "round")
    first, *_, last = brokers = [broker for _, broker in rounds]
    assert len({number for number, _ in rounds}) == len(rounds), "each round is one broker's"
    assert last == second.broker_id != first and brokers == sorted(brokers, key=lambda each: each == last)


def test_a_store_that_is_away_for_a_while_is_waited_for(s3, monkeypatch, caplog):
    monkeypatch.setattr(store_bucket, "RETRY_SECONDS", 1)
    is_away = False
    with s3_proxy(s3, lambda asked: SLOW_DOWN if is_away else PASS) as proxy, asking(proxy):
        url = new_root()
        with PlainBroker(url):
            client = client_of(url)
            consumer = client.subscribe("t", "s", **SHARED)
            send(client, "t", "a")
            assert receive_values(consumer, 1) == ["a"]
            is_away = True
            eventually(lambda: "cannot be read for now" in caplog.text and "waits: its " in caplog.text, 60)
            is_away = False
            send(client, "t", "b")
            assert receive_values(consumer, 1) == ["b"]
            client.close()
