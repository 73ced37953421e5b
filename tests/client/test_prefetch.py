"""A receiver queue grows with what is taken, and what others could have had comes back."""

import contextlib
from collections.abc import Iterator

import pytest

import pulsar_spark as pulsar
from pulsar_spark.client.receiving import queue_watch
from pulsar_spark.client.receiving.queue_watch import QueueWatch
from pulsar_spark.link.channel import Channel
from pulsar_spark.testing.plain_broker import PlainBroker
from tests.support.waiting import eventually

SHARED = dict(consumer_type=pulsar.ConsumerType.Shared, initial_position=pulsar.InitialPosition.Earliest)
BATCH = 10


def publish(client, messages: int) -> None:
    producer = client.create_producer("t", batching_enabled=True, batching_max_messages=BATCH, block_if_queue_full=True)
    for number in range(messages):
        producer.send_async(str(number).encode(), None)
    producer.flush()
    producer.close()


def receive(consumer, messages: int) -> list[pulsar.Message]:
    return [consumer.receive(60_000) for _ in range(messages)]


def grow(client, consumer, size: int = 1001) -> list[pulsar.Message]:
    """Publish and receive until the queue has at least *size*: it grows in a round that finds it empty, which is up to
    the threads. Returns everything published but what waits."""
    received, published = [], 0
    while queues(consumer) < [size]:
        if len(received) == published:
            publish(client, 12_000)
            published += 12_000
        received += receive(consumer, 10)
    return received


def queues(consumer) -> list[int]:
    return [subscription._permits.queue_size for subscription in consumer._subscriptions]


def test_a_queue_grows_with_what_is_taken_up_to_three_quarters_of_what_all_may_have(client):
    consumer = client.subscribe("t", "s", max_total_receiver_queue_size_across_partitions=8000, **SHARED)
    messages = grow(client, consumer, 6000)
    messages += receive(consumer, -len(messages) % 12_000)
    assert len({str(message.message_id()) for message in messages}) == len(messages)
    assert queues(consumer) <= [6000]


@pytest.mark.parametrize("size", [1, 999])
def test_who_asks_for_less_wants_no_more(client, size):
    publish(client, 3000)
    consumer = client.subscribe("t", "s", receiver_queue_size=size, **SHARED)
    receive(consumer, 100 * min(size, 30))
    assert queues(consumer) == [size]


def test_a_queue_that_a_trickle_keeps_filling_does_not_grow(client):
    consumer = client.subscribe("t", "s", **SHARED)
    for _ in range(12):
        publish(client, 300)
        receive(consumer, 300)
    assert queues(consumer) == [1000]


def test_what_a_consumer_that_stops_could_have_left_to_others_comes_to_them(client, other_client):
    consumer = client.subscribe("t", "s", **SHARED)
    seen = grow(client, consumer)
    for message in seen:
        consumer.acknowledge(message)
    publish(client, 8000)
    published = len(seen) + -len(seen) % 12_000 + 8000
    other = other_client.subscribe("t", "s", **SHARED)
    most_it_keeps = 1000 + BATCH  # permits may end below zero by all but one message of a batch
    got = [other.receive(60_000) for _ in range(published - len(seen) - most_it_keeps)]
    assert {message.redelivery_count() for message in got} == {0}
    assert eventually(lambda: queues(consumer) == [1000])
    rest = []
    eventually(lambda: rest.extend(whatever_came(consumer, other)) or len(rest) + len(got) + len(seen) >= published)
    ids = [str(message.message_id()) for message in [*seen, *got, *rest]]
    assert len(ids) == len(set(ids)) == published


def whatever_came(*consumers) -> Iterator[pulsar.Message]:
    for consumer in consumers:
        with contextlib.suppress(pulsar.Timeout):
            while True:
                yield consumer.receive(100)


@pytest.mark.parametrize("consumer_type", [pulsar.ConsumerType.Shared, pulsar.ConsumerType.KeyShared])
def test_a_queue_that_grew_and_shrank_is_filled_again(client, consumer_type):
    consumer = client.subscribe("t", "s", **SHARED | {"consumer_type": consumer_type})
    messages = grow(client, consumer)
    for message in messages + receive(consumer, -len(messages) % 12_000):
        consumer.acknowledge(message)
    eventually(lambda: queues(consumer) == [1000])
    publish(client, 12_000)
    assert len({message.data() for message in receive(consumer, 12_000)}) == 12_000


def test_a_consumer_alone_gives_nothing_back(client):
    consumer = client.subscribe("t", "s", initial_position=pulsar.InitialPosition.Earliest)
    grow(client, consumer)
    assert not consumer._subscriptions[0]._queue_watch._is_watching


@pytest.mark.parametrize("most", [6000, 1000])
def test_what_left_the_largest_queue_is_asked_for_with_what_is_given_back(client, monkeypatch, most):
    """A round that begins for that has the permits; a queue that may grow, or may not, asks for halves alone."""
    monkeypatch.setattr(queue_watch, "WATCH_SECONDS", 3600)  # a thread that stands still would make it shrink
    consumer = client.subscribe(
        "t", "s", receiver_queue_size=1000, max_total_receiver_queue_size_across_partitions=most * 4 // 3, **SHARED
    )
    messages = grow(client, consumer, most)
    publish(client, 12_000)
    (subscription,) = consumer._subscriptions
    monkeypatch.setattr(Channel, "gather", lambda self, source, delay, is_urgent=False: None)
    subscription.tracker.take_rows()
    messages += receive(consumer, 10)
    consumer.negative_acknowledge(messages[-1])
    with subscription.lock:
        subscription._permits._used += 10 + subscription._ready.newly_taken()
    wanted = subscription._permits._used
    rows = [(row["kind"], row.get("permits")) for row in subscription.tracker._take_all_rows()]
    assert queues(consumer) == [most]
    assert rows == [("negative_ack", None), ("flow", wanted)][: 1 + (most > 1000)]
    assert subscription.tracker._take_all_rows() == []


def test_what_is_given_back_unseen_while_the_broker_is_away_comes_again_uncounted(root_url, lonely_client, monkeypatch):
    """The statistics say that it was sent twice; of no message the redelivery count is raised (4.21)."""
    start = QueueWatch.start
    monkeypatch.setattr(QueueWatch, "start", lambda watch: None)  # nothing is given back while there is a broker
    with PlainBroker(root_url) as broker:
        consumer = lonely_client.subscribe("t", "s", **SHARED)
        seen = grow(lonely_client, consumer)
        publish(lonely_client, 12_000)
        (subscription,) = consumer._subscriptions

        def has_all_it_requested() -> bool:
            cursor, arrived = broker.cursor("t", "s"), len(seen) + subscription._queued
            return cursor.msg_out_counter == arrived and all(each.permits <= 0 for each in cursor.consumers.values())

        assert eventually(has_all_it_requested) and subscription._queued > 1000 + BATCH
    waits = subscription._queued
    monkeypatch.setattr(QueueWatch, "start", start)
    subscription._queue_watch.start()
    eventually(lambda: queues(consumer) == [1000] and subscription._queued < waits)
    given_back = waits - subscription._queued
    with PlainBroker(root_url) as broker:
        published = len(seen) + -len(seen) % 12_000 + 12_000
        seen += receive(consumer, published - len(seen))
        cursor = broker.cursor("t", "s")
    ids = [str(message.message_id()) for message in seen]
    assert len(ids) == len(set(ids)) == published
    assert {message.redelivery_count() for message in seen} == {0}
    assert (cursor.msg_out_counter, cursor.msg_redeliver_counter) == (published + given_back, given_back)
