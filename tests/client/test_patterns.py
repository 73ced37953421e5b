"""Subscriptions on all topics that a pattern fits."""

import re

import pytest
from deltalake.exceptions import DeltaError

import pulsar_spark as pulsar
from pulsar_spark.admin import Admin
from tests.support.waiting import eventually, nothing_comes, receive_values, send

PATTERN = re.compile("persistent://public/default/order-.*")
SHARED = dict(consumer_type=pulsar.ConsumerType.Shared)


def test_every_topic_that_fits_is_received_from(client, service_url):
    Admin(service_url).create_partitioned_topic("order-b", 2)
    client.create_producer("order-a")
    client.create_producer("an-order-c")
    consumer = client.subscribe(PATTERN, "s", **SHARED)
    assert consumer.topic() == "persistent://public/default/order-.*" and consumer.is_connected()
    send(client, "an-order-c", "no")
    send(client, "order-a", "a")
    send(client, "order-b", "b1", "b2")
    messages = [consumer.receive(60_000) for _ in range(3)]
    assert sorted(message.data() for message in messages) == [b"a", b"b1", b"b2"]
    for message in messages:
        consumer.acknowledge(message)
    assert nothing_comes(consumer)


def test_a_topic_made_later_is_received_from_its_first_message_on(client, other_client):
    consumer = client.subscribe(PATTERN, "s", pattern_auto_discovery_period=1, **SHARED)
    assert consumer.is_connected()
    send(other_client, "order-late", "first", "second")
    assert receive_values(consumer, 2) == ["first", "second"]
    consumer.close()
    assert not client._following._looks


def test_what_came_of_a_later_topic_is_acknowledged_and_sought(client, other_client):
    consumer = client.subscribe(PATTERN, "s", pattern_auto_discovery_period=1)
    send(other_client, "order-late", "first", "second")
    first, second = consumer.receive(60_000), consumer.receive(60_000)
    consumer.acknowledge(first.message_id())
    consumer.acknowledge(second)
    consumer.seek(first.message_id())
    assert receive_values(consumer, 1) == ["second"]
    consumer.unsubscribe()


def test_a_later_topic_whose_schema_does_not_fit_is_said_and_left_out(client, other_client, caplog):
    class Order(pulsar.schema.Record):
        number = pulsar.schema.Integer(required=True)

    class Other(pulsar.schema.Record):
        name = pulsar.schema.String(required=True)

    schema = pulsar.schema.JsonSchema(Order)
    consumer = client.subscribe(PATTERN, "s", schema=schema, pattern_auto_discovery_period=1, **SHARED)
    other_client.create_producer("order-other", schema=pulsar.schema.JsonSchema(Other)).send(Other(name="x"))
    other_client.create_producer("order-late", schema=schema).send(Order(number=7))
    assert consumer.receive(60_000).value().number == 7
    eventually(lambda: "order-other" in caplog.text and "is not consumed" in caplog.text)
    assert nothing_comes(consumer)


def test_a_look_that_fails_is_made_again(client, other_client, caplog, monkeypatch):
    consumer = client.subscribe(PATTERN, "s", pattern_auto_discovery_period=1)
    add, failures = consumer._membership.add, [DeltaError("a file is gone"), pulsar.Timeout("no broker")]

    def failing(topics):
        if failures:
            raise failures.pop()
        add(topics)

    monkeypatch.setattr(consumer._membership, "add", failing)
    send(other_client, "order-late", "first")
    assert receive_values(consumer, 1) == ["first"]
    eventually(lambda: "no broker" in caplog.text)


def test_a_topic_that_refuses_keeps_no_other_out(client, other_client, caplog):
    """On one of two topics that a look finds the subscription is of another type."""
    consumer = client.subscribe(re.compile("order-[2-9]"), "s", pattern_auto_discovery_period=1, **SHARED)
    with client._following._condition:  # so that one look finds both
        held = other_client.subscribe("order-2", "s", pulsar.ConsumerType.Failover)
        send(other_client, "order-3", "third")
    assert receive_values(consumer, 1) == ["third"]
    held.close()
    send(other_client, "order-2", "second")
    assert receive_values(consumer, 1) == ["second"]
    assert "order-2" in caplog.text


NOTHING = re.compile("no-such-topic-.*")


def consumer_of_nothing(client, **options):
    consumer = client.subscribe(NOTHING, "s", **options)
    assert consumer._subscriptions == []
    return consumer


@pytest.fixture
def hasty_client(broker, service_url):
    """Whatever waits for an answer that nobody gives fails: the broker answers nothing while it is paused."""
    client = pulsar.Client(service_url, operation_timeout_seconds=600)
    with broker.paused():
        yield client
    client.shutdown()


def test_a_consumer_of_nothing_does_all_that_another_does(hasty_client):
    consumer = consumer_of_nothing(hasty_client)
    assert consumer.is_connected() and consumer.topic() == "persistent://public/default/no-such-topic-.*"
    consumer.redeliver_unacknowledged_messages()
    consumer.acknowledge([])
    consumer.seek(pulsar.MessageId.earliest)
    consumer.seek(pulsar.MessageId.latest)
    consumer.seek(0)
    for refused in (
        lambda: consumer.seek(pulsar.MessageId(0, 1, 0)),
        lambda: consumer.acknowledge(pulsar.MessageId(0, 1, 0)),
        lambda: consumer.acknowledge_cumulative(pulsar.MessageId(0, 1, 0)),
        lambda: consumer.negative_acknowledge(pulsar.MessageId(0, 1, 0)),
    ):
        with pytest.raises(pulsar.InvalidMessage):
            refused()
    with pytest.raises(pulsar.OperationNotSupported, match="0 topic partitions"):
        consumer.get_last_message_id()
    with pytest.raises(pulsar.Timeout):
        consumer.receive(1)
    consumer.close()
    with pytest.raises(pulsar.AlreadyClosed):
        consumer.close()


@pytest.mark.parametrize("leave", ["close", "unsubscribe"])
@pytest.mark.parametrize("has_listener", [False, True])
def test_a_consumer_of_nothing_leaves_at_once(hasty_client, leave, has_listener):
    consumer = consumer_of_nothing(hasty_client, message_listener=print if has_listener else None)
    if has_listener:
        consumer.pause_message_listener()
        consumer.resume_message_listener()
    getattr(consumer, leave)()
    assert not hasty_client._following._looks and not hasty_client._open


@pytest.mark.parametrize("end", ["close", "shutdown"])
def test_a_client_of_a_consumer_of_nothing_ends_at_once(hasty_client, end):
    consumer = consumer_of_nothing(hasty_client)
    getattr(hasty_client, end)()
    with pytest.raises(pulsar.AlreadyClosed):
        consumer.receive()


def test_a_consumer_of_nothing_leaves_without_a_broker(lonely_client):
    consumer_of_nothing(lonely_client).close()
    consumer_of_nothing(lonely_client).unsubscribe()


def test_a_bytes_pattern_is_refused(lonely_client):
    with pytest.raises(ValueError, match="not bytes"):
        lonely_client.subscribe(re.compile(b"order-.*"), "s")


@pytest.mark.parametrize(
    "options, error",
    [
        (dict(topic=re.compile("")), pulsar.InvalidTopicName),
        (dict(topic=re.compile(" ")), pulsar.InvalidTopicName),
        (dict(topic=re.compile("public/default/")), pulsar.InvalidTopicName),
        (dict(topic=re.compile("persistent://public/default/")), pulsar.InvalidTopicName),
        (dict(topic=re.compile("persistent://")), pulsar.InvalidTopicName),
        (dict(topic=re.compile("non-persistent://a/b/c.*")), pulsar.InvalidTopicName),
        (dict(topic=re.compile("a/b.*")), pulsar.InvalidTopicName),
        (dict(topic=re.compile("a.*/b/c")), pulsar.InvalidTopicName),
        (dict(topic=re.compile("(?i)order-.*")), pulsar.InvalidTopicName),
        (dict(topic=re.compile("order-.*"), receiver_queue_size=0), pulsar.InvalidConfiguration),
        (dict(regex_subscription_mode=pulsar.RegexSubscriptionMode.NonPersistentOnly), pulsar.OperationNotSupported),
        (dict(pattern_auto_discovery_period=0), ValueError),
        (dict(retry_enable=True), pulsar.InvalidConfiguration),
    ],
)
def test_what_cannot_be_followed_is_refused(lonely_client, options, error):
    with pytest.raises(error):
        lonely_client.subscribe(**{"topic": PATTERN, "subscription_name": "s", **options})
