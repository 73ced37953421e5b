"""Batches at the consumer: indexes acknowledged, given back, sought into."""

import pytest

import pulsar_spark as pulsar
from tests.support.waiting import eventually, nothing_comes, receive_values

EARLIEST = dict(initial_position=pulsar.InitialPosition.Earliest)


@pytest.fixture
def batches(client):
    """Two batches on topic t: a0..a3 and b0..b5."""
    producer = client.create_producer("t", batching_enabled=True, batching_max_publish_delay_ms=60_000)
    for name, size in (("a", 4), ("b", 6)):
        for number in range(size):
            producer.send_async(f"{name}{number}".encode(), None)
        producer.flush()


def acknowledge_some(client, **options) -> None:
    consumer = client.subscribe("t", "s", **options, **EARLIEST)
    messages = [consumer.receive(60_000) for _ in range(10)]
    for index in (0, 1, 2, 3, 5, 7):
        consumer.acknowledge(messages[index])
    consumer.close()


def test_acknowledged_indexes_do_not_come_again(client, batches):
    acknowledge_some(client)
    consumer = client.subscribe("t", "s")
    messages = [consumer.receive(60_000) for _ in range(4)]
    assert [message.data() for message in messages] == [b"b0", b"b2", b"b4", b"b5"] and nothing_comes(consumer)
    for message in messages:
        consumer.acknowledge(message)
    consumer.close()
    assert nothing_comes(client.subscribe("t", "s"))


def test_switched_off_only_whole_batches_count(client, batches):
    acknowledge_some(client, batch_index_ack_enabled=False)
    assert receive_values(client.subscribe("t", "s"), 6) == ["b0", "b1", "b2", "b3", "b4", "b5"]


def test_an_id_of_a_message_acknowledges_its_index_only(client, batches):
    consumer = client.subscribe("t", "s", **EARLIEST)
    ids = [consumer.receive(60_000).message_id() for _ in range(10)]
    consumer.acknowledge(ids[1])
    entry = pulsar.MessageId(-1, ids[4].ledger_id(), ids[4].entry_id())
    consumer.acknowledge(entry)
    with pytest.raises(pulsar.InvalidMessage):
        consumer.acknowledge(pulsar.MessageId(-1, ids[0].ledger_id(), ids[0].entry_id(), 4))
    consumer.close()
    again = client.subscribe("t", "s")
    assert receive_values(again, 3) == ["a0", "a2", "a3"] and nothing_comes(again)


def test_cumulative_inside_a_batch(client, batches):
    consumer = client.subscribe("t", "s", **EARLIEST)
    messages = [consumer.receive(60_000) for _ in range(10)]
    consumer.acknowledge_cumulative(messages[6])
    consumer.close()
    assert receive_values(client.subscribe("t", "s"), 3) == ["b3", "b4", "b5"]


def test_giving_one_message_back_brings_what_is_left_of_its_batch(client, batches):
    consumer = client.subscribe(
        "t", "s", consumer_type=pulsar.ConsumerType.Shared, negative_ack_redelivery_delay_ms=150, **EARLIEST
    )
    messages = [consumer.receive(60_000) for _ in range(10)]
    consumer.acknowledge(messages[0])
    consumer.acknowledge(messages[2])
    consumer.negative_acknowledge(messages[1])
    again = [consumer.receive(60_000) for _ in range(2)]
    assert [(message.data(), message.redelivery_count()) for message in again] == [
        (b"a1", 1),
        (b"a3", 1),
    ] and nothing_comes(consumer)


@pytest.mark.parametrize("is_inclusive, expected", [(False, ["a3", "b0"]), (True, ["a2", "a3"])])
def test_seeking_into_a_batch(client, broker, batches, is_inclusive, expected):
    consumer = client.subscribe("t", "s", start_message_id_inclusive=is_inclusive, **EARLIEST)
    messages = [consumer.receive(60_000) for _ in range(10)]
    consumer.seek(messages[2].message_id())
    assert receive_values(consumer, 2) == expected


def test_after_seeking_past_a_batch_s_start_its_rest_completes_it(client, broker, batches):
    consumer = client.subscribe("t", "s", **EARLIEST)
    messages = [consumer.receive(60_000) for _ in range(10)]
    consumer.seek(messages[1].message_id())
    for _ in range(2):
        consumer.acknowledge(consumer.receive(60_000))
    acknowledged = eventually(lambda: broker.asked("ack"))
    assert [(request.first, request.last, request.ack_set) for request in acknowledged] == [(0, 0, None)]


def test_permits_count_messages(client, broker, batches):
    consumer = client.subscribe("t", "s", receiver_queue_size=2, **EARLIEST)
    assert len(receive_values(consumer, 10)) == 10
    consumer.close()
    assert sum(request.permits for request in broker.asked("flow")) == 12
