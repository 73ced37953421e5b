"""Murmur3 (x86, 32 bits, seed 0) of many keys at once, as ``mmh3`` computes it."""

from itertools import pairwise

import numpy as np

from pulsar_spark.protocol.keys.sticky_key import MAX_HASH, sticky_key_hash

LONG = 256
"""Keys of this many bytes or more are hashed one by one."""
_BLOCK = 1 << 16
"""Keys hashed at a time, which fit into a processor's cache."""
_FIRST_FACTOR, _SECOND_FACTOR = np.uint32(0xCC9E2D51), np.uint32(0x1B873593)
_STEP_FACTOR, _ADDEND = np.uint32(5), np.uint32(0xE6546B64)
_LAST_FACTORS = np.uint32(0x85EBCA6B), np.uint32(0xC2B2AE35)


def hash_all(data: bytes | memoryview, offsets: np.ndarray) -> np.ndarray:
    """The 31-bit hash of each key, int32: key *n* is bytes ``offsets[n]`` to ``offsets[n + 1]`` of *data*.

    >>> hash_all(b"NONE_KEYOrder-3459134", np.array([0, 8, 21])).tolist() == [sticky_key_hash(b"NONE_KEY"), 964695987]
    True
    """
    offsets = np.asarray(offsets, np.int64)
    found = np.empty(max(len(offsets) - 1, 0), np.int32)
    for at in range(0, len(found), _BLOCK):
        _hash_block(data, offsets[at : at + _BLOCK + 1], found[at : at + _BLOCK])
    return found


def _hash_block(data: bytes | memoryview, offsets: np.ndarray, found: np.ndarray) -> None:
    first, last = int(offsets[0]), int(offsets[-1])
    padded = np.zeros(last - first + 4, np.uint8)
    padded[:-4] = np.frombuffer(data, np.uint8, last - first, first)
    words = np.ndarray(len(padded) - 3, "<u4", padded, strides=(1,))  # the word that begins at each byte
    starts, sizes = offsets[:-1] - first, np.diff(offsets)
    whole_words = np.minimum(sizes, LONG) >> 2
    in_order = np.argsort(whole_words.astype(np.uint8), kind="stable")
    counts = whole_words[in_order]
    for begin, end in pairwise([*np.flatnonzero(np.diff(counts, prepend=-1)).tolist(), len(counts)]):
        keys, count = in_order[begin:end], int(counts[begin])
        if count == LONG >> 2:
            texts = (padded[start : start + size].tobytes() for start, size in zip(starts[keys], sizes[keys]))
            found[keys] = [sticky_key_hash(text) for text in texts]
        else:
            found[keys] = _hash_alike(words, starts[keys], sizes[keys].astype(np.uint32), count)


def _hash_alike(words: np.ndarray, starts: np.ndarray, sizes: np.ndarray, count: int) -> np.ndarray:
    state = np.zeros(len(starts), np.uint32)
    for word in range(count):
        state ^= _mixed(words[starts + 4 * word])
        state = _rotated(state, 13) * _STEP_FACTOR + _ADDEND
    is_of_key = (np.uint32(1) << (8 * (sizes & np.uint32(3)))) - np.uint32(1)
    state ^= _mixed(words[starts + 4 * count] & is_of_key)
    state ^= sizes
    for shift, factor in zip((16, 13), _LAST_FACTORS):
        state = (state ^ (state >> np.uint32(shift))) * factor
    return ((state ^ (state >> np.uint32(16))) & np.uint32(MAX_HASH)).astype(np.int32)


def _mixed(word: np.ndarray) -> np.ndarray:
    return _rotated(word * _FIRST_FACTOR, 15) * _SECOND_FACTOR


def _rotated(word: np.ndarray, bits: int) -> np.ndarray:
    return (word << np.uint32(bits)) | (word >> np.uint32(32 - bits))
