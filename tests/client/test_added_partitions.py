"""Partitions that are added to a topic in use."""

import re

import pytest

import pulsar_spark as pulsar
from pulsar_spark.admin import Admin
from pulsar_spark.client.sending import producer as producer_module
from pulsar_spark.client.subscribing import membership as membership_module
from pulsar_spark.storage.topics.partitions import PartitionWatch
from pulsar_spark.storage.topics.topics import read_topic
from pulsar_spark.testing.plain_broker import PlainBroker
from tests.support.waiting import eventually, nothing_comes, receive_values

EARLIEST = dict(initial_position=pulsar.InitialPosition.Earliest)
SHARED = dict(consumer_type=pulsar.ConsumerType.Shared)


@pytest.fixture(autouse=True)
def often(monkeypatch):
    for module in (membership_module, producer_module):
        monkeypatch.setattr(module, "PARTITIONS_SECONDS", 0.05)


@pytest.fixture
def admin(broker, service_url):
    admin = Admin(service_url, timeout_seconds=10)
    admin.create_partitioned_topic("t", 2)
    return admin


def partitions_of(ids) -> set[int]:
    return {message_id.partition() for message_id in ids}


def test_producers_and_consumers_follow(client, admin):
    producer, consumer = client.create_producer("t"), client.subscribe("t", "s", **SHARED)
    assert partitions_of(producer.send(b"before") for _ in range(4)) == {0, 1}
    assert receive_values(consumer, 4) == ["before"] * 4
    admin.update_partitioned_topic("t", 5)
    assert client.get_topic_partitions("t")[-1] == "persistent://public/default/t-partition-4"
    eventually(lambda: partitions_of(producer.send(b"after") for _ in range(5)) == set(range(5)))
    eventually(lambda: len(consumer._subscriptions) == 5 and consumer.is_connected())
    producer.send(b"last")
    seen = set()
    while seen != set(range(5)):
        message = consumer.receive(60_000)
        assert message.data() in (b"after", b"last")
        seen.add(message.message_id().partition())
        consumer.acknowledge(message)
    consumer.close()
    producer.close()
    assert not client._following._looks


def test_a_name_is_one_producer_s_on_added_partitions_too(client, other_client, admin):
    producer = client.create_producer("t", "p")
    admin.update_partitioned_topic("t", 3)
    eventually(lambda: producer.send(b"x").partition() == 2)
    with pytest.raises(pulsar.ProducerBusy):
        other_client.create_producer("t-partition-2", "p")
    producer.close()
    other_client.create_producer("t-partition-2", "p").close()


def test_a_subscription_misses_nothing_of_partitions_added_while_nobody_is_connected(client, other_client, admin):
    client.subscribe("t", "s").close()
    admin.update_partitioned_topic("t", 3)
    producer = other_client.create_producer("t")
    ids = [producer.send(b"%d" % number) for number in range(6)]
    assert partitions_of(ids) == {0, 1, 2}
    consumer = client.subscribe("t", "s")
    assert sorted(receive_values(consumer, 6)) == [str(number) for number in range(6)]


def test_a_commit_of_partitions_that_nobody_knows_yet_is_whole(client, other_client, broker, admin):
    """What is published to old and new partitions in one commit comes of both, to those who had the topic open."""
    consumer, reader = client.subscribe("t", "s"), client.create_reader("t-partition-0", pulsar.MessageId.earliest)
    table = client.create_reader("t", pulsar.MessageId.earliest)
    admin.update_partitioned_topic("t", 4)
    producer = other_client.create_producer("t", batching_enabled=True, batching_max_publish_delay_ms=10_000)
    for number in range(40):
        producer.send_async(b"x", None, partition_key=f"k{number}")
    producer.flush()
    partitions = [consumer.receive(60_000).message_id().partition() for _ in range(40)]
    assert set(partitions) == {0, 1, 2, 3}
    whole = [table.read_next(1000).message_id().partition() for _ in range(40)]
    assert sorted(whole) == sorted(partitions)
    of_the_first = [reader.read_next(1000) for _ in range(partitions.count(0))]
    assert len(of_the_first) == partitions.count(0) and not reader.has_message_available()
    assert broker.rounds.bundle.topics["persistent://public/default/t"].topic.partitions == 4


def test_a_broker_that_starts_anew_knows_them(tmp_path):
    url = f"delta:{tmp_path / 'root'}"
    admin = Admin(url, timeout_seconds=10)
    admin.create_partitioned_topic("t", 1)
    client = pulsar.Client(url, operation_timeout_seconds=10)
    with PlainBroker(tmp_path / "root"):
        client.subscribe("t", "s").close()
        admin.update_partitioned_topic("t", 3)
        producer = client.create_producer("t")
        for number in range(6):
            producer.send(b"%d" % number)
    with PlainBroker(tmp_path / "root") as broker:
        assert sorted(receive_values(client.subscribe("t", "s"), 6)) == [str(number) for number in range(6)]
        assert [broker.cursor("t", "s", partition).key.partition for partition in range(3)] == [0, 1, 2]
        client.shutdown()


def test_partitions_that_cannot_be_joined_are_let_go_and_tried_again(client, admin, monkeypatch):
    consumer = client.subscribe("t", "s")
    channel, attached = consumer._channel, []
    ask = channel.ask

    def no_broker_first(rows, timeout):
        attached.append(len(channel._first._inbox._subscribers))
        if len(attached) == 1:
            raise pulsar.Timeout("no broker")
        return ask(rows, timeout)

    detach = channel.detach
    monkeypatch.setattr(channel, "detach", lambda *of: (detach(*of), attached.append("let go")))
    monkeypatch.setattr(channel, "ask", no_broker_first)
    admin.update_partitioned_topic("t", 3)
    eventually(lambda: len(consumer._subscriptions) == 3)
    assert attached == [3, "let go", 3]


def test_a_pattern_s_topics_grow_too(client, admin):
    consumer = client.subscribe(re.compile("public/default/t"), "s", **SHARED)
    admin.update_partitioned_topic("t", 3)
    eventually(lambda: len(consumer._subscriptions) == 3)
    client.create_producer("t-partition-2").send(b"x")
    assert receive_values(consumer, 1) == ["x"]
    assert nothing_comes(consumer)


def test_who_named_one_partition_keeps_to_it(client, admin):
    producer, consumer = client.create_producer("t-partition-1"), client.subscribe("t-partition-1", "s")
    admin.update_partitioned_topic("t", 3)
    assert partitions_of(producer.send(b"x") for _ in range(3)) == {1}
    assert len(consumer._subscriptions) == 1 and not client._following._looks


def test_what_cannot_be_raised_is_refused(lonely_client, admin):
    admin.create_topic("plain")
    for topic, partitions, error in (
        ("t", 1, pulsar.NotAllowedError),
        ("plain", 3, pulsar.NotAllowedError),
        ("t", 0, pulsar.InvalidConfiguration),
        ("t", True, pulsar.InvalidConfiguration),
        ("none", 3, pulsar.TopicNotFound),
    ):
        with pytest.raises(error):
            admin.update_partitioned_topic(topic, partitions)
    admin.update_partitioned_topic("t", 2)
    assert admin.partitioned_topic_metadata("t") == {"partitions": 2}


@pytest.mark.local_disk
def test_a_look_costs_nothing_where_nothing_changed(admin):
    topic = read_topic(admin.layout, "t")
    watch = PartitionWatch(topic)
    assert watch.added() is None
    admin.update_partitioned_topic("t", 3)
    assert watch.added().partitions == 3 and watch.added() is None
    assert PartitionWatch(topic).added().partitions == 3, "they were added before the watch began"
    admin.delete_topic("t")
    assert watch.added() is None
