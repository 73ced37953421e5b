"""Compressed and encrypted payloads: what is stored, and what consumers, readers and peek make of it."""

import json
import logging
import os
import tracemalloc

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

import pulsar_spark as pulsar
from pulsar_spark.admin import Admin
from pulsar_spark.cli import app
from pulsar_spark.client.model.enums import CompressionType
from pulsar_spark.payloads.compression import COMPRESSIONS, UNCOMPRESSED_BYTES
from pulsar_spark.payloads.encoding import PayloadDecoder, Stored
from pulsar_spark.protocol.topics.topic_name import parse_topic_name
from pulsar_spark.storage.delta.scan import dataset_of, open_table
from pulsar_spark.storage.layout import Layout
from tests.payloads.keys import Keys, key_pair
from tests.support.waiting import eventually, nothing_comes

EARLIEST = dict(initial_position=pulsar.InitialPosition.Earliest)
TEXT = b"flight UA1545 EWR-IAH; flight AA1141 JFK-MIA; " * 50
COMPRESSED = [each for each in CompressionType if each is not CompressionType.NONE]
CONSUME, DISCARD, FAIL = (pulsar.ConsumerCryptoFailureAction[name] for name in ("CONSUME", "DISCARD", "FAIL"))


def encrypting(*names: str) -> dict:
    """Options of a producer."""
    return dict(encryption_key=list(names), crypto_key_reader=Keys(*names))


def rows_of(root_url, topic: str = "t") -> pa.Table:
    """What is stored, in order of entries."""
    rows = dataset_of(Layout(root_url).topic(parse_topic_name(topic))).to_table()
    return rows.sort_by([("publish_id", "ascending"), ("entry_id", "ascending")])


def received(consumer, count: int) -> list[bytes]:
    return [consumer.receive(60_000).data() for _ in range(count)]


class Damaging:
    """Stands for a producer's encoder, and stores what it is told to."""

    def __init__(self, payload: bytes, **columns):
        self.stored = Stored(payload, columns)

    def encode(self, payload: bytes) -> Stored:
        return self.stored


def send_stored(client, payload: bytes, topic: str = "t", **columns) -> pulsar.MessageId:
    producer = client.create_producer(topic)
    producer._settings = producer._settings._replace(encoder=Damaging(payload, **columns))
    try:
        return producer.send(b"")
    finally:
        producer.close()


@pytest.mark.parametrize("batching", [False, True], ids=["alone", "batched"])
def test_payloads_are_stored_compressed_and_every_reader_gets_them_plain(client, service_url, root_url, batching):
    consumer = client.subscribe("t", "s")
    for compression in CompressionType:
        producer = client.create_producer("t", compression_type=compression, batching_enabled=batching)
        for content in (TEXT + compression.name.encode(), b"", None):
            producer.send_async(content, None)
        producer.close()
    expected = [each for name in CompressionType.__members__ for each in (TEXT + name.encode(), b"", b"")]
    messages = [consumer.receive(60_000) for _ in expected]
    assert [message.data() for message in messages] == expected
    assert [message.has_null_value() for message in messages] == [False, False, True] * len(CompressionType)
    reader = client.create_reader("t", pulsar.MessageId.earliest)
    assert [reader.read_next(60_000).data() for _ in expected] == expected
    admin = Admin(service_url)
    assert [message.data() for message in admin.peek_messages("t", "s", len(expected))] == expected
    one = messages[3].message_id()
    assert admin.get_message_by_id("t", one.ledger_id(), one.entry_id()).data() in expected[:4]
    rows = rows_of(root_url)
    said = [name for each in CompressionType for name in [None if each is CompressionType.NONE else each.name.upper()]]
    assert rows["compression"].to_pylist() == [name for each in said for name in (each, each, None)]
    sizes = {
        (row["compression"], row["uncompressed_size"]): len(row["payload"])
        for row in rows.to_pylist()
        if row["uncompressed_size"]
    }
    assert all(stored < size / 5 for (_, size), stored in sizes.items()) and len(sizes) == len(COMPRESSED)


def test_a_topic_without_compression_has_no_columns_for_it(client, root_url):
    client.create_producer("t").send(TEXT)
    [path] = open_table(Layout(root_url).topic(parse_topic_name("t"))).file_uris()
    assert not {"compression", "encryption_keys"} & set(pq.read_schema(path).names)


def test_the_stored_size_counts_for_the_maximum_and_the_router_sees_the_plain_payload(client, service_url):
    seen = []
    Admin(service_url).create_partitioned_topic("p", 2)

    def router(message, partitions):
        seen.append(message.length())
        return 0

    mode = pulsar.PartitionsRoutingMode.CustomPartition
    producer = client.create_producer(
        "p", compression_type=CompressionType.ZSTD, message_routing_mode=mode, message_router=router
    )
    producer.send(bytes(6 << 20))
    with pytest.raises(pulsar.MessageTooBig):
        producer.send(os.urandom(6 << 20))
    assert seen == [6 << 20] * 2
    reader = client.create_reader("p", pulsar.MessageId.earliest)
    assert reader.read_next(60_000).data() == bytes(6 << 20) and not reader.has_message_available()


def test_chunks_are_cut_from_what_is_compressed_and_encrypted(client, root_url):
    noise = os.urandom(300_000)
    producer = client.create_producer(
        "t",
        compression_type=CompressionType.LZ4,
        chunking_enabled=True,
        chunk_max_message_size=100_000,
        **encrypting("a"),
    )
    producer.send(noise + bytes(1_000_000))
    producer.send(bytes(1_000_000))
    rows = rows_of(root_url).to_pylist()
    *chunks, small = rows
    total = sum(len(row["payload"]) for row in chunks)
    assert {row["total_chunk_msg_size"] for row in chunks} == {total} and 300_000 < total < 320_000
    assert [row["chunk_id"] for row in chunks] == list(range(len(chunks))) and small["uuid"] is None
    for name in ("compression", "uncompressed_size", "encryption_keys", "encryption_param"):
        assert len({str(row[name]) for row in chunks}) == 1
    payload = b"".join(row["payload"] for row in chunks)
    assert PayloadDecoder(Keys("a")).decode(payload, chunks[0].get) == noise + bytes(1_000_000)
    for consumer_type in pulsar.ConsumerType:
        options = dict(consumer_type=consumer_type, crypto_key_reader=Keys("a"), **EARLIEST)
        consumer = client.subscribe("t", consumer_type.name, **options)
        message = consumer.receive(60_000)
        assert message.data() == noise + bytes(1_000_000) and message.message_id().first_chunk_message_id()
        consumer.acknowledge(message)
        assert received(consumer, 1) == [bytes(1_000_000)]
    reader = client.create_reader("t", pulsar.MessageId.earliest, crypto_key_reader=Keys("a"))
    assert [len(reader.read_next(60_000).data()) for _ in range(2)] == [1_300_000, 1_000_000]
    without = client.subscribe("t", "without", **EARLIEST)
    with pytest.raises(pulsar.CryptoError) as failed:
        without.receive(60_000)
    assert failed.value.message_id == message.message_id()
    without.acknowledge(failed.value.message_id)


def test_who_has_a_key_reads_and_who_has_none_is_told_of_each_message_and_gets_the_rest(client, root_url):
    client.create_producer("t", compression_type=CompressionType.ZSTD, **encrypting("a", "b")).send(TEXT)
    client.create_producer("t").send(b"for all")
    assert TEXT not in rows_of(root_url)["payload"].to_pylist()
    for number, name in enumerate("ab"):
        consumer = client.subscribe("t", f"s{number}", crypto_key_reader=Keys(name), **EARLIEST)
        message = consumer.receive(60_000)
        assert message.data() == TEXT and received(consumer, 1) == [b"for all"]
        context = message.encryption_context()
        assert [key.key for key in context.keys()] == ["a", "b"] and not context.is_decryption_failed()
    without = client.subscribe("t", "s", **EARLIEST)
    with pytest.raises(pulsar.CryptoError, match=r"message \(.*is encrypted \(keys 'a', 'b'\).*crypto_key_r") as failed:
        without.receive(60_000)
    assert received(without, 1) == [b"for all"] and nothing_comes(without)
    without.close()
    again = client.subscribe("t", "s", crypto_key_reader=Keys("c"))
    with pytest.raises(pulsar.CryptoError, match="gave no private key 'a'"):
        again.receive(60_000)
    again.acknowledge(failed.value.message_id)
    assert received(again, 1) == [b"for all"]
    again.close()
    assert received(client.subscribe("t", "s"), 1) == [b"for all"]


@pytest.mark.parametrize("batching", [False, True], ids=["alone", "batched"])
def test_what_cannot_be_decrypted_is_acknowledged_unseen_where_that_is_asked_for(client, batching):
    producer = client.create_producer("t", batching_enabled=batching, **encrypting("a"))
    for number in range(3):
        producer.send_async(b"%d" % number, None)
    producer.close()
    client.create_producer("t").send(b"plain")
    consumer = client.subscribe("t", "s", crypto_failure_action=DISCARD, **EARLIEST)
    assert received(consumer, 1) == [b"plain"]
    consumer.close()
    assert received(client.subscribe("t", "s", crypto_key_reader=Keys("a")), 1) == [b"plain"]
    reader = client.create_reader("t", pulsar.MessageId.earliest, crypto_failure_action=DISCARD)
    assert reader.read_next(60_000).data() == b"plain" and not reader.has_message_available()


def test_what_cannot_be_decrypted_comes_as_it_is_stored_where_that_is_asked_for(client):
    client.create_producer("t", compression_type=CompressionType.LZ4, **encrypting("a")).send(TEXT)
    message = client.subscribe("t", "s", crypto_failure_action=CONSUME, **EARLIEST).receive(60_000)
    context = message.encryption_context()
    assert (context.compression_type(), context.uncompressed_message_size()) == (CompressionType.LZ4, len(TEXT))
    assert context.is_decryption_failed() and (context.algorithm(), context.batch_size()) == ("", -1)
    columns = {
        "encryption_keys": [key._asdict() for key in context.keys()],
        "encryption_param": context.param(),
        "compression": context.compression_type().name,
        "uncompressed_size": context.uncompressed_message_size(),
    }
    assert PayloadDecoder(Keys("a")).decode(message.data(), columns.get) == TEXT


BOMB = COMPRESSIONS["ZLIB"].compress(bytes(UNCOMPRESSED_BYTES + 1))
BAD = {
    "bomb that says its size": (BOMB, dict(compression="ZLIB", uncompressed_size=UNCOMPRESSED_BYTES + 1)),
    "bomb that does not": (BOMB, dict(compression="ZLIB", uncompressed_size=100)),
    "no size": (BOMB, dict(compression="ZLIB")),
    "damaged": (b"no such thing", dict(compression="ZSTD", uncompressed_size=100)),
    "unknown": (b"x", dict(compression="BROTLI", uncompressed_size=1)),
}


@pytest.mark.parametrize("kind", BAD)
def test_what_cannot_be_decompressed_is_an_error_for_that_message_only(client, service_url, kind):
    payload, columns = BAD[kind]
    before, bad = client.create_producer("t").send(b"before"), send_stored(client, payload, **columns)
    client.create_producer("t").send(b"behind")
    enough = pulsar.ConsumerBatchReceivePolicy(3, -1, 10_000)
    consumer = client.subscribe("t", "s", batch_receive_policy=enough, **EARLIEST)
    messages = consumer.batch_receive()
    assert [message.data() for message in messages] == [b"before"]
    with pytest.raises(pulsar.DecompressionError) as failed:
        consumer.batch_receive()
    assert failed.value.message_id == bad != before and str(bad) in str(failed.value)
    assert received(consumer, 1) == [b"behind"]
    reader = client.create_reader("t", bad, start_message_id_inclusive=True)
    with pytest.raises(pulsar.DecompressionError):
        reader.read_next(60_000)
    assert reader.read_next(60_000).data() == b"behind"
    admin = Admin(service_url)
    looked = list(admin.peek_messages("t", "s", 3))
    assert [looked[0].data(), looked[2].data()] == [b"before", b"behind"] and "unreadable" in str(looked[1])
    with pytest.raises(pulsar.DecompressionError):
        looked[1].data()


def test_the_command_line_shows_what_can_be_read_and_says_why_the_rest_cannot(client, root_url):
    root = str(root_url)
    client.subscribe("t", "looked-at")
    client.create_producer("t", compression_type=CompressionType.LZ4).send(TEXT)
    send_stored(client, *BAD["damaged"][:1], **BAD["damaged"][1])
    client.create_producer("t", **encrypting("a", "b")).send(b"secret")
    eventually(lambda: len(Admin(f"delta:{root}").peek_messages("t", "looked-at", 9)) == 3)
    run = CliRunner().invoke(
        app, ["subscriptions", "peek", "t", "-s", "looked-at", "--root", root, "--count", "9", "--json"]
    )
    plain, damaged, secret = map(json.loads, run.stdout.splitlines())
    assert plain["size"] == len(TEXT) and damaged["size"] is None and "ZSTD" in damaged["unreadable"]
    assert secret["encryptedFor"] == "a,b" and "unreadable" not in secret
    asked = ["consume", "t", "-s", "s", "--root", root, "--position", "earliest", "--timeout", "1"]
    run = CliRunner().invoke(app, [*asked, "--num-messages", "9"])
    assert run.exit_code == 0 and f"size={len(TEXT)}" in run.stdout and "1 messages" in run.stderr
    assert "13 bytes of ZSTD" in run.stderr and "crypto_key_reader" in run.stderr


def test_the_command_line_holds_no_more_than_two_payloads_however_many_it_shows(client, root_url):
    root, size, count = str(root_url), 8 << 20, 9
    client.subscribe("t", "looked-at")
    producer = client.create_producer("t", compression_type=CompressionType.ZSTD)
    for _ in range(count):
        producer.send(bytes(size))
    eventually(lambda: len(Admin(f"delta:{root}").peek_messages("t", "looked-at", count)) == count)
    tracemalloc.start()
    try:
        asked = ["subscriptions", "peek", "t", "-s", "looked-at", "--root", root, "--count", str(count)]
        run = CliRunner().invoke(app, asked)
        assert run.stdout.count(f"size={size}") == count
        assert tracemalloc.get_traced_memory()[1] < 3 * size
    finally:
        tracemalloc.stop()


def test_an_unreadable_message_can_be_given_back_until_it_is_a_dead_letter_as_it_is_stored(client, root_url):
    payload, columns = BAD["damaged"]
    send_stored(client, payload, **columns)
    policy = pulsar.ConsumerDeadLetterPolicy(1, dead_letter_topic="dead")
    consumer = client.subscribe(
        "t",
        "s",
        consumer_type=pulsar.ConsumerType.Shared,
        negative_ack_redelivery_delay_ms=0,
        dead_letter_policy=policy,
        **EARLIEST,
    )
    for _ in range(2):
        with pytest.raises(pulsar.DecompressionError) as failed:
            consumer.receive(60_000)
        consumer.negative_acknowledge(failed.value.message_id)
    dead = client.subscribe("dead", "s", **EARLIEST)
    with pytest.raises(pulsar.DecompressionError) as failed:
        dead.receive(60_000)
    assert failed.value.message_id.topic_name().endswith("/dead")
    [row] = rows_of(root_url, "dead").to_pylist()
    assert row["payload"] == payload and columns.items() <= row.items()


def test_an_encrypted_dead_letter_is_read_with_the_key(client):
    client.create_producer("t", compression_type=CompressionType.SNAPPY, **encrypting("a")).send(TEXT)
    policy = pulsar.ConsumerDeadLetterPolicy(1, dead_letter_topic="dead")
    options = dict(consumer_type=pulsar.ConsumerType.Shared, negative_ack_redelivery_delay_ms=0, **EARLIEST)
    consumer = client.subscribe("t", "s", dead_letter_policy=policy, crypto_key_reader=Keys("a"), **options)
    for _ in range(2):
        consumer.negative_acknowledge(consumer.receive(60_000))
    assert received(client.subscribe("dead", "s", crypto_key_reader=Keys("a"), **options), 1) == [TEXT]


def test_a_listener_gets_the_rest_and_the_log_says_what_it_does_not_get(client, caplog):
    client.create_producer("t", **encrypting("a")).send(TEXT)
    client.create_producer("t").send(b"plain")
    got = []
    with caplog.at_level(logging.DEBUG):
        client.subscribe("t", "s", message_listener=lambda consumer, message: got.append(message.data()), **EARLIEST)
        eventually(lambda: got == [b"plain"])
    assert "skips a lost or unreadable message" in caplog.text and "keys 'a'" in caplog.text
    assert not any(key.decode()[100:150] in caplog.text for key in key_pair("a")) and "UA1545" not in caplog.text


@pytest.mark.parametrize(
    ("options", "error"),
    [
        (dict(encryption_key="a"), pulsar.InvalidConfiguration),
        (dict(crypto_key_reader=Keys("a")), pulsar.InvalidConfiguration),
        (dict(encryption_key=7, crypto_key_reader=Keys("a")), ValueError),
        (dict(encryption_key=["a", None], crypto_key_reader=Keys("a")), ValueError),
        (dict(encryption_key="", crypto_key_reader=Keys("a")), ValueError),
        (dict(encryption_key="a", crypto_key_reader="a.pem"), ValueError),
        (dict(crypto_failure_action="SEND"), ValueError),
        (dict(encryption_key="b", crypto_key_reader=Keys("a")), pulsar.CryptoError),
        (dict(encryption_key="a", crypto_key_reader=pulsar.CryptoKeyReader("/no/such", "/none")), pulsar.CryptoError),
    ],
)
def test_options_that_say_nothing_are_refused_before_anything_is_made(lonely_client, root_url, options, error):
    with pytest.raises(error):
        lonely_client.create_producer("t", **options)
    assert not Layout(root_url).topic(parse_topic_name("t")).exists()
