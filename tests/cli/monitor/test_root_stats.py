"""A line of ``stats`` that breaks on a terminal, or shows another number than the root has, is found here."""

import json
from datetime import timedelta

import pytest
from rich.cells import cell_len

import pulsar_spark as pulsar
from pulsar_spark.cli.monitor.table import lines
from pulsar_spark.errors import NotARoot
from tests.support.commands import say
from tests.support.states import subscription_state
from tests.support.waiting import DEADLINE_SECONDS, send

SHARED = {"consumer_type": pulsar.ConsumerType.Shared, "consumer_name": "worker"}


@pytest.fixture
def busy(pulsar_client, pulsar_broker, pulsar_clock):
    """Two subscriptions: one with a consumer, one with nobody."""
    consumer = pulsar_client.subscribe("orders", "billing", **SHARED)
    pulsar_client.subscribe("orders", "mail").close()
    send(pulsar_client, "orders", *"abcd")
    pulsar_client.create_producer("orders").send(b"later", deliver_after=timedelta(minutes=5))
    for _ in range(2):
        consumer.acknowledge(consumer.receive(DEADLINE_SECONDS * 1000))
    pulsar_broker.settle()
    pulsar_clock.advance(seconds=30)
    return pulsar_broker


def test_a_line_a_subscription_with_the_worst_backlog_first(busy):
    first, second, heading, *rows = say(busy.layout.root, "stats").splitlines()
    assert first == "topics: 1, subscriptions: 2, backlog: 8"
    assert second.startswith(f"{busy.broker_id} serves, round ")
    titles = "BACKLOG AGE IN/S OUT/S UNACK REDEL DEAD DELAY CONS BLOCKED TOPIC SUBSCRIPTION"
    assert heading.split() == titles.split()
    mail, billing = [row.split() for row in rows]
    assert mail[0] == "5" and mail[-3:] == ["no_consumers", "orders", "mail"]
    assert [billing[0], *billing[4:9]] == ["3", "2", "0", "0", "1", "1"]
    assert mail[1] == billing[1] == "30s"


def test_json_has_the_names_of_pulsar(busy):
    found = json.loads(say(busy.layout.root, "stats", "--json"))
    mail, billing = found["subscriptions"]
    assert found["brokers"][0]["serves"] is True
    assert (mail["msgBacklog"], mail["blocked"], mail["consumers"]) == (5, "no_consumers", [])
    of_topic = json.loads(say(busy.layout.root, "stats", "orders", "--json"))["subscriptions"]["billing"]
    same = "msgBacklog", "msgBacklogNoDelayed", "msgDelayed", "unackedMessages", "msgOutCounter", "msgRedeliverCounter"
    assert {name: billing[name] for name in same} == {name: of_topic[name] for name in same}
    assert "messageAckRate" not in billing, "one look cannot tell it"
    assert billing["consumers"][0]["consumerName"] == of_topic["consumers"][0]["consumerName"] == "worker"


def test_lines_fit_a_terminal_and_are_whole_in_a_pipe():
    large = subscription_state(
        topic="persistent://acme/shop/orders-of-all-of-europe",
        subscription="表" * 30,
        backlog=123_456_789_012,
        backlog_age_seconds=1e8,
        rate_in=123_456.7,
        rate_out=98_765_432.1,
        unacked=10**7,
        redelivered=10**9,
        dead=10**6,
        delayed=10**8,
        blocked="unacked_limit",
    )
    narrow, piped = lines([large], 80), lines([large])
    assert max(map(cell_len, narrow)) <= 80 and narrow[1].count("…") == 2
    assert piped[1].endswith(f"acme/shop/orders-of-all-of-europe {large.subscription}")
    assert narrow[1].split()[:9] == piped[1].split()[:9], "numbers are the same in both"


def test_names_move_no_cursor():
    (_, line) = lines([subscription_state(subscription="a\x1b[2J\nb")])
    assert line.endswith(r" orders a\x1b[2J\nb"), line


def test_a_root_of_nothing_and_no_root(layout, tmp_path):
    assert say(layout.root, "stats").splitlines() == [
        "topics: 0, subscriptions: 0, backlog: 0",
        "no broker serves",
        "no subscriptions",
    ]
    with pytest.raises(NotARoot):
        say(tmp_path / "none", "stats")
