"""Requests whose answer somebody waits for say until when they hold; those about what was delivered never do."""

import time

import pytest

import pulsar_spark as pulsar
from pulsar_spark.admin import Admin
from pulsar_spark.frames.consuming.membership import Membership, SubscribeOptions
from pulsar_spark.link.requests import EXPIRING, valid_for
from pulsar_spark.storage.delta.data_files import read_added
from pulsar_spark.storage.delta.log import TableLog
from pulsar_spark.storage.topics.topics import read_topic
from pulsar_spark.table_specs import REQUESTS
from pulsar_spark.testing.plain_broker import PlainBroker
from tests.support.waiting import eventually, in_background

SECONDS = 0.2


def asked(layout) -> list[dict]:
    path = layout.broker_table("requests")
    return [
        row
        for commit in TableLog(path).commits(after=0)
        for row in read_added(path, commit, REQUESTS.schema).to_pylist()
    ]


def until_of(row: dict) -> int | None:
    found = dict(row["properties"] or ()).get("valid_until_ms")
    return None if found is None else int(found)


COMMANDS = [
    lambda admin: admin.create_subscription("t", "s"),
    lambda admin: admin.unsubscribe("t", "s"),
    lambda admin: admin.skip_messages("t", "s", 10),
    lambda admin: admin.clear_backlog("t", "s"),
    lambda admin: admin.expire_messages("t", "s", 1),
    lambda admin: admin.unload("t"),
    lambda admin: admin.reset_cursor("t", "s", "earliest"),
    lambda admin: admin.set_message_ttl("public/default", 5),
    lambda admin: admin.remove_retention("persistent://public/default/t"),
]


@pytest.mark.parametrize("command", range(len(COMMANDS)))
def test_an_administrators_request_says_until_when_it_holds(layout, command):
    admin = Admin(f"delta:{layout.root}", timeout_seconds=SECONDS)
    admin.create_topic("t")
    before = time.time() * 1000
    with pytest.raises(pulsar.Timeout):
        COMMANDS[command](admin)
    after = time.time() * 1000
    rows = asked(layout)
    assert rows and all(before < until_of(row) <= after for row in rows), "when it failed it held no more"


def test_what_a_client_waits_for_says_until_when_it_holds_and_nothing_else_does(client, broker):
    client.create_producer("t").send_async(b"x", None)
    consumer = client.subscribe(
        "t", "s", initial_position=pulsar.InitialPosition.Earliest, ack_receipt_enabled=True, retry_enable=True
    )
    consumer.acknowledge(consumer.receive(60_000))
    consumer.negative_acknowledge(pulsar.MessageId(-1, 1, 0).of_topic("persistent://public/default/t"))
    consumer.redeliver_unacknowledged_messages()
    consumer.seek(pulsar.MessageId.latest)
    broker.end_lease(consumer._consumer_id)
    eventually(lambda: consumer.is_connected() and len(broker.asked("subscribe")) > 2)
    consumer.unsubscribe()
    client.subscribe("t", "s").close()
    seen = {(row["kind"], until_of(row) is not None) for row in asked(client._layout)}
    assert {("subscribe", True), ("seek", True), ("unsubscribe", True)} <= seen
    assert {kind for kind, is_limited in seen if is_limited} <= EXPIRING
    assert {("flow", False), ("ack", False), ("redeliver_all", False), ("close", False)} <= seen


def test_a_dataframes_consumer_says_it_too(lonely_client):
    topic = lonely_client.create_producer("t")._publisher._topic
    options = SubscribeOptions.checked("s", "Exclusive", None, "Latest", 0)
    with pytest.raises(pulsar.Timeout):
        Membership(
            lonely_client._channel._first, read_topic(lonely_client._layout, topic.name), [-1], options, lambda *_: None
        ).join(0.05, 1)
    eventually(lambda: [row for row in asked(lonely_client._layout) if row["kind"] == "close"])
    assert [
        until_of(row) is not None for row in asked(lonely_client._layout) if row["kind"] in ("subscribe", "close")
    ] == [True, False]
    table = lonely_client._layout.broker_table("requests")
    commits = [read_added(table, commit, REQUESTS.schema) for commit in TableLog(table).commits(0)]
    (joining,) = (rows for rows in commits if "subscribe" in rows["kind"].to_pylist())
    assert joining.select(["kind", "permits"]).to_pylist() == [
        {"kind": "subscribe", "permits": None},
        {"kind": "flow", "permits": 1},
    ], "one round subscribes and delivers"


def test_a_timeout_of_years_is_none():
    (row,) = valid_for([{"kind": "skip", "properties": None}], 1e12)
    assert row == {"kind": "skip", "properties": None}
    (row,) = valid_for([{"kind": "skip", "properties": {"messages": "1"}}], 100)
    assert (
        row["properties"]["messages"] == "1"
        and 98_000 < int(row["properties"]["valid_until_ms"]) - time.time() * 1000 <= 99_000
    )


def test_an_answer_of_the_broker_that_it_came_too_late_is_a_timeout(layout):
    admin = Admin(f"delta:{layout.root}", timeout_seconds=20)
    admin.create_topic("t")
    with PlainBroker(layout.root) as broker:
        with broker.paused():
            asking = in_background(broker, admin.skip_messages, "t", "s", 1)
            broker.advance(20)
        with pytest.raises(pulsar.Timeout, match="ms later, so it was not executed"):
            asking.result(60)
