"""Readers: from the log, without a broker."""

import time
import uuid

import pytest
from deltalake import DeltaTable

import pulsar_spark as pulsar
from pulsar_spark.admin import Admin
from pulsar_spark.client.readers import topic_log
from pulsar_spark.client.sending.publish_rows import Entry, Outgoing, publish_rows
from pulsar_spark.storage.delta.log import TableLog
from pulsar_spark.storage.delta.tables import AppendTable
from pulsar_spark.storage.ledgers import ledger_index
from pulsar_spark.storage.ledgers.ledger_index import LedgerIndex
from pulsar_spark.storage.ledgers.partition_ledgers import PartitionLedgers
from pulsar_spark.storage.topics.topics import create_topic, read_topic
from tests.support.waiting import eventually

EARLIEST, LATEST = pulsar.MessageId.earliest, pulsar.MessageId.latest


@pytest.fixture
def ids(lonely_client):
    producer = lonely_client.create_producer("t")
    return [producer.send(f"m{number}".encode()) for number in range(4)]


def values(reader: pulsar.Reader) -> list[str]:
    found = []
    while reader.has_message_available():
        found.append(reader.read_next(1000).data().decode())
    return found


@pytest.mark.parametrize("is_inclusive, expected", [(False, ["m2", "m3"]), (True, ["m1", "m2", "m3"])])
def test_from_a_message(lonely_client, ids, is_inclusive, expected):
    assert values(lonely_client.create_reader("t", ids[1], start_message_id_inclusive=is_inclusive)) == expected


def test_from_the_ends(lonely_client, ids):
    assert values(lonely_client.create_reader("t", EARLIEST)) == ["m0", "m1", "m2", "m3"]
    assert values(lonely_client.create_reader("t", LATEST)) == []
    assert values(lonely_client.create_reader("t", LATEST, start_message_id_inclusive=True)) == ["m3"]


def test_new_messages_come(lonely_client, ids):
    reader = lonely_client.create_reader("t", LATEST)
    with pytest.raises(pulsar.Timeout):
        reader.read_next(30)
    sent = lonely_client.create_producer("t").send(b"new")
    message = reader.read_next(60_000)
    assert (message.data(), message.message_id()) == (b"new", sent)


def test_seek(lonely_client, ids):
    reader = lonely_client.create_reader("t", LATEST)
    reader.seek(EARLIEST)
    assert values(reader) == ["m0", "m1", "m2", "m3"]
    reader.seek(ids[2])
    assert values(reader) == ["m3"]
    for wrong in (None, 1.5, "earliest"):
        with pytest.raises(ValueError):
            reader.seek(wrong)
    for no_time in (-1, 1 << 63):
        with pytest.raises(pulsar.InvalidConfiguration, match="not a time in ms since 1970"):
            reader.seek(no_time)
    assert values(reader) == []


def test_seek_to_a_time(lonely_client):
    producer, times = lonely_client.create_producer("t"), []
    for number in range(3):
        before = int(time.time() * 1000)
        eventually(lambda: int(time.time() * 1000) > before)
        producer.send(f"m{number}".encode())
    reader = lonely_client.create_reader("t", EARLIEST)
    times = [reader.read_next(1000).publish_timestamp() for _ in range(3)]
    reader.seek(times[1])
    assert values(reader) == ["m1", "m2"]
    reader.seek(times[1] + 1)
    assert values(reader)[-1:] == ["m2"]
    reader.seek(times[2] + 60_000)
    assert values(reader) == []


def published(client, topic: str, *batches: tuple[int, list[int]]) -> None:
    """Publish to *topic* an entry for each of the *batches*: a partition, and the seconds at which its messages were
    published, which are their payloads."""
    table = AppendTable(read_topic(client._layout, topic).path)
    for partition, seconds in batches:
        outgoing = [
            Outgoing(b"%d" % each, None, None, None, None, None, 1000 * each, at, 0.0, None)
            for at, each in enumerate(seconds)
        ]
        table.append(publish_rows([Entry(partition, outgoing)], uuid.uuid4().hex, "p")[0])


TIMES = [
    (0, [10]),
    (1, [12]),
    (0, [30]),  # the clock of one that publishes is ahead
    (0, [20]),
    (1, [14, 16, 18]),
    (1, [15]),
    (0, [21]),
    (1, [22]),
]
"""Entries on two partitions."""


@pytest.mark.parametrize(
    "seconds, expected",
    [
        (0, [[10, 30, 20, 21], [12, 14, 16, 18, 15, 22]]),
        (11, [[30, 20, 21], [12, 14, 16, 18, 15, 22]]),
        (13, [[30, 20, 21], [14, 16, 18, 15, 22]]),
        (17, [[30, 20, 21], [14, 16, 18, 15, 22]]),
        (19, [[30, 20, 21], [22]]),
        (25, [[30, 20, 21], []]),
        (31, [[], []]),
        (10**9, [[], []]),
    ],
)
def test_a_reader_seeks_a_time_as_a_consumer_does(client, broker, service_url, seconds, expected):
    """On each partition from the first entry on that was published then or later, and all that is published from now
    on, though its time be earlier."""
    create_topic(client._layout, "p", 2)
    published(client, "p", *TIMES)
    consumer = client.subscribe("p", "s")
    reader = client.create_reader("p", EARLIEST)
    alone = [client.create_reader(f"p-partition-{number}", EARLIEST) for number in range(2)]
    for each in (consumer, reader, *alone):
        each.seek(1000 * seconds)
    producers = [client.create_producer(f"p-partition-{number}") for number in range(2)]
    for producer in producers:
        producer.send(b"99")
    expected = [[*map(str, of_partition), "99"] for of_partition in expected]
    assert [values(each) for each in alone] == expected
    for receive in (lambda: reader.read_next(30_000), lambda: consumer.receive(30_000)):
        found = [[], []]
        for _ in range(sum(map(len, expected))):
            message = receive()
            found[message.message_id().partition()].append(message.data().decode())
        assert found == expected
    assert not reader.has_message_available()


def test_a_time_ahead_is_the_end_as_it_is_when_it_is_sought(lonely_client):
    producer = lonely_client.create_producer("t")
    producer.send(b"before")
    reader = lonely_client.create_reader("t", EARLIEST)
    reader.seek(int(time.time() * 1000) + 3_600_000)
    assert not reader.has_message_available()
    producer.send(b"after")
    assert values(reader) == ["after"]
    reader.seek(EARLIEST)
    assert values(reader) == ["before", "after"]


def test_a_time_ahead_is_the_end_of_a_compacted_topic_too(lonely_client, service_url):
    """Compacted before the reader looks at it first."""
    producer = lonely_client.create_producer("t")
    producer.send(b"before", partition_key="a")
    Admin(service_url).compact("t")
    reader = lonely_client.create_reader("t", EARLIEST, is_read_compacted=True)
    reader.seek(int(time.time() * 1000) + 3_600_000)
    producer.send(b"after", partition_key="b")
    Admin(service_url).compact("t")
    producer.send(b"then", partition_key="c")
    assert values(reader) == ["after", "then"]


def test_batches(lonely_client):
    producer, ids = lonely_client.create_producer("t", batching_enabled=True, batching_max_publish_delay_ms=60_000), []
    for number in range(4):
        producer.send_async(f"m{number}".encode(), lambda result, message_id: ids.append(message_id))
    producer.flush()
    assert values(lonely_client.create_reader("t", ids[1])) == ["m2", "m3"]
    assert values(lonely_client.create_reader("t", ids[1], start_message_id_inclusive=True)) == ["m1", "m2", "m3"]
    assert values(lonely_client.create_reader("t", pulsar.MessageId(-1, ids[0].ledger_id(), 0))) == []


def test_a_retried_publish_counts_once(lonely_client, ids):
    table = AppendTable(read_topic(lonely_client._layout, "t").path)
    outgoing = Outgoing(b"twice", None, None, None, None, None, 1_700_000_000_000, 0, 0.0, None)
    for identity in ("publish-a", "publish-a", "publish-b"):
        table.append(publish_rows([Entry(-1, [outgoing])], identity, "p")[0])
    assert values(lonely_client.create_reader("t", EARLIEST)) == ["m0", "m1", "m2", "m3", "twice", "twice"]
    second = pulsar.MessageId(-1, ids[-1].ledger_id() + 2, 0)
    assert values(lonely_client.create_reader("t", second, start_message_id_inclusive=True)) == ["twice"]


def test_partitions_are_read_together_or_alone(lonely_client):
    create_topic(lonely_client._layout, "p3", 3)
    producer = lonely_client.create_producer("p3", message_router=lambda message, count: int(message.data()) % count)
    ids = [producer.send(str(number).encode()) for number in range(6)]
    assert values(lonely_client.create_reader("p3", EARLIEST)) == ["0", "1", "2", "3", "4", "5"]
    assert values(lonely_client.create_reader("p3-partition-1", ids[1])) == ["4"]
    with pytest.raises(pulsar.InvalidConfiguration):
        lonely_client.create_reader("p3-partition-1", ids[0])


def test_listener(lonely_client, ids):
    got = []
    reader = lonely_client.create_reader(
        "t", EARLIEST, reader_listener=lambda reader, message: got.append(message.data())
    )
    eventually(lambda: len(got) == 4)
    with pytest.raises(pulsar.InvalidConfiguration):
        reader.read_next(10)


def test_a_listener_goes_on_after_a_message_that_is_lost(lonely_client, ids, caplog):
    path, got = read_topic(lonely_client._layout, "t").path, []
    (path / TableLog(path).commit(ids[1].ledger_id()).added[0].path).unlink()
    lonely_client.create_reader("t", EARLIEST, reader_listener=lambda reader, message: got.append(message.data()))
    eventually(lambda: got == [b"m0", b"m2", b"m3"])
    assert caplog.text.count("are lost") == 1


def test_a_closed_reader_refuses(lonely_client, ids):
    reader = lonely_client.create_reader("t", EARLIEST)
    reader.close()
    for call in (reader.close, reader.read_next, reader.has_message_available, lambda: reader.seek(EARLIEST)):
        with pytest.raises(pulsar.AlreadyClosed):
            call()
    assert not reader.is_connected()


def test_it_leaves_no_request(lonely_client, ids):
    values(lonely_client.create_reader("t", EARLIEST))
    assert TableLog(lonely_client._layout.broker_table("requests")).latest() == 0


def test_a_topic_whose_old_log_is_gone_is_read_through_the_ledgers(client, broker):
    producer = client.create_producer("t")
    for number in range(6):
        producer.send(f"m{number}".encode())
    consumer = client.subscribe("t", "s", initial_position=pulsar.InitialPosition.Earliest)
    consumer.receive(60_000)
    log = read_topic(client._layout, "t").path / "_delta_log"
    DeltaTable(str(log.parent)).create_checkpoint()
    for version in range(4):
        (log / f"{version:020d}.json").unlink()
    assert values(client.create_reader("t", EARLIEST)) == [f"m{number}" for number in range(6)]
    assert values(client.create_reader("t", pulsar.MessageId(-1, 2, 0))) == ["m2", "m3", "m4", "m5"]


@pytest.fixture
def old_topic(client, broker, monkeypatch):
    """Forty publishes, numbered, of which the log tells the last four only, and readers that load few runs at once."""
    producer = client.create_producer("t")
    for number in range(40):
        producer.send(f"m{number}".encode())
    eventually(lambda: LedgerIndex(client._layout).end(read_topic(client._layout, "t").topic_id, -1) == 40)
    log = read_topic(client._layout, "t").path / "_delta_log"
    DeltaTable(str(log.parent)).create_checkpoint()
    for version in range(37):
        (log / f"{version:020d}.json").unlink()
    monkeypatch.setattr(ledger_index, "STRETCH", 4)
    monkeypatch.setattr(topic_log, "_POSITIONS_A_STEP", 3)


@pytest.fixture
def asked(monkeypatch) -> list[tuple[int, int]]:
    """The positions of which runs were asked for; nobody loads all that is past."""
    found, spans_of = [], LedgerIndex.spans_of

    def noted(index, topic_id, partition, spans):
        found.extend(spans)
        return spans_of(index, topic_id, partition, spans)

    def recall(ledgers):
        assert not ledgers._past.runs, "all that is past is loaded"

    monkeypatch.setattr(LedgerIndex, "spans_of", noted)
    monkeypatch.setattr(PartitionLedgers, "recall", recall)
    return found


def reader_of(client, start) -> pulsar.Reader:
    """From a message id, or from an instant on."""
    if isinstance(start, pulsar.MessageId):
        return client.create_reader("t", start)
    reader = client.create_reader("t", pulsar.MessageId.latest)
    reader.seek(start)
    return reader


@pytest.mark.parametrize("start", [EARLIEST, pulsar.MessageId(-1, 21, 0), 0, "m20"])
def test_the_first_message_of_an_old_topic_needs_no_more_of_the_past_than_its_own(client, old_topic, asked, start):
    if start == "m20":
        reader = client.create_reader("t", pulsar.MessageId(-1, 21, 0), start_message_id_inclusive=True)
        start = reader.read_next(1000).publish_timestamp()
        asked.clear()
    reader = reader_of(client, start)
    first = int(reader.read_next(1000).value().decode()[1:])
    assert first in ((0,) if start in (EARLIEST, 0) else (18, 19, 20, 21))
    assert asked[-1:] and asked[-1][0] - asked[0][0] <= 6 and asked[0][0] in range(first - 3, first + 1)
    assert values(reader) == [f"m{number}" for number in range(first + 1, 40)]


def test_the_last_message_of_an_old_topic_is_found_from_its_end(client, old_topic, asked):
    reader = client.create_reader("t", pulsar.MessageId.latest)
    assert not reader.has_message_available() and len(asked) <= 1
