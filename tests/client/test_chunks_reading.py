"""Chunked messages as readers see them, without a broker; and as they are looked at: peeked, by their ids."""

import pytest

import pulsar_spark as pulsar
from pulsar_spark.admin import Admin
from pulsar_spark.storage.delta.scan import open_table
from pulsar_spark.storage.topics.topics import create_topic, read_topic
from tests.client.raw_chunks import publish
from tests.support.waiting import eventually

EARLIEST, LATEST = pulsar.MessageId.earliest, pulsar.MessageId.latest
CHUNKS = dict(chunking_enabled=True, chunk_max_message_size=4)


def values(reader: pulsar.Reader) -> list[str]:
    found = []
    while reader.has_message_available():
        found.append(reader.read_next(1000).data().decode())
    return found


def test_a_chunked_message_is_one_with_all_it_says(lonely_client):
    producer = lonely_client.create_producer("t", producer_name="p", **CHUNKS)
    sent = producer.send(b"123456789", properties={"a": "b"}, partition_key="k", event_timestamp=5, sequence_id=3)
    (found,) = [lonely_client.create_reader("t", EARLIEST).read_next(1000)]
    message_id = found.message_id()
    assert (message_id, message_id.first_chunk_message_id()) == (sent, sent.first_chunk_message_id())
    assert (found.data(), found.length(), found.value()) == (b"123456789", 9, b"123456789")
    assert (found.properties(), found.partition_key(), found.event_timestamp()) == ({"a": "b"}, "k", 5)
    assert (found.producer_name(), found.sequence_id(), found.has_null_value()) == ("p", 3, False)
    assert str(message_id) in str(found) and message_id.topic_name() == "persistent://public/default/t"
    assert message_id.first_chunk_message_id().topic_name() == "persistent://public/default/t"


@pytest.mark.parametrize(
    "entries, expected",
    [
        (["A:0:2:a0", "x", "B:0:2:b0", "A:1:2:a1", "y", "B:1:2:b1"], ["x", "a0a1", "y", "b0b1"]),
        (["A:0:2:a0", "A@q:0:2:q0", "A:1:2:a1", "A@q:1:2:q1"], ["a0a1", "q0q1"]),
        (["A:0:3:a0", "A:1:3:a1", "A:0:3:b0", "A:1:3:b1", "A:2:3:b2"], ["b0b1b2"]),
        (["A:0:2:a0", "A:0:2:a0", "A:1:2:a1", "A:1:2:a1"], ["a0a1"]),
        (["A:1:2:a1", "x", "A:0:2:a0", "A:1:2:a1"], ["x", "a0a1"]),
        (["A:0:3:a0", "A:2:3:a2", "A:1:3:a1", "A:2:3:a2", "x"], ["x"]),
        (["A:0:2:a0", "A:1:3:a1", "A:2:3:a2", "A:1:2:a1", "x"], ["x"]),
        (["A:0:1:a", "B:0:1:b"], ["a", "b"]),
        (["A:-1:2:a", "A:2:2:a", "A:0:0:a", "A:0:-3:a", "A:5:3:a", "x"], ["x"]),
        (["A:0:2:a0", "A:1:2:a1", "A:0:2:b0", "A:1:2:b1"], ["a0a1", "b0b1"]),
    ],
)
def test_what_a_reader_puts_together(lonely_client, entries, expected):
    publish(lonely_client, "t", *entries)
    assert values(lonely_client.create_reader("t", EARLIEST)) == expected


def test_what_is_not_complete_comes_when_it_is(lonely_client):
    publish(lonely_client, "t", "A:0:3:a0", "A:1:3:a1", "x")
    reader = lonely_client.create_reader("t", EARLIEST)
    assert values(reader) == ["x"] and not reader.has_message_available()
    with pytest.raises(pulsar.Timeout):
        reader.read_next(30)
    publish(lonely_client, "t", "A:2:3:a2", "y")
    assert values(reader) == ["a0a1a2", "y"]


def test_a_reader_begins_behind_a_chunked_message_or_with_it(lonely_client):
    producer = lonely_client.create_producer("t", **CHUNKS)
    producer.send(b"before")
    sent = producer.send(b"123456789")
    producer.send(b"last")
    for message_id in (sent, pulsar.MessageId.deserialize(sent.serialize())):
        assert values(lonely_client.create_reader("t", message_id)) == ["last"]
        reader = lonely_client.create_reader("t", message_id, start_message_id_inclusive=True)
        assert values(reader) == ["123456789", "last"]
        reader.seek(EARLIEST)
        assert values(reader) == ["before", "123456789", "last"]
        reader.seek(message_id)
        assert values(reader) == ["123456789", "last"]


def test_a_message_that_ends_behind_the_place_a_reader_begins_at_comes(lonely_client):
    ids = publish(lonely_client, "t", "A:0:2:a0", "x", "B:0:2:b0", "y", "A:1:2:a1", "z", "B:1:2:b1")
    assert values(lonely_client.create_reader("t", ids[1])) == ["y", "a0a1", "z", "b0b1"]
    assert values(lonely_client.create_reader("t", ids[4])) == ["z", "b0b1"]
    assert values(lonely_client.create_reader("t", ids[4].of_chunks(ids[0]), start_message_id_inclusive=True)) == [
        "a0a1",
        "z",
        "b0b1",
    ]
    publish(lonely_client, "t", "C:0:2:c0")
    reader = lonely_client.create_reader("t", LATEST)
    publish(lonely_client, "t", "C:1:2:c1")
    assert values(reader) == ["c0c1"]


def test_a_reader_that_begins_in_the_middle_reads_back_as_far_as_the_broker_says(client, broker, monkeypatch):
    ids = publish(client, "t", "A:0:2:a0", "A:1:2:a1", "B:0:2:b0", "x", "B:1:2:b1", "y")
    client.subscribe("t", "s")
    known = client._ledgers
    topic_id = read_topic(client._layout, "t").topic_id
    eventually(lambda: known.last_ledger_id(topic_id, -1) == ids[-1].ledger_id())
    assert [known.chunks_from(topic_id, -1, each.ledger_id()) for each in ids] == [1, 1, 3, 3, 3, 3]
    assert values(client.create_reader("t", ids[3])) == ["b0b1", "y"]


def test_partitions_have_chunks_of_their_own(lonely_client):
    create_topic(lonely_client._layout, "p2", 2)
    for number in (0, 1):
        publish(lonely_client, f"p2-partition-{number}", f"A:0:2:{number}0")
    for number in (0, 1):
        publish(lonely_client, f"p2-partition-{number}", f"A:1:2:{number}1")
    assert sorted(values(lonely_client.create_reader("p2", EARLIEST))) == ["0001", "1011"]
    assert values(lonely_client.create_reader("p2-partition-1", EARLIEST)) == ["1011"]


def test_sizes_that_do_not_add_up_are_an_error_of_that_message(lonely_client):
    publish(lonely_client, "t", "x")
    ids = publish(lonely_client, "t", "A:0:2:a0", "A:1:2:a1", size=5)
    publish(lonely_client, "t", "B:0:2:b0", "B:1:2:b1", size=1)
    publish(lonely_client, "t", "y")
    reader = lonely_client.create_reader("t", EARLIEST)
    assert reader.read_next(1000).data() == b"x"
    with pytest.raises(
        pulsar.UnreadableMessage, match="4 bytes together, and one of them gives the message 5"
    ) as wrong:
        reader.read_next(1000)
    assert (wrong.value.message_id, wrong.value.message_id.first_chunk_message_id()) == (ids[1], ids[0])
    with pytest.raises(pulsar.UnreadableMessage, match="2 bytes and more together, .* the message 1"):
        reader.read_next(1000)
    assert values(reader) == ["y"]


@pytest.mark.parametrize("deleted", [0, 1, 2])
def test_what_is_deleted_of_a_message_is_not_looked_at(client, broker, service_url, deleted):
    client.subscribe("t", "s", initial_position=pulsar.InitialPosition.Earliest).close()
    ids = publish(client, "t", "A:0:3:a0", "A:1:3:a1", "x", "A:2:3:a2", "y")
    admin, topic_id = Admin(service_url), read_topic(client._layout, "t").topic_id
    eventually(lambda: client._ledgers.last_ledger_id(topic_id, -1) == ids[-1].ledger_id())
    open_table(read_topic(client._layout, "t").path).delete(f"chunk_id = {deleted}")
    assert [message.data() for message in admin.peek_messages("t", "s", 10)] == [b"x", b"y"]
    for chunk in (ids[0], ids[1], ids[3]):
        with pytest.raises(pulsar.InvalidMessage, match="incomplete message|was trimmed"):
            admin.get_message_by_id("t", chunk.ledger_id(), chunk.entry_id())


def test_a_message_of_which_chunks_were_deleted_is_passed_over(lonely_client):
    publish(lonely_client, "t", "A:0:3:a0", "A:1:3:a1", "x", "A:2:3:a2", "y")
    open_table(read_topic(lonely_client._layout, "t").path).delete("chunk_id = 1")
    assert values(lonely_client.create_reader("t", EARLIEST)) == ["x", "y"]


def test_peek_and_by_id(client, broker, service_url):
    client.subscribe("t", "s", initial_position=pulsar.InitialPosition.Earliest).close()
    ids = publish(client, "t", "A:0:2:a0", "x", "B:0:2:b0", "A:1:2:a1", "y")
    admin, topic_id = Admin(service_url), read_topic(client._layout, "t").topic_id
    eventually(lambda: client._ledgers.last_ledger_id(topic_id, -1) == ids[-1].ledger_id())
    found = admin.peek_messages("t", "s", 10)
    assert [message.data() for message in found] == [b"x", b"a0a1", b"y"]
    assert (found[1].message_id(), found[1].message_id().first_chunk_message_id()) == (ids[3], ids[0])
    for chunk in (ids[0], ids[3], found[1].message_id()):
        by_id = admin.get_message_by_id("t", chunk.ledger_id(), chunk.entry_id())
        assert (by_id.data(), by_id.message_id()) == (b"a0a1", ids[3])
    with pytest.raises(pulsar.InvalidMessage, match="position 2 .* is a chunk of an incomplete message"):
        admin.get_message_by_id("t", ids[2].ledger_id(), 0)
    assert [message.data() for message in admin.get_messages_at("t", 1)] == [b"x"]
    ids = publish(client, "t", "C:0:2:c0", "C:1:2:c1", size=9)
    eventually(lambda: client._ledgers.last_ledger_id(topic_id, -1) == ids[-1].ledger_id())
    wrong = admin.peek_messages("t", "s", 10)[3]
    assert (wrong.message_id(), wrong.message_id().first_chunk_message_id()) == (ids[1], ids[0])
    for chunk in ids:
        by_id = admin.get_message_by_id("t", chunk.ledger_id(), chunk.entry_id())
        assert by_id.message_id() == ids[1]
        with pytest.raises(pulsar.UnreadableMessage, match="the message 9"):
            by_id.data()
    with pytest.raises(pulsar.UnreadableMessage, match="the message 9"):
        wrong.data()
