"""A metric that Prometheus cannot read, or that differs from the root's own numbers, is found here."""

import os
from datetime import timedelta

import pytest

import pulsar_spark as pulsar
from pulsar_spark.admin import Admin
from pulsar_spark.broker.bundle.split import split_bundle
from pulsar_spark.metrics import exporter as module
from pulsar_spark.metrics import metrics
from pulsar_spark.metrics.exporter import Exporter
from pulsar_spark.storage.processes.starting import begin_starting, end_starting
from pulsar_spark.storage.topics.bundles import bundles_of
from pulsar_spark.testing.plain_broker import PlainBroker
from pulsar_spark.views.overview import Overview
from tests.support.exposition import read_exposition
from tests.support.waiting import DEADLINE_SECONDS, eventually, send

SHARED = {"consumer_type": pulsar.ConsumerType.Shared, "consumer_name": "worker"}
HOSTILE = 'a "b"\\\n{c},d="e"'


@pytest.fixture(autouse=True)
def every_request_looks(monkeypatch):
    monkeypatch.setattr(module, "FRESH_SECONDS", 0)


@pytest.fixture
def busy(pulsar_client, pulsar_broker):
    """A topic with two subscriptions, and one with partitions."""
    consumer = pulsar_client.subscribe("orders", "billing", **SHARED)
    pulsar_client.subscribe("orders", HOSTILE).close()
    send(pulsar_client, "orders", *"abcd")
    pulsar_client.create_producer("orders").send(b"later", deliver_after=timedelta(minutes=5))
    consumer.acknowledge(consumer.receive(DEADLINE_SECONDS * 1000))
    Admin(pulsar_broker.service_url).create_partitioned_topic("parts", 2)
    pulsar_client.subscribe("parts", "s").close()
    send(pulsar_client, "parts", *"ab")
    pulsar_broker.settle()
    return pulsar_broker


def test_numbers_are_those_of_a_look(busy, pulsar_clock):
    pulsar_clock.advance(seconds=30)
    found, root = read_exposition(Exporter(busy.layout.root).text()), Overview(busy.layout).look(pulsar_clock.now())
    assert {*found} == {metric.name for metric in metrics.ALL}
    assert len(root.subscriptions) == 4
    for state in root.subscriptions:
        of = {**metrics.names(state.topic, state.partition), "subscription": state.subscription}
        for each in metrics.OF_SUBSCRIPTIONS:
            assert found[each.metric.name].value(**of) == pytest.approx(float(each.value(state)), rel=0.01, abs=0.01)
    billing = {"subscription": "billing"}
    assert found["pulsar_subscription_back_log"].value(**billing) == 4
    assert found["pulsar_subscription_back_log_no_delayed"].value(**billing) == 3
    assert found["pulsar_subscription_unacked_messages"].value(**billing) == 3
    assert found["pulsar_out_messages_total"].value(**billing) == 4
    assert found["pulsar_subscription_storage_backlog_age_seconds"].value(**billing) >= 30
    orders = {"topic": "persistent://public/default/orders", "namespace": "public/default"}
    assert (found["pulsar_msg_backlog"].value(**orders), found["pulsar_in_messages_total"].value(**orders)) == (9, 5)
    parts = {dict(of)["topic"][-11:] for of in found["pulsar_rate_in"].samples}
    assert parts >= {"partition-0", "partition-1"}
    assert found["pulsar_broker_msg_backlog"].value() == 11
    assert found["pulsar_spark_broker_serves"].value() == 1
    assert found["pulsar_spark_rounds_total"].value() == root.brokers[0].round
    assert found["pulsar_spark_blocked_subscriptions"].value(reason="no_consumers") == 3
    assert found["pulsar_spark_round_seconds"].value(step="plan", suffix="_count") > 0


def test_what_has_no_labels_of_its_own_is_summed(busy):
    whole, few = (read_exposition(Exporter(busy.layout.root, most=most).text()) for most in (100, 1))
    for name, family in few.items():
        if name.startswith("pulsar_subscription_") and family.type == "gauge":
            folded = max if name.endswith("age_seconds") else sum
            assert len(family.samples) == 2
            later = 60 if name.endswith("_seconds") else 1  # the second look may come late on a busy machine
            assert folded(family.samples.values()) == pytest.approx(folded(whole[name].samples.values()), abs=later)
    (worst,) = [dict(of) for of in few["pulsar_out_messages_total"].samples]
    assert worst["subscription"] == HOSTILE, "counters of changing sums would seem to begin anew"
    others = few["pulsar_subscription_back_log"].value(topic="__others__", subscription="__others__")
    assert others == 11 - few["pulsar_subscription_back_log"].value(subscription=HOSTILE)
    assert len(few["pulsar_msg_backlog"].samples) == 2


def test_counts_of_rounds_grow_with_looks(busy, pulsar_client):
    shown = Exporter(busy.layout.root)
    before = read_exposition(shown.text())["pulsar_spark_round_seconds"].value(step="write", suffix="_count")
    for value in "xyz":
        send(pulsar_client, "orders", value)
        busy.settle()
    after = read_exposition(shown.text())
    rounds = after["pulsar_spark_rounds_total"].value()
    assert before < after["pulsar_spark_round_seconds"].value(step="write", suffix="_count") <= rounds


def test_a_broker_shows_what_it_serves(busy):
    mine, whole = Exporter(busy.layout.root, pid=os.getpid()), Exporter(busy.layout.root)
    assert mine.is_serving() and whole.is_serving()
    busy.close()
    found = read_exposition(mine.text())
    assert not found["pulsar_subscription_back_log"].samples and not found["pulsar_rate_in"].samples
    assert found["pulsar_spark_broker_serves"].value() == 0
    assert len(read_exposition(whole.text())["pulsar_subscription_back_log"].samples) == 4
    assert not mine.is_serving() and not whole.is_serving()


def test_brokers_of_several_bundles_add_up(busy, pulsar_client):
    for number in range(8):
        pulsar_client.subscribe(f"topic {number}", "s").close()
    pulsar_client.shutdown()
    busy.close()
    split_bundle(busy.layout)
    lower, upper = bundles_of(busy.layout).folders
    mine, whole = Exporter(busy.layout.root, pid=os.getpid()), Exporter(busy.layout.root)
    assert not mine.is_serving()
    with PlainBroker(busy.layout.root, bundle=lower):
        found, everything = (read_exposition(each.text()) for each in (mine, whole))
        assert {dict(of)["bundle"] for of in found["pulsar_spark_rounds_total"].samples} == {lower}
        assert found["pulsar_spark_broker_serves"].value(bundle=upper) == 0 and mine.is_serving()
    folders = bundles_of(busy.layout)
    of_lower = {
        of: value
        for of, value in everything["pulsar_subscription_back_log"].samples.items()
        if folders.folder_of(dict(of)["topic"].partition("-partition-")[0]) == lower
    }
    assert found["pulsar_subscription_back_log"].samples == of_lower
    assert 0 < len(of_lower) < len(everything["pulsar_subscription_back_log"].samples)


def test_a_broker_that_starts_is_not_ready(busy):
    mine = Exporter(busy.layout.root, pid=os.getpid())
    begin_starting(busy.layout)
    try:
        eventually(lambda: not mine.is_serving())
    finally:
        end_starting(busy.layout)
    assert mine.is_serving()


def test_no_root_yet(tmp_path):
    found = Exporter(tmp_path / "none")
    assert (found.text(), found.is_serving()) == ("", False)
