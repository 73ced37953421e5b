"""Order when messages are given back: of each key on Key_Shared, of all on Exclusive and Failover."""

import asyncio
import threading

import pytest

import pulsar_spark as pulsar
import pulsar_spark.asyncio
from pulsar_spark.client.receiving import waiting_messages
from pulsar_spark.client.receiving.delivery import Delivery
from pulsar_spark.client.receiving.key_order import KeyOrder, UnderWay
from pulsar_spark.client.subscribing.subscription import PartitionSubscription
from pulsar_spark.storage.topics.topics import create_topic
from tests.support.waiting import eventually, nothing_comes

EARLIEST = dict(initial_position=pulsar.InitialPosition.Earliest, negative_ack_redelivery_delay_ms=100)
BY_KEY = EARLIEST | dict(consumer_type=pulsar.ConsumerType.KeyShared)
MUCH_LATER = dict(negative_ack_redelivery_delay_ms=60_000)


def publish(client, *values: str, batching: bool = False, topic: str = "t") -> None:
    """Messages "a0", "a1", "b0": the letter is the key."""
    producer = client.create_producer(
        topic,
        batching_enabled=batching,
        batching_type=pulsar.BatchingType.KeyBased,
        batching_max_messages=4,
        batching_max_publish_delay_ms=60_000,
        hashing_scheme=pulsar.HashingScheme.Murmur3_32Hash,
    )
    for value in values:
        producer.send_async(value.encode(), None, partition_key=value[0])
    producer.flush()
    producer.close()


def test_a_round_that_read_one_return_of_a_key_may_go_on_up_to_the_next():
    """Else entries of a key that were given back in two requests, one after the other, come again for ever."""
    order = KeyOrder()
    versions = []
    for time, (position, version) in enumerate([(5, 10), (7, 11), (6, 11)]):
        versions.append((UnderWay(time), version))
        order.give_back((position,), versions[-1][0], sticky_hash=1)
    for requests, version in versions:
        requests.committed(version)
    order.arrives(9)
    assert [position for position in range(4, 10) if order.is_early(1, position, 9)] == [6, 7, 8, 9]
    order.arrives(10)
    assert [position for position in range(4, 10) if order.is_early(1, position, 10)] == [7, 8, 9]
    order.arrives(11)
    assert not order.is_early(1, 9, 11) and not order.is_guarding


def receive(consumer, count: int) -> list[pulsar.Message]:
    return [consumer.receive(30_000) for _ in range(count)]


def values(messages) -> list[str]:
    return [message.data().decode() for message in messages]


def of_key(messages, key: str) -> list[str]:
    return [value for value in values(messages) if value[0] == key]


def numbered(key: str, count: int) -> list[str]:
    return [f"{key}{number}" for number in range(count)]


def queued(consumer) -> int:
    return sum(each._queued for each in consumer._subscriptions)


@pytest.mark.parametrize(
    "by, size", [("message", 1000), ("id", 1000), ("timeout", 1000), ("message", 1), ("message", 0)]
)
def test_what_is_given_back_comes_before_later_ones_of_its_key(client, broker, by, size):
    """Those were in the queue; they come again uncounted. Other keys do not wait."""
    publish(client, *(f"{key}{number}" for number in range(4) for key in "ab"))
    consumer = client.subscribe("t", "s", receiver_queue_size=size, **BY_KEY)
    eventually(lambda: queued(consumer) == min(size, 8))
    first = [consumer.receive() for _ in range(3)]
    assert values(first) == ["a0", "b0", "a1"]
    message = first[2]
    if by == "message":
        consumer.negative_acknowledge(message)
    elif by == "id":
        consumer.negative_acknowledge(pulsar.MessageId.deserialize(message.message_id().serialize()))
    else:
        (subscription,) = consumer._subscriptions
        subscription.give_back({message._position}, 0)
    rest = [consumer.receive() for _ in range(6)]
    assert of_key(rest, "a") == ["a1", "a2", "a3"] and of_key(rest, "b") == ["b1", "b2", "b3"]
    assert [each.redelivery_count() for each in rest] == [each.data() == b"a1" for each in rest]
    for each in [*first[:2], *rest]:
        consumer.acknowledge(each)
    eventually(lambda: broker.cursor("t", "s").mark_delete == 7)


def test_several_of_a_key_come_in_order(client):
    publish(client, *numbered("a", 9))
    consumer = client.subscribe("t", "s", **BY_KEY)
    seen = receive(consumer, 6)
    for at in (4, 1, 2):
        consumer.negative_acknowledge(seen[at])
    assert values(receive(consumer, 6)) == ["a1", "a2", "a4", "a6", "a7", "a8"] and nothing_comes(consumer)


def test_what_is_given_back_again_and_again_is_waited_for(client):
    publish(client, *numbered("a", 4))
    consumer = client.subscribe("t", "s", **BY_KEY)
    got = receive(consumer, 2)
    for _ in range(3):
        consumer.negative_acknowledge(got[-1])
        got += receive(consumer, 1)
    assert values(got) == ["a0", "a1", "a1", "a1", "a1"] and values(receive(consumer, 2)) == ["a2", "a3"]


def test_while_everything_waits_the_queue_is_not_full_of_it(client, broker):
    """The permits of what waits for one that comes much later are used for other keys."""
    publish(client, *numbered("a", 6))
    consumer = client.subscribe("t", "s", receiver_queue_size=4, **BY_KEY | MUCH_LATER)
    consumer.negative_acknowledge(receive(consumer, 1)[0])
    assert nothing_comes(consumer)
    publish(client, *numbered("b", 9))
    assert values(receive(consumer, 9)) == numbered("b", 9)
    broker.advance(60)
    assert values(receive(consumer, 6)) == numbered("a", 6)


def test_one_round_returns_what_comes_again_soon(client, broker):
    """The request has the permit of the message, and the round that reads it delivers it again: there is no round
    without requests."""
    publish(client, *numbered("a", 6))
    consumer = client.subscribe("t", "s", **BY_KEY)
    eventually(lambda: queued(consumer) == 6)
    began = broker.rounds.bundle.round, broker.requests_version()
    for number in range(6):
        consumer.negative_acknowledge(receive(consumer, 1)[0])
        assert values(receive(consumer, 1)) == [f"a{number}"]
    assert broker.rounds.bundle.round - began[0] <= broker.requests_version() - began[1]


@pytest.mark.parametrize("size, of_each", [(1000, 20), (10, 5)])
def test_what_waits_for_another_of_its_key_is_not_sent_again(client, monkeypatch, size, of_each):
    """Each key's messages wait in the client, while other keys go on; only what was given back is sent twice, also
    where more wait than the queue has room for."""
    arrived, arrive = [], PartitionSubscription.on_delivery

    def on_delivery(subscription, row, version):
        arrived.append(Delivery(subscription, row, 0).messages)
        arrive(subscription, row, version)

    monkeypatch.setattr(PartitionSubscription, "on_delivery", on_delivery)
    keys, total = "abcdefghij", 10 * of_each
    publish(client, *(f"{key}{number}" for number in range(of_each) for key in keys))
    consumer = client.subscribe("t", "s", receiver_queue_size=size, **BY_KEY)
    eventually(lambda: queued(consumer) == min(size, total))
    got, returns = [], 0
    while len(got) < total:
        (message,) = receive(consumer, 1)
        if not message.redelivery_count() and returns < 20 and len(got) >= 10 * returns:
            consumer.negative_acknowledge(message)
            returns += 1
        else:
            consumer.acknowledge(message)
            got.append(message)
    assert [of_key(got, key) for key in keys] == [numbered(key, of_each) for key in keys]
    assert sum(arrived) == total + returns and nothing_comes(consumer)


def test_what_waits_too_long_is_given_back(client, monkeypatch):
    """One that is given back whenever it comes is never acknowledged; later ones of its key stay in order."""
    publish(client, *numbered("a", 6))
    consumer = client.subscribe("t", "s", **BY_KEY)
    eventually(lambda: queued(consumer) == 6)
    (subscription,) = consumer._subscriptions
    for _ in range(4):
        (message,) = receive(consumer, 1)
        assert message.data() == b"a0"
        consumer.negative_acknowledge(message)
        assert consumer._receiver.take(0) is None
        assert len(subscription.key_order.waiting) <= 5
        monkeypatch.setattr(waiting_messages, "WAIT_SECONDS", 0.0)
        subscription._guard.give_back_late()
        assert not subscription.key_order.waiting
    assert values(receive(consumer, 6)) == numbered("a", 6)


def test_without_order_nothing_waits(client):
    policy = pulsar.ConsumerKeySharedPolicy(pulsar.KeySharedMode.AutoSplit, True)
    publish(client, *numbered("a", 4))
    consumer = client.subscribe("t", "s", key_shared_policy=policy, **BY_KEY)
    eventually(lambda: queued(consumer) == 4)
    consumer.negative_acknowledge(receive(consumer, 1)[0])
    assert values(receive(consumer, 4)) == ["a1", "a2", "a3", "a0"]


def test_one_that_dies_holds_nothing_back(client):
    policy = pulsar.ConsumerDeadLetterPolicy(1)
    publish(client, *numbered("a", 4))
    consumer = client.subscribe("t", "s", dead_letter_policy=policy, **BY_KEY)
    for _ in range(2):
        (message,) = receive(consumer, 1)
        assert message.data() == b"a0"
        consumer.negative_acknowledge(message)
    assert values(receive(consumer, 3)) == ["a1", "a2", "a3"]


def test_one_that_others_acknowledge_holds_nothing_back(client, other_client, broker):
    publish(client, *numbered("a", 4))
    consumer = client.subscribe("t", "s", **BY_KEY | MUCH_LATER)
    eventually(lambda: queued(consumer) == 4)
    (message,) = receive(consumer, 1)
    consumer.negative_acknowledge(message)
    assert nothing_comes(consumer)
    other = other_client.subscribe("t", "s", **BY_KEY)
    other.acknowledge(message.message_id())
    assert sorted(values(receive_of(consumer, other, 3))) == ["a1", "a2", "a3"]


def receive_of(one, other, count: int) -> list[pulsar.Message]:
    found: list[pulsar.Message] = []

    def look() -> bool:
        for consumer in (one, other):
            if not nothing_comes_to(consumer, found):
                break
        return len(found) >= count

    eventually(look)
    return found


def nothing_comes_to(consumer, found: list) -> bool:
    try:
        found.append(consumer.receive(20))
    except pulsar.Timeout:
        return True
    return False


def test_one_that_goes_to_another_consumer_takes_later_ones_with_it(client, other_client, broker):
    """Its new owner gets it when the old one gives it back, and those that were in the old one's queue behind it."""
    sticky = pulsar.KeySharedMode.Sticky
    half = [pulsar.ConsumerKeySharedPolicy(sticky, False, [each]) for each in ((0, 32767), (32768, 65535))]
    publish(client, *(f"{key}{number}" for number in range(5) for key in "ab"))
    first, second = (client.subscribe("t", "s", key_shared_policy=each, **BY_KEY) for each in half)
    eventually(lambda: queued(first) + queued(second) == 10)
    giver, taken = (first, half[0]) if queued(first) >= 5 else (second, half[1])
    count, message = queued(giver), receive(giver, 1)[0]
    giver.negative_acknowledge(message)
    giver.close()
    heir = other_client.subscribe("t", "s", key_shared_policy=taken, **BY_KEY)
    got = receive(heir, count)
    assert of_key(got, message.data().decode()[0]) == numbered(message.data().decode()[0], 5)


def test_a_batch_waits_whole_and_comes_again_whole(client):
    """What is left of the batch that is given back comes with it."""
    publish(client, *numbered("a", 9), batching=True)
    consumer = client.subscribe("t", "s", **BY_KEY)
    eventually(lambda: queued(consumer) == 9)
    seen = receive(consumer, 2)
    consumer.acknowledge(seen[0])
    consumer.negative_acknowledge(seen[1])
    rest = receive(consumer, 8)
    assert values(rest) == numbered("a", 9)[1:] and nothing_comes(consumer)
    assert [each.redelivery_count() for each in rest] == [1, 1, 1, 0, 0, 0, 0, 0]


def test_what_was_acknowledged_unseen_does_not_come(client, broker):
    publish(client, *numbered("a", 5))
    consumer = client.subscribe("t", "s", **BY_KEY)
    ids = client.create_reader("t", pulsar.MessageId.earliest)
    ids = [ids.read_next(5000).message_id() for _ in range(5)]
    seen = receive(consumer, 1)
    consumer.negative_acknowledge(seen[0])
    consumer.acknowledge(ids[2])
    assert values(receive(consumer, 4)) == ["a0", "a1", "a3", "a4"] and nothing_comes(consumer)


def test_a_seek_forgets_what_was_given_back(client):
    publish(client, *numbered("a", 5))
    consumer = client.subscribe("t", "s", **BY_KEY | MUCH_LATER)
    consumer.negative_acknowledge(receive(consumer, 2)[1])
    consumer.seek(pulsar.MessageId.earliest)
    assert values(receive(consumer, 5)) == numbered("a", 5)


def test_each_partition_for_itself(client):
    create_topic(client._layout, "t", 3)
    publish(client, *(f"{key}{number}" for number in range(4) for key in "abcdef"))
    consumer = client.subscribe("t", "s", **BY_KEY)
    eventually(lambda: queued(consumer) == 24)
    (message,) = receive(consumer, 1)
    consumer.negative_acknowledge(message)
    rest = receive(consumer, 24)
    assert [of_key(rest, key) for key in "abcdef"] == [numbered(key, 4) for key in "abcdef"]


def test_listeners_and_batches_of_messages(client):
    publish(client, *numbered("a", 6))
    heard, all_there = [], threading.Event()

    def hear(consumer, message):
        heard.append(message)
        if message.data() == b"a2" and not message.redelivery_count():
            consumer.negative_acknowledge(message)
        if len(heard) == 7:
            all_there.set()

    client.subscribe("t", "s", message_listener=hear, **BY_KEY)
    assert all_there.wait(60) and values(heard) == ["a0", "a1", "a2", "a2", "a3", "a4", "a5"]
    policy = pulsar.ConsumerBatchReceivePolicy(2, -1, 60_000)
    consumer = client.subscribe("t", "other", batch_receive_policy=policy, **BY_KEY)
    first = consumer.batch_receive()
    consumer.negative_acknowledge(first[0])
    assert values(consumer.batch_receive()) == ["a0", "a2"] and values(consumer.batch_receive()) == ["a3", "a4"]


def test_on_asyncio(broker, service_url, client):
    """A message that was taken for a call that was cancelled is given back, too."""
    publish(client, *numbered("a", 5))

    async def receive_all() -> list[str]:
        other = pulsar_spark.asyncio.Client(service_url)
        consumer = await other.subscribe(
            "t",
            "s",
            consumer_type=pulsar.ConsumerType.KeyShared,
            initial_position=pulsar.InitialPosition.Earliest,
            negative_ack_redelivery_delay_ms=100,
        )
        first = await consumer.receive()
        consumer._kept.append(await consumer.receive())
        await consumer.negative_acknowledge(first)
        got = [await asyncio.wait_for(consumer.receive(), 60) for _ in range(5)]
        await other.close()
        return values(got)

    assert asyncio.run(receive_all()) == numbered("a", 5)


@pytest.mark.parametrize("kind", [pulsar.ConsumerType.Exclusive, pulsar.ConsumerType.Failover])
def test_where_one_consumer_is_active_everything_comes_again_in_order(client, kind):
    """As with Pulsar's client, which hands out what is in its queue until then."""
    publish(client, *numbered("a", 6))
    consumer = client.subscribe("t", "s", consumer_type=kind, **EARLIEST)
    eventually(lambda: queued(consumer) == 6)
    seen = receive(consumer, 3)
    consumer.acknowledge(seen[0])
    consumer.negative_acknowledge(seen[1])
    assert values(receive(consumer, 3)) == ["a3", "a4", "a5"]
    assert values(receive(consumer, 5)) == ["a1", "a2", "a3", "a4", "a5"]
