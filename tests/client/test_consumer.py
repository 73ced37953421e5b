"""Receiving and acknowledging through a broker."""

import contextlib
import os
import subprocess
import sys
import threading

import pytest

import pulsar_spark as pulsar
from pulsar_spark.protocol.acknowledgement.positions import ranges_of
from pulsar_spark.storage.topics.topics import create_topic
from tests.support.waiting import eventually, nothing_comes, receive_values

EARLIEST = dict(initial_position=pulsar.InitialPosition.Earliest)
SHARED = dict(consumer_type=pulsar.ConsumerType.Shared)


def send(client, topic: str, count: int, start: int = 0, prefix: str = "m") -> list[pulsar.MessageId]:
    producer = client.create_producer(topic)
    ids = [producer.send(f"{prefix}{number}".encode()) for number in range(start, start + count)]
    producer.close()
    return ids


def test_messages_come_in_order_with_the_ids_they_were_sent_with(client):
    consumer = client.subscribe("t", "s")
    ids = send(client, "t", 4)
    messages = [consumer.receive(60_000) for _ in ids]
    assert [(message.message_id(), message.data().decode(), message.redelivery_count()) for message in messages] == [
        (message_id, f"m{number}", 0) for number, message_id in enumerate(ids)
    ]
    assert consumer.get_last_message_id() == ids[-1]
    assert (consumer.topic(), consumer.subscription_name(), consumer.is_connected()) == (
        "persistent://public/default/t",
        "s",
        True,
    )


def test_what_is_acknowledged_does_not_come_again(client, broker):
    send(client, "t", 6)
    consumer = client.subscribe("t", "s", **EARLIEST)
    messages = [consumer.receive(60_000) for _ in range(6)]
    consumer.acknowledge(messages[1])
    consumer.acknowledge(messages[4].message_id())
    consumer.acknowledge(messages[4])
    consumer.close()
    again = client.subscribe("t", "s")
    assert receive_values(again, 4) == ["m0", "m2", "m3", "m5"]
    again.acknowledge_cumulative(messages[3])
    again.close()
    assert receive_values(client.subscribe("t", "s"), 1) == ["m5"]


@pytest.mark.local_disk  # a server in this process lets receiving take as long as requests do
def test_acknowledgements_gather_into_ranges(client, broker):
    send(client, "t", 50)
    consumer = client.subscribe("t", "s", **EARLIEST)
    for _ in range(50):
        consumer.acknowledge(consumer.receive(60_000))
    consumer.close()
    asked = broker.asked("ack")
    assert ranges_of([at for request in asked for at in range(request.first, request.last + 1)]) == [(0, 49)]
    assert len(asked) < 50


def test_flow_is_sent_at_half_the_queue(client, broker):
    """At the integer half, counted from 0 (4.1, 0.7)."""
    send(client, "t", 12)
    consumer = client.subscribe("t", "s", receiver_queue_size=5, **EARLIEST)
    assert receive_values(consumer, 12) == [f"m{number}" for number in range(12)]
    consumer.close()
    assert [request.permits for request in broker.asked("flow")] == [5] + [2] * 6


def test_a_queue_of_one(client, broker):
    send(client, "t", 3)
    assert receive_values(client.subscribe("t", "s", receiver_queue_size=1, **EARLIEST), 3) == ["m0", "m1", "m2"]
    assert eventually(lambda: len(broker.asked("flow")) == 4)
    assert {request.permits for request in broker.asked("flow")} == {1}


def test_no_queue_asks_for_one_message_at_a_time(client, broker):
    """4.1."""
    send(client, "t", 3)
    consumer = client.subscribe("t", "s", receiver_queue_size=0, **EARLIEST)
    assert broker.asked("flow") == []
    assert [consumer.receive().data() for _ in range(2)] == [b"m0", b"m1"]
    assert [request.permits for request in broker.asked("flow")] == [1, 1]
    with pytest.raises(pulsar.InvalidConfiguration, match="receiver_queue_size=0"):
        consumer.receive(100)


def test_no_queue_and_a_batch(client, broker):
    producer = client.create_producer("t", batching_enabled=True, batching_max_publish_delay_ms=60_000)
    for number in range(4):
        producer.send_async(str(number).encode(), None)
    producer.flush()
    producer.send(b"last")
    consumer = client.subscribe("t", "s", receiver_queue_size=0, **EARLIEST)
    assert [consumer.receive().data() for _ in range(5)] == [b"0", b"1", b"2", b"3", b"last"]


def test_receive_times_out(client):
    consumer = client.subscribe("t", "s")
    for timeout in (0, 1, 50):
        with pytest.raises(pulsar.Timeout):
            consumer.receive(timeout)
    with pytest.raises(ValueError):
        consumer.receive("soon")


def test_receive_is_woken_by_close(client):
    consumer, errors = client.subscribe("t", "s"), []

    def receive():
        try:
            consumer.receive()
        except pulsar.AlreadyClosed as error:
            errors.append(error)

    thread = threading.Thread(target=receive, daemon=True)
    thread.start()
    eventually(lambda: client._channel._eager)
    consumer.close()
    thread.join(60)
    assert errors


def test_a_closed_consumer_refuses(client):
    send(client, "t", 1)
    consumer = client.subscribe("t", "s", **EARLIEST)
    message = consumer.receive(60_000)
    consumer.close()
    for call in (
        consumer.close,
        consumer.receive,
        lambda: consumer.acknowledge(message),
        lambda: consumer.acknowledge_cumulative(message),
        consumer.batch_receive,
        lambda: consumer.negative_acknowledge(message),
        consumer.unsubscribe,
        lambda: consumer.seek(0),
        consumer.redeliver_unacknowledged_messages,
        consumer.get_last_message_id,
        consumer.pause_message_listener,
    ):
        with pytest.raises(pulsar.AlreadyClosed):
            call()
    assert not consumer.is_connected()


def test_the_broker_refuses_a_second_exclusive_consumer(client, broker):
    first = client.subscribe("t", "s")
    with pytest.raises(pulsar.ConsumerBusy, match="held by consumer"):
        client.subscribe("t", "s")
    first.close()
    client.subscribe("t", "s")


def test_a_refused_consumer_of_several_topics_leaves_all_of_them(client):
    client.subscribe("b", "s")
    with pytest.raises(pulsar.ConsumerBusy):
        client.subscribe(["a", "b"], "s")
    client.subscribe("a", "s")


def test_shared_consumers_split_the_messages(client):
    consumers = [client.subscribe("t", "s", receiver_queue_size=3, **SHARED) for _ in range(2)]
    send(client, "t", 6)
    # Whoever receives asks for more: nobody does before each has its queue full.
    eventually(lambda: [consumer._subscriptions[0]._queued for consumer in consumers] == [3, 3])
    assert sorted(receive_values(consumers[0], 3) + receive_values(consumers[1], 3)) == [
        f"m{number}" for number in range(6)
    ]


def test_cumulative_acknowledgement_is_refused_where_messages_are_shared(client, broker):
    send(client, "t", 1)
    consumer = client.subscribe("t", "s", **SHARED, **EARLIEST)
    with pytest.raises(pulsar.CumulativeAcknowledgementNotAllowedError):
        consumer.acknowledge_cumulative(consumer.receive(60_000))
    consumer.close()
    assert broker.asked("cumulative_ack") == []


def test_foreign_ids_are_refused_and_nothing_is_sent(client, broker):
    send(client, "t", 2)
    foreign = send(client, "other", 1)[0]
    consumer = client.subscribe("t", "s", **EARLIEST)
    messages = [consumer.receive(60_000) for _ in range(2)]
    known = messages[0].message_id()
    reader_message = client.create_reader("other", pulsar.MessageId.earliest).read_next(1000)
    for wrong in (
        foreign,
        reader_message,
        pulsar.MessageId.earliest,
        pulsar.MessageId.latest,
        pulsar.MessageId(-1, 99, 0),
        pulsar.MessageId(-1, 1, 5),
        pulsar.MessageId(0, known.ledger_id(), 0),
        pulsar.MessageId(-1, known.ledger_id(), 0, 0),
    ):
        for call in (consumer.acknowledge, consumer.acknowledge_cumulative, consumer.negative_acknowledge):
            with pytest.raises(pulsar.InvalidMessage):
                call(wrong)
    for wrong in ("(1,0,-1,-1)", None, 5, b"x"):
        with pytest.raises(ValueError):
            consumer.acknowledge(wrong)
    consumer.close()
    assert not any(broker.asked(kind) for kind in ("ack", "cumulative_ack", "negative_ack"))


def test_an_id_that_was_stored_as_bytes(client):
    send(client, "t", 2)
    consumer = client.subscribe("t", "s", **EARLIEST)
    stored = consumer.receive(60_000).message_id().serialize()
    consumer.acknowledge(pulsar.MessageId.deserialize(stored))
    consumer.close()
    assert receive_values(client.subscribe("t", "s"), 1) == ["m1"]


def test_several_topics_and_partitions_are_one_consumer(client):
    create_topic(client._layout, "parts", 3)
    consumer = client.subscribe(["parts", "plain"], "s", receiver_queue_size=2)
    send(client, "parts", 6, prefix="p")
    send(client, "plain", 3, prefix="q")
    messages = [consumer.receive(60_000) for _ in range(9)]
    assert sorted(message.data().decode() for message in messages) == [f"p{number}" for number in range(6)] + [
        f"q{number}" for number in range(3)
    ]
    names = {message.topic_name() for message in messages}
    assert names == {"persistent://public/default/plain"} | {
        f"persistent://public/default/parts-partition-{number}" for number in range(3)
    }
    for message in messages:
        if message.data() not in (b"p1", b"q2"):
            consumer.acknowledge(message.message_id() if message.data() == b"p0" else message)
    with pytest.raises(pulsar.OperationNotSupported):
        consumer.get_last_message_id()
    consumer.close()
    again = client.subscribe(["parts", "plain"], "s")
    assert sorted(receive_values(again, 2)) == ["p1", "q2"] and nothing_comes(again)


def test_the_last_message_is_acknowledged_before_the_broker_has_seen_it(client, broker):
    consumer, producer = client.subscribe("t", "s"), client.create_producer("t")
    with broker.paused():
        producer.send(b"x")
        last = consumer.get_last_message_id()
        thread = threading.Thread(target=lambda: consumer.acknowledge(last))
        thread.start()
        thread.join(0.1)
        assert thread.is_alive()
    thread.join(60)
    eventually(lambda: broker.cursor("t", "s").mark_delete == 0)


def test_a_message_that_is_numbered_while_it_is_looked_for_is_found(client, broker, monkeypatch):
    consumer, producer, find = client.subscribe("t", "s"), client.create_producer("t"), client._ledgers.find

    def found_late(topic_id, partition, *entry):
        found = find(topic_id, partition, *entry)
        paused.close()
        eventually(lambda: client._ledgers.last_ledger_id(topic_id, partition) > 0)
        return found

    with contextlib.ExitStack() as paused:
        paused.enter_context(broker.paused())
        producer.send(b"x")
        last = consumer.get_last_message_id()
        monkeypatch.setattr(client._ledgers, "find", found_late)
        consumer.acknowledge(last)
    eventually(lambda: broker.cursor("t", "s").mark_delete == 0)


def test_an_id_that_does_not_say_its_topic(client):
    send(client, "a", 1), send(client, "b", 1)
    consumer = client.subscribe(["a", "b"], "s", **EARLIEST)
    message = consumer.receive(60_000)
    stored = message.message_id().serialize()
    with pytest.raises(pulsar.OperationNotSupported, match="does not contain its topic"):
        consumer.acknowledge(pulsar.MessageId.deserialize(stored))
    consumer.acknowledge(pulsar.MessageId.deserialize(stored, message.topic_name()))


@pytest.mark.parametrize("topics", [["a", "b"], "parts"])
def test_several_topics_take_no_id_that_a_producer_was_told(client, topics):
    create_topic(client._layout, "parts", 2)
    consumer = client.subscribe(topics, "s", **EARLIEST)
    sent = client.create_producer("parts" if topics == "parts" else "a").send(b"m")
    message = consumer.receive(60_000)
    assert message.message_id() == sent
    for call in (consumer.acknowledge, consumer.negative_acknowledge, consumer.acknowledge_cumulative):
        with pytest.raises(pulsar.OperationNotSupported, match="does not contain its topic"):
            call(sent)
    consumer.acknowledge(pulsar.MessageId.deserialize(sent.serialize(), message.topic_name()))
    consumer.close()
    assert nothing_comes(client.subscribe(topics, "s"))


@pytest.mark.parametrize("name, error", [("t", None), ("other", pulsar.InvalidMessage)])
def test_one_topic_takes_the_ids_that_its_producers_were_told(client, name, error):
    consumer, other = client.subscribe(name, "s", **EARLIEST), client.create_producer("t")
    client.create_producer("other").send(b"m")
    sent = other.send(b"m")
    with pytest.raises(error) if error else contextlib.nullcontext():
        consumer.acknowledge(sent)


def test_negative_acknowledgement(client):
    send(client, "t", 3)
    consumer = client.subscribe("t", "s", negative_ack_redelivery_delay_ms=150, **SHARED, **EARLIEST)
    messages = [consumer.receive(60_000) for _ in range(3)]
    consumer.negative_acknowledge(messages[1])
    consumer.negative_acknowledge(messages[2].message_id())
    again = [consumer.receive(60_000) for _ in range(2)]
    assert [(message.data(), message.redelivery_count()) for message in again] == [(b"m1", 1), (b"m2", 1)]


def test_redelivery_of_everything_drops_what_is_queued(client, broker):
    send(client, "t", 6)
    consumer = client.subscribe("t", "s", receiver_queue_size=6, **EARLIEST)
    first = [consumer.receive(60_000) for _ in range(2)]
    consumer.acknowledge(first[0])
    eventually(lambda: broker.asked("ack"))
    consumer.redeliver_unacknowledged_messages()
    messages = [consumer.receive(60_000) for _ in range(5)]
    assert [(message.data().decode(), message.redelivery_count()) for message in messages] == [
        (f"m{number}", 1) for number in range(1, 6)
    ]
    send(client, "t", 4, start=6)
    assert receive_values(consumer, 4) == ["m6", "m7", "m8", "m9"]
    assert nothing_comes(consumer)


def test_batch_receive(client):
    send(client, "t", 5)
    consumer = client.subscribe(
        "t", "s", batch_receive_policy=pulsar.ConsumerBatchReceivePolicy(2, -1, 2000), **EARLIEST
    )
    assert [message.data() for message in consumer.batch_receive()] == [b"m0", b"m1"]
    consumer.close()
    consumer = client.subscribe("t", "s", batch_receive_policy=pulsar.ConsumerBatchReceivePolicy(-1, 6, 2000))
    assert len(consumer.batch_receive()) == 3
    consumer.close()
    consumer = client.subscribe("t", "s", initial_position=pulsar.InitialPosition.Latest)
    eventually(lambda: len(consumer.batch_receive()) == 5)
    assert consumer.batch_receive() == []


def test_unsubscribe(client):
    send(client, "t", 2)
    consumer = client.subscribe("t", "s", **EARLIEST)
    consumer.unsubscribe()
    with pytest.raises(pulsar.AlreadyClosed):
        consumer.receive(100)
    assert nothing_comes(client.subscribe("t", "s"))
    shared = [client.subscribe("t", "u", **SHARED) for _ in range(2)]
    with pytest.raises(pulsar.BrokerMetadataError, match="1 other consumers: close them first"):
        shared[0].unsubscribe()
    assert shared[0].is_connected()


def test_listener(client):
    got = []

    def on_message(consumer, message):
        got.append(message.data().decode())
        consumer.acknowledge(message)

    consumer = client.subscribe("t", "s", message_listener=on_message)
    send(client, "t", 3)
    eventually(lambda: got == ["m0", "m1", "m2"])
    with pytest.raises(pulsar.InvalidConfiguration):
        consumer.receive(10)
    consumer.pause_message_listener()
    send(client, "t", 3, start=3)
    eventually(lambda: consumer._receiver._arrived or consumer._subscriptions[0]._queued == 3 or len(got) == 3)
    assert got == ["m0", "m1", "m2"]
    consumer.resume_message_listener()
    eventually(lambda: len(got) == 6)
    assert got == [f"m{number}" for number in range(6)]


@pytest.mark.parametrize("queue_size", [1, 2, 4])
def test_while_paused_no_permits_are_asked_for(client, broker, queue_size):
    """A listener that is paused hands nothing to the application, so nothing is asked for until it is resumed (4.1),
    though its thread waits for a message already."""
    got = []
    consumer = client.subscribe(
        "t", "s", receiver_queue_size=queue_size, message_listener=lambda consumer, message: got.append(message.data())
    )
    eventually(lambda: consumer._channel._eager == 1)
    consumer.pause_message_listener()
    send(client, "t", 12)
    eventually(lambda: consumer._subscriptions[0]._queued == queue_size)
    assert [request.permits for request in broker.asked("flow")] == [queue_size] and got == []
    consumer.resume_message_listener()
    assert eventually(lambda: len(got) == 12)


def test_a_consumer_that_is_closed_while_its_listener_is_paused_leaves_no_thread(client):
    got = []

    def listens() -> bool:
        return any("listener" in thread.name for thread in threading.enumerate())

    consumer = client.subscribe("t", "s", message_listener=lambda consumer, message: got.append(message.data()))
    consumer.pause_message_listener()
    assert listens()
    send(client, "t", 2)
    eventually(lambda: consumer._subscriptions[0]._queued == 2)
    consumer.close()
    assert eventually(lambda: not listens()) and got == []


def test_a_listener_that_raises_goes_on_with_the_next_message(client, monkeypatch):
    got, raised = [], []
    monkeypatch.setattr(threading, "excepthook", lambda failure: raised.append(failure.exc_type))

    def on_message(consumer, message):
        got.append(message.data())
        if len(got) == 1:
            raise ZeroDivisionError

    client.subscribe("t", "s", message_listener=on_message)
    send(client, "t", 2)
    eventually(lambda: got == [b"m0", b"m1"] and raised == [ZeroDivisionError])


def test_consumers_without_a_listener_have_none_to_pause(client):
    with pytest.raises(pulsar.InvalidConfiguration):
        client.subscribe("t", "s").pause_message_listener()


def test_schemas(client):
    consumer = client.subscribe("t", "s", schema=pulsar.schema.StringSchema())
    producer = client.create_producer("t", schema=pulsar.schema.StringSchema())
    producer.send("grüße")
    producer.send(None)
    assert consumer.receive(60_000).value() == "grüße"
    assert consumer.receive(60_000).value() is None
    with pytest.raises(TypeError):
        producer.send(b"bytes")


def test_a_partition_named_twice_is_refused(client):
    create_topic(client._layout, "p2", 2)
    with pytest.raises(pulsar.InvalidConfiguration, match="twice"):
        client.subscribe(["p2", "p2-partition-1"], "s")


def test_a_consumer_that_is_no_longer_active_drops_its_queue(client, broker):
    send(client, "t", 3)
    consumer = client.subscribe("t", "s", receiver_queue_size=10, **EARLIEST)
    assert receive_values(consumer, 1) == ["m0"]
    subscription = consumer._subscriptions[0]
    subscription.on_active(True)
    subscription.on_active(False)
    assert nothing_comes(consumer)
    assert sum(request.permits for request in broker.asked("flow")) == 12


def test_a_script_that_ends_without_closing_publishes_and_acknowledges(client, broker, service_url, tmp_path):
    ids = send(client, "t", 2)
    script = tmp_path / "script.py"
    script.write_text(f"""
import pulsar_spark as pulsar
client = pulsar.Client({service_url!r})
consumer = client.subscribe("t", "s", initial_position=pulsar.InitialPosition.Earliest)
consumer.acknowledge(consumer.receive(60_000))
producer = client.create_producer("t", batching_enabled=True, batching_max_publish_delay_ms=60000)
producer.send_async(b"last", None)
""")
    subprocess.run(
        [sys.executable, str(script)],
        check=True,
        timeout=300,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert receive_values(client.subscribe("t", "s"), 2) == ["m1", "last"]
    assert len(ids) == 2


def test_who_is_let_go_before_it_heard_that_it_joined_asks_for_one_queue_full(broker, client):
    consumer = client.subscribe("t", "s", consumer_type=pulsar.ConsumerType.Shared, receiver_queue_size=10)
    (subscription,) = consumer._subscriptions
    broker.asked("flow")
    with broker.paused():
        rounds = subscription._channel._rounds
        rounds.seen = rounds.log.latest()  # it was away for so long that rounds are gone
        subscription._channel._close_consumers()
        subscription.joined()  # and is told only now of the one that let it join
    assert eventually(lambda: subscription.is_connected)
    send(client, "t", 1)
    assert receive_values(consumer, 1) == ["m0"]
    assert [request.permits for request in broker.asked("flow")] == [10, 10]
