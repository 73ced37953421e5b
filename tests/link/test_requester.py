"""Who asks the broker now and then writes and hears as clients do: no request twice, every failure by its name."""

import time

import pytest

from pulsar_spark.broker.requests.reading import read_request_batch
from pulsar_spark.errors import ConnectError, NotARoot, SubscriptionNotFound, Timeout
from pulsar_spark.link.requester import Requester
from pulsar_spark.storage.cursor_ledger.requests import read_requests
from pulsar_spark.storage.delta.tables import AppendTable
from pulsar_spark.storage.layout import Layout
from pulsar_spark.storage.topics.topics import create_topic
from pulsar_spark.table_specs import REQUESTS
from pulsar_spark.testing.plain_broker import PlainBroker
from tests.support.spark_engine import new_engine

TOPIC = "persistent://public/default/t"


def asking(kind: str, **columns) -> dict:
    return {"kind": kind, "topic": TOPIC, "partition": -1, "subscription": "s", **columns}


@pytest.fixture
def requester(layout) -> Requester:
    create_topic(layout, TOPIC)
    return Requester(layout, timeout_seconds=20)


def asked(layout: Layout) -> list[str]:
    commits = read_requests(layout.broker_table(REQUESTS.name), after=0)
    return [kind for commit in commits for kind in commit.rows["kind"].to_pylist()]


def test_replies_come_in_the_order_of_the_requests(requester, layout):
    with PlainBroker(layout.root):
        replies = requester.replies(
            [asking("unsubscribe"), asking("create_subscription"), asking("skip", properties={"messages": "5"})]
        )
    assert [type(reply.error) for reply in replies] == [SubscriptionNotFound, type(None), type(None)]
    assert replies[2].text == "0"


def test_the_first_refusal_is_raised_by_its_name(requester, layout):
    with PlainBroker(layout.root), pytest.raises(SubscriptionNotFound, match="'s'"):
        requester.ask([asking("create_subscription", subscription="s2"), asking("unsubscribe")])


def test_what_was_committed_though_the_disk_said_no_is_not_asked_again(requester, layout, monkeypatch):
    append = AppendTable.append

    def append_and_fail(table, *rows):
        version = append(table, *rows)
        if table.path.endswith(REQUESTS.name):
            raise OSError("the answer was lost")
        return version

    with PlainBroker(layout.root):
        monkeypatch.setattr(AppendTable, "append", append_and_fail)
        requester.ask([asking("create_subscription")])
    assert asked(layout) == ["create_subscription"]


def test_a_commit_that_fails_says_so_by_name(requester, layout, monkeypatch):
    def fail(table, *rows):
        raise OSError("no space left")

    monkeypatch.setattr(AppendTable, "append", fail)
    with pytest.raises(ConnectError, match="cannot be written: no space left"):
        requester.ask([asking("create_subscription")])
    assert asked(layout) == []


def test_without_a_broker_the_error_says_how_to_start_one(layout):
    create_topic(layout, TOPIC)
    with pytest.raises(Timeout, match="start one with 'pulsar-spark broker --root"):
        Requester(layout, timeout_seconds=0).ask([asking("create_subscription")])


def test_a_folder_that_is_no_root_is_named(tmp_path):
    with pytest.raises(NotARoot, match="has no broker tables"):
        Requester(Layout(tmp_path)).ask([asking("create_subscription")])


def test_what_failed_with_timeout_is_not_done_later(tmp_path):
    """A broker that comes later answers it with the same error."""
    engine = new_engine(None, tmp_path / "root")
    engine.create_topic(TOPIC)
    with pytest.raises(Timeout):
        Requester(engine.layout, timeout_seconds=0.1).ask([asking("create_subscription")])
    engine.now_ms = int(time.time() * 1000) + 1
    engine.rounds.run(*read_request_batch(engine.layout.broker_table("requests"), after=0))
    assert [reply.error for reply in engine.committed()["replies"]] == ["Timeout"]
    assert engine.subscriptions(TOPIC) == []
