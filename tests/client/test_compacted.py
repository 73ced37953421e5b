"""Consumers, readers and table views that read compacted."""

from types import SimpleNamespace

import numpy as np
import pytest

import pulsar_spark as pulsar
from pulsar_spark.admin import Admin
from pulsar_spark.admin.upkeep import trim
from pulsar_spark.client.receiving.compacted_out import AHEAD, CompactedOut
from pulsar_spark.errors import NotAllowedError
from pulsar_spark.storage.topics.topics import read_topic
from pulsar_spark.testing.plain_broker import PlainBroker
from tests.support.waiting import eventually

EARLIEST = dict(initial_position=pulsar.InitialPosition.Earliest)
COMPACTED = dict(is_read_compacted=True, **EARLIEST)
WAIT = 5000


@pytest.fixture
def admin(service_url):
    return Admin(service_url)


@pytest.fixture
def send(client):
    """Publishes messages, each a key and a payload; their ids."""
    producer = client.create_producer("t")
    return lambda *sent: [producer.send(value, partition_key=key) for key, value in sent]


def take(consumer, count):
    """The next *count* messages, and that there is no other: each acknowledged."""
    found = [consumer.receive(WAIT) for _ in range(count)]
    for message in found:
        consumer.acknowledge(message)
    with pytest.raises(pulsar.Timeout):
        consumer.receive(150)
    return [(message.partition_key(), message.data()) for message in found]


def read(reader):
    found = []
    while reader.has_message_available():
        message = reader.read_next()
        found.append((message.partition_key(), message.data()))
    return found


def test_a_consumer_gets_what_stays_and_then_what_follows(client, broker, admin, send):
    send(("a", b"1"), ("b", b"1"), ("a", b"2"), ("c", b"1"), ("b", None))
    assert admin.compact("t") == "SUCCESS"
    ids = send(("a", b"3"), ("a", b"4"))
    consumer = client.subscribe("t", "s", **COMPACTED)
    assert take(consumer, 4) == [("a", b"2"), ("c", b"1"), ("a", b"3"), ("a", b"4")]
    eventually(lambda: broker.cursor("t", "s").mark_delete == 6)  # what was left out was passed over
    eventually(lambda: admin.stats("t")["subscriptions"]["s"]["msgBacklog"] == 0)
    consumer.close()
    (again,) = send(("a", b"5"))
    consumer = client.subscribe("t", "s", **COMPACTED)
    message = consumer.receive(WAIT)
    assert (message.data(), message.message_id()) == (b"5", again) and again > ids[-1]


def test_what_compaction_left_out_is_acknowledged_for_who_reads_plainly_afterwards(client, broker, admin, send):
    """Decision 0.34."""
    send(("a", b"1"), ("b", b"1"), ("a", b"2"))
    assert admin.compact("t") == "SUCCESS"
    consumer = client.subscribe("t", "s", **COMPACTED)
    assert take(consumer, 2) == [("b", b"1"), ("a", b"2")]
    eventually(lambda: broker.cursor("t", "s").mark_delete == 2)
    consumer.close()
    send(("a", b"3"))
    assert take(client.subscribe("t", "s"), 1) == [("a", b"3")]


def some_of(consumer, count):
    """The next *count* messages, each acknowledged."""
    found = [consumer.receive(WAIT) for _ in range(count)]
    for message in found:
        consumer.acknowledge(message)
    return [(message.partition_key(), message.data()) for message in found]


def test_a_deletion_that_a_compaction_took_is_heard_of_by_who_knows_the_key(client, broker, admin, send):
    """Decision 0.34: a cache that is built from a subscription would keep the key for ever."""
    send(("a", b"1"), ("b", b"1"), ("c", b"1"))
    consumer = client.subscribe("t", "s", **COMPACTED)
    assert take(consumer, 3) == [("a", b"1"), ("b", b"1"), ("c", b"1")]
    consumer.close()
    send(("b", b"2"), ("a", b""), ("d", b"1"), ("d", None), ("b", b"3"))
    assert admin.compact("t") == "SUCCESS"
    send(("e", b"1"))
    consumer = client.subscribe("t", "s", **COMPACTED)
    assert take(consumer, 4) == [("a", b""), ("d", b""), ("b", b"3"), ("e", b"1")]
    eventually(lambda: broker.cursor("t", "s").mark_delete == 8)
    consumer.close()
    new = client.subscribe("t", "new", **COMPACTED)
    assert take(new, 3) == [("c", b"1"), ("b", b"3"), ("e", b"1")], "who knows no key has none to forget"


def test_a_deletion_that_is_given_back_comes_again(client, broker, admin, send):
    send(("a", b"1"))
    consumer = client.subscribe("t", "s", negative_ack_redelivery_delay_ms=10, **COMPACTED)
    assert some_of(consumer, 1) == [("a", b"1")]
    send(("a", None), ("b", b"1"), ("b", b"2"))
    admin.compact("t")
    consumer.close()
    consumer = client.subscribe("t", "s", negative_ack_redelivery_delay_ms=10, **COMPACTED)
    deletion = consumer.receive(WAIT)
    assert (deletion.partition_key(), deletion.data()) == ("a", b"")
    consumer.negative_acknowledge(deletion)
    found = {}
    for _ in range(10):
        message = consumer.receive(WAIT)
        consumer.acknowledge(message)
        found[message.partition_key()] = message.data(), message.redelivery_count()
        if found.get("a") == (b"", 1) and "b" in found:
            break
    assert found["a"] == (b"", 1) and found["b"][0] == b"2"
    eventually(lambda: broker.cursor("t", "s").mark_delete == 3)


def test_a_deletion_that_is_compacted_while_the_topic_is_consumed_is_heard_of(client, broker, admin, send):
    send(("a", b"1"), ("b", b"1"))
    consumer = client.subscribe("t", "s", receiver_queue_size=1, **COMPACTED)
    first = consumer.receive(WAIT)
    send(("a", None), ("c", b"1"))
    admin.compact("t")
    send(("d", b"1"))
    consumer.acknowledge(first)
    found = [(first.partition_key(), first.data())]
    while found[-1] != ("d", b"1"):
        found += some_of(consumer, 1)
    assert found[0] == ("a", b"1") and ("a", b"") in found and ("c", b"1") in found
    eventually(lambda: broker.cursor("t", "s").mark_delete == 4)


def test_a_deletion_in_a_batch_keeps_its_index(client, broker, admin, send):
    send(("a", b"1"), ("b", b"1"))
    consumer = client.subscribe("t", "s", **COMPACTED)
    assert take(consumer, 2) == [("a", b"1"), ("b", b"1")]
    consumer.close()
    producer = client.create_producer("t", batching_enabled=True, batching_max_publish_delay_ms=10_000)
    for key, value in (("x", b"1"), ("a", b""), ("x", b"2"), ("b", b"")):
        producer.send_async(value, None, partition_key=key)
    producer.flush()
    admin.compact("t")
    consumer = client.subscribe("t", "s", **COMPACTED)
    messages = [consumer.receive(WAIT) for _ in range(3)]
    assert [(each.partition_key(), each.data(), each.message_id().batch_index()) for each in messages] == [
        ("a", b"", 1),
        ("x", b"2", 2),
        ("b", b"", 3),
    ]
    for message in messages:
        consumer.acknowledge(message)
    eventually(lambda: broker.cursor("t", "s").mark_delete == 2)


def test_message_ids_and_counts_are_those_of_the_topic(client, admin, send):
    ids = send(("a", b"1"), ("b", b"1"), ("a", b"2"))
    admin.compact("t")
    consumer = client.subscribe("t", "s", negative_ack_redelivery_delay_ms=10, **COMPACTED)
    first, second = consumer.receive(WAIT), consumer.receive(WAIT)
    assert [first.message_id(), second.message_id()] == ids[1:]
    consumer.acknowledge(first)
    consumer.negative_acknowledge(second)
    again = consumer.receive(WAIT)
    assert (again.message_id(), again.redelivery_count()) == (ids[2], 1)
    consumer.acknowledge_cumulative(again)


def test_a_cursor_in_the_middle_starts_within_what_was_compacted(client, admin, send):
    send(("a", b"1"), ("b", b"1"))
    consumer = client.subscribe("t", "s", **COMPACTED)
    consumer.acknowledge(consumer.receive(WAIT))
    consumer.close()
    send(("c", b"1"), ("d", b"1"), ("c", b"2"))
    admin.compact("t")
    assert take(client.subscribe("t", "s", **COMPACTED), 3) == [("b", b"1"), ("d", b"1"), ("c", b"2")]


def test_seek_goes_back_into_what_was_compacted(client, admin, send):
    ids = send(("a", b"1"), ("b", b"1"), ("a", b"2"), ("c", b"1"))
    admin.compact("t")
    consumer = client.subscribe("t", "s", **COMPACTED)
    assert take(consumer, 3) == [("b", b"1"), ("a", b"2"), ("c", b"1")]
    consumer.seek(ids[0])
    assert take(consumer, 3) == [("b", b"1"), ("a", b"2"), ("c", b"1")]
    consumer.seek(ids[2])
    assert take(consumer, 1) == [("c", b"1")]


def test_a_topic_that_is_compacted_while_it_is_consumed(client, admin, send):
    consumer = client.subscribe("t", "s", receiver_queue_size=1, **COMPACTED)
    send(("a", b"1"), ("a", b"2"), ("b", b"1"))
    admin.compact("t")
    send(("b", b"2"))
    found = []
    while not found or found[-1] != ("b", b"2"):
        message = consumer.receive(WAIT)
        consumer.acknowledge(message)
        found.append((message.partition_key(), message.data()))
    assert [each for each in found if each[0] == "b"][-1] == ("b", b"2")
    assert ("a", b"2") in found


def test_what_the_next_compaction_leaves_out_is_passed_over_too(client, broker, admin, send):
    """What was told ahead for one view is told anew for the next."""
    send(*[(f"k{number}", b"1") for number in range(6)], ("k0", b"2"))
    admin.compact("t")
    consumer = client.subscribe("t", "s", receiver_queue_size=1, **COMPACTED)
    first = consumer.receive(WAIT)
    assert first.partition_key() == "k1"
    send(*[(f"k{number}", b"2") for number in range(2, 6)])
    admin.compact("t")
    consumer.acknowledge(first)
    found = []
    while not found or found[-1] != ("k5", b"2"):
        message = consumer.receive(WAIT)
        consumer.acknowledge(message)
        found.append((message.partition_key(), message.data()))
    assert found[-5:] == [("k0", b"2"), ("k2", b"2"), ("k3", b"2"), ("k4", b"2"), ("k5", b"2")]
    eventually(lambda: broker.cursor("t", "s").mark_delete == 10)


def test_nothing_is_told_of_what_the_broker_has_not_numbered_yet():
    """A compaction may be ahead of it."""
    told, ends = [], iter((4, 10))
    ledgers = SimpleNamespace(next_position=lambda *place: next(ends))
    subscription = SimpleNamespace(
        topic=SimpleNamespace(path="t", topic_id="id"), partition=-1, ledgers=ledgers, acknowledge_deleted=told.extend
    )
    every_second = np.arange(1, 4 * AHEAD, 2)
    entries = SimpleNamespace(
        places=lambda table, partition, first, last, more: (9, every_second[first // 2 : last // 2 + 1 + more])
    )
    compacted_out, delivery = CompactedOut(subscription, entries), SimpleNamespace(generation=0)
    assert compacted_out.without(delivery, range(0, 2)).tolist() == [1] and told == [(0, 0), (2, 2)]
    del told[:]
    assert compacted_out.without(delivery, range(4, 6)).tolist() == [5] and told == [(4, 4), (6, 6), (8, 8)]


def test_messages_of_batches_keep_their_index(client, admin, broker):
    producer = client.create_producer("t", batching_enabled=True, batching_max_publish_delay_ms=10_000)
    for key, value in (("a", b"1"), ("b", b"1"), ("a", b"2")):
        producer.send_async(value, None, partition_key=key)
    producer.flush()
    admin.compact("t")
    consumer = client.subscribe("t", "s", **COMPACTED)
    messages = [consumer.receive(WAIT), consumer.receive(WAIT)]
    assert [(message.data(), message.message_id().batch_index()) for message in messages] == [(b"1", 1), (b"2", 2)]
    consumer.acknowledge(messages[0])
    consumer.acknowledge(messages[1])
    eventually(lambda: broker.cursor("t", "s").mark_delete == 0)


def test_chunked_messages_come_whole(client, admin):
    producer = client.create_producer("t", chunking_enabled=True, chunk_max_message_size=2)
    for key, value in (("a", b"123456"), ("b", b"1234"), ("a", b"654321")):
        producer.send(value, partition_key=key)
    admin.compact("t")
    assert take(client.subscribe("t", "s", **COMPACTED), 2) == [("b", b"1234"), ("a", b"654321")]
    assert read(client.create_reader("t", pulsar.MessageId.earliest, is_read_compacted=True)) == [
        ("b", b"1234"),
        ("a", b"654321"),
    ]


@pytest.mark.default
def test_what_was_trimmed_is_read_from_the_view(client, broker, admin, send):
    """Trimming takes nothing that is not compacted; a subscription made afterwards begins with the view, and neither a
    publish nor a restart moves it on."""
    send(("a", b"1"), ("b", b"1"), ("a", b"2"))
    consumer = client.subscribe("t", "first", **EARLIEST)
    consumer.acknowledge_cumulative([consumer.receive(WAIT) for _ in range(3)][-1])
    consumer.close()
    eventually(lambda: broker.cursor("t", "first").mark_delete == 2)
    admin.compact("t")
    send(("c", b"1"), ("d", b"1"))
    admin.clear_backlog("t", "first")
    (done,) = trim(admin.layout, "t")
    assert (done["first_position"], done["kept_by"]) == (3, "subscription __compaction")
    with pytest.raises(NotAllowedError, match="__compaction"):
        trim(admin.layout, "t", before=4)

    consumer = client.subscribe("t", "second", **COMPACTED)
    first = consumer.receive(WAIT)
    assert (first.partition_key(), first.data()) == ("b", b"1")
    consumer.close()
    send(("d", b"2"))
    eventually(lambda: broker.rounds.bundle.topic("persistent://public/default/t").end_position(-1) == 6)
    assert take(client.subscribe("t", "second", **COMPACTED), 5)[:2] == [("b", b"1"), ("a", b"2")]
    assert read(client.create_reader("t", pulsar.MessageId.earliest, is_read_compacted=True))[:2] == [
        ("b", b"1"),
        ("a", b"2"),
    ]
    assert client.create_table_view("t").snapshot() == {"a": b"2", "b": b"1", "c": b"1", "d": b"2"}
    assert take(client.subscribe("t", "plain", **EARLIEST), 3)[0] == ("c", b"1"), "who does not begins behind it"


@pytest.mark.local_disk
def test_a_view_that_cannot_be_opened_keeps_the_broker_from_nothing_else(client, broker, admin, send):
    send(("a", b"1"), ("b", b"1"))
    admin.create_subscription("t", "first", "earliest")
    admin.compact("t")
    send(("b", b"2"))
    admin.clear_backlog("t", "first")
    assert trim(admin.layout, "t")
    client.subscribe("t", "s", **COMPACTED).close()
    other = client.subscribe("u", "s", **EARLIEST)
    assert broker.cursor("t", "s").mark_delete == -1
    log = read_topic(admin.layout, "t").path / "_compacted" / "_delta_log"
    max(log.glob("0*.json")).write_text("{")
    send(("c", b"1"))
    client.create_producer("u").send(b"x")
    assert other.receive(WAIT).data() == b"x"
    assert [each["subscription"] for each in admin.set_aside()] == ["s"]


def test_a_topic_that_was_trimmed_and_never_compacted_begins_where_it_does(client, broker, admin, send):
    send(("a", b"1"), ("b", b"1"))
    admin.create_subscription("t", "first", "earliest")
    admin.clear_backlog("t", "first")
    trim(admin.layout, "t")
    consumer = client.subscribe("t", "s", **COMPACTED)
    assert take(consumer, 1) == [("b", b"1")]
    consumer.seek(pulsar.MessageId.earliest)
    assert take(consumer, 1) == [("b", b"1")]
    eventually(lambda: broker.cursor("t", "s").mark_delete == 1)


def test_a_restart_keeps_who_reads_compacted(root_url, service_url):
    with PlainBroker(root_url):
        client = pulsar.Client(service_url)
        producer, admin = client.create_producer("t"), Admin(service_url)
        producer.send(b"1", partition_key="a")
        admin.create_subscription("t", "first", "earliest")
        admin.clear_backlog("t", "first")
        admin.compact("t")
        for _ in range(2):
            producer.send(b"1", partition_key="b")
        admin.clear_backlog("t", "first")
        trim(admin.layout, "t")
        client.subscribe("t", "s", **COMPACTED).close()
        client.close()
    with PlainBroker(root_url) as broker:
        assert broker.cursor("t", "s").reads_compacted and broker.cursor("t", "s").mark_delete == -1
        client = pulsar.Client(service_url)
        client.create_producer("t").send(b"2", partition_key="b")
        assert take(client.subscribe("t", "s", **COMPACTED), 4)[0] == ("a", b"1")
        plain = client.subscribe("t", "s2", is_read_compacted=True, **EARLIEST)
        plain.close()
        plain = client.subscribe("t", "s2", **EARLIEST)
        assert take(plain, 3) == [("b", b"1"), ("b", b"1"), ("b", b"2")], "a plain consumer goes on behind what is gone"
        eventually(lambda: broker.cursor("t", "s2").mark_delete == 3)
        client.close()


@pytest.mark.parametrize("consumer_type", [pulsar.ConsumerType.Shared, pulsar.ConsumerType.KeyShared])
def test_several_consumers_at_a_time_are_refused(client, consumer_type):
    with pytest.raises(pulsar.InvalidConfiguration, match="Exclusive and Failover"):
        client.subscribe("t", "s", consumer_type, is_read_compacted=True)


def test_failover_takes_over_in_what_was_compacted(client, other_client, admin, send):
    send(("a", b"1"), ("b", b"1"), ("a", b"2"), ("c", b"1"))
    admin.compact("t")
    first = client.subscribe("t", "s", pulsar.ConsumerType.Failover, consumer_name="1", **COMPACTED)
    second = other_client.subscribe("t", "s", pulsar.ConsumerType.Failover, consumer_name="2", **COMPACTED)
    first.acknowledge(first.receive(WAIT))
    first.close()
    assert take(second, 2) == [("a", b"2"), ("c", b"1")]


def test_partitions_are_compacted_one_by_one(client, admin):
    admin.create_partitioned_topic("p", 3)
    producer = client.create_producer("p")
    for number in range(30):
        producer.send(b"%d" % number, partition_key=f"k{number % 6}")
    used = {str(admin.partition_for_key("p", f"k{number}")) for number in range(6)}
    admin.compact(sorted(used)[0])
    consumer = client.subscribe("p", "s", **COMPACTED)
    some = {message.data() for message in (consumer.receive(WAIT) for _ in range(8))}
    assert some
    consumer.close()
    admin.compact("p")
    reader = client.create_reader("p", pulsar.MessageId.earliest, is_read_compacted=True)
    assert sorted(read(reader)) == [(f"k{number % 6}", b"%d" % number) for number in range(24, 30)]
    assert read(client.create_reader("p", pulsar.MessageId.earliest)) != []


def test_a_reader_begins_where_it_is_told_to(lonely_client, service_url):
    producer, admin = lonely_client.create_producer("t"), Admin(service_url)
    ids = [producer.send(value, partition_key=key) for key, value in (("a", b"1"), ("b", b"1"), ("a", b"2"))]
    admin.compact("t")
    ids.append(producer.send(b"3", partition_key="a"))

    def reader(start, **options):
        return read(lonely_client.create_reader("t", start, is_read_compacted=True, **options))

    assert reader(pulsar.MessageId.earliest) == [("b", b"1"), ("a", b"2"), ("a", b"3")]
    assert reader(ids[0]) == [("b", b"1"), ("a", b"2"), ("a", b"3")]
    assert reader(ids[1]) == [("a", b"2"), ("a", b"3")]
    assert reader(ids[2], start_message_id_inclusive=True) == [("a", b"2"), ("a", b"3")]
    assert reader(ids[3]) == [] and reader(pulsar.MessageId.latest) == []
    follower = lonely_client.create_reader("t", pulsar.MessageId.earliest, is_read_compacted=True)
    assert len(read(follower)) == 3
    producer.send(b"4", partition_key="a")
    admin.compact("t")
    assert read(follower) == [("a", b"4")]
    follower.seek(pulsar.MessageId.earliest)
    assert read(follower) == [("b", b"1"), ("a", b"4")]


def test_a_reader_that_is_slow_goes_on_in_the_view_of_then(lonely_client, service_url):
    producer, admin = lonely_client.create_producer("t"), Admin(service_url)
    for key in ("a", "b"):
        producer.send(b"1", partition_key=key)
    admin.compact("t")
    reader = lonely_client.create_reader("t", pulsar.MessageId.earliest, is_read_compacted=True)
    assert reader.read_next().partition_key() == "a"
    for value in (b"1", b"2"):
        producer.send(value, partition_key="c")
    admin.compact("t")
    assert read(reader) == [("b", b"1"), ("c", b"2")], "what was compacted meanwhile is read compacted"


def test_a_reader_goes_on_in_the_view_of_then_of_partitions_that_it_has_read(lonely_client, service_url):
    admin = Admin(service_url)
    admin.create_partitioned_topic("p", 2)
    first, second = (lonely_client.create_producer(f"p-partition-{number}") for number in range(2))
    first.send(b"1", partition_key="a")
    for key in ("b", "c"):
        second.send(b"1", partition_key=key)
    admin.compact("p")
    reader = lonely_client.create_reader("p", pulsar.MessageId.earliest, is_read_compacted=True)
    assert [reader.read_next().partition_key() for _ in range(2)] == ["a", "b"]
    for value in (b"2", b"3"):
        first.send(value, partition_key="a")
    admin.compact("p")
    assert read(reader) == [("c", b"1"), ("a", b"3")]


def test_a_time_to_begin_at_holds_for_each_partition(lonely_client, service_url):
    admin = Admin(service_url)
    admin.create_partitioned_topic("p", 2)
    producers = [lonely_client.create_producer(f"p-partition-{number}") for number in range(2)]
    for producer in producers:
        producer.send(b"old", partition_key="a")
    message_id = [producer.send(b"new", partition_key="b") for producer in producers][0]
    admin.compact("p")
    reader = lonely_client.create_reader("p", pulsar.MessageId.earliest, is_read_compacted=True)
    assert len(read(reader)) == 4
    times = []
    reader.seek(pulsar.MessageId.earliest)
    while reader.has_message_available():
        times.append(reader.read_next().publish_timestamp())
    reader.seek(sorted(times)[2])
    assert [value for _, value in read(reader)].count(b"new") == 2 and message_id
