"""Moving the cursor."""

import pytest

import pulsar_spark as pulsar
from pulsar_spark.storage.topics.topics import create_topic
from tests.support.waiting import nothing_comes, receive_values

EARLIEST = dict(initial_position=pulsar.InitialPosition.Earliest)


@pytest.fixture
def ids(client):
    producer = client.create_producer("t")
    return [producer.send(f"m{number}".encode()) for number in range(6)]


@pytest.mark.parametrize("is_inclusive, first", [(False, 4), (True, 3)])
def test_to_a_message(client, ids, is_inclusive, first):
    consumer = client.subscribe("t", "s", start_message_id_inclusive=is_inclusive, **EARLIEST)
    for _ in range(6):
        consumer.acknowledge(consumer.receive(60_000))
    consumer.seek(ids[3])
    assert receive_values(consumer, 6 - first) == [f"m{number}" for number in range(first, 6)]


def test_to_the_ends(client, ids):
    consumer = client.subscribe("t", "s", **EARLIEST)
    receive_values(consumer, 3)
    consumer.seek(pulsar.MessageId.latest)
    assert nothing_comes(consumer)
    consumer.seek(pulsar.MessageId.earliest)
    assert receive_values(consumer, 6) == [f"m{number}" for number in range(6)]


def test_queued_messages_are_dropped(client, ids):
    consumer = client.subscribe("t", "s", receiver_queue_size=3, **EARLIEST)
    receive_values(consumer, 1)
    consumer.seek(ids[4])
    assert receive_values(consumer, 1) == ["m5"] and nothing_comes(consumer)
    consumer.seek(ids[0])
    assert receive_values(consumer, 5) == [f"m{number}" for number in range(1, 6)]


def test_what_is_being_read_is_dropped_too(client, ids):
    """Back to where it began: all comes again, and nothing of what was read before."""
    consumer = client.subscribe("t", "s", **EARLIEST)
    assert receive_values(consumer, 1) == ["m0"]
    consumer.seek(pulsar.MessageId.earliest)
    assert receive_values(consumer, 6) == [f"m{number}" for number in range(6)] and nothing_comes(consumer)


def test_right_after_sending(client):
    consumer = client.subscribe("t", "s")
    producer = client.create_producer("t")
    sent = [producer.send(f"m{number}".encode()) for number in range(3)]
    consumer.seek(sent[1])
    assert receive_values(consumer, 1) == ["m2"]


def test_above_everything_is_the_end(client, ids):
    consumer = client.subscribe("t", "s", **EARLIEST)
    consumer.seek(pulsar.MessageId(-1, 1000, 0))
    assert nothing_comes(consumer)


def test_to_a_time_is_asked_of_the_broker(client, broker, ids):
    consumer = client.subscribe("t", "s", **EARLIEST)
    with broker.paused():
        client._timeout = 0.2
        with pytest.raises(pulsar.Timeout):
            consumer.seek(1_700_000_000_000)
    client._timeout = 10
    consumer.seek(1_700_000_000_001)
    assert receive_values(consumer, 6) == [f"m{number}" for number in range(6)]
    assert [request.properties["publish_time_ms"] for request in broker.asked("seek")] == [
        "1700000000000",
        "1700000000001",
    ]


def test_ids_of_other_partitions_are_refused(client, broker):
    create_topic(client._layout, "p2", 2)
    producer = client.create_producer("p2-partition-1")
    sent = [producer.send(f"m{number}".encode()) for number in range(3)]
    with pytest.raises(pulsar.InvalidMessage):
        client.subscribe("p2-partition-0", "s").seek(sent[0])
    consumer = client.subscribe("p2", "u")
    consumer.seek(sent[0])
    assert receive_values(consumer, 2) == ["m1", "m2"]
    for wrong in (None, "earliest", 1.5, True):
        with pytest.raises(ValueError):
            consumer.seek(wrong)


@pytest.mark.parametrize("is_inclusive", [False, True])
@pytest.mark.parametrize("consumer_type", [pulsar.ConsumerType.Exclusive, pulsar.ConsumerType.Shared])
def test_the_cursor_is_left_on_the_sought_id(client, broker, ids, is_inclusive, consumer_type):
    """Mark-delete is the position before it (3.26); a message that is not to be shown is neither acknowledged nor
    shown, also when it comes again."""
    consumer = client.subscribe(
        "t", "s", consumer_type=consumer_type, start_message_id_inclusive=is_inclusive, **EARLIEST
    )
    for _ in range(6):
        consumer.acknowledge(consumer.receive(60_000))
    consumer.seek(ids[3])
    shown = ["m3", "m4", "m5"] if is_inclusive else ["m4", "m5"]
    assert broker.asked("seek")[0].properties["position"] == "3"
    assert receive_values(consumer, len(shown)) == shown and nothing_comes(consumer)
    assert broker.cursor("t", "s").mark_delete == 2
    assert broker.statuses("t", "s") == dict.fromkeys([3, 4, 5], "pending")
    consumer.redeliver_unacknowledged_messages()
    assert receive_values(consumer, len(shown)) == shown and nothing_comes(consumer)
    consumer.close()
    assert receive_values(client.subscribe("t", "s"), 3) == ["m3", "m4", "m5"]


@pytest.mark.parametrize(
    "index, is_inclusive, shown",
    [
        (2, False, ["b3", "c"]),
        (2, True, ["b2", "b3", "c"]),
        (3, False, ["c"]),
        (-1, False, ["c"]),
        (-1, True, ["b0", "b1", "b2", "b3", "c"]),
    ],
)
def test_the_cursor_is_left_on_the_sought_batch(client, broker, index, is_inclusive, shown):
    producer = client.create_producer("t", batching_enabled=True, batching_max_publish_delay_ms=60_000)
    for number in range(4):
        producer.send_async(f"b{number}".encode(), None)
    producer.flush()
    client.create_producer("t").send(b"c")
    consumer = client.subscribe("t", "s", start_message_id_inclusive=is_inclusive, **EARLIEST)
    first = consumer.receive(60_000).message_id()
    consumer.seek(pulsar.MessageId(-1, first.ledger_id(), first.entry_id(), index))
    assert broker.asked("seek")[0].properties["position"] == "0"
    assert receive_values(consumer, len(shown)) == shown and nothing_comes(consumer)
    consumer.seek(pulsar.MessageId.earliest)
    assert receive_values(consumer, 5) == ["b0", "b1", "b2", "b3", "c"]
