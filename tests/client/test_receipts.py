"""Receipts, grouping, acknowledgements with properties and lists of them (semantics 3.1, 3.6, 3.8, 3.9)."""

import pytest

import pulsar_spark as pulsar
from pulsar_spark.admin import Admin
from pulsar_spark.client.acks.receipts import Receipt
from pulsar_spark.link.inbox import Reply
from tests.support.waiting import eventually, in_background, nothing_comes, receive_values

EARLIEST = dict(initial_position=pulsar.InitialPosition.Earliest)
SHARED = dict(consumer_type=pulsar.ConsumerType.Shared)


@pytest.fixture
def sent(client):
    producer = client.create_producer("t")
    for number in range(5):
        producer.send(f"m{number}".encode())


def receive(consumer, count: int = 5) -> list:
    return [consumer.receive(60_000) for _ in range(count)]


def acks(broker) -> list[tuple]:
    return [
        (request.kind, request.first, request.last, request.properties)
        for request in broker.asked("ack", "cumulative_ack")
    ]


def test_with_receipts_acknowledging_ends_when_the_broker_has_committed_it(client, broker, sent):
    consumer = client.subscribe("t", "s", ack_receipt_enabled=True, ack_group_time_ms=60_000, **EARLIEST)
    messages = receive(consumer)
    consumer.acknowledge(messages[2])
    assert broker.statuses("t", "s")[2] == "acknowledged"
    consumer.acknowledge_cumulative(messages[0])
    assert broker.cursor("t", "s").mark_delete == 0
    assert acks(broker) == [("ack", 2, 2, {"receipt": "true"}), ("cumulative_ack", None, 0, {"receipt": "true"})]


def test_while_the_broker_is_silent_acknowledging_waits(client, broker, sent):
    consumer = client.subscribe("t", "s", ack_receipt_enabled=True, **EARLIEST)
    message = receive(consumer)[0]
    with broker.paused():
        acknowledging = in_background(broker, consumer.acknowledge, message)
        assert not acknowledging.done()
    acknowledging.result(60)


def test_with_receipts_a_refusal_is_raised(client, broker, sent):
    consumer = client.subscribe("t", "s", ack_receipt_enabled=True, **EARLIEST)
    message = receive(consumer)[0]
    with broker.paused():
        deleting = in_background(broker, Admin(f"delta:{broker.layout.root}").unsubscribe, "t", "s", True)
        acknowledging = in_background(broker, consumer.acknowledge, message)
    deleting.result(60)
    with pytest.raises(pulsar.SubscriptionNotFound, match="has no subscription 's'"):
        acknowledging.result(60)


def test_with_receipts_and_no_broker_acknowledging_times_out(client, broker, sent):
    consumer = client.subscribe("t", "s", ack_receipt_enabled=True, **EARLIEST)
    messages = receive(consumer)
    consumer._acknowledger._timeout = 0.1
    with broker.paused():
        with pytest.raises(pulsar.Timeout, match="may still take effect"):
            consumer.acknowledge(messages[0])
    consumer.close()
    assert receive_values(client.subscribe("t", "s"), 4) == ["m1", "m2", "m3", "m4"]


def test_a_part_of_a_batch_that_is_not_sent_has_no_receipt(client, broker):
    producer = client.create_producer("t", batching_enabled=True, batching_max_publish_delay_ms=60_000)
    for number in range(3):
        producer.send_async(str(number).encode(), None)
    producer.flush()
    consumer = client.subscribe("t", "s", ack_receipt_enabled=True, batch_index_ack_enabled=False, **EARLIEST)
    messages = receive(consumer, 3)
    for message in messages[:2]:
        consumer.acknowledge(message)
    assert acks(broker) == []
    consumer.acknowledge(messages[2])
    assert acks(broker) == [("ack", 0, 0, {"receipt": "true"})]


def test_a_list_is_acknowledged_together_or_not_at_all(client, broker, sent):
    consumer = client.subscribe("t", "s", **EARLIEST)
    messages = receive(consumer)
    with pytest.raises(pulsar.InvalidMessage):
        consumer.acknowledge([messages[0], pulsar.MessageId(-1, 99, 0)])
    consumer.acknowledge([messages[1], messages[2].message_id()])
    consumer.acknowledge([])
    consumer.close()
    assert acks(broker) == [("ack", 1, 2, {})]


def test_acknowledgements_wait_for_the_group(client, broker, sent):
    consumer = client.subscribe("t", "s", ack_group_time_ms=60_000, max_ack_group_size=3, **EARLIEST)
    messages = receive(consumer)
    for message in messages[:2]:
        consumer.acknowledge(message)
    eventually(lambda: broker.asked("flow"))
    assert acks(broker) == []
    consumer.acknowledge(messages[2])
    assert eventually(lambda: acks(broker)) == [("ack", 0, 2, {})]


@pytest.mark.parametrize(
    "options",
    [{"ack_group_time_ms": 0}, {"max_ack_group_size": 0, "ack_group_time_ms": 60_000}, {"max_ack_group_size": 1}],
)
def test_without_a_group_each_is_sent_at_once(client, broker, sent, options):
    consumer = client.subscribe("t", "s", **options, **EARLIEST)
    messages = receive(consumer)
    for number, message in enumerate(messages[:3]):
        consumer.acknowledge(message)
        eventually(lambda: len(acks(broker)) == number + 1)
    assert [first for _, first, _, _ in acks(broker)] == [0, 1, 2]


def test_acknowledgements_with_properties_go_at_once_and_alone(client, broker, sent):
    consumer = client.subscribe("t", "s", ack_group_time_ms=60_000, **EARLIEST)
    messages = receive(consumer)
    consumer.acknowledge(messages[2])
    consumer.acknowledge(messages[3], properties={"by": "me"})
    expected = [("ack", 2, 2, {}), ("ack", 3, 3, {"property.by": "me"})]
    assert eventually(lambda: len(acks(broker)) == 2) and acks(broker) == expected
    consumer.acknowledge_cumulative(messages[1], properties={"by": "you"})
    assert eventually(lambda: len(acks(broker)) == 3) and acks(broker)[2] == (
        "cumulative_ack",
        None,
        1,
        {"property.by": "you"},
    )
    with pytest.raises(ValueError):
        consumer.acknowledge(messages[0], properties={"by": 5})


def test_properties_and_a_receipt(client, broker, sent):
    consumer = client.subscribe("t", "s", ack_receipt_enabled=True, **EARLIEST)
    consumer.acknowledge(receive(consumer)[0], properties={"receipt": "mine"})
    assert acks(broker) == [("ack", 0, 0, {"property.receipt": "mine", "receipt": "true"})]


def test_what_is_acknowledged_and_not_yet_sent_is_not_shown_again(client, broker, sent):
    """Its permit is given back (3.6, 4.3). The next commit takes the acknowledgement along, so there is none between
    it and the message's coming again."""

    def permits() -> int:
        return sum(request.permits for request in broker.asked("flow"))

    consumer = client.subscribe(
        "t",
        "s",
        ack_group_time_ms=60_000,
        negative_ack_redelivery_delay_ms=60_000,
        receiver_queue_size=2,
        **SHARED,
        **EARLIEST,
    )
    messages = receive(consumer)
    for message in messages[1:3]:
        consumer.negative_acknowledge(message)
    eventually(lambda: sum(request.last - request.first + 1 for request in broker.asked("negative_ack")) == 2)
    eventually(lambda: permits() == 2 + 5)
    consumer.acknowledge(messages[1])
    broker.advance(60)
    assert receive_values(consumer, 1) == ["m2"] and nothing_comes(consumer)
    consumer.close()
    assert permits() == 2 + 5 + 2


def test_a_seek_completes_what_waits(client, broker, sent):
    consumer = client.subscribe("t", "s", ack_receipt_enabled=True, **EARLIEST)
    message = receive(consumer)[0]
    tracker = consumer._subscriptions[0].tracker
    with consumer._subscriptions[0].lock:
        tracker.group.acknowledge(0, -1, 1)
        receipt = tracker._receipt = Receipt()
        tracker.forget()
    receipt.wait(0)
    consumer.acknowledge(message)
    assert acks(broker) == [("ack", 0, 0, {"receipt": "true"})]


def test_a_line_that_goes_down_ends_the_waiting(client, broker, sent):
    consumer = client.subscribe("t", "s", ack_receipt_enabled=True, **EARLIEST)
    message = receive(consumer)[0]
    with broker.paused():
        acknowledging = in_background(broker, consumer.acknowledge, message)
        client._channel.stop(10)
        with pytest.raises(pulsar.AlreadyClosed):
            acknowledging.result(60)


def test_a_receipt_keeps_the_first_error():
    receipt = Receipt()
    replied = receipt.expect(["a", "b", "c"])
    replied["a"](Reply(None, None)), replied["b"](Reply(pulsar.ConsumerNotFound("b"), None))
    with pytest.raises(pulsar.Timeout):
        receipt.wait(0)
    replied["c"](Reply(pulsar.InvalidMessage("c"), None))
    with pytest.raises(pulsar.ConsumerNotFound):
        receipt.wait(0)
