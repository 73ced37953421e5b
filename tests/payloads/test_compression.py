"""Compression byte for byte as Pulsar's classes write it, and what is refused: damage, lies, bombs.

The stored bytes of ``JAVA`` were made by other implementations of the four formats (their specifications' own
encodings, written by hand below), so they prove what Java's and C++'s clients would read and write.
"""

import os
import random
import struct
import tracemalloc
import zlib

import pytest

from pulsar_spark.errors import DecompressionError, InvalidConfiguration
from pulsar_spark.payloads.compression import (
    COMPRESSIONS,
    UNCOMPRESSED_BYTES,
    compress,
    compression_name,
    most_uncompressed,
    uncompress,
    uncompress_at_once,
)

TEXT = b"flight UA1545 EWR-IAH; flight UA1714 LGA-IAH; flight AA1141 JFK-MIA; " * 20
PAYLOADS = {
    "empty": b"",
    "one": b"x",
    "text": TEXT,
    "random": random.Random(1).randbytes(100_000),
    "zeros": b"\0" * 100_000,
}


def snappy_literal(payload: bytes) -> bytes:
    """Snappy's raw format by its specification: the size as a varint, one literal (tag 61: two bytes of length)."""
    size, varint = len(payload), bytearray()
    while size >= 0x80:
        varint.append(size & 0x7F | 0x80)
        size >>= 7
    return bytes([*varint, size, 61 << 2]) + struct.pack("<H", len(payload) - 1) + payload


def lz4_literals(payload: bytes) -> bytes:
    """An LZ4 block by its specification: one sequence of literals, without a match."""
    rest, lengths = len(payload) - 15, bytearray()
    while rest >= 255:
        lengths.append(255)
        rest -= 255
    return bytes([0xF0, *lengths, rest]) + payload


def zstd_raw(payload: bytes) -> bytes:
    """A Zstandard frame by RFC 8878: single segment, four bytes of content size, one raw block, no checksum."""
    header = b"\x28\xb5\x2f\xfd" + bytes([0b1010_0000]) + struct.pack("<I", len(payload))
    return header + struct.pack("<I", len(payload) << 3 | 1)[:3] + payload


def zlib_stored(payload: bytes) -> bytes:
    """A zlib stream by RFC 1950 and 1951: one stored block."""
    block = b"\x01" + struct.pack("<HH", len(payload), len(payload) ^ 0xFFFF) + payload
    return b"\x78\x9c" + block + struct.pack(">I", zlib.adler32(payload))


BY_SPECIFICATION = {"SNAPPY": snappy_literal, "LZ4": lz4_literals, "ZSTD": zstd_raw, "ZLIB": zlib_stored}


@pytest.mark.parametrize("name", COMPRESSIONS)
@pytest.mark.parametrize("payload", PAYLOADS.values(), ids=PAYLOADS)
def test_what_is_compressed_comes_back(name, payload):
    stored = compress(payload, name)
    assert uncompress(stored, name, len(payload)) == payload


@pytest.mark.parametrize("name", BY_SPECIFICATION)
def test_what_others_write_by_the_formats_specification_is_read(name):
    stored = BY_SPECIFICATION[name](TEXT)
    assert stored != compress(TEXT, name) and uncompress(stored, name, len(TEXT)) == TEXT


def test_the_formats_are_those_that_pulsar_reads():
    """LZ4 without a frame, Snappy without a frame, a zlib stream, a Zstandard frame that says its size."""
    assert compress(b"", "LZ4") == b"\0" and compress(b"abc", "LZ4") == b"\x30abc"
    assert compress(b"abc", "SNAPPY") == b"\x03\x08abc"
    assert zlib.decompress(compress(TEXT, "ZLIB")) == TEXT
    assert compress(TEXT, "ZSTD")[:4] == b"\x28\xb5\x2f\xfd"
    assert compress(b"abc", "ZSTD")[4:6] == b"\x20\x03"  # a single segment of three bytes


@pytest.mark.parametrize("name", COMPRESSIONS)
@pytest.mark.parametrize("size", [0, 1, len(TEXT) - 1, len(TEXT) + 1, 2 * len(TEXT), -1, None])
def test_a_size_that_is_not_the_one_is_refused(name, size):
    with pytest.raises(DecompressionError):
        uncompress(compress(TEXT, name), name, size)


@pytest.mark.parametrize("name", COMPRESSIONS)
def test_damaged_bytes_are_refused_or_of_the_size_they_say(name):
    """No codec but zlib has a checksum here: what is changed is either refused or has the size that was said."""
    stored, chance, refused = compress(TEXT, name), random.Random(7), 0
    for _ in range(300):
        damaged = bytearray(stored)
        damaged[chance.randrange(len(stored))] ^= 1 << chance.randrange(8)
        for each in (bytes(damaged), stored[: chance.randrange(len(stored))], stored + b"x", chance.randbytes(40), b""):
            try:
                assert len(uncompress(each, name, len(TEXT))) == len(TEXT)
            except DecompressionError:
                refused += 1
    assert refused > 600


@pytest.mark.parametrize("name", COMPRESSIONS)
def test_a_bomb_takes_no_memory(name):
    """Both ways to tell of one: a size that is small, or the true one, which is above what so few bytes may become."""
    zeros = bytes(UNCOMPRESSED_BYTES + 1)
    bomb = COMPRESSIONS[name].compress(zeros)
    del zeros
    tracemalloc.start()
    try:
        for said in (1_000_000, UNCOMPRESSED_BYTES + 1 if name != "SNAPPY" else 1 << 40, 1 << 62):
            with pytest.raises(DecompressionError):
                uncompress(bomb, name, said)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 5_000_000


def test_what_would_be_taken_for_a_bomb_is_not_compressed():
    """64 MiB is nobody's bomb; more than that is stored as it is where a hundredth would have to do."""
    assert compress(bytes(UNCOMPRESSED_BYTES), "ZSTD") is not None
    assert compress(bytes(UNCOMPRESSED_BYTES + 1), "ZSTD") is None
    noise = os.urandom(700_000)
    stored = compress(noise + bytes(UNCOMPRESSED_BYTES), "ZSTD")
    assert most_uncompressed(len(stored)) > UNCOMPRESSED_BYTES + len(noise)
    assert uncompress(stored, "ZSTD", UNCOMPRESSED_BYTES + len(noise))[: len(noise)] == noise


def test_an_unknown_compression_is_named():
    with pytest.raises(DecompressionError, match="compression 'BROTLI' is unknown, only LZ4, ZLIB, ZSTD, SNAPPY"):
        uncompress(b"x", "BROTLI", 1)
    with pytest.raises(InvalidConfiguration, match="compression 'gzip': give one of NONE, LZ4, ZLIB"):
        compression_name("gzip")


def alone(stored: bytes, size: int | None) -> bytes | None:
    try:
        return uncompress(stored, "ZSTD", size)
    except DecompressionError:
        return None


@pytest.mark.parametrize("seed", range(3))
def test_what_is_decompressed_at_once_is_what_it_is_alone(seed):
    """Or is left to that: whatever is damaged, of another size, of two frames or none spoils none beside it."""
    chance = random.Random(seed)
    stored, sizes = [], []
    for _ in range(300):
        payload = (TEXT * 3)[: chance.randrange(1, 900)] + chance.randbytes(chance.randrange(50))
        frame = compress(payload, "ZSTD") if chance.random() < 0.8 else zstd_raw(payload)
        size = len(payload)
        match chance.randrange(12):
            case 0:
                at = chance.randrange(len(frame))
                frame = frame[:at] + bytes([frame[at] ^ 1 << chance.randrange(8)]) + frame[at + 1 :]
            case 1:
                frame = frame[: chance.randrange(len(frame))]
            case 2:
                frame += chance.choice([b"x", frame, b"\x50\x2a\x4d\x18\0\0\0\0"])
            case 3:
                size = chance.choice([None, -1, 0, size - 1, size + 1, 1 << 40])
        stored.append(frame)
        sizes.append(size)
    at_once = uncompress_at_once(stored, sizes)
    expected = [alone(*each) for each in zip(stored, sizes)]
    assert all(found in (None, there) for found, there in zip(at_once, expected))
    honest = [(frame, size) for frame, size in zip(stored, sizes) if alone(frame, size) is not None]
    one_frame = [each for each in honest if each[0].count(b"\x28\xb5\x2f\xfd") == 1 and each[0][-8:-4] != b"P*M\x18"]
    assert uncompress_at_once(*zip(*one_frame)) == [alone(*each) for each in one_frame] and len(one_frame) > 200


def test_what_is_large_or_nothing_is_decompressed_alone():
    frames = [compress(payload, "ZSTD") for payload in (b"", bytes(70_000), b"x" * 100)]
    assert uncompress_at_once(frames, [0, 70_000, 100]) == [None, None, b"x" * 100]
    assert uncompress_at_once([], []) == [] and uncompress_at_once([b"", b"(\xb5/\xfd"], [5, None]) == [None, None]
