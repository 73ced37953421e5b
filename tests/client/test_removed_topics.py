"""Consumers of several topics, of which some are deleted: what is gone goes alone."""

import asyncio
import re

import pytest
from deltalake.exceptions import DeltaError

import pulsar_spark as pulsar
import pulsar_spark.asyncio as aio
from pulsar_spark.admin import Admin
from pulsar_spark.client.subscribing import reconnection
from pulsar_spark.errors import CorruptState, RootAway
from tests.support.waiting import eventually, nothing_comes, receive_values, send

PATTERN = re.compile("order-.*")
TYPES = [pulsar.ConsumerType.Exclusive, pulsar.ConsumerType.Shared, pulsar.ConsumerType.KeyShared]


@pytest.fixture
def admin(client, service_url):
    return Admin(service_url)


def topics_of(consumer) -> set[str]:
    return {subscription.topic.name.local_name for subscription in consumer._subscriptions}


def delete(admin, consumer, topic: str) -> None:
    """Delete *topic*, of several, and wait until the consumer knows."""
    admin.delete_topic(topic, force=True)
    eventually(lambda: topic not in topics_of(consumer))


@pytest.mark.parametrize("topics", [PATTERN, ["order-a", "order-b"]], ids=["pattern", "list"])
@pytest.mark.parametrize("consumer_type", TYPES, ids=lambda each: each.name)
def test_the_rest_goes_on(client, other_client, admin, caplog, topics, consumer_type):
    send(other_client, "order-a")
    send(other_client, "order-b")
    consumer = client.subscribe(topics, "s", consumer_type)
    send(other_client, "order-a", "a1", "a2")
    first = consumer.receive(30_000)
    delete(admin, consumer, "order-a")
    assert nothing_comes(consumer, 50)  # what waited of the topic went with it
    send(other_client, "order-b", "b1", "b2")
    received = [consumer.receive(30_000), consumer.receive(30_000)]
    assert [message.data() for message in received] == [b"b1", b"b2"] and consumer.is_connected()
    for message in [first, *received]:
        consumer.acknowledge(message)
    assert "order-a' was deleted" in caplog.text and "continues without it" in caplog.text
    consumer.seek(pulsar.MessageId.earliest)
    assert receive_values(consumer, 2) == ["b1", "b2"]
    consumer.close()


def test_what_is_said_of_a_topic_that_is_gone_does_nothing(client, other_client, admin, broker):
    send(other_client, "order-a")
    send(other_client, "order-b")
    consumer = client.subscribe(PATTERN, "s")
    send(other_client, "order-a", "a1", "a2")
    first, second = consumer.receive(30_000), consumer.receive(30_000)
    consumer.acknowledge(first)
    delete(admin, consumer, "order-a")
    before = len(broker.asked("ack", "negative_ack"))
    for message in (first, second, second.message_id()):
        consumer.acknowledge(message)
        consumer.acknowledge([message])
        consumer.acknowledge_cumulative(message)
        consumer.negative_acknowledge(message)
    consumer.close()
    assert len(broker.asked("ack", "negative_ack")) == before


def test_who_waits_for_a_receipt_of_a_topic_that_is_gone_hears_of_it(client, other_client, admin):
    send(other_client, "order-a")
    send(other_client, "order-b")
    consumer = client.subscribe(["order-a", "order-b"], "s", ack_receipt_enabled=True)
    send(other_client, "order-a", "a1")
    message = consumer.receive(30_000)
    delete(admin, consumer, "order-a")
    with pytest.raises(pulsar.AlreadyClosed, match="order-a' was deleted"):
        consumer.acknowledge(message)


def test_what_cannot_be_put_off_any_more_is_an_error(client, other_client, admin):
    consumer = client.subscribe("order-a", "s", pulsar.ConsumerType.Shared, retry_enable=True)
    send(other_client, "order-a", "a1")
    message = consumer.receive(30_000)
    delete(admin, consumer, "order-a")
    with pytest.raises(pulsar.AlreadyClosed, match="order-a' was deleted"):
        consumer.reconsume_later(message)


def test_a_pattern_takes_a_topic_again_that_is_made_anew(client, other_client, admin):
    send(other_client, "order-a")
    consumer = client.subscribe(PATTERN, "s", pattern_auto_discovery_period=1)
    delete(admin, consumer, "order-a")  # the last one: the consumer waits for others
    assert nothing_comes(consumer, 20) and consumer.is_connected()
    send(other_client, "order-a", "anew")
    message = consumer.receive(30_000)
    assert message.data() == b"anew"
    consumer.acknowledge(message)
    consumer.close()


def test_a_partitioned_topic_goes_as_a_whole(client, other_client, admin, caplog):
    admin.create_partitioned_topic("order-a", 3)
    send(other_client, "order-b")
    consumer = client.subscribe(PATTERN, "s")
    delete(admin, consumer, "order-a")
    send(other_client, "order-b", "b1")
    assert receive_values(consumer, 1) == ["b1"]
    assert caplog.text.count("continues without it") == 1
    looks = client._following._looks
    eventually(lambda: len(looks) == 1)  # partitions of what is gone are not looked at any more


@pytest.mark.parametrize("topics", [["order-a", "order-b"], "order-a"], ids=["list", "one"])
def test_a_consumer_whose_topics_are_all_gone_is_closed_and_says_so(client, admin, caplog, topics):
    admin.create_partitioned_topic("order-a", 2)
    consumer = client.subscribe(topics, "s")
    if isinstance(topics, list):
        delete(admin, consumer, "order-a")
        admin.delete_topic("order-b", force=True)
    else:
        admin.delete_topic("order-a", force=True)
    with pytest.raises(pulsar.AlreadyClosed, match="was deleted; the consumer of .*order-a"):
        consumer.receive(30_000)
    assert not consumer.is_connected() and "the consumer is closed" in caplog.text
    consumer.close()
    with pytest.raises(pulsar.AlreadyClosed):
        consumer.close()


def test_a_subscription_that_is_deleted_on_one_of_several_topics_goes_alone(client, other_client, admin):
    for topic in ("order-a", "order-b"):
        send(other_client, topic)
    consumer = client.subscribe(PATTERN, "s", pattern_auto_discovery_period=1)
    admin.unsubscribe("order-a", "s", force=True)
    eventually(lambda: topics_of(consumer) == {"order-b"})
    send(other_client, "order-b", "b1")
    assert receive_values(consumer, 1) == ["b1"]


def test_a_pattern_makes_no_topic_that_was_deleted_meanwhile(client, other_client, admin, monkeypatch):
    """Between the look at the folder and the subscription."""
    send(other_client, "order-a", "a1")
    send(other_client, "order-b")
    topics = type(client._layout).topics

    def listed(layout, *namespace):
        found = topics(layout, *namespace)
        if any(name.local_name == "order-a" for name in found):
            admin.delete_topic("order-a", force=True)
        return found

    monkeypatch.setattr(type(client._layout), "topics", listed)
    consumer = client.subscribe(PATTERN, "s")
    assert topics_of(consumer) == {"order-b"} and admin.topics("public/default") == [
        str(consumer._membership._topics[0][0].name)
    ]


def test_one_that_was_away_hears_that_its_topic_is_gone(client, other_client, admin, broker):
    """It was let go, and the topic deleted, and made again or not, before it asked to connect again."""
    for topic in ("order-a", "order-b", "order-c"):
        send(other_client, topic)
    consumer = client.subscribe(PATTERN, "s")
    with broker.paused():
        for topic in ("order-a", "order-b"):
            admin.delete_topic(topic, force=True)
        send(other_client, "order-b", "another life")
        broker.end_lease(consumer._consumer_id)
    eventually(lambda: topics_of(consumer) == {"order-c"})
    send(other_client, "order-c", "c1")
    assert receive_values(consumer, 1) == ["c1"]


@pytest.mark.parametrize(
    "error", [OSError(5, "disk"), DeltaError("Input/output error"), CorruptState("half"), RootAway("x")]
)
def test_a_topic_that_cannot_be_looked_at_for_now_ends_nobody(client, other_client, broker, monkeypatch, error):
    """When a consumer that was let go has connected again."""
    send(other_client, "order-a")
    consumer = client.subscribe("order-a", "s")

    def fail(*_asked):
        raise error

    monkeypatch.setattr(reconnection, "read_topic", fail)
    broker.end_lease(consumer._consumer_id)
    send(other_client, "order-a", "a1")
    assert receive_values(consumer, 1) == ["a1"] and consumer.is_connected()


def test_what_was_queued_of_a_topic_that_was_just_deleted_is_no_error(client, other_client, admin, broker):
    """The broker has not said yet that it is gone."""
    for topic in ("order-a", "order-b"):
        send(other_client, topic)
    consumer = client.subscribe(PATTERN, "s")
    send(other_client, "order-a", "a1", "a2")
    eventually(lambda: consumer._receiver._arrived)
    with broker.paused():
        admin.delete_topic("order-a", force=True)
        assert nothing_comes(consumer, 50)
    send(other_client, "order-b", "b1")
    assert receive_values(consumer, 1) == ["b1"]


def test_what_is_looked_up_of_a_topic_that_was_just_deleted_is_no_error(client, other_client, admin, broker):
    """The key of a message that was given back by its id, before the broker has said that its topic is gone."""
    batching = dict(batching_enabled=True, batching_type=pulsar.BatchingType.KeyBased)
    producer = other_client.create_producer("order-a", batching_max_publish_delay_ms=60_000, **batching)
    send(other_client, "order-b")
    consumer = client.subscribe(PATTERN, "s", pulsar.ConsumerType.KeyShared)
    for number in range(3):
        producer.send_async(b"%d" % number, None, partition_key=f"key {number}")
    producer.flush()
    message = consumer.receive(30_000)
    with broker.paused():
        consumer.negative_acknowledge(message.message_id())
        admin.delete_topic("order-a", force=True)
        assert nothing_comes(consumer, 50)
    send(other_client, "order-b", "b1")
    assert receive_values(consumer, 1) == ["b1"]


def test_asyncio_goes_on_with_the_rest(client, other_client, admin, service_url):
    for topic in ("order-a", "order-b"):
        send(other_client, topic)

    async def work():
        awaiting = aio.Client(service_url, operation_timeout_seconds=10)
        consumer = await awaiting.subscribe("order-.*", "s", is_pattern_topic=True)
        waiting = asyncio.ensure_future(consumer.receive())
        await asyncio.to_thread(delete, admin, consumer._consumer, "order-a")
        await asyncio.to_thread(send, other_client, "order-b", "b1")
        message = await asyncio.wait_for(waiting, 30)
        assert message.data() == b"b1"
        await consumer.acknowledge(message)
        await awaiting.close()

    asyncio.run(work())
