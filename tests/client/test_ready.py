"""Messages that are ready: taken one by one without looking at anything else, looked at once more when something has
changed."""

import threading
from concurrent.futures import ThreadPoolExecutor
from unittest.mock import Mock

import numpy as np
import pytest

import pulsar_spark as pulsar
from pulsar_spark.client.model.message import Message
from pulsar_spark.client.receiving import handing_out
from pulsar_spark.client.receiving.delivery import Delivery
from pulsar_spark.client.receiving.ready import Ready
from tests.support.waiting import eventually, nothing_comes

SHARED = dict(consumer_type=pulsar.ConsumerType.Shared, initial_position=pulsar.InitialPosition.Earliest)


def publish(client, messages: int, *, batch: int = 1) -> list[pulsar.MessageId]:
    producer = client.create_producer(
        "t", batching_enabled=batch > 1, batching_max_messages=batch, max_pending_messages=0
    )
    ids: list[pulsar.MessageId] = []
    for number in range(messages):
        producer.send_async(str(number).encode(), lambda result, message_id: ids.append(message_id))
    producer.flush()
    producer.close()
    return ids


def numbers(messages: list[Message]) -> list[int]:
    return [int(message.data()) for message in messages]


def test_each_is_taken_once_or_taken_back():
    """By however many threads, and counted as often as somebody asks."""
    messages = list(range(10_000))
    ready, taken, counted = Ready(messages), [], []

    def take() -> None:
        taken.extend(ready.messages)

    with ThreadPoolExecutor(3) as threads:
        for each in [threads.submit(take) for _ in range(2)]:
            each.result()
    counted.append(ready.newly_taken())
    assert sorted(taken) == messages and counted == [10_000] and ready.take_back() == []
    ready = Ready(messages)
    first = [next(ready.messages) for _ in range(3)]
    assert ready.newly_taken() == 3 and ready.newly_taken() == 0
    first.append(next(ready.messages))
    assert ready.take_back() == messages[4:] and ready.newly_taken() == 1 and next(ready.messages, None) is None


def test_a_delivery_in_due_order_lies_where_its_entries_do():
    """What comes again of it elsewhere takes the place of what is ready."""
    row = dict.fromkeys(("chunks", "batch_size", "redelivery_count", "ack_set", "delivery_round"))
    due = np.array([12, 3, 7])
    delivery = Delivery(Mock(), row | {"first": 3, "last": 12, "positions": due}, 0)
    assert (delivery.first, delivery.last) == (3, 12)
    assert Ready([], delivery.first, delivery.last).may_hold(7, 7)


@pytest.mark.parametrize("batch", [1, 10])
def test_what_is_acknowledged_by_its_id_is_not_handed_out(client, broker, batch):
    ids = publish(client, 20, batch=batch)
    consumer = client.subscribe("t", "s", **SHARED)
    assert numbers([consumer.receive(60_000)]) == [0]
    for message_id in ids[3:9:2]:
        consumer.acknowledge(message_id)
    assert numbers([consumer.receive(60_000) for _ in range(16)]) == [1, 2, 4, 6, 8, *range(9, 20)]
    assert nothing_comes(consumer)


def test_what_is_acknowledged_up_to_an_id_is_not_handed_out(client, broker):
    ids = publish(client, 20, batch=10)
    consumer = client.subscribe("t", "s", initial_position=pulsar.InitialPosition.Earliest)
    assert numbers([consumer.receive(60_000)]) == [0]
    consumer.acknowledge_cumulative(ids[12])
    assert numbers([consumer.receive(60_000) for _ in range(7)]) == list(range(13, 20)) and nothing_comes(consumer)


def test_a_consumer_that_is_closed_hands_out_nothing_more(client, broker):
    publish(client, 20)
    consumer = client.subscribe("t", "s", **SHARED)
    messages = [consumer.receive(60_000) for _ in range(2)]
    consumer.close()
    with pytest.raises(pulsar.AlreadyClosed):
        consumer.receive(60_000)
    with pytest.raises(pulsar.AlreadyClosed):
        consumer.acknowledge(messages[0])


def test_messages_that_are_asked_for_again_come_once_more(client, broker):
    publish(client, 20)
    consumer = client.subscribe("t", "s", **SHARED)
    assert numbers([consumer.receive(60_000) for _ in range(5)]) == list(range(5))
    consumer.redeliver_unacknowledged_messages()
    again = [consumer.receive(60_000) for _ in range(20)]
    assert sorted(numbers(again)) == list(range(20)) and nothing_comes(consumer)
    assert {message.redelivery_count() for message in again[:5]} == {1}


def test_permits_are_asked_for_when_half_the_queue_is_taken(client, broker):
    """At once, not with the next call; however the queue's messages were made ready (semantics 4.1)."""
    publish(client, 100, batch=10)
    consumer = client.subscribe("t", "s", receiver_queue_size=40, **SHARED)
    for _ in range(19):
        consumer.receive(60_000)
    assert [request.permits for request in broker.asked("flow")] == [40]
    consumer.receive(60_000)
    eventually(lambda: [request.permits for request in broker.asked("flow")] == [40, 20])


def test_what_threads_acknowledge_meanwhile_is_all_sent(client, broker):
    """An acknowledgement that comes while the others are taken to be sent starts the next sending."""
    publish(client, 4000)
    consumer = client.subscribe("t", "s", **SHARED)
    messages = [consumer.receive(60_000) for _ in range(4000)]
    start = threading.Barrier(4)

    def acknowledge(number: int) -> None:
        start.wait()
        for message in messages[number::4]:
            consumer.acknowledge(message)

    with ThreadPoolExecutor(4) as threads:
        for each in [threads.submit(acknowledge, number) for number in range(4)]:
            each.result()
    eventually(lambda: broker.cursor("t", "s").mark_delete == 3999)


@pytest.mark.parametrize("batch", [1, 10])
def test_acknowledgements_in_any_order_are_made_out_alike(client, broker, batch):
    publish(client, 60, batch=batch)
    consumer = client.subscribe("t", "s", **SHARED)
    messages = [consumer.receive(60_000) for _ in range(60)]
    left = {7, 23, 24, 41}
    in_turn = [messages[number * 7 % 60] for number in range(60) if number * 7 % 60 not in left]
    for message in in_turn[::2]:
        consumer.acknowledge(message)
    consumer.acknowledge(in_turn[1::2])
    consumer.acknowledge(in_turn[0])
    consumer.close()
    again = client.subscribe("t", "s", **SHARED)
    assert sorted(numbers([again.receive(60_000) for _ in left])) == sorted(left) and nothing_comes(again)


@pytest.mark.parametrize("kind", [pulsar.ConsumerType.Shared, pulsar.ConsumerType.KeyShared])
def test_deliveries_that_follow_each_other_are_read_together(client, broker, monkeypatch, kind):
    """Whether they come for the first time or again; another redelivery count is read by itself."""
    reads, real = [], handing_out.read_messages

    def noted(of, delivery):
        reads.append((delivery.entries, delivery.redelivery_count))
        return real(of, delivery)

    monkeypatch.setattr(handing_out, "read_messages", noted)
    consumer = client.subscribe("t", "s", consumer_type=kind, negative_ack_redelivery_delay_ms=0)
    producer = client.create_producer("t")

    def send(*wanted: int) -> None:
        """Each in a round, and a delivery, of its own."""
        for number in wanted:
            count = arrived(consumer)
            producer.send(str(number).encode(), partition_key=f"k{number % 7}")
            eventually(lambda: arrived(consumer) > count)

    send(*range(12))
    assert arrived(consumer) == 12
    taken = [consumer.receive(60_000) for _ in range(12)]
    assert numbers(taken) == list(range(12)) and reads == [(12, 0)]
    for message in taken[3:6]:
        consumer.negative_acknowledge(message)
        count = arrived(consumer)
        eventually(lambda: arrived(consumer) > count)
    send(12, 13)
    again = [consumer.receive(60_000) for _ in range(5)]
    assert numbers(again) == [3, 4, 5, 12, 13] and reads[1:] == [(3, 1), (2, 0)]
    assert [message.redelivery_count() for message in again] == [1, 1, 1, 0, 0]
    for message in taken[:3] + taken[6:] + again:
        consumer.acknowledge(message)
    eventually(lambda: broker.cursor("t", "s").mark_delete == 13)


def arrived(consumer: pulsar.Consumer) -> int:
    """Deliveries that nobody has begun to read."""
    return len(consumer._receiver._arrived)


def test_what_comes_again_of_other_entries_is_not_among_what_is_ready():
    ready = Ready([], 3, 5)
    assert [ready.may_hold(*span) for span in ((0, 2), (0, 3), (4, 4), (5, 9), (6, 9))] == [
        False,
        True,
        True,
        True,
        False,
    ]
    assert Ready([]).may_hold(7, 7)
