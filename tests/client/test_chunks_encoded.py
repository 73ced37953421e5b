"""Chunked messages that are compressed and encrypted: as one, before they are cut, so that what is wrong with a chunk
is an error of its message alone."""

import random
import tracemalloc

import pytest

import pulsar_spark as pulsar
from pulsar_spark.payloads.compression import COMPRESSIONS
from pulsar_spark.storage.delta.scan import open_table
from pulsar_spark.storage.topics.topics import read_topic
from tests.client.test_payloads import EARLIEST, Damaging, encrypting, rows_of
from tests.payloads.keys import Keys
from tests.support.waiting import DEADLINE_SECONDS

FIRST, SECOND = (random.Random(number).randbytes(3_000) for number in range(2))
CHUNKED = dict(chunking_enabled=True, chunk_max_message_size=1_000)
COMPRESSED = dict(compression_type=pulsar.CompressionType.ZLib)
ZEROS = 64 << 20


def send(client, *payloads: bytes, **options) -> None:
    producer = client.create_producer("t", **CHUNKED, **options)
    for payload in payloads:
        producer.send(payload)
    producer.close()


def take(receive, count: int) -> list[bytes | type]:
    """So many messages, or the errors in their place."""
    found = []
    for _ in range(count):
        try:
            found.append(receive(DEADLINE_SECONDS * 1000).data())
        except pulsar.UnreadableMessage as failed:
            assert failed.message_id is not None
            found.append(type(failed))
    return found


def everybody_gets(client, expected: list[bytes | type], *keys: str) -> None:
    """A reader and consumers of two types with these private keys."""
    options = dict(crypto_key_reader=Keys(*keys)) if keys else {}
    reader = client.create_reader("t", pulsar.MessageId.earliest, **options)
    assert take(reader.read_next, len(expected)) == expected and not reader.has_message_available()
    for kind in (pulsar.ConsumerType.Exclusive, pulsar.ConsumerType.Shared):
        consumer = client.subscribe("t", f"{kind.name}-{'-'.join(keys)}", kind, **EARLIEST, **options)
        assert take(consumer.receive, len(expected)) == expected
        consumer.close()


@pytest.mark.parametrize("options", [COMPRESSED, encrypting("a"), COMPRESSED | encrypting("a")])
def test_what_is_encoded_before_it_is_cut_comes_plain(client, root_url, options):
    send(client, FIRST, b"small", SECOND, **options)
    rows = rows_of(root_url).to_pylist()
    chunks = [row for row in rows if row["uuid"] is not None]
    for uuid in {row["uuid"] for row in chunks}:
        mine = [row for row in chunks if row["uuid"] == uuid]
        assert len(mine) > 2 and {row["total_chunk_msg_size"] for row in mine} == {
            sum(len(row["payload"]) for row in mine)
        }
    assert len({row["uuid"] for row in chunks}) == 2
    everybody_gets(client, [FIRST, b"small", SECOND], "a")


def test_damaged_ciphertext_and_wrong_keys_are_errors_of_their_messages(client, root_url):
    send(client, FIRST, SECOND, **encrypting("a"))
    send(client, b"behind")
    table = open_table(read_topic(client._layout, "t").path)
    (damaged, *_) = [row for row in rows_of(root_url).to_pylist() if row["chunk_id"] == 1]
    other = bytes(byte ^ 1 for byte in damaged["payload"]).hex()
    where = f"uuid = '{damaged['uuid']}' and chunk_id = 1"
    table.update({"payload": f"decode('{other}', 'hex')"}, predicate=where)
    everybody_gets(client, [pulsar.CryptoError, SECOND, b"behind"], "a")
    everybody_gets(client, [pulsar.CryptoError, pulsar.CryptoError, b"behind"], "b")
    everybody_gets(client, [pulsar.CryptoError, pulsar.CryptoError, b"behind"])


@pytest.mark.local_disk  # a server in this process has its own memory measured, too
@pytest.mark.parametrize("said", [100, None, 2**62])
def test_a_bomb_of_zeros_in_chunks_takes_no_memory(client, said):
    """Whatever it says that it becomes."""
    bomb = COMPRESSIONS["ZLIB"].compress(bytes(ZEROS))
    producer = client.create_producer("t", **CHUNKED)
    encoder = Damaging(bomb, compression="ZLIB", uncompressed_size=said)
    producer._settings = producer._settings._replace(encoder=encoder)
    producer.send(b"")
    producer.close()
    send(client, b"behind")
    tracemalloc.start()
    try:
        everybody_gets(client, [pulsar.DecompressionError, b"behind"])
        assert tracemalloc.get_traced_memory()[1] < ZEROS // 8
    finally:
        tracemalloc.stop()
