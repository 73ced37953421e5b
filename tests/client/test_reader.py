"""Readers: from the log, without a broker."""

import time

import pytest
from deltalake import DeltaTable

import pulsar_spark as pulsar
from pulsar_spark.client import topic_log
from pulsar_spark.client.publish_rows import Entry, Outgoing, publish_rows
from pulsar_spark.storage import ledger_index
from pulsar_spark.storage.ledger_index import LedgerIndex
from pulsar_spark.storage.log import TableLog
from pulsar_spark.storage.partition_ledgers import PartitionLedgers
from pulsar_spark.storage.tables import AppendTable
from pulsar_spark.storage.topics import create_topic, read_topic
from tests.client.waiting import eventually

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
        with pytest.raises(pulsar.InvalidConfiguration, match="no time in ms since 1970"):
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
