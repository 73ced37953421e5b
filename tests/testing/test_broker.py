"""A wrong answer about a message, or an assertion that passes or fails without reason, is found here."""

import asyncio
from datetime import timedelta

import pytest

import pulsar_spark as pulsar
import pulsar_spark.asyncio
from pulsar_spark.errors import InvalidMessage, SubscriptionNotFound, TopicNotFound
from tests.support.waiting import DEADLINE_SECONDS, receive_values, send

WAIT = DEADLINE_SECONDS * 1000
SHARED = {"consumer_type": pulsar.ConsumerType.Shared, "consumer_name": "worker"}
LETTERS = {"dead_letter_policy": pulsar.ConsumerDeadLetterPolicy(1), "negative_ack_redelivery_delay_ms": 60_000}


def refused(call, *arguments):
    with pytest.raises(AssertionError) as failed:
        call(*arguments)
    return str(failed.value)


def test_where_a_message_is(pulsar_client, pulsar_broker, pulsar_clock):
    consumer = pulsar_client.subscribe("t", "s", **SHARED, **LETTERS)
    producer = pulsar_client.create_producer("t")
    sent = producer.send(b"now")
    later = producer.send(b"later", deliver_after=timedelta(minutes=5))
    assert pulsar_broker.where_is(later, "s") == "it waits for its deliver time"
    message = consumer.receive(WAIT)
    assert pulsar_broker.where_is(sent, "s") == "it is out at consumer 'worker'"
    consumer.negative_acknowledge(message)
    assert pulsar_broker.where_is(message, "s") == "consumer 'worker' gave it back; it comes again in 60 s"
    pulsar_clock.advance(seconds=60)
    assert pulsar_broker.where_is(sent, "s") == "it is out at consumer 'worker' (redelivered 1 times)"
    consumer.close()
    assert pulsar_broker.where_is(sent, "s") == "it waits for a consumer, to be delivered again (redelivered 1 times)"
    other = pulsar_client.subscribe("t", "other", pulsar.ConsumerType.Shared)
    other.close()
    assert pulsar_broker.where_is(producer.send(b"new"), "other") == (
        "no consumer has received it yet, and none is connected"
    )


def test_what_is_acknowledged(pulsar_client, pulsar_broker):
    consumer = pulsar_client.subscribe("t", "s", **SHARED)
    send(pulsar_client, "t", "a", "b")
    first, second = consumer.receive(WAIT), consumer.receive(WAIT)
    consumer.acknowledge(second)
    pulsar_broker.assert_acknowledged(second, "s")
    assert pulsar_broker.backlog("t", "s") == 1
    assert refused(pulsar_broker.assert_acknowledged, "t", "s") == (
        f"1 messages of 't' are not acknowledged on 's': {first.message_id()}: it is out at consumer 'worker'"
    )
    consumer.acknowledge(first)
    pulsar_broker.assert_acknowledged("t", "s")
    assert refused(pulsar_broker.assert_dead, first, "s").endswith("is not dead on 's': it is acknowledged")
    assert [message.data() for message in pulsar_broker.published("t")] == [b"a", b"b"]
    assert pulsar_broker.published("nothing") == []


def test_messages_of_a_batch_count_one_by_one(pulsar_client, pulsar_broker):
    consumer = pulsar_client.subscribe("t", "s", **SHARED)
    producer = pulsar_client.create_producer("t", batching_enabled=True, batching_max_publish_delay_ms=60_000)
    for value in (b"a", b"b", b"c"):
        producer.send_async(value, None)
    producer.flush()
    received = [consumer.receive(WAIT) for _ in range(3)]
    assert pulsar_broker.backlog("t", "s") == 3
    consumer.acknowledge(received[1])
    assert pulsar_broker.backlog("t", "s") == 2
    pulsar_broker.assert_acknowledged(received[1], "s")
    assert "it is out at consumer 'worker'" in refused(pulsar_broker.assert_acknowledged, received[0], "s")


def test_a_message_that_comes_back_too_often_is_dead(pulsar_client, pulsar_broker, pulsar_clock):
    consumer = pulsar_client.subscribe("t", "s", **SHARED, **LETTERS)
    sent = pulsar_client.create_producer("t").send(b"x")
    assert pulsar_broker.dead_letters("t", "s") == []
    for _ in range(2):
        consumer.negative_acknowledge(consumer.receive(WAIT))
        pulsar_clock.advance(minutes=1)
    pulsar_broker.assert_dead(sent, "s")
    pulsar_broker.assert_redelivered(sent, "s", 1)
    assert [letter.data() for letter in pulsar_broker.dead_letters("t", "s")] == [b"x"]
    assert refused(pulsar_broker.assert_redelivered, sent, "s", 2).endswith(
        "was redelivered 1 times on 's', not 2: it is dead: its letter is in 'persistent://public/default/t-s-DLQ'"
    )
    pulsar_broker.assert_acknowledged("t", "s")


def test_a_message_that_is_put_off_too_often_is_dead(pulsar_client, pulsar_broker, pulsar_clock):
    consumer = pulsar_client.subscribe("t", "s", **SHARED, **LETTERS, retry_enable=True)
    sent = pulsar_client.create_producer("t").send(b"x")
    consumer.reconsume_later(consumer.receive(WAIT), 60_000)
    assert pulsar_broker.backlog("t-s-RETRY", "s") == 1
    pulsar_clock.advance(minutes=1)
    again = consumer.receive(WAIT)
    consumer.reconsume_later(again, 60_000)
    pulsar_broker.assert_dead(sent, "s")
    pulsar_broker.assert_dead(again, "s")
    pulsar_broker.assert_acknowledged(again, "s")


def test_other_threads_are_waited_for(pulsar_client, pulsar_broker):
    pulsar_client.subscribe("t", "s", message_listener=lambda consumer, message: consumer.acknowledge(message))
    sent = pulsar_client.create_producer("t").send(b"x")
    pulsar_broker.assert_acknowledged(sent, "s", within=DEADLINE_SECONDS)


def test_a_paused_broker_does_nothing(pulsar_client, pulsar_broker):
    consumer = pulsar_client.subscribe("t", "s", **SHARED)
    with pulsar_broker.paused():
        pulsar_client.create_producer("u", send_timeout_millis=60_000)
        send(pulsar_client, "t", "x")
        pulsar_broker.settle()
        with pytest.raises(pulsar.Timeout):
            consumer.receive(10)
    assert receive_values(consumer, 1) == ["x"]


def test_what_there_is_not(pulsar_client, pulsar_broker):
    pulsar_client.subscribe("t", "billing")
    sent = pulsar_client.create_producer("u").send(b"x")
    with pytest.raises(SubscriptionNotFound, match="did you mean 'billing'"):
        pulsar_broker.backlog("t", "biling")
    with pytest.raises(SubscriptionNotFound):
        pulsar_broker.assert_dead(sent, "billing")
    with pytest.raises(InvalidMessage, match="give a message of this topic"):
        pulsar_broker.assert_acknowledged(pulsar.MessageId(-1, 9, 0).of_topic("t"), "billing")
    with pytest.raises(TopicNotFound, match="did you mean 't'"):
        pulsar_broker.backlog("tt", "s")
    with pytest.raises(InvalidMessage, match="bytes b'x' is no message"):
        pulsar_broker.assert_acknowledged(b"x", "s")
    with pytest.raises(InvalidMessage, match="does not name its topic"):
        pulsar_broker.assert_acknowledged(pulsar.MessageId(-1, 1, 0), "billing")


def test_clients_of_asyncio(pulsar_service_url, pulsar_broker, pulsar_clock):
    async def consume():
        client = pulsar_spark.asyncio.Client(pulsar_service_url)
        consumer = await client.subscribe("t", "s", **SHARED, **LETTERS)
        producer = await client.create_producer("t")
        await producer.send(b"x")
        await consumer.negative_acknowledge(await consumer.receive())
        pulsar_clock.advance(minutes=1)
        again = await consumer.receive()
        await consumer.acknowledge(again)
        await client.close()
        return again

    pulsar_broker.assert_acknowledged(asyncio.run(consume()), "s")
