"""Keys as producers send them: the hash stored with each entry, key-based batching, keys of all kinds."""

import base64
from datetime import timedelta
from functools import partial

import mmh3
import pytest

import pulsar_spark as pulsar
from pulsar_spark.client.sending import publisher
from pulsar_spark.protocol.keys.sticky_key import NONE_KEY
from pulsar_spark.storage.delta.data_files import read_added
from pulsar_spark.storage.delta.log import TableLog
from pulsar_spark.storage.delta.tables import AppendTable
from pulsar_spark.storage.entries.key_hashes import read_hashes
from pulsar_spark.storage.ledgers.publishes import number_commit
from pulsar_spark.storage.topics.topics import create_topic, read_topic
from pulsar_spark.table_specs import MESSAGES
from tests.client.test_producer import BATCHING, read_all
from tests.conftest import START
from tests.support.waiting import eventually

BY_KEY = dict(batching_type=pulsar.BatchingType.KeyBased, **BATCHING)


def hash_of(key: bytes) -> int:
    return mmh3.hash(key, 0, signed=False) & 0x7FFFFFFF


def stored(client, topic: str) -> list[tuple]:
    """Of each message its entry, its batch index, its payload and the hash that lies with it."""
    return [
        (message.message_id().entry_id(), message.message_id().batch_index(), message.data(), hash)
        for message in read_all(client, topic, count(client, topic))
        for hash in [message._field("sticky_key_hash")]
    ]


def count(client, topic: str) -> int:
    log = TableLog(read_topic(client._layout, topic).path)
    return sum(file.rows for commit in log.commits(0) for file in commit.added)


def entry_hashes(client, topic: str) -> list[int]:
    """What a round reads of all entries."""
    path, ends, hashes = read_topic(client._layout, topic).path, {}, []
    for commit in TableLog(path).commits(0):
        for runs in number_commit(path, commit, ends, set()).values():
            hashes += read_hashes(path, runs).tolist()
    return hashes


def send(producer, *messages: dict) -> None:
    for number, options in enumerate(messages):
        producer.send_async(str(number).encode(), None, **options)
    producer.flush()


def test_the_hash_of_each_message_lies_with_it(lonely_client):
    producer = lonely_client.create_producer("t")
    keys = [dict(partition_key="k"), dict(partition_key="k", ordering_key="o"), dict(ordering_key="o"), {}]
    send(producer, *keys, dict(partition_key="订单"))
    expected = [hash_of(key) for key in (b"k", b"o", b"o", NONE_KEY, "订单".encode())]
    assert [hash for *_, hash in stored(lonely_client, "t")] == expected == entry_hashes(lonely_client, "t")


def test_the_first_message_of_a_batch_decides_for_all(lonely_client):
    """Semantics 2.22, default batching."""
    send(lonely_client.create_producer("t", **BATCHING), *(dict(partition_key=key) for key in "abc"))
    assert stored(lonely_client, "t") == [(0, index, b"%d" % index, hash_of(b"a")) for index in range(3)]


def test_a_batch_that_begins_without_a_key_has_none(lonely_client):
    send(lonely_client.create_producer("t", **BATCHING), {}, dict(partition_key="b"))
    assert [hash for *_, hash in stored(lonely_client, "t")] == [hash_of(NONE_KEY)] * 2


def test_without_keys_nothing_is_stored_and_nothing_is_read(lonely_client, monkeypatch):
    send(lonely_client.create_producer("t"), {}, {})
    path = read_topic(lonely_client._layout, "t").path
    [commit] = [commit for commit in TableLog(path).commits(0) if commit.added]
    assert read_added(path, commit, MESSAGES.schema, ["sticky_key_hash"])["sticky_key_hash"].null_count == 2
    monkeypatch.setattr("pulsar_spark.storage.entries.key_hashes.read_slice", None)
    assert entry_hashes(lonely_client, "t") == [hash_of(NONE_KEY)] * 2


def test_key_based_batches_are_entries_of_one_key_each(lonely_client):
    """The ordering key goes before the key, messages without any have a batch of their own; a key's messages keep the
    order in which they were sent."""
    producer = lonely_client.create_producer("t", **BY_KEY)
    a, b, other = dict(partition_key="a"), dict(partition_key="b"), dict(partition_key="a", ordering_key="b")
    send(producer, a, b, {}, a, other, {}, a)
    assert stored(lonely_client, "t") == [
        (0, 0, b"0", hash_of(b"a")),
        (0, 1, b"3", hash_of(b"a")),
        (0, 2, b"6", hash_of(b"a")),
        (1, 0, b"1", hash_of(b"b")),
        (1, 1, b"4", hash_of(b"b")),
        (2, 0, b"2", hash_of(NONE_KEY)),
        (2, 1, b"5", hash_of(NONE_KEY)),
    ]


def test_sequence_ids_and_answers_of_key_based_batches(lonely_client):
    """Each message keeps the number it had when it was sent, and is answered with its own place."""
    producer, answers = lonely_client.create_producer("t", **BY_KEY), []
    for number in range(6):
        sent = partial(lambda *answer: answers.append(answer), number)
        producer.send_async(str(number).encode(), sent, partition_key=f"k{number % 2}")
    producer.flush()
    assert [(number, result) for number, result, _ in answers] == [(n, pulsar.Result.Ok) for n in (0, 2, 4, 1, 3, 5)]
    assert producer.last_sequence_id() == 5
    for number, _, message_id in answers:
        reader = lonely_client.create_reader("t", message_id, start_message_id_inclusive=True)
        message = reader.read_next(60_000)
        assert (message.data(), message.sequence_id()) == (str(number).encode(), number)


def test_a_delayed_message_closes_the_batches_of_all_keys(lonely_client):
    """Decision 0.32."""
    producer = lonely_client.create_producer("t", **BY_KEY)
    a, b = dict(partition_key="a"), dict(partition_key="b")
    send(producer, a, b, a, a | dict(deliver_after=timedelta(hours=1)), a, b)
    places = [(entry, index, data) for entry, index, data, _ in stored(lonely_client, "t")]
    assert places == [(0, 0, b"0"), (0, 1, b"2"), (1, -1, b"1"), (2, -1, b"3"), (3, -1, b"4"), (4, -1, b"5")]


def test_key_based_batches_of_a_partitioned_topic(client):
    create_topic(client._layout, "t", 3)
    consumer = client.subscribe("t", "s", initial_position=pulsar.InitialPosition.Earliest)
    producer = client.create_producer("t", batching_max_messages=10, **BY_KEY)
    sent = [(f"k{number % 7}", number) for number in range(100)]
    for key, number in sent:
        producer.send_async(str(number).encode(), None, partition_key=key)
    producer.flush()
    messages = [consumer.receive(60_000) for _ in sent]
    by_key: dict[str, list[int]] = {}
    keys_of_entry: dict[tuple, set[str]] = {}
    for message in messages:
        consumer.acknowledge(message)
        place = message.message_id()
        by_key.setdefault(message.partition_key(), []).append(int(message.data()))
        entry = (place.partition(), place.ledger_id(), place.entry_id())
        keys_of_entry.setdefault(entry, set()).add(message.partition_key())
    assert by_key == {f"k{key}": list(range(key, 100, 7)) for key in range(7)}
    assert all(len(keys) == 1 for keys in keys_of_entry.values()) and len(keys_of_entry) < len(messages)
    consumer.close()
    again = client.subscribe("t", "s")
    with pytest.raises(pulsar.Timeout):
        again.receive(300)


def test_a_key_of_a_megabyte(client):
    key = "ключ" * 125_000
    consumer = client.subscribe("t", "s", initial_position=pulsar.InitialPosition.Earliest)
    producer = client.create_producer("t")
    producer.send(b"1", partition_key=key)
    producer.send(b"2", ordering_key=key)
    messages = [consumer.receive(60_000) for _ in range(2)]
    assert [(m.partition_key(), m.ordering_key(), m.data()) for m in messages] == [(key, "", b"1"), ("", key, b"2")]
    assert entry_hashes(client, "t") == [hash_of(key.encode())] * 2


def test_large_keys_are_spread_over_commits(lonely_client, monkeypatch):
    """As large payloads are: a commit is made in memory."""
    monkeypatch.setattr(publisher, "MAX_COMMIT_BYTES", 10)
    send(lonely_client.create_producer("t", **BY_KEY), *(dict(partition_key=letter * 20) for letter in "abc"))
    assert len({message.message_id().ledger_id() for message in read_all(lonely_client, "t", 3)}) == 3


def test_a_key_of_every_byte_comes_as_its_base64(client):
    """As the ``pulsar`` package gives a Java producer's keyBytes."""
    topic = create_topic(client._layout, "t")
    coded = base64.b64encode(bytes(range(256))).decode()
    row = dict(publish_id="p", entry_id=0, batch_size=1, partition=-1, payload=b"m", publish_time=START)
    AppendTable(topic.path).append(MESSAGES.rows([row | dict(partition_key=coded, partition_key_b64_encoded=True)]))
    consumer = client.subscribe("t", "s", initial_position=pulsar.InitialPosition.Earliest)
    assert consumer.receive(60_000).partition_key() == coded
    assert entry_hashes(client, "t") == [hash_of(bytes(range(256)))]


def test_a_letter_has_the_hash_of_its_own_key(client, broker):
    """A message of a batch goes alone as a letter: what its entry went by is not its own."""
    options = dict(consumer_type=pulsar.ConsumerType.Shared, initial_position=pulsar.InitialPosition.Earliest)
    consumer = client.subscribe(
        "t", "s", retry_enable=True, dead_letter_policy=pulsar.ConsumerDeadLetterPolicy(1), **options
    )
    send(client.create_producer("t", **BATCHING), dict(partition_key="a"), dict(partition_key="b"))
    for message in [consumer.receive(60_000) for _ in range(2)]:
        consumer.reconsume_later(message, 0)
    retries = "persistent://public/default/t-s-RETRY"
    assert eventually(lambda: count(client, retries) == 2)
    assert entry_hashes(client, retries) == [hash_of(b"a"), hash_of(b"b")]
