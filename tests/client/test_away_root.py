"""A root that goes away and comes back as it was, as a mount that drops: who was connected waits and goes on."""

import asyncio
import contextlib
import os
import re
import shutil
import threading
from pathlib import Path

import pytest

import pulsar_spark as pulsar
import pulsar_spark.asyncio as aio
from pulsar_spark.admin import Admin
from pulsar_spark.storage.store.away import is_away
from pulsar_spark.testing.plain_broker import PlainBroker
from tests.support.waiting import eventually, nothing_comes, receive_values, send

EARLIEST = dict(initial_position=pulsar.InitialPosition.Earliest)


@pytest.fixture
def root(tmp_path) -> Path:
    return tmp_path / "root"


@pytest.fixture
def root_url(root):
    return str(root)


@contextlib.contextmanager
def away(root: Path, *, leaves_folder: bool = True):
    """In the block an empty folder lies in the place of the root, or nothing, and nobody makes anything there."""
    aside = root.with_name("aside")
    os.rename(root, aside)
    if leaves_folder:
        root.mkdir()
    yield
    assert [str(path) for path in root.rglob("*")] == []
    if leaves_folder:
        root.rmdir()
    os.rename(aside, root)


def said(caplog, text: str) -> int:
    return sum(text in record.getMessage() for record in caplog.records if record.name == "pulsar_spark.client")


@pytest.mark.parametrize("leaves_folder", [True, False])
@pytest.mark.parametrize("topic", ["t", re.compile("t.*")], ids=["topic", "pattern"])
def test_who_was_connected_waits_says_so_once_and_goes_on(client, broker, root, caplog, topic, leaves_folder):
    producer = client.create_producer("t")
    consumer = client.subscribe(topic, "s", pattern_auto_discovery_period=1)
    reader = client.create_reader("t", pulsar.MessageId.latest)
    producer.send(b"before")
    message = consumer.receive(60_000)
    sent = []
    with away(root, leaves_folder=leaves_folder):
        sending = threading.Thread(target=lambda: sent.append(producer.send(b"meanwhile")), daemon=True)
        sending.start()
        consumer.acknowledge(message)
        eventually(lambda: said(caplog, "has disappeared: nothing is delivered"), 60)
        eventually(lambda: said(caplog, "waits, until the send timeout"), 60)
        assert nothing_comes(consumer, 20) and not consumer.is_connected() and not sent
    sending.join(60)
    producer.send(b"after")
    assert len(sent) == 1 and receive_values(consumer, 2) == ["meanwhile", "after"]
    assert [reader.read_next(60_000).data() for _ in range(3)] == [b"before", b"meanwhile", b"after"]
    eventually(lambda: said(caplog, "is back: waiting work continues"), 60)
    assert said(caplog, "nothing is delivered") == said(caplog, "is back: ") == said(caplog, "waits, until") == 1
    eventually(consumer.is_connected, 60)
    consumer.close()
    again = client.subscribe("t", "s")
    assert receive_values(again, 2) == ["meanwhile", "after"]  # what was acknowledged meanwhile is


def test_what_waits_in_the_queue_is_read_when_the_root_is_back(client, broker, root):
    send(client, "t", *map(str, range(5)))
    consumer = client.subscribe("t", "s", **EARLIEST)
    eventually(lambda: consumer._receiver._arrived, 60)
    with away(root):
        assert nothing_comes(consumer, 20) and nothing_comes(consumer, 20)
    assert receive_values(consumer, 5) == list(map(str, range(5)))


def test_a_reader_goes_on_where_it_was(client, broker, root):
    """In the middle of what was published at once, and between two publishes."""
    for first in (0, 3):
        producer = client.create_producer("t", batching_enabled=True, batching_max_publish_delay_ms=60_000)
        for number in range(first, first + 3):
            producer.send_async(b"%d" % number, None)
        producer.close()
    reader, found = client.create_reader("t", pulsar.MessageId.earliest), []
    for _ in range(6):
        with away(root):
            with contextlib.suppress(pulsar.Timeout):
                found.append(reader.read_next(5).data())
        found.append(reader.read_next(60_000).data()) if len(found) < 6 else None
    assert found == [b"%d" % number for number in range(6)]


def read_through(root: Path, reader, count: int) -> list[bytes]:
    """The next *count* messages, where the root goes away before each of them."""
    found = []
    while len(found) < count:
        with away(root), contextlib.suppress(pulsar.Timeout):
            found.append(reader.read_next(5).data())
        if len(found) < count:
            found.append(reader.read_next(60_000).data())
    return found


def test_a_reader_that_is_alone_says_once_that_it_waits(client, broker, root, service_url, caplog):
    alone = pulsar.Client(service_url)
    reader = alone.create_reader("t", pulsar.MessageId.earliest)
    with away(root):
        for _ in range(2):
            with pytest.raises(pulsar.Timeout):
                reader.read_next(5)
    assert said(caplog, "/t' waits: root") == 1
    send(client, "t", "x")
    assert reader.read_next(60_000).data() == b"x"
    alone.close()


def test_a_reader_of_chunked_messages_goes_on_where_it_was(client, broker, root, service_url):
    """Between the partitions of one publish, too."""
    Admin(service_url).create_partitioned_topic("t", 3)
    sizes = dict(chunking_enabled=True, chunk_max_message_size=500)
    producer = client.create_producer("t", message_router=lambda message, count: int(message.partition_key()), **sizes)
    payloads = [b"%d" % number * 1000 for number in range(6)]
    with broker.paused():
        for number, payload in enumerate(payloads):
            producer.send_async(payload, None, partition_key=str(number % 3))
    producer.flush()
    reader = client.create_reader("t", pulsar.MessageId.earliest)
    assert sorted(read_through(root, reader, 6)) == payloads


def test_a_reader_of_what_was_compacted_goes_on_where_it_was(client, broker, root, service_url):
    producer = client.create_producer("t")
    for number in range(4):
        producer.send(b"%d" % number, partition_key=str(number % 3))
    Admin(service_url).compact("t")
    producer.send(b"4", partition_key="0")
    reader = client.create_reader("t", pulsar.MessageId.earliest, is_read_compacted=True)
    assert read_through(root, reader, 4) == [b"1", b"2", b"3", b"4"]


def test_the_broker_forgets_no_topic(client, broker, root):
    producer, consumer = client.create_producer("t"), client.subscribe("t", "s")
    subscriptions = list(consumer._subscriptions)
    with away(root):
        broker.rounds.bundle.enqueue_all()
        broker._batches.look()
        with pytest.raises(pulsar.ConnectError):
            broker.rounds.bundle.scan()
    producer.send(b"x")
    assert receive_values(consumer, 1) == ["x"] and consumer._subscriptions == subscriptions


def test_nothing_is_made_in_its_place(client, broker, root, service_url):
    admin = Admin(service_url)
    send(client, "t", "x")
    with away(root):
        for call in (
            lambda: client.create_producer("u"),
            lambda: client.create_producer("t"),
            lambda: client.subscribe("u", "s"),
            lambda: client.subscribe("t", "s"),
            lambda: client.create_reader("t", pulsar.MessageId.earliest),
            lambda: client.create_table_view("u"),
            lambda: admin.create_topic("u"),
            lambda: admin.create_partitioned_topic("u", 2),
            lambda: admin.create_namespace("a/b"),
            lambda: admin.delete_topic("t"),
            lambda: pulsar.Client(service_url),
            lambda: client.subscribe(re.compile("t.*"), "s"),
        ):
            with pytest.raises(pulsar.ConnectError, match="has disappeared: mount it again"):
                call()
    client.create_producer("u").send(b"x")


def test_asyncio_goes_on(client, broker, root, service_url):
    async def work():
        awaiting = aio.Client(service_url, operation_timeout_seconds=10)
        producer = await awaiting.create_producer("t")
        consumer = await awaiting.subscribe("t", "s")
        with away(root):
            sending = asyncio.ensure_future(producer.send(b"x"))
            receiving = asyncio.ensure_future(consumer.receive())
            await asyncio.sleep(0.05)
            assert not sending.done() and not receiving.done()
        await asyncio.wait_for(sending, 60)
        assert (await asyncio.wait_for(receiving, 60)).data() == b"x"
        await awaiting.close()

    asyncio.run(work())


def test_who_has_left_a_root_does_not_keep_it(tmp_path):
    """It was deleted: a new client makes another one."""
    root = tmp_path / "root"
    with PlainBroker(root):
        client = pulsar.Client(f"delta:{root}")
        send(client, "t", "x")
        client.close()
    shutil.rmtree(root)
    assert not is_away(root)
    client = pulsar.Client(f"delta:{root}")
    send(client, "t", "y")
    client.close()
