"""Hashes of many keys at once: golden a1, and keys of all kinds against mmh3."""

import random

import numpy as np
import pytest

from pulsar_spark.protocol.keys import murmur3
from pulsar_spark.protocol.keys.murmur3 import LONG, hash_all
from pulsar_spark.protocol.keys.sticky_key import NONE_KEY, sticky_key_hash
from tests.protocol.golden import cases


def hashes(keys: list[bytes], before: bytes = b"") -> list[int]:
    """Of keys that lie behind some other bytes."""
    found = hash_all(b"".join([before, *keys]), np.cumsum([len(before), *map(len, keys)]))
    assert found.dtype == np.int32
    return found.tolist()


def test_hashes_are_those_of_pulsar():
    vectors = cases("a1_murmur3")
    expected = [case["expected"]["hash"] for case in vectors]
    assert hashes([bytes.fromhex(case["input"]["key_hex"]) for case in vectors]) == expected


@pytest.mark.parametrize("block", [1 << 16, 7], ids=["a block", "blocks of seven"])
def test_keys_of_all_kinds(monkeypatch, block):
    """All lengths of tail, bytes with the sign bit, empty, Unicode, long, next to each other in any order."""
    monkeypatch.setattr(murmur3, "_BLOCK", block)
    dice = random.Random(10)
    keys = [bytes([byte]) * size for size in range(17) for byte in (0, 1, 0x7F, 0x80, 0xFF)]
    keys += [dice.randbytes(size) for size in [*range(67), *range(LONG - 9, LONG + 9)] for _ in range(8)]
    keys += ["订单".encode(), "naïve 🛫".encode(), bytes(range(256)), NONE_KEY, b""]
    keys += [dice.randbytes(1_000_000 + more) for more in range(4)]
    dice.shuffle(keys)
    assert hashes(keys, before=b"other") == [sticky_key_hash(key) for key in keys]


def test_no_keys():
    assert hashes([]) == [] == hash_all(b"", np.empty(0, np.int64)).tolist()
