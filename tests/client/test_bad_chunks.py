"""Chunks as no producer sends them (issue 12): only the message they are of is refused, by name; the rest flows.

Rows are written as they are, past the client. A reader and consumers of two types are asked for what is there.
"""

from datetime import datetime, timezone
from itertools import count

import pytest

import pulsar_spark as pulsar
from pulsar_spark.errors import UnreadableMessage
from pulsar_spark.protocol.topics.numbering import publish_id
from pulsar_spark.storage.delta.scan import open_table
from pulsar_spark.storage.delta.tables import AppendTable
from pulsar_spark.storage.topics.topics import read_topic
from pulsar_spark.table_specs import MESSAGES
from pulsar_spark.testing.plain_broker import PlainBroker
from tests.support.waiting import DEADLINE_SECONDS, eventually, nothing_comes

UNREADABLE = "unreadable"
NUMBERS = count(1)


def chunk(uuid: str, chunk_id, num_chunks, payload: bytes | None = b"x", total: int | None = None, producer: str = "p"):
    """A row; its message has as many bytes as its payload times its chunks unless *total* says otherwise."""
    whole = len(payload or b"") * (num_chunks or 0) if total is None else total
    return dict(
        uuid=uuid,
        chunk_id=chunk_id,
        num_chunks_from_msg=num_chunks,
        total_chunk_msg_size=whole,
        payload=payload,
        producer_name=producer,
        sequence_id=0,
    )


def plain(payload: bytes) -> dict:
    return dict(payload=payload, producer_name="p")


CASES = {
    "a count that lies": ([chunk("A", 0, 3), chunk("A", 1, 2), chunk("A", 2, 3)], []),
    "a count too large, then the message again": (
        [chunk("A", 0, 2, b"a"), chunk("A", 1, 9, b"a"), chunk("A", 0, 2, b"a"), chunk("A", 1, 2, b"b")],
        [b"ab"],
    ),
    "no count and no number": ([chunk("A", None, None), chunk("B", 0, None), chunk("C", None, 2)], []),
    "counts of none": ([chunk("A", 0, 0), chunk("B", 0, -1), chunk("C", -1, -1), chunk("D", -1, 2)], []),
    "ids beyond the end": (
        [chunk("A", 0, 2), chunk("A", 2, 2), chunk("A", 1, 2), chunk("B", 2**31 - 1, 2**31 - 1)],
        [],
    ),
    "a uuid of two producers": (
        [
            chunk("A", 0, 2, b"a"),
            chunk("A", 0, 2, b"x", producer="q"),
            chunk("A", 1, 2, b"y", producer="q"),
            chunk("A", 1, 2, b"b"),
        ],
        [b"xy", b"ab"],
    ),
    "a uuid of nobody": ([chunk("A", 0, 2, b"a", producer=None), chunk("A", 1, 2, b"b", producer=None)], [b"ab"]),
    "less than it says": ([chunk("A", 0, 2, b"a", 9), chunk("A", 1, 2, b"b", 9)], [UNREADABLE]),
    "more than it says": ([chunk("A", 0, 2, b"aa", 1), chunk("A", 1, 2, b"bb", 1)], [UNREADABLE]),
    "a size below nothing": ([chunk("A", 0, 2, b"a", -5), chunk("A", 1, 2, b"b", -5)], [UNREADABLE]),
    "an endless size": ([chunk("A", 0, 2, b"a", 2**62), chunk("A", 1, 2, b"b", 2**62)], [UNREADABLE]),
    "sizes that disagree": ([chunk("A", 0, 2, b"a", 2), chunk("A", 1, 2, b"b", 3)], [UNREADABLE]),
    "a first size that lies": ([chunk("A", 0, 2, b"a", 9), chunk("A", 1, 2, b"b", 2)], [UNREADABLE]),
    "a chunk without a payload": ([chunk("A", 0, 2, b"ab", 2), chunk("A", 1, 2, None, 2)], [b"ab"]),
}


def write(layout, topic: str, rows: list[dict]) -> None:
    """One publish commit."""
    number, now = next(NUMBERS), datetime.now(timezone.utc)
    same = dict(publish_id=publish_id(0, number), batch_size=1, partition=-1, publish_time=now)
    AppendTable(read_topic(layout, topic).path).append(
        MESSAGES.rows([dict(same, entry_id=entry_id) | row for entry_id, row in enumerate(rows)])
    )


def next_of(receive) -> bytes | str:
    try:
        return receive().data()
    except UnreadableMessage as refused:
        assert refused.message_id is not None
        return UNREADABLE


def take(consumer: pulsar.Consumer, count: int) -> list[bytes | str]:
    """Receive so many messages and acknowledge them, readable or not."""
    found = []
    for _ in range(count):
        try:
            message = consumer.receive(DEADLINE_SECONDS * 1000)
        except UnreadableMessage as refused:
            found.append(UNREADABLE)
            consumer.acknowledge(refused.message_id)
        else:
            found.append(message.data())
            consumer.acknowledge(message)
    return found


@pytest.mark.parametrize("case", CASES)
def test_a_reader_gets_the_rest(lonely_client, case):
    rows, expected = CASES[case]
    lonely_client.create_producer("t").close()
    write(lonely_client._layout, "t", [*rows[:1], plain(b"between"), *rows[1:], plain(b"behind")])
    reader = lonely_client.create_reader("t", pulsar.MessageId.earliest)
    found = [next_of(lambda: reader.read_next(DEADLINE_SECONDS * 1000)) for _ in range(2 + len(expected))]
    assert found == [b"between", *expected, b"behind"]
    assert not reader.has_message_available()


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    """A broker for all cases, each with a topic of its own."""
    root = tmp_path_factory.mktemp("bad") / "root"
    with PlainBroker(root) as broker:
        client = pulsar.Client(f"delta:{root}", operation_timeout_seconds=10)
        yield broker, client
        client.shutdown()


@pytest.mark.parametrize("kind", [pulsar.ConsumerType.Exclusive, pulsar.ConsumerType.Shared])
@pytest.mark.parametrize("case", CASES)
def test_a_consumer_gets_the_rest(served, case, kind):
    (broker, client), (rows, expected) = served, CASES[case]
    topic = f"{case}-{kind.name}".replace(" ", "-").replace(",", "")
    consumer = client.subscribe(topic, "s", kind)
    write(client._layout, topic, [*rows[:1], plain(b"between"), *rows[1:], plain(b"behind")])
    assert take(consumer, 2 + len(expected)) == [b"between", *expected, b"behind"]
    eventually(lambda: not broker.cursor(topic, "s").unacked.total())
    consumer.close()


CHANGES = {
    "delete chunk_id = 1": [],
    "delete chunk_id = 2": [],
    "delete uuid is not null": [],
    "update chunk_id = 5": [],
    "update num_chunks_from_msg = 9": [],
    "update uuid = 'Z'": [],
    "update total_chunk_msg_size = 9": [UNREADABLE],
    "update payload = cast('B' as bytea)": [b"aBc"],
}
"""What becomes of messages of which some chunks are deleted, or the second one is rewritten."""
IN_THREE = [(b"a", 0), (b"b", 1), (b"c", 2)]
WRITTEN_TO = [
    plain(b"1"),
    *(chunk("A", number, 3, payload) for payload, number in IN_THREE),
    plain(b"2"),
    *(chunk("B", number, 3, payload) for payload, number in IN_THREE[:2]),
    plain(b"3"),
    chunk("B", 2, 3, b"c"),
    plain(b"4"),
]


def change(layout, topic: str, text: str) -> None:
    table, (verb, what) = open_table(read_topic(layout, topic).path), text.split(" ", 1)
    if verb == "delete":
        table.delete(what)
    else:
        table.update(dict([what.split(" = ", 1)]), predicate="chunk_id = 1")


@pytest.mark.parametrize("text", CHANGES)
def test_who_is_to_get_a_message_whose_rows_are_written_to_gets_the_rest(served, text):
    """Who was sent it, who subscribes then, who subscribed before the broker had seen it, and a reader."""
    (broker, client), (early, late) = served, (f"w{next(NUMBERS)}" for _ in range(2))
    whole = [b"1", *CHANGES[text], b"2", b"3", *CHANGES[text], b"4"]
    consumers = {(topic, topic): client.subscribe(topic, topic) for topic in (early, late)}
    write(client._layout, early, WRITTEN_TO)
    eventually(lambda: consumers[early, early]._subscriptions[0]._queued == 6)
    change(client._layout, early, text)
    with broker.paused():
        write(client._layout, late, WRITTEN_TO)
        change(client._layout, late, text)
    consumers[early, "s"] = client.subscribe(
        early, "s", pulsar.ConsumerType.Shared, initial_position=pulsar.InitialPosition.Earliest
    )
    for (topic, subscription), consumer in consumers.items():
        assert (take(consumer, len(whole)), nothing_comes(consumer)) == (whole, True), subscription
        eventually(lambda: broker.cursor(topic, subscription).mark_delete == len(WRITTEN_TO) - 1)
        consumer.close()
    reader = client.create_reader(early, pulsar.MessageId.earliest)
    assert [next_of(lambda: reader.read_next(DEADLINE_SECONDS * 1000)) for _ in whole] == whole
    assert not reader.has_message_available()
