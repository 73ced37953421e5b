"""A file of a topic taken by hand: its messages are named as lost, everything else flows, and skipping them is a
command."""

from datetime import timedelta

import pytest

import pulsar_spark as pulsar
from pulsar_spark.storage.log import TableLog
from tests.client.waiting import eventually
from tests.tables.conftest import SHARED, receive


def lose(root, version: int, topic="t") -> str:
    file = TableLog(root.path(topic)).commit(version).added[0].path
    (root.path(topic) / file).unlink()
    return file


@pytest.mark.parametrize("options", [{}, SHARED, {"receiver_queue_size": 2, **SHARED}])
def test_lost_messages_are_an_error_once_and_the_rest_flows(root, options):
    root.subscribe(**options).close()
    for values in ("ab", "cd", "ef"):
        root.send(values)
    file = lose(root, 2)
    consumer = root.subscribe(**options)
    assert receive(consumer, 2) == ["a", "b"]
    with pytest.raises(pulsar.MessagesLost, match="2:0 to 2:1") as raised:
        consumer.receive(10_000)
    assert (raised.value.ledger_id, raised.value.ranges, raised.value.path) == (
        2,
        ((0, 1),),
        file,
    ) and "skip-lost" in str(raised.value)
    assert receive(consumer) == ["e", "f"]
    stats = root.stats()
    assert (stats["lostMessages"], stats["subscriptions"]["s"]["msgBacklog"]) == (2, 2)
    assert [
        (each["first_position"], each["last_position"], each["messages"], each["path"])
        for each in root.admin.lost_messages("t")
    ] == [(2, 3, 2, file)]
    assert root.admin.skip_lost("t", "s") == 2
    eventually(lambda: root.stats()["subscriptions"]["s"]["msgBacklog"] == 0)
    root.send(["g"])
    assert receive(consumer) == ["g"]


@pytest.mark.parametrize(
    "damage", [lambda data: b"", lambda data: data[:3], lambda data: data[:-50], lambda data: bytes(len(data))]
)
def test_a_file_that_is_not_whole_is_lost_too(root, damage):
    """As a power loss leaves it: empty, cut off, zeros."""
    root.subscribe().close()
    for values in ("ab", "cd", "ef"):
        root.send(values)
    file = root.path() / TableLog(root.path()).commit(2).added[0].path
    file.write_bytes(damage(file.read_bytes()))
    consumer = root.subscribe()
    assert receive(consumer, 2) == ["a", "b"]
    with pytest.raises(pulsar.MessagesLost, match="2:0 to 2:1"):
        consumer.receive(10_000)
    assert receive(consumer) == ["e", "f"]
    assert root.stats()["lostMessages"] == 2 and sum(each["messages"] for each in root.admin.lost_messages("t")) == 2
    assert root.admin.skip_lost("t", "s") == 2
    eventually(lambda: root.stats()["subscriptions"]["s"]["msgBacklog"] == 0)


def test_a_reader_goes_on_behind_what_is_lost(root):
    for values in ("ab", "cd", "ef"):
        root.send(values)
    lose(root, 2)
    reader = root.client.create_reader("t", pulsar.MessageId.earliest)
    assert [reader.read_next(5000).data() for _ in range(2)] == [b"a", b"b"]
    with pytest.raises(pulsar.MessagesLost):
        reader.read_next(5000)
    assert [reader.read_next(5000).data() for _ in range(2)] == [b"e", b"f"]


def test_a_batch_receive_gives_what_it_has_before_it_says_what_is_lost(root):
    root.subscribe().close()
    for values in ("ab", "cd", "ef"):
        root.send(values)
    lose(root, 2)
    policy = pulsar.ConsumerBatchReceivePolicy(10, 10_000_000, 1500)
    consumer = root.subscribe(batch_receive_policy=policy)
    assert [message.data() for message in consumer.batch_receive()] == [b"a", b"b"]
    with pytest.raises(pulsar.MessagesLost):
        consumer.batch_receive()
    assert [message.data() for message in consumer.batch_receive()] == [b"e", b"f"]


@pytest.mark.parametrize(
    ("runs", "options"),
    [(1, {}), (2, {"batching_enabled": True, "batching_max_messages": 3, "batching_max_publish_delay_ms": 100})],
)
def test_a_file_that_is_lost_before_it_was_numbered(root, runs, options):
    root.subscribe().close()
    with root.broker.paused():
        root.send("abcd", **options)
        lose(root, 1)
        root.send("e")
    consumer = root.subscribe()
    for _ in range(runs):
        with pytest.raises(pulsar.MessagesLost, match="1:"):
            consumer.receive(10_000)
    assert receive(consumer) == ["e"]
    root.admin.skip_lost("t", "s")
    eventually(lambda: root.stats()["subscriptions"]["s"]["msgBacklog"] == 0)


def test_a_lost_file_of_delayed_messages_holds_nobody_up(root):
    root.subscribe(**SHARED).close()
    producer = root.client.create_producer("t")
    with root.broker.paused():
        producer.send(b"late", deliver_after=timedelta(days=1))
        lose(root, 1)
        producer.send(b"now")
    consumer = root.subscribe(**SHARED)
    with pytest.raises(pulsar.MessagesLost):
        consumer.receive(10_000)
    assert receive(consumer) == ["now"]


def test_nothing_is_lost_after_optimize_and_vacuum(root):
    for value in "abc":
        root.send(value)
    root.subscribe()
    root.table().optimize.compact()
    root.table().vacuum(0, dry_run=False, enforce_retention_duration=False)
    eventually(lambda: root.stats()["subscriptions"]["s"]["msgBacklog"] == 3)
    assert root.admin.lost_messages("t") == [] and root.admin.skip_lost("t", "s") == 0
