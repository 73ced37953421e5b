"""What happens beside a stream with a subscription, and what the stream makes of it: messages that are late or dead,
topics and partitions that come and go, other streams, an administrator, a broker that is away."""

from datetime import timedelta

import pytest

import pulsar_spark as pulsar
from pulsar_spark.admin import Admin
from pulsar_spark.errors import AlreadyClosed, ConsumerBusy, Timeout
from pulsar_spark.storage.topics.partitions import raise_partitions
from pulsar_spark.storage.topics.topics import create_topic
from pulsar_spark.testing.broker import Broker
from tests.frames.source.subscription.micro_batches import Checkpoint, Query, Sink
from tests.support.waiting import eventually


@pytest.fixture
def sink():
    return Sink()


def stream(root, sink: Sink, checkpoint: Checkpoint | None = None, **options) -> Query:
    given = {"topic": "t", "subscription": "s", "subscriptionType": "Shared", **options}
    return Query(root, checkpoint or Checkpoint(), sink, **given)


def look(query: Query) -> bool:
    """Whether the stream would have a micro-batch now, which then nobody gets."""
    start = query._offset(len(query._checkpoint.offsets) - 1)
    return query.reader.latestOffset(start, query.reader.getDefaultReadLimit()) != start


def send(client, topic: str, *texts: str, delay: timedelta | None = None) -> None:
    producer = client.create_producer(topic)
    for text in texts:
        producer.send(text.encode(), partition_key=text, deliver_after=delay)
    producer.close()


def test_delayed_messages_come_when_they_are_due(broker, root, client, clock, sink):
    clock.stop()
    send(client, "t", "later", delay=timedelta(minutes=1))
    send(client, "t", "now")
    checkpoint = Checkpoint()
    for _ in range(2):
        ending = stream(root, sink, checkpoint)
        ending.run(available_now=True)
        assert sink.payloads == [b"now"]
    running = stream(root, sink, checkpoint)
    assert not look(running) and running.reader.reportLatestOffset()["topics"].popitem()[1]["delayed"] == 1
    clock.advance(minutes=2)
    running.run(1)
    assert sink.payloads == [b"now", b"later"] and [*sink.batches] == [0, 1]
    running.stop()


def test_what_others_gave_back_too_often_is_dead(broker, root, client, clock, sink):
    policy, checkpoint = {"maxRedeliverCount": 1, "deadLetterTopic": "dead"}, Checkpoint()
    send(client, "t", "first")
    stream(root, sink, checkpoint, **policy).run(available_now=True)
    send(client, "t", "bad")
    other = client.subscribe("t", "s", pulsar.ConsumerType.Shared, negative_ack_redelivery_delay_ms=100)
    for _ in range(2):
        other.negative_acknowledge(other.receive(60_000))
        clock.advance(seconds=1)
    other.close()
    send(client, "t", "good")
    stream(root, sink, checkpoint, **policy).run(available_now=True)
    assert sink.payloads == [b"first", b"good"] and broker.backlog("t", "s") == 0
    assert [message.data() for message in broker.published("dead")] == [b"bad"]


def test_partitions_that_are_added_are_read_from_their_first_message(broker, root, client, clock, sink):
    create_topic(broker.layout, "t", 1)
    running = stream(root, sink, initialPosition="Latest")
    assert not look(running)
    raise_partitions(broker.layout, "t", 2)
    send(client, "t-partition-1", "b")
    clock.advance(minutes=2)
    running.run(1)
    send(client, "t-partition-0", "a")
    running.run(1)
    assert sink.payloads == [b"b", b"a"]
    running.stop()


def test_one_partition_by_its_name(broker, root, client, sink):
    create_topic(broker.layout, "t", 2)
    for partition in range(2):
        send(client, f"t-partition-{partition}", str(partition))
    stream(root, sink, topic="t-partition-1").run(available_now=True)
    assert sink.payloads == [b"1"]


def test_a_topic_that_appears_is_read_from_its_first_message(broker, root, client, clock, sink):
    create_topic(broker.layout, "t-old")
    options = {"topicsPattern": "t-.*", "patternAutoDiscoveryPeriod": 30}
    running = Query(root, Checkpoint(), sink, subscription="s", **options)
    assert not look(running)
    send(client, "t-new", "a")
    assert not look(running)
    clock.advance(seconds=31)
    running.run(1)
    send(client, "t-old", "b")
    running.run(1)
    assert sink.payloads == [b"a", b"b"]
    running.stop()


def test_on_failover_a_second_stream_stands_by(broker, root, client, sink):
    """Which of them gets the messages is decided by the hashes of their names."""
    first, second = (
        stream(root, each, subscriptionType="Failover", consumerName=name)
        for name, each in (("b", sink), ("a", Sink()))
    )
    assert not look(first) and not look(second)
    send(client, "t", "a")
    first.run(1)
    assert not look(second)
    first.run(available_now=False)
    first.stop()
    send(client, "t", "b")
    second.run(1)
    assert [sink.payloads, second._sink.payloads] == [[b"a"], [b"b"]]
    second.stop()


def test_on_exclusive_a_second_stream_is_refused(broker, root, client, sink):
    first, second = (stream(root, sink, subscriptionType="Exclusive") for _ in range(2))
    assert not look(first)
    with pytest.raises(ConsumerBusy, match="held by consumer '"):
        look(second)
    first.stop()
    assert not look(second)
    second.stop()


def test_on_key_shared_each_key_is_at_one_stream(broker, root, client):
    streams = [stream(root, Sink(), subscriptionType="KeyShared") for _ in range(2)]
    assert not any(map(look, streams))
    send(client, "t", *map(str, range(30)))
    send(client, "t", *map(str, range(30)))
    eventually(lambda: [each.run() for each in streams] and sum(len(each._sink.every) for each in streams) == 60)
    keys = [{*each._sink.payloads} for each in streams]
    assert all(keys) and not keys[0] & keys[1]
    for each in streams:
        each.stop()


def test_an_administrator_removes_the_consumer(broker, root, client, sink):
    """What its last micro-batch has is acknowledged all the same, and does not come again."""
    send(client, "t", "a")
    running = stream(root, sink)
    running.run(1)
    Admin(f"delta:{root}").unload("t")
    broker.settle()
    send(client, "t", "b")
    running.run(1)
    running.run()
    assert sink.payloads == [b"a", b"b"] and broker.backlog("t", "s") == 0
    running.stop()


def test_the_subscription_is_deleted_meanwhile(broker, root, client, sink):
    send(client, "t", "a")
    running = stream(root, sink)
    running.run(1)
    Admin(f"delta:{root}").unsubscribe("t", "s", force=True)
    broker.settle()
    with pytest.raises(AlreadyClosed, match="subscription 's' of '.*' was unsubscribed"):
        running.run(1)
    running.stop()


def test_a_broker_that_is_away_for_long(root_url, clock, sink):
    """A stream waits for it, however long; one that ends gives up after the timeout."""
    with Broker(root_url, clock=clock) as first:
        root = first.layout.root
        client = pulsar.Client(f"delta:{root}", operation_timeout_seconds=10)
        send(client, "t", "a")
        running = stream(root, sink, operationTimeoutSeconds=1)
        running.run(1)
        other = stream(root, sink, operationTimeoutSeconds=1, subscription="other")
        other.reader.prepareForTriggerAvailableNow()
        other.run(1)
    send(client, "t", "b")
    clock.advance(minutes=10)
    assert not look(running)
    with pytest.raises(Timeout, match="no broker answered on root"):
        look(other)
    with Broker(root_url, clock=clock) as second:
        running.run(1)
        assert sink.payloads[-1] == b"b" and len(sink.every) == 3
        running.run()
        assert second.backlog("t", "s") == 0
        running.stop()
        other.stop()
    client.shutdown()
