"""Compressed and encrypted payloads of frames: published, consumed, read and sent back; keys nowhere but where they
are used."""

import io
import logging
from collections import Counter
from contextlib import redirect_stdout

import pytest
from chispa import assert_df_equality
from delta.tables import DeltaTable
from pyspark.sql import functions as F

import pulsar_spark as pulsar
from pulsar_spark.errors import CryptoError, DecompressionError, InvalidConfiguration, MessageTooBig, UnreadableMessage
from pulsar_spark.frames import (
    consume,
    decode_payloads,
    publish,
    publish_stream,
    read_messages,
    register_plain_payload,
    reprocess_dead_letters,
)
from pulsar_spark.frames.consuming import call
from pulsar_spark.payloads.compression import COMPRESSIONS, UNCOMPRESSED_BYTES
from pulsar_spark.payloads.encryption import Encryptor
from pulsar_spark.storage.topics.topics import read_topic
from pulsar_spark.testing.plain_broker import PlainBroker
from tests.payloads.keys import Keys, key_pair

WAIT = 60
TEXT = b"flight UA1545 EWR-IAH; flight AA1141 JFK-MIA; " * 20
BOMB = COMPRESSIONS["ZLIB"].compress(bytes(UNCOMPRESSED_BYTES + 1))


@pytest.fixture(scope="module")
def reader(tmp_path_factory):
    """A reader of key files."""
    folder = tmp_path_factory.mktemp("keys")
    for kind, key in key_pair("a")._asdict().items():
        (folder / kind).write_bytes(key)
    return pulsar.CryptoKeyReader(str(folder / "public"), str(folder / "private"))


@pytest.fixture
def broker(root):
    with PlainBroker(root) as broker:
        yield broker


def stored(spark, layout, topic="t"):
    return spark.read.format("delta").load(str(read_topic(layout, topic).path))


def one(spark, payload: str):
    return spark.createDataFrame([(payload,)], "payload string")


def texts(frame) -> list[str]:
    return sorted(row[0] for row in frame.select(F.col("payload").cast("string")).collect())


class Got:
    """A consumer's function that keeps the payloads, as text."""

    def __init__(self, column: str = "payload"):
        self.column, self.payloads = column, []

    def __call__(self, messages, delivery):
        column = F.coalesce(F.col(self.column).cast("string"), F.lit(""))
        self.payloads += [row[0] for row in messages.select(column).collect()]


def handled(spark, root, function=None, subscription="s", **options) -> tuple[list[str], BaseException | None]:
    """What a consumer's function got of all that was published, and the error it ended with."""
    function = function or Got()
    consumption = consume(spark, root, "t", subscription, function, available_now=True, **options)
    try:
        assert consumption.await_termination(WAIT)
    except UnreadableMessage as error:
        return sorted(function.payloads), error
    return sorted(function.payloads), None


def test_frames_and_clients_read_what_frames_and_clients_compress_and_encrypt(spark, root, layout, broker, reader):
    numbers = spark.range(0, 40, 1, 2).selectExpr("concat(repeat('flight ', 50), id) payload", "cast(id as string) key")
    keys = dict(encryption_key="a", crypto_key_reader=reader)
    publish(numbers.filter("key < 10"), root, "t", compression="lz4", **keys)
    publish(numbers.filter("key >= 10"), root, "t", compression=pulsar.CompressionType.ZSTD)
    publish(spark.createDataFrame([(None,), ("plain",)], "payload string"), root, "t")
    client = pulsar.Client(f"delta:{root}", operation_timeout_seconds=10)
    client.create_producer("t", compression_type=pulsar.CompressionType.SNAPPY, **keys).send(TEXT)
    expected = sorted([*texts(numbers), "plain", TEXT.decode()])
    said = stored(spark, layout).selectExpr("compression", "encryption_keys.key", "octet_length(payload)").collect()
    assert Counter((row[0], *(row[1] or [])) for row in said) == {
        ("LZ4", "a"): 10, ("ZSTD",): 30, (None,): 2, ("SNAPPY", "a"): 1
    }  # fmt: skip
    assert max(row[2] or 0 for row in said) < 200
    assert handled(spark, root, crypto_key_reader=reader) == (["", *expected], None)
    consumer = client.subscribe("t", "c", crypto_key_reader=reader, initial_position=pulsar.InitialPosition.Earliest)
    assert sorted(consumer.receive(60_000).data().decode() for _ in range(43)) == ["", *expected]
    client.close()
    read = read_messages(spark, root, "t", crypto_key_reader=reader)
    rows = read.select("payload", "payload_error", "compression", "encryption_keys").collect()
    assert sorted((row[0] or b"").decode() for row in rows) == ["", *expected]
    assert {tuple(row[1:]) for row in rows} == {(None, None, None)}


def test_a_frame_without_compression_needs_no_python_and_stays_as_it_is(spark, root, layout):
    publish(one(spark, "x"), root, "t")
    assert "ArrowEvalPython" not in plan_of(read_messages(spark, root, "t"))
    assert not {"compression", "encryption_keys"} & set(spark.read.parquet(*stored(spark, layout).inputFiles()).columns)


def plan_of(frame) -> str:
    with redirect_stdout(io.StringIO()) as out:
        frame.explain(mode="extended")
    return out.getvalue()


def test_no_key_is_in_a_plan_a_log_or_a_refusal(spark, root, reader, caplog):
    secrets = [key_pair(name)[at].decode()[60:120] for name in ("a", "b") for at in (0, 1)]

    def made():
        return Keys("b")

    publish(spark.createDataFrame([(TEXT,)], "payload binary"), root, "t", encryption_key="a", crypto_key_reader=reader)
    publish(spark.createDataFrame([(TEXT,)], "payload binary"), root, "t", encryption_key="b", crypto_key_reader=made)
    with caplog.at_level(logging.DEBUG):
        frames = [read_messages(spark, root, "t", crypto_key_reader=each) for each in (reader, made)]
        shown = "".join(map(plan_of, frames)) + "".join(str(frame.collect()) for frame in frames)
        with pytest.raises(InvalidConfiguration) as refused:
            read_messages(spark, root, "t", crypto_key_reader=Keys("a"))
    assert "give a CryptoKeyReader of two paths, or a function" in str(refused.value)
    assert "gave no private key" in shown and "ArrowEvalPython" in shown
    assert not [each for each in secrets if each in shown + caplog.text + str(refused.value)]


def test_a_payload_that_cannot_be_read_is_null_and_says_why_and_the_rest_is_there(spark, root, layout, reader):
    bomb = (BOMB, "ZLIB", UNCOMPRESSED_BYTES + 1)
    bad = spark.createDataFrame(
        [bomb, (BOMB, "ZLIB", 100), (b"x", "ZSTD", 9), (b"y", "GZIP", 1), (TEXT, None, None)],
        "payload binary, compression string, uncompressed_size bigint",
    )
    publish(bad, root, "t")
    publish(one(spark, "secret"), root, "t", encryption_key="a", crypto_key_reader=reader)
    rows = read_messages(spark, root, "t").filter("payload is null").select("payload_error").collect()
    assert sorted(row[0].split(": ")[0] for row in rows) == ["CryptoError", *["DecompressionError"] * 4]
    assert texts(read_messages(spark, root, "t", crypto_failure_action="DISCARD").filter("payload is not null")) == [
        TEXT.decode()
    ]
    whole = read_messages(spark, root, "t", crypto_failure_action="CONSUME").filter("encryption_keys is not null")
    row = whole.select("payload", "payload_error", "encryption_keys").first()
    assert row.payload is not None and row.payload_error is None and row.encryption_keys[0].key == "a"
    by_hand = decode_payloads(stored(spark, layout), crypto_key_reader=reader).filter("payload is not null")
    assert texts(by_hand) == sorted(["secret", TEXT.decode()])
    register_plain_payload(spark, crypto_key_reader=reader)
    by_sql = spark.sql(
        "SELECT plain_payload(payload, compression, uncompressed_size, encryption_keys, encryption_algo, "
        f"encryption_param) payload FROM delta.`{read_topic(layout, 't').path}`"
    )
    assert texts(by_sql.filter("payload is not null")) == sorted(["secret", TEXT.decode()])


def test_a_consumer_handles_the_rest_and_is_told_of_what_cannot_be_read(spark, root, layout, broker, reader):
    publish(one(spark, "before"), root, "t")
    publish(one(spark, "secret"), root, "t", encryption_key="a", crypto_key_reader=reader)
    columns = "payload binary, compression string, uncompressed_size int"
    publish(spark.createDataFrame([(BOMB, "ZLIB", 100)], columns), root, "t")
    publish(one(spark, "behind"), root, "t", compression="ZSTD")
    got, error = handled(spark, root)
    assert got == ["before", "behind"] and isinstance(error, CryptoError | DecompressionError)
    assert "position 1" in str(error) and "2 such entries" in str(error)
    again, error = handled(spark, root, crypto_key_reader=reader)
    assert again == ["secret"] and isinstance(error, DecompressionError) and "position 2" in str(error)
    got, error = handled(spark, root, subscription="discards", crypto_failure_action="DISCARD")
    assert got == ["before", "behind"] and isinstance(error, DecompressionError)
    assert handled(spark, root, subscription="discards", crypto_key_reader=reader)[0] == []
    positions = Got("position")
    assert handled(spark, root, positions, "places", with_payload=False) == (["0", "1", "2", "3"], None)


def test_a_delivery_is_decoded_once_for_all_that_is_done_with_it(spark, root, broker, reader, tmp_path, monkeypatch):
    """By the look at what cannot be read, two actions of the function and its outcomes; nothing is kept behind it. One
    that is too large to be kept, as it is stored or as it becomes, is decoded each time."""
    publish(one(spark, "x").coalesce(1), root, "t", compression="LZ4")
    decoded = tmp_path / "decoded"

    def counting():
        with open(decoded, "a") as file:
            file.write("x")
        return reader

    class Several(Got):
        def __call__(self, messages, delivery):
            super().__call__(messages, delivery)
            assert messages.filter("payload = 'x'").count() == 1
            return messages.select("position", F.when(F.col("payload") == b"x", "acknowledge").alias("outcome"))

    options = dict(crypto_key_reader=counting, columns=["payload"])
    spark.catalog.clearCache()
    assert handled(spark, root, Several(), **options) == (["x"], None)
    assert decoded.read_text() == "x" and spark._jsparkSession.sharedState().cacheManager().isEmpty()
    for number, limit in enumerate(("_KEPT_BYTES", "_KEPT_MESSAGE_BYTES"), 1):
        with monkeypatch.context() as patch:
            patch.setattr(call, limit, 0)
            assert handled(spark, root, Several(), limit, **options) == (["x"], None)
        assert len(decoded.read_text()) >= 1 + 4 * number


def test_of_a_batch_the_other_messages_are_handled(spark, root, broker, reader):
    client = pulsar.Client(f"delta:{root}", operation_timeout_seconds=10)
    producer = client.create_producer("t", batching_enabled=True)
    encryptor = Encryptor(["a"], Keys("a"))

    class Second:
        """Encrypts the second message of three."""

        count = 0

        def encode(self, payload):
            from pulsar_spark.payloads.encoding import PayloadEncoder

            self.count += 1
            return PayloadEncoder("LZ4", encryptor if self.count == 2 else None).encode(payload)

    producer._settings = producer._settings._replace(encoder=Second())
    for name in ("one", "two", "three"):
        producer.send_async(name.encode(), None)
    producer.close()
    got, error = handled(spark, root)
    assert got == ["one", "three"] and isinstance(error, CryptoError)
    assert handled(spark, root, crypto_key_reader=reader) == (["two"], None)
    client.close()


def test_chunks_are_cut_from_what_is_compressed_and_encrypted(spark, root, layout, broker, reader):
    line = "repeat(concat(sha2(cast(id as string), 512), rand(1)), 4000)"
    plain = spark.range(3).selectExpr(f"cast({line} as binary) payload").localCheckpoint()
    keys = dict(encryption_key="a", crypto_key_reader=reader)
    publish(plain, root, "t", compression="SNAPPY", chunking=True, chunk_max_message_size=20_000, **keys)
    size, params = F.sum(F.octet_length("payload")), F.count_distinct("encryption_param")
    by_message = stored(spark, layout).groupBy("uuid")
    chunks = by_message.agg(size, F.max("total_chunk_msg_size"), params, F.count("*"))
    for _, size, total, params, count in chunks.collect():
        assert size == total < 200_000 and params == 1 and count == -(-total // 20_000) > 1
    got, error = handled(spark, root, crypto_key_reader=reader)
    assert error is None and got == texts(plain)
    read = read_messages(spark, root, "t", crypto_key_reader=reader).select("payload")
    assert_df_equality(read, plain, ignore_row_order=True, ignore_nullable=True)


def test_the_stored_size_counts_and_streams_are_encoded_too(spark, root, layout, reader, tmp_path):
    zeros = spark.range(1).selectExpr("cast(repeat('0', 6000000) as binary) payload")
    with pytest.raises(MessageTooBig):
        publish(zeros, root, "t")
    assert publish(zeros, root, "t", compression=pulsar.CompressionType.ZSTD).messages == 1
    with pytest.raises(CryptoError, match="gave no public key 'a'.*No such file"):
        publish(zeros, root, "t", encryption_key="a", crypto_key_reader=pulsar.CryptoKeyReader("/none", "/none"))
    source = tmp_path / "source"
    spark.range(3).selectExpr("cast(id as string) payload").write.parquet(str(source))
    frame = spark.readStream.schema("payload string").parquet(str(source))
    options = dict(compression="LZ4", encryption_key="a", crypto_key_reader=reader)
    with pytest.raises(InvalidConfiguration):
        publish_stream(frame, root, "s", **{**options, "compression": "brotli"})
    writer = publish_stream(frame, root, "s", **options)
    query = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(availableNow=True).start()
    query.awaitTermination()
    assert stored(spark, layout, "s").filter("compression = 'LZ4' and encryption_param is not null").count() == 3
    assert texts(read_messages(spark, root, "s", crypto_key_reader=reader)) == ["0", "1", "2"]


@pytest.mark.parametrize(
    "options",
    [
        {"encryption_key": "a"},
        {"crypto_key_reader": lambda: None},
        {"encryption_key": [7], "crypto_key_reader": lambda: None},
        {"encryption_key": "a", "crypto_key_reader": 7},
        {"compression": "gzip"},
        {"crypto_failure_action": "CONSUME"},
    ],
)
def test_options_that_say_nothing_are_refused_before_anything_is_made(spark, root, layout, options):
    frame = spark.createDataFrame([("x", "LZ4")], "payload string, compression string")
    for columns in (["payload"], ["payload", "compression"]):
        with pytest.raises(InvalidConfiguration):
            publish(frame.select(*columns), root, "t", **options)
    assert not layout.topics("public", "default")


def shouted(letters):
    """Plain payloads in capitals."""
    text = F.upper(F.col("payload").cast("string")).cast("binary")
    return letters.withColumn("payload", F.when(F.col("encryption_keys").isNull(), text).otherwise(F.col("payload")))


def test_dead_letters_are_sent_back_as_they_are_stored_or_as_a_fix_makes_them(spark, root, layout, broker, reader):
    publish(one(spark, "small"), root, "t", compression="ZSTD")
    publish(one(spark, "secret"), root, "t", compression="ZSTD", encryption_key="a", crypto_key_reader=reader)
    client = pulsar.Client(f"delta:{root}", operation_timeout_seconds=10)
    shared = dict(consumer_type=pulsar.ConsumerType.Shared, initial_position=pulsar.InitialPosition.Earliest)
    policy = pulsar.ConsumerDeadLetterPolicy(1)
    consumer = client.subscribe(
        "t", "s", dead_letter_policy=policy, negative_ack_redelivery_delay_ms=0, crypto_key_reader=reader, **shared
    )
    for _ in range(4):
        consumer.negative_acknowledge(consumer.receive(60_000))
    letters = client.subscribe("t-s-DLQ", "look", crypto_key_reader=reader, **shared)
    assert sorted(letters.receive(60_000).data() for _ in range(2)) == [b"secret", b"small"]
    client.close()
    jobs = {"fixed": ("encryption_keys is null", shouted), "as-it-is": ("encryption_keys is not null", None)}
    for job_id, (where, fix) in jobs.items():
        reprocess_dead_letters(spark, root, "t", subscription="s", job_id=job_id, where=where, fix=fix, to="topic:back")
    back = read_messages(spark, root, "back", crypto_key_reader=reader)
    assert texts(back) == ["SMALL", "secret"]
    assert [row[0] for row in stored(spark, layout, "back").select("compression").collect()].count("ZSTD") == 1


def test_chunks_with_damaged_ciphertext_are_an_error_of_their_message(spark, root, layout, broker, reader):
    """And wrong keys one of each message."""
    plain = spark.range(2).selectExpr("cast(repeat(sha2(cast(id as string), 512), 400) as binary) payload")
    keys = dict(encryption_key="a", crypto_key_reader=reader)
    publish(plain.coalesce(1), root, "t", chunking=True, chunk_max_message_size=20_000, **keys)
    publish(one(spark, "behind"), root, "t")
    first = stored(spark, layout).agg(F.min("uuid")).first()[0]
    DeltaTable.forPath(spark, str(read_topic(layout, "t").path)).update(
        f"uuid = '{first}' and chunk_id = 1", {"payload": "cast(repeat('x', octet_length(payload)) as binary)"}
    )
    read = read_messages(spark, root, "t", crypto_key_reader=reader).select("payload", "payload_error").collect()
    assert [row["payload_error"].partition(":")[0] for row in read if row["payload"] is None] == ["CryptoError"]
    left = sorted(row["payload"].decode() for row in read if row["payload"] is not None)
    assert len(left) == 2 and left[-1] == "behind" and left[0] in texts(plain)
    got, error = handled(spark, root, crypto_key_reader=reader)
    assert got == left and isinstance(error, CryptoError)
    got, error = handled(spark, root, subscription="others", crypto_key_reader=lambda: Keys("b"))
    assert got == ["behind"] and isinstance(error, CryptoError)
