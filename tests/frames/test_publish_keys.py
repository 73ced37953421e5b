"""Keys of published frames: the hash stored with each message, rows sorted by it, keys of all kinds."""

import base64

import mmh3
import pytest
from pyspark.sql import functions as F

import pulsar_spark as pulsar
from pulsar_spark.errors import InvalidMessage
from pulsar_spark.frames import publish
from pulsar_spark.protocol.keys.sticky_key import NONE_KEY
from pulsar_spark.protocol.topics.routing import HashingScheme, partition_for_key
from pulsar_spark.storage.delta.log import TableLog
from pulsar_spark.storage.entries.key_hashes import read_hashes
from pulsar_spark.storage.ledgers.publishes import number_commit
from pulsar_spark.storage.topics.topics import create_topic, read_topic
from tests.frames.test_publish import assert_ids_are_runs, read

EVERY_BYTE = bytes(range(256))
MURMUR3 = dict(hashing_scheme="Murmur3_32Hash")


def hash_of(key: bytes) -> int:
    return mmh3.hash(key, 0, signed=False) & 0x7FFFFFFF


def runs_of(layout, topic: str) -> list:
    path = read_topic(layout, topic).path
    numbered = [number_commit(path, commit, {}, set()) for commit in TableLog(path).commits(0)]
    return [run for runs in numbered for of_partition in runs.values() for run in of_partition]


def keys_and_hashes(spark, layout, topic: str) -> dict:
    """By payload: key, whether it is in base64, ordering key and stored hash."""
    columns = ("partition_key", "partition_key_b64_encoded", "ordering_key", "sticky_key_hash")
    rows = read(spark, layout, topic).select(F.col("payload").cast("string"), *columns).collect()
    return {row.payload: tuple(row[1:]) for row in rows}


@pytest.mark.parametrize("partitions", [0, 3])
@pytest.mark.parametrize("scheme", list(HashingScheme))
def test_the_hash_of_each_message_lies_with_it_where_it_is_routed_by_that(spark, root, layout, partitions, scheme):
    """And an ordering key is nothing to its partition."""
    create_topic(layout, "t", partitions)
    keys = [
        ("k", None),
        ("k", "o"),
        (None, "o"),
        (None, None),
        ("", None),
        ("k", ""),
        ("订单", None),
        ("x" * 1_000_000, None),
    ]
    frame = spark.createDataFrame(
        [(str(number), *key) for number, key in enumerate(keys)], "payload string, key string, ordering_key string"
    )
    publish(frame, root, "t", hashing_scheme=scheme)
    hashes = [hash_of(key) for key in (b"k", b"o", b"o", NONE_KEY, b"", b"", "订单".encode(), b"x" * 1_000_000)]
    if scheme is not HashingScheme.Murmur3_32Hash:
        hashes = [None] * len(keys)
    found = keys_and_hashes(spark, layout, "t")
    assert found == {str(n): (key, None, order, hash) for n, ((key, order), hash) in enumerate(zip(keys, hashes))}
    placed = read(spark, layout, "t").select("partition_key", "partition").where("partition_key is not null").collect()
    if partitions:
        assert all(partition == partition_for_key(key, partitions, scheme) for key, partition in placed)


@pytest.mark.parametrize("options", [{}, MURMUR3, dict(sort_by_key=True)])
def test_stored_or_not_a_round_reads_the_same(spark, root, layout, options):
    publish(spark.range(1000).selectExpr("'m' as payload", "concat('key-', id) as key"), root, "t", **options)
    hashes = {row[-1] for row in keys_and_hashes(spark, layout, "t").values()}
    assert (None in hashes) == (not options)
    path = read_topic(layout, "t").path
    runs = runs_of(layout, "t")
    assert all(run.has_keys for run in runs)
    found = [hash for run in runs for hash in read_hashes(path, [run]).tolist()]
    assert sorted(found) == sorted(hash_of(f"key-{number}".encode()) for number in range(1000))


def test_a_frame_without_keys_stores_none_and_nothing_is_read(spark, root, layout, monkeypatch):
    publish(spark.range(10).selectExpr("cast(id as string) payload"), root, "t")
    runs = runs_of(layout, "t")
    assert not any(run.has_keys for run in runs)
    monkeypatch.setattr("pulsar_spark.storage.entries.key_hashes.read_slice", None)
    assert read_hashes(read_topic(layout, "t").path, runs).tolist() == [hash_of(NONE_KEY)] * 10
    assert {row[-1] for row in keys_and_hashes(spark, layout, "t").values()} == {None}


def test_a_key_of_bytes_goes_as_base64(spark, root, layout):
    """As a Java producer's keyBytes does: routed by that text, hashed as the bytes."""
    create_topic(layout, "t", 7)
    keys = [EVERY_BYTE, b"", None, b"\xff" * 1_000_000]
    frame = spark.createDataFrame(
        [(str(number), None if key is None else bytearray(key)) for number, key in enumerate(keys)],
        "payload string, key binary",
    )
    publish(frame, root, "t", **MURMUR3)
    texts = [None if key is None else base64.b64encode(key).decode() for key in keys]
    flags = [None if key is None else True for key in keys]
    hashes = [hash_of(NONE_KEY if key is None else key) for key in keys]
    expected = {str(n): (text, flag, None, hash) for n, (text, flag, hash) in enumerate(zip(texts, flags, hashes))}
    assert keys_and_hashes(spark, layout, "t") == expected
    placed = read(spark, layout, "t").select("partition_key", "partition").where("partition_key is not null").collect()
    assert {tuple(row) for row in placed} == {
        (text, partition_for_key(text, 7, HashingScheme.Murmur3_32Hash)) for text in texts if text is not None
    }


def test_an_ordering_key_of_bytes_goes_as_base64_and_a_client_reads_it(spark, root, layout):
    """It is hashed as the bytes, stored and read alike, and what is no text comes as surrogates."""
    keys = [EVERY_BYTE, b"", None, "订单".encode(), b"\xff" * 1_000_000]
    rows = [(bytearray(b"%d" % number), "k", key and bytearray(key)) for number, key in enumerate(keys)]
    rows[1] = (*rows[1][:2], bytearray())
    frame = spark.createDataFrame(rows, "payload binary, key string, ordering_key binary").coalesce(1)
    for topic, options in (("stored", MURMUR3), ("unstored", {})):
        publish(frame, root, topic, **options)
        path = read_topic(layout, topic).path
        found = [hash for run in runs_of(layout, topic) for hash in read_hashes(path, [run]).tolist()]
        assert found == [hash_of(b"k" if key is None else key) for key in keys]
    stored = {key and hash for _, _, key, hash in keys_and_hashes(spark, layout, "stored").values()}
    assert stored == {None, ""} | {hash_of(key) for key in keys if key}
    client = pulsar.Client(f"delta:{root}", operation_timeout_seconds=1)
    try:
        reader = client.create_reader("unstored", pulsar.MessageId.earliest)
        messages = [reader.read_next(60_000) for _ in keys]
    finally:
        client.shutdown()
    assert [message.ordering_key().encode("utf-8", "surrogateescape") for message in messages] == [
        key or b"" for key in keys
    ]
    assert messages[3].ordering_key() == "订单"


def test_a_key_that_is_base64_already_says_so(spark, root, layout):
    rows = [
        ("0", "AQI=", True),
        ("1", "AQI=", False),
        ("2", "AQI=", None),
        ("3", "not base64!", True),
        ("4", None, True),
    ]
    frame = spark.createDataFrame(rows, "payload string, key string, partition_key_b64_encoded boolean")
    publish(frame, root, "t", **MURMUR3)
    hashes = [hash_of(key) for key in (b"\x01\x02", b"AQI=", b"AQI=", NONE_KEY, NONE_KEY)]
    assert keys_and_hashes(spark, layout, "t") == {
        payload: (key, flag, None, hash) for (payload, key, flag), hash in zip(rows, hashes)
    }


@pytest.mark.parametrize(
    ("columns", "says"),
    [
        (["cast(x'ff00' as string) as key"], "partition_key with the bytes 'FF00'"),
        (["cast(x'6b80' as string) as ordering_key"], "ordering_key with the bytes '6B80'"),
        (["x'ff' as key", "true as partition_key_b64_encoded"], "drop the column 'partition_key_b64_encoded'"),
        (["'k' as key", "1 as partition_key_b64_encoded"], "cast it to boolean"),
        (["x'ff' as ordering_key", "true as ordering_key_b64_encoded"], "drop the column 'ordering_key_b64_encoded'"),
        (["1 as ordering_key"], "'ordering_key' is a int: cast it to string"),
        (["'o' as ordering_key", "'yes' as ordering_key_b64_encoded"], "cast it to boolean"),
    ],
)
def test_keys_that_cannot_be_sent_publish_nothing(spark, root, layout, columns, says):
    create_topic(layout, "t")
    with pytest.raises(InvalidMessage, match=says):
        publish(spark.range(3).selectExpr("'m' as payload", *columns), root, "t")
    assert runs_of(layout, "t") == []


@pytest.mark.parametrize("partitions", [0, 3])
def test_rows_sorted_by_key(spark, root, layout, partitions):
    """In each file by hash, a key's messages as the frame had them, and the ids of a file without a gap."""
    create_topic(layout, "t", partitions)
    frame = spark.range(0, 2000, 1, 2).select(
        F.col("id").cast("string").alias("payload"),
        F.when(F.col("id") % 11 != 0, (F.col("id") % 17).cast("string")).alias("key"),
    )
    publish(frame, root, "t", sort_by_key=True)
    assert_ids_are_runs(layout, "t")
    rows = read(spark, layout, "t").selectExpr(
        "partition", "entry_id >> 33 as task", "sticky_key_hash", "cast(cast(payload as string) as int) as number"
    )
    found = [tuple(row) for row in rows.orderBy("partition", "entry_id").collect()]
    assert found == sorted(found, key=lambda row: row[:3])
    keyed = {}
    for *file, hash, number in found:
        keyed.setdefault((*file, hash), []).append(number)
    assert all(numbers == sorted(numbers) for numbers in keyed.values())
    assert sorted(number for *_, number in found) == list(range(2000))


def test_without_keys_or_unasked_the_rows_keep_their_order(spark, root, layout):
    keyless = spark.range(0, 100, 1, 1).selectExpr("cast(id as string) payload")
    publish(keyless, root, "keyless", sort_by_key=True)
    publish(keyless.withColumn("key", F.col("payload")), root, "unasked")
    for topic in ("keyless", "unasked"):
        rows = read(spark, layout, topic).orderBy("entry_id").selectExpr("cast(payload as string) payload").collect()
        assert [int(row.payload) for row in rows] == list(range(100))


def test_a_client_reads_keys_of_all_kinds(spark, root):
    keys = [EVERY_BYTE, b"k" * 1_000_000, b""]
    frame = spark.createDataFrame([(bytearray(key), bytearray(key)) for key in keys], "payload binary, key binary")
    publish(frame.coalesce(1), root, "t")
    client = pulsar.Client(f"delta:{root}", operation_timeout_seconds=1)
    try:
        reader = client.create_reader("t", pulsar.MessageId.earliest)
        messages = [reader.read_next(60_000) for _ in keys]
    finally:
        client.shutdown()
    assert {base64.b64decode(message.partition_key()): message.data() for message in messages} == {k: k for k in keys}
