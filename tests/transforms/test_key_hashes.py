"""Hashes of keys in Spark, by the Arrow UDF and by Spark's own expressions: golden a1, a2, a3, and keys of all kinds
against mmh3."""

import random

import mmh3
import pytest
from pyspark.sql import functions as F

from pulsar_spark.columns import sticky_key_hash
from pulsar_spark.protocol.keys.hash_ranges import SLOTS, SLOTS_FROM_ONE
from pulsar_spark.protocol.keys.sticky_key import NONE_KEY
from pulsar_spark.transforms.key_hashes import hash_keys
from tests.protocol.golden import cases


def of_udf(spark, keys: list[bytes | None]) -> list[int]:
    return of_rows(spark, [(key, None, None) for key in keys], "binary")


def of_rows(spark, rows: list[tuple], key_type: str = "string") -> list[int]:
    """What the UDF says of (partition key, ordering key, base64)."""
    columns = f"number int, key {key_type}, ordering_key binary, is_base64 boolean"
    frame = spark.createDataFrame([(number, *row) for number, row in enumerate(rows)], columns)
    hashed = frame.select("number", sticky_key_hash(F.col("key"), F.col("ordering_key"), F.col("is_base64")).alias("h"))
    return [row.h for row in hashed.orderBy("number").collect()]


def of_expression(spark, keys: list[bytes | None]) -> list[int]:
    frame = spark.createDataFrame(list(enumerate(keys)), "number int, key binary")
    hashed = hash_keys(frame, F.col("key"), "h")
    assert hashed.columns == ["number", "key", "h"]
    return [row.h for row in hashed.orderBy("number").collect()]


def hashes_of_cases(spark, hashes_of, vectors: list[dict]) -> list[int]:
    return hashes_of(spark, [bytes.fromhex(case["input"]["key_hex"]) for case in vectors])


@pytest.mark.parametrize("hashes_of", [of_udf, of_expression])
def test_hashes_and_slots_are_those_of_pulsar(spark, hashes_of):
    """Golden a1."""
    vectors = cases("a1_murmur3")
    hashes = hashes_of_cases(spark, hashes_of, vectors)
    assert hashes == [case["expected"]["hash"] for case in vectors]
    assert [SLOTS.place(hash) for hash in hashes] == [case["expected"]["slot_65536"] for case in vectors]


@pytest.mark.parametrize("hashes_of", [of_udf, of_expression])
def test_slots_are_those_of_pulsar_4(spark, hashes_of):
    """Golden a3."""
    vectors = cases("a3_slots_408")
    hashes = hashes_of_cases(spark, hashes_of, vectors)
    expected = [case["expected"] for case in vectors]
    assert [max(1, SLOTS.place(hash)) for hash in hashes] == [case["auto_split_or_sticky"] for case in expected]
    assert [SLOTS_FROM_ONE.place(hash) for hash in hashes] == [case["consistent_hashing"] for case in expected]


def test_the_bytes_hashed_are_those_of_pulsar(spark):
    """Golden a2."""
    vectors = cases("a2_sticky_key")
    rows = [
        (
            case["input"]["partition_key"],
            case["input"]["ordering_key_hex"] and bytes.fromhex(case["input"]["ordering_key_hex"]),
            case["input"]["partition_key_b64_encoded"],
        )
        for case in vectors
    ]
    assert of_rows(spark, rows) == [case["expected"]["hash"] for case in vectors]


def test_bad_base64_is_no_key_and_an_empty_ordering_key_is_one(spark):
    rows = [("not base64!", None, True), ("AQI", None, True), ("k", b"", True), ("k", b"\xff\x00", None)]
    assert of_rows(spark, rows) == [hash_of(key) for key in (NONE_KEY, b"\x01\x02", b"", b"\xff\x00")]


def hash_of(key: bytes) -> int:
    return mmh3.hash(key, 0, signed=False) & 0x7FFFFFFF


def keys_of_all_kinds() -> list[bytes]:
    dice = random.Random(10)
    keys = [bytes([byte]) * size for size in range(17) for byte in (0, 1, 0x7F, 0x80, 0xFF)]
    keys += [dice.randbytes(size) for size in range(67) for _ in range(8)]
    keys += ["订单".encode(), "naïve 🛫".encode(), bytes(range(256)), NONE_KEY]
    return keys + [dice.randbytes(1_000_000 + more) for more in range(4)]


@pytest.mark.parametrize("hashes_of", [of_udf, of_expression])
def test_keys_of_all_kinds(spark, hashes_of):
    keys = keys_of_all_kinds()
    assert hashes_of(spark, keys) == [hash_of(key) for key in keys]


def test_no_key_has_the_hash_of_pulsars_none_key_or_none(spark):
    assert of_udf(spark, [None]) == [hash_of(NONE_KEY)]
    assert of_expression(spark, [None, b"k"]) == [None, hash_of(b"k")]
