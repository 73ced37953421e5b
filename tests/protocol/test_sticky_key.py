"""Hashes of keys: golden a1 (Murmur3_32Hash and slots), golden a2 (which bytes are hashed)."""

import pytest

from pulsar_spark.protocol.keys.hash_ranges import SLOTS
from pulsar_spark.protocol.keys.sticky_key import NONE_KEY, sticky_key, sticky_key_hash
from tests.protocol.golden import cases, named


def test_hash_and_slot_are_those_of_pulsar():
    vectors = cases("a1_murmur3")
    keys = [bytes.fromhex(case["input"]["key_hex"]) for case in vectors]
    assert [sticky_key_hash(key) for key in keys] == [case["expected"]["hash"] for case in vectors]
    assert [SLOTS.place(sticky_key_hash(key)) for key in keys] == [case["expected"]["slot_65536"] for case in vectors]


@pytest.mark.parametrize("case", cases("a2_sticky_key"), ids=named)
def test_the_bytes_hashed_are_those_of_pulsar(case):
    given = case["input"]
    ordering_key = None if given["ordering_key_hex"] is None else bytes.fromhex(given["ordering_key_hex"])
    key = sticky_key(
        given["partition_key"], ordering_key=ordering_key, is_base64=bool(given["partition_key_b64_encoded"])
    )
    assert key.hex() == case["expected"]["sticky_key_hex"]
    assert sticky_key_hash(key) == case["expected"]["hash"]


@pytest.mark.parametrize(
    "text",
    ["not base64!", "AQI=A", "AQ=", "A", "=", "AQI=AQI=", "AQID=", "AQID==", "AQID====", "====", "\u00e4", "AQI=\n"],
)
def test_bad_base64_counts_as_no_key(text):
    assert sticky_key(text, is_base64=True) == NONE_KEY


@pytest.mark.parametrize("text, key", [("AQI", b"\1\2"), ("AQ", b"\1"), ("AQID", b"\1\2\3"), ("AR", b"\1")])
def test_base64_may_lack_its_padding_as_in_java(text, key):
    assert sticky_key(text, is_base64=True) == key
