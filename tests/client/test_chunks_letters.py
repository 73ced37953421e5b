"""Letters of chunked messages: chunked messages themselves, written once as a whole (semantics 4.22-4.29, 0.27)."""

import errno

import pytest

import pulsar_spark as pulsar
from pulsar_spark.admin import Admin
from pulsar_spark.broker.letters import letters as letters_module
from pulsar_spark.broker.letters import projections
from pulsar_spark.storage.delta.tables import AppendTable
from tests.client.raw_chunks import publish
from tests.client.test_chunks_sending import rows_of
from tests.support.waiting import DEADLINE_SECONDS, eventually, nothing_comes, receive_values

CHUNKS = dict(chunking_enabled=True, chunk_max_message_size=4)
EARLIEST = pulsar.InitialPosition.Earliest
LONG = b"123456789"


def subscribe(client, topic="t", **options):
    options = {"consumer_type": pulsar.ConsumerType.Shared, "initial_position": EARLIEST, **options}
    return client.subscribe(topic, "s", **options)


def receive(consumer, count: int) -> list[pulsar.Message]:
    return [consumer.receive(DEADLINE_SECONDS * 1000) for _ in range(count)]


MORTAL = dict(dead_letter_policy=pulsar.ConsumerDeadLetterPolicy(1), negative_ack_redelivery_delay_ms=100)


def let_die(consumer, count: int) -> None:
    """Give the next messages back, all at once, until they are dead."""
    for _ in range(2):
        positions = {message._position for message in receive(consumer, count)}
        consumer._subscriptions[0].tracker.give_back(positions, 100)


def test_a_dead_chunked_message_is_a_chunked_dead_letter(client, broker, service_url):
    consumer = subscribe(client, **MORTAL)
    producer = client.create_producer("t", producer_name="p", **CHUNKS)
    producer.send(b"1st")
    sent = producer.send(LONG, properties={"a": "b"}, partition_key="k", event_timestamp=5)
    producer.send(b"3rd")
    let_die(consumer, 3)
    letters = receive(subscribe(client, "t-s-DLQ"), 3)
    assert [letter.data() for letter in letters] == [b"1st", LONG, b"3rd"]
    said = letters[1]
    assert (said.partition_key(), said.event_timestamp(), said.properties()["a"]) == ("k", 5, "b")
    assert said.properties()["ORIGIN_MESSAGE_ID"] == str(sent) == "(2,0,-1,-1);(2,2,-1,-1)"
    assert said.message_id().first_chunk_message_id() is not None
    assert rows_of(client._layout, "t-s-DLQ", "uuid", "chunk_id", "num_chunks_from_msg", "payload") == [
        (None, None, None, b"1st"),
        ("p-1", 0, 3, b"1234"),
        ("p-1", 1, 3, b"5678"),
        ("p-1", 2, 3, b"9"),
        (None, None, None, b"3rd"),
    ]
    assert eventually(lambda: broker.cursor("t", "s").mark_delete == 4)


def test_a_chunked_message_that_is_put_off_comes_again_as_one_and_dies_as_one(client, broker):
    consumer = subscribe(client, retry_enable=True, dead_letter_policy=pulsar.ConsumerDeadLetterPolicy(1))
    client.create_producer("t", **CHUNKS).send(LONG, properties={"a": "b"})
    for attempt in (1, 2):
        (found,) = receive(consumer, 1)
        assert (found.data(), found.properties().get("RECONSUMETIMES")) == (LONG, None if attempt == 1 else "1")
        consumer.reconsume_later(found, delay_millis=0)
    assert nothing_comes(consumer)
    (dead,) = receive(subscribe(client, "t-s-DLQ"), 1)
    assert (dead.data(), dead.properties()["a"]) == (LONG, "b")


@pytest.mark.parametrize("bytes_a_commit", [1, 10, 64 << 20])
def test_letters_of_chunked_messages_do_not_mix_however_commits_are_cut(client, broker, monkeypatch, bytes_a_commit):
    monkeypatch.setattr(letters_module, "BYTES_A_COMMIT", bytes_a_commit)
    consumer = subscribe(client, **MORTAL)
    publish(client, "t", "A:0:2:a0", "A@q:0:2:q0", "x", "A:1:2:a1", "A@q:1:2:q1", "A:0:2:c0", "A:1:2:c1", "B:0:2:b0")
    let_die(consumer, 4)
    assert receive_values(subscribe(client, "t-s-DLQ"), 4) == ["x", "a0a1", "q0q1", "c0c1"]


def test_a_crash_between_the_letters_of_a_round_writes_none_twice_and_loses_none(client, broker, monkeypatch):
    """One letter a commit, and the disk is full at the second: whoever begins again counts letters, not chunks."""
    monkeypatch.setattr(letters_module, "BYTES_A_COMMIT", 1)
    consumer, begun_again = subscribe(client, **MORTAL), []
    publish(client, "t", "A:0:2:a0", "A:1:2:a1", "x", "B:0:3:b0", "B:1:3:b1", "B:2:3:b2")
    (projection,), append = projections.PROJECTIONS, AppendTable.append_once

    def fail_at_the_second(table, rows, app_id, number):
        if app_id.endswith("/1") and not begun_again:
            raise OSError(errno.ENOSPC, "the disk is full")
        return append(table, rows, app_id, number)

    def begin_again(bundle, number, now, facts, **options):
        try:
            return projection.write(bundle, number, now, facts, **options)
        except OSError:
            begun_again.append(number)
            return projection.write(bundle, number, now, facts, is_again=True)

    monkeypatch.setattr(AppendTable, "append_once", fail_at_the_second)
    monkeypatch.setattr(projections, "PROJECTIONS", (projection._replace(write=begin_again),))
    let_die(consumer, 3)
    letters = subscribe(client, "t-s-DLQ")
    assert receive_values(letters, 3) == ["a0a1", "x", "b0b1b2"]
    assert len(begun_again) == 1 and nothing_comes(letters)


@pytest.mark.local_disk
def test_a_letter_waits_while_chunks_of_its_message_are_lost(client, broker, service_url):
    consumer = subscribe(client, **MORTAL)
    ids = publish(client, "t", "A:0:2:a0", "A:1:2:a1", "x")
    for message in receive(consumer, 2):
        consumer.negative_acknowledge(message)
    found = receive(consumer, 2)
    topic = client._resolve("t")[0]
    (path,) = [run.path for run in client._ledgers.runs(topic.topic_id, -1, 0, 0)]
    aside = (topic.path / path).rename(topic.path / "aside")
    for message in found:
        consumer.negative_acknowledge(message)
    letters = subscribe(client, "t-s-DLQ")
    assert receive_values(letters, 1) == ["x"]
    admin = Admin(service_url)
    (waiting,) = eventually(lambda: admin.waiting_letters())
    assert "lost" in str(waiting) and ids
    aside.rename(topic.path / path)
    admin.retry_waiting_letters()
    assert receive_values(letters, 1) == ["a0a1"]
