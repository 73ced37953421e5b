"""Chunked messages as consumers see them: one message, in the place of its last chunk, on every subscription type."""

from datetime import timedelta

import pytest

import pulsar_spark as pulsar
from pulsar_spark.storage.delta.scan import open_table
from pulsar_spark.storage.topics.topics import read_topic
from tests.client.raw_chunks import publish
from tests.support.waiting import DEADLINE_SECONDS, eventually, nothing_comes, receive_values

CHUNKS = dict(chunking_enabled=True, chunk_max_message_size=4)
SINGLE = [pulsar.ConsumerType.Exclusive, pulsar.ConsumerType.Failover]
SHARING = [pulsar.ConsumerType.Shared, pulsar.ConsumerType.KeyShared]
LONG = b"123456789"


def subscribe(client: pulsar.Client, kind=pulsar.ConsumerType.Shared, topic: str = "t", **options) -> pulsar.Consumer:
    options = {"initial_position": pulsar.InitialPosition.Earliest, **options}
    return client.subscribe(topic, "s", consumer_type=kind, **options)


def receive(consumer: pulsar.Consumer, count: int) -> list[pulsar.Message]:
    return [consumer.receive(DEADLINE_SECONDS * 1000) for _ in range(count)]


def is_acknowledged_up_to(broker, position: int) -> bool:
    return bool(eventually(lambda: broker.cursor("t", "s").mark_delete == position))


@pytest.mark.parametrize("kind", SINGLE + SHARING)
@pytest.mark.parametrize("queue_size", [1, 1000])
def test_a_chunked_message_is_one_and_is_acknowledged_as_one(client, broker, kind, queue_size):
    consumer, producer = subscribe(client, kind, receiver_queue_size=queue_size), client.create_producer("t", **CHUNKS)
    ids = [producer.send(payload, partition_key="k", properties={"a": "b"}) for payload in (b"1st", LONG, LONG, b"4th")]
    first, *found, last = receive(consumer, 4)
    assert [first.data(), *(message.data() for message in found), last.data()] == [b"1st", LONG, LONG, b"4th"]
    assert [message.message_id() for message in (first, *found, last)] == ids
    assert [message.message_id().first_chunk_message_id() for message in found] == [
        message_id.first_chunk_message_id() for message_id in ids[1:3]
    ]
    assert {(message.partition_key(), message.properties()["a"], message.redelivery_count()) for message in found} == {
        ("k", "b", 0)
    }
    consumer.acknowledge(first)
    consumer.acknowledge(found[1])
    assert is_acknowledged_up_to(broker, 0), "the first chunk of what is not acknowledged is kept"
    consumer.acknowledge(pulsar.MessageId.deserialize(ids[1].serialize()))
    assert is_acknowledged_up_to(broker, 6)
    consumer.acknowledge([last])
    assert is_acknowledged_up_to(broker, 7)
    consumer.close()
    assert nothing_comes(subscribe(client, kind))


@pytest.mark.parametrize("kind", SINGLE + SHARING)
def test_what_is_not_acknowledged_comes_again_as_a_whole(client, broker, kind):
    consumer, producer = subscribe(client, kind), client.create_producer("t", **CHUNKS)
    producer.send(LONG, partition_key="k")
    producer.send(b"last", partition_key="k")
    assert receive_values(consumer, 2) == [LONG.decode(), "last"]
    consumer.close()
    consumer = subscribe(client, kind, negative_ack_redelivery_delay_ms=100)
    found, last = receive(consumer, 2)
    assert (found.data(), last.data()) == (LONG, b"last")
    consumer.acknowledge(last)
    consumer.negative_acknowledge(found.message_id())
    (again,) = receive(consumer, 1)
    assert (again.data(), again.message_id()) == (LONG, found.message_id())
    assert again.redelivery_count() == found.redelivery_count() + 1
    consumer.acknowledge(again)
    assert is_acknowledged_up_to(broker, 3)


def test_what_is_not_acknowledged_in_time_comes_again(client, broker):
    consumer = subscribe(client, unacked_messages_timeout_ms=10_000)
    client.create_producer("t", **CHUNKS).send(LONG)
    receive(consumer, 1)
    consumer._acknowledger._unacked._clock = lambda: float("inf")
    (again,) = receive(consumer, 1)
    assert (again.data(), again.redelivery_count()) == (LONG, 1)


@pytest.mark.parametrize("kind", SINGLE)
def test_a_cumulative_acknowledgement_takes_in_whole_messages(client, broker, kind):
    consumer = subscribe(client, kind)
    publish(client, "t", "A:0:2:a0", "x", "B:0:2:b0", "A:1:2:a1", "y", "B:1:2:b1", "z")
    found = receive(consumer, 5)
    assert [message.data() for message in found] == [b"x", b"a0a1", b"y", b"b0b1", b"z"]
    consumer.acknowledge_cumulative(found[1])
    assert is_acknowledged_up_to(broker, 1), "B begins there, and is not acknowledged"
    consumer.acknowledge_cumulative(found[3].message_id())
    assert is_acknowledged_up_to(broker, 5)
    consumer.close()
    assert receive_values(subscribe(client, kind), 1) == ["z"]


@pytest.mark.parametrize("kind", SINGLE + SHARING)
def test_an_incomplete_message_waits_until_it_is_completed(client, broker, kind):
    consumer = subscribe(client, kind)
    publish(client, "t", "A:0:3:a0", "A:1:3:a1", "x")
    (found,) = receive(consumer, 1)
    consumer.acknowledge(found)
    assert found.data() == b"x" and nothing_comes(consumer)
    consumer.close()
    consumer = subscribe(client, kind)
    assert nothing_comes(consumer)
    publish(client, "t", "A:2:3:a2")
    assert receive_values(consumer, 1) == ["a0a1a2"]


def test_who_shares_a_subscription_gets_whole_messages(client, broker):
    consumers = [subscribe(client, receiver_queue_size=1) for _ in range(2)]
    publish(client, "t", "A:0:2:a0", "B:0:2:b0", "C:0:2:c0", "C:1:2:c1", "A:1:2:a1", "B:1:2:b1")
    found = sorted(receive_values(consumers[0], 1) + receive_values(consumers[1], 1))
    assert len(found) == 2 and set(found) < {"a0a1", "b0b1", "c0c1"}


@pytest.mark.parametrize("is_inclusive", [False, True])
@pytest.mark.parametrize("kind", SINGLE + SHARING)
def test_seek_to_a_chunked_message(client, broker, kind, is_inclusive):
    consumer = subscribe(client, kind, start_message_id_inclusive=is_inclusive)
    ids = publish(client, "t", "w", "A:0:2:a0", "x", "A:1:2:a1", "y")
    found = receive(consumer, 4)
    for message in found:
        consumer.acknowledge(message)
    assert is_acknowledged_up_to(broker, 4)
    assert found[2].message_id().first_chunk_message_id() == ids[1]
    consumer.seek(pulsar.MessageId.deserialize(found[2].message_id().serialize()))
    assert broker.cursor("t", "s").mark_delete == 0, "it is where the first chunk lies"
    assert receive_values(consumer, 1 + is_inclusive) == ["a0a1", "y"][1 - is_inclusive :]
    assert nothing_comes(consumer)
    consumer.seek(pulsar.MessageId.earliest)
    assert sorted(receive_values(consumer, 4)) == ["a0a1", "w", "x", "y"]


def test_the_size_of_a_batch_that_is_received_is_that_of_whole_messages(client, broker):
    policy = pulsar.ConsumerBatchReceivePolicy(-1, 10, 1000)
    consumer, producer = subscribe(client, batch_receive_policy=policy), client.create_producer("t", **CHUNKS)
    for payload in (b"1", LONG, LONG, b"2"):
        producer.send(payload)
    eventually(lambda: consumer._subscriptions[0]._queued == 4)
    assert [message.data() for message in consumer.batch_receive()] == [b"1", LONG]


def test_a_delayed_chunked_message_comes_when_it_is_due(client, broker):
    consumer, producer = subscribe(client), client.create_producer("t", **CHUNKS)
    producer.send(LONG, deliver_after=timedelta(hours=1))
    producer.send(b"first")
    assert receive_values(consumer, 1) == ["first"] and nothing_comes(consumer)
    broker.advance(3601)
    (found,) = receive(consumer, 1)
    assert found.data() == LONG
    consumer.acknowledge(found)
    assert eventually(lambda: broker.cursor("t", "s").mark_delete >= 2) and nothing_comes(consumer)


@pytest.mark.parametrize(
    "options, said",
    [
        ({}, ("10", "false", "60000")),
        (
            {
                "max_pending_chunked_message": 1,
                "auto_ack_oldest_chunked_message_on_queue_full": True,
                "expire_time_of_incomplete_chunked_message_ms": 0,
            },
            ("1", "true", "0"),
        ),
        ({"max_pending_chunked_message": -1}, ("-1", "false", "60000")),
    ],
)
def test_limits_of_incomplete_messages_are_asked_for(client, broker, options, said):
    subscribe(client, **options)
    (request,) = broker.asked("subscribe")
    names = ("max_pending_chunked_message", "auto_ack_oldest_chunked_message_on_queue_full")
    names = (*names, "expire_time_of_incomplete_chunked_message_ms")
    assert tuple(request.properties[name] for name in names) == said


@pytest.mark.parametrize(
    "options",
    [
        {"max_pending_chunked_message": "1"},
        {"auto_ack_oldest_chunked_message_on_queue_full": 1},
        {"expire_time_of_incomplete_chunked_message_ms": -1},
        {"expire_time_of_incomplete_chunked_message_ms": 1.5},
    ],
)
def test_limits_that_are_none_are_refused(client, broker, options):
    with pytest.raises(ValueError, match=next(iter(options))):
        subscribe(client, **options)


def test_sizes_that_do_not_add_up_are_an_error_of_that_message(client, broker):
    consumer = subscribe(client, unacked_messages_timeout_ms=10_000)
    publish(client, "t", "x")
    ids = publish(client, "t", "A:0:2:a0", "A:1:2:a1", size=5)
    publish(client, "t", "y")
    assert receive_values(consumer, 1) == ["x"]
    with pytest.raises(pulsar.UnreadableMessage, match="one of them gives the message 5") as wrong:
        consumer.receive(DEADLINE_SECONDS * 1000)
    assert receive_values(consumer, 1) == ["y"] and nothing_comes(consumer)
    assert (wrong.value.message_id, wrong.value.message_id.first_chunk_message_id()) == (ids[1], ids[0])
    consumer._acknowledger._unacked._clock = lambda: float("inf")
    outcomes = [str(wrong.value), "x", "y"]
    for _ in range(3):
        try:
            outcomes.remove(consumer.receive(DEADLINE_SECONDS * 1000).data().decode())
        except pulsar.UnreadableMessage as again:
            outcomes.remove(str(again))
    assert outcomes == [], "like every other it comes again when it is not acknowledged in time"
    consumer.acknowledge(wrong.value.message_id)
    consumer.close()
    assert sorted(receive_values(subscribe(client), 2)) == ["x", "y"]


def test_a_batch_that_is_received_ends_before_what_cannot_be_read(client, broker):
    consumer = subscribe(client, batch_receive_policy=pulsar.ConsumerBatchReceivePolicy(3, -1, 1000))
    publish(client, "t", "x")
    publish(client, "t", "A:0:2:a0", "A:1:2:a1", size=5)
    publish(client, "t", "y")
    eventually(lambda: consumer._subscriptions[0]._queued == 3)
    assert [message.data() for message in consumer.batch_receive()] == [b"x"]
    with pytest.raises(pulsar.UnreadableMessage):
        consumer.batch_receive()
    assert [message.data() for message in consumer.batch_receive()] == [b"y"]


def test_of_a_message_whose_chunks_are_gone_there_is_nothing_to_receive(client, broker):
    publish(client, "t", "A:0:3:a0", "A:1:3:a1", "x", "A:2:3:a2", "y")
    consumer = subscribe(client)
    eventually(lambda: consumer._subscriptions[0]._queued == 3)
    open_table(read_topic(client._layout, "t").path).delete("chunk_id = 1")
    found = receive(consumer, 2)
    assert [message.data() for message in found] == [b"x", b"y"]
    for message in found:
        consumer.acknowledge(message)
    assert is_acknowledged_up_to(broker, 4)


def test_a_message_whose_chunks_are_lost_is_an_error_and_stays(client, broker):
    publish(client, "t", "A:0:2:a0", "A:1:2:a1", "x")
    consumer = subscribe(client)
    eventually(lambda: consumer._subscriptions[0]._queued == 2)
    topic = read_topic(client._layout, "t")
    (path,) = [run.path for run in client._ledgers.runs(topic.topic_id, -1, 0, 0)]
    (topic.path / path).unlink()
    with pytest.raises(pulsar.MessagesLost):
        consumer.receive(DEADLINE_SECONDS * 1000)
    assert receive_values(consumer, 1) == ["x"]
    assert broker.cursor("t", "s").mark_delete == -1
