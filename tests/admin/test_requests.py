"""What an administrator asks of the broker: one row a partition in one commit, and the reply decides."""

import datetime

import pytest

from pulsar_spark.admin import Admin
from pulsar_spark.errors import InvalidConfiguration, InvalidTopicName, NotAllowedError, SubscriptionNotFound, Timeout
from pulsar_spark.testing.plain_broker import PlainBroker, said

TOPIC = "persistent://public/default/orders"


@pytest.fixture
def admin(layout):
    admin = Admin(f"delta:{layout.root}", timeout_seconds=20)
    admin.create_partitioned_topic(TOPIC, 2)
    return admin


def facts(request):
    return request.kind, request.partition, request.subscription, said(request)


def test_every_partition_is_asked(admin, layout):
    with PlainBroker(layout.root) as broker:
        admin.create_subscription("orders", "s", "earliest")
        admin.reset_cursor(TOPIC, "s", datetime.datetime(2024, 1, 1, tzinfo=datetime.UTC))
        assert admin.skip_messages(f"{TOPIC}-partition-1", "s", 5) == 0
        assert admin.skip_messages(f"{TOPIC}-partition-1", "s", 0) == 0
        admin.set_max_unacked_per_consumer("public/default", 6)
    requests = broker.requests()
    assert [facts(request) for request in requests] == [
        ("create_subscription", 0, "s", {"initial_position": "Earliest"}),
        ("create_subscription", 1, "s", {"initial_position": "Earliest"}),
        ("seek", 0, "s", {"publish_time_ms": "1704067200000"}),
        ("seek", 1, "s", {"publish_time_ms": "1704067200000"}),
        ("skip", 1, "s", {"messages": "5"}),
        ("skip", 1, "s", {"messages": "0"}),
        (
            "policy",
            None,
            None,
            {"namespace": "public/default", "name": "max_unacked_messages_per_consumer", "value": "6"},
        ),
    ]
    assert {request.topic for request in requests[:-1]} == {TOPIC}
    assert len({request.request_id for request in requests}) == len(requests)


def test_a_refusal_is_raised_under_its_own_name(admin, layout):
    with PlainBroker(layout.root), pytest.raises(SubscriptionNotFound, match="has no subscription 's'"):
        admin.unsubscribe(TOPIC, "s")


def test_without_a_broker_the_error_says_how_to_start_one(layout):
    admin = Admin(f"delta:{layout.root}", timeout_seconds=0.05)
    admin.create_topic(TOPIC)
    with pytest.raises(Timeout, match="pulsar-spark broker --root"):
        admin.clear_backlog(TOPIC, "s")


def test_what_is_no_text_is_not_sent(admin, layout):
    with PlainBroker(layout.root) as broker:
        for wrong in (
            lambda: admin.drop_set_aside(7),
            lambda: admin.retry_set_aside("\ud800"),
            lambda: admin.retry_waiting_letters(letter=b"x"),
            lambda: admin.drop_waiting_letters(letter="\ud800"),
        ):
            with pytest.raises(InvalidConfiguration, match="is not a text that can be encoded"):
                wrong()
        for no_topic in (0, [], {}, ""):
            with pytest.raises(InvalidTopicName):
                admin.retry_waiting_letters(no_topic)
            with pytest.raises(InvalidTopicName):
                admin.waiting_letters(no_topic)
    assert broker.requests() == []


def test_wrong_arguments_are_not_sent(admin, layout):
    with PlainBroker(layout.root) as broker:
        with pytest.raises(NotAllowedError, match="skip on one partition"):
            admin.skip_messages(TOPIC, "s", 1)
        for wrong in (
            lambda: admin.skip_messages(f"{TOPIC}-partition-0", "s", -1),
            lambda: admin.expire_messages(TOPIC, "s", -1),
            lambda: admin.reset_cursor(TOPIC, "s", "yesterday"),
            lambda: admin.create_subscription(TOPIC, "s", "middle"),
            lambda: admin.set_max_unacked_per_consumer("public/default", -5),
        ):
            with pytest.raises(InvalidConfiguration):
                wrong()
    assert broker.requests() == []
