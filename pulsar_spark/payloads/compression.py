"""Pulsar's four compressions, byte for byte as its clients write them.

Source: CompressionCodecLZ4, ZLib, Zstd and SnappyJNI of pulsar-common.
"""

import zlib
from collections.abc import Callable, Sequence
from typing import NamedTuple

import pyarrow as pa

from pulsar_spark.errors import DecompressionError, InvalidConfiguration, shown

UNCOMPRESSED_BYTES = 64 << 20
EXPANSION = 100
"""The largest allowed size after decompression: this many bytes, or this many times the stored bytes."""

_ZSTD_LEVEL = 3
SMALL_BYTES = 64 << 10
"""Messages up to this size are decompressed together, because creating a decoder dominates."""
_FRAMES_AT_ONCE = 1_000
_REPEATED = 1
"""The ZSTD block type for one repeated byte."""
_NOT_READABLE = "the compressed bytes are damaged, or were compressed with something else"


def most_uncompressed(stored_bytes: int) -> int:
    """The largest allowed size of a message with so many stored bytes.

    >>> most_uncompressed(1_000), most_uncompressed(10_000_000)
    (67108864, 1000000000)
    """
    return max(UNCOMPRESSED_BYTES, EXPANSION * stored_bytes)


def compression_name(compression: object) -> str | None:
    """The name of a compression as in the column ``compression``, or None; from a name or a ``CompressionType``.

    >>> compression_name("zlib"), compression_name("NONE"), compression_name(None)
    ('ZLIB', None, None)
    """
    name = str(getattr(compression, "name", "NONE" if compression is None else compression)).upper()
    if name != "NONE" and name not in COMPRESSIONS:
        raise InvalidConfiguration(f"compression {shown(compression)}: give one of NONE, {', '.join(COMPRESSIONS)}")
    return None if name == "NONE" else name


def compress(payload: bytes, compression: str) -> bytes | None:
    """*payload* compressed; None if it compresses too well to be read again, or is too large (LZ4: nearly 2 GiB)."""
    try:
        stored = COMPRESSIONS[compression].compress(payload)
    except (OSError, pa.ArrowInvalid):
        return None
    return stored if len(payload) <= most_uncompressed(len(stored)) else None


def uncompress(stored: bytes, compression: str, uncompressed_size: int | None) -> bytes:
    """The payload of exactly *uncompressed_size* bytes; :class:`DecompressionError` otherwise."""
    codec = COMPRESSIONS.get(compression)
    if codec is None:
        raise DecompressionError(
            f"compression {shown(compression)} is unknown, only {', '.join(COMPRESSIONS)} are known: read it "
            "with the release that wrote it"
        )
    if uncompressed_size is None or uncompressed_size < 0:
        raise DecompressionError(
            f"the message has no valid uncompressed size ({shown(uncompressed_size)}), so it is not decompressed"
        )
    if uncompressed_size > (most := most_uncompressed(len(stored))):
        raise DecompressionError(
            f"the message says that its {len(stored)} bytes of {compression} become {uncompressed_size}, more "
            f"than the allowed {most}: nothing was decompressed"
        )
    payload = codec.uncompress(stored, uncompressed_size)
    if payload is None:
        raise DecompressionError(
            f"{len(stored)} bytes of {compression} do not become the {uncompressed_size} that the message says: "
            + _NOT_READABLE
        )
    return payload


def uncompress_at_once(stored: Sequence[bytes], sizes: Sequence[int | None]) -> list[bytes | None]:
    """The payloads of ZSTD messages with these *sizes*; None for large or damaged ones and their neighbours."""
    found: list[bytes | None] = [None] * len(stored)
    small = [
        (at, size)
        for at, (frame, size) in enumerate(zip(stored, sizes))
        if size is not None and 0 < size <= SMALL_BYTES and _is_frame_of(frame, size)
    ]
    for first in range(0, len(small), _FRAMES_AT_ONCE):
        together = small[first : first + _FRAMES_AT_ONCE]
        frames, end = b"".join(stored[at] for at, _ in together), 0
        payloads = _of_arrow(pa.Codec("zstd"), frames, sum(size for _, size in together))
        if payloads is not None:
            for at, size in together:
                found[at], end = payloads[end : end + size], end + size
    return found


def _is_frame_of(stored: bytes, size: int) -> bool:
    """Whether the bytes are one ZSTD frame of this stated size and nothing else (RFC 8878, section 3.1.1)."""
    if len(stored) < 9 or not stored.startswith(b"\x28\xb5\x2f\xfd"):
        return False
    descriptor = stored[4]
    is_single, has_checksum = descriptor >> 5 & 1, descriptor >> 2 & 1
    width = (is_single, 2, 4, 8)[descriptor >> 6]
    at = 6 - is_single + (0, 1, 2, 4)[descriptor & 3]
    if not width or int.from_bytes(stored[at : at + width], "little") + 256 * (width == 2) != size:
        return False
    at += width
    while at + 3 <= len(stored):
        header = int.from_bytes(stored[at : at + 3], "little")
        at += 3 + (1 if header >> 1 & 3 == _REPEATED else header >> 3)
        if header & 1:
            return at + 4 * has_checksum == len(stored)
    return False


class _Codec(NamedTuple):
    """``uncompress(stored, size)`` returns the payload of that size, or None, and never takes more memory than that."""

    compress: Callable[[bytes], bytes]
    uncompress: Callable[[bytes, int], bytes | None]


def _of_arrow(codec: pa.Codec, stored: bytes, size: int) -> bytes | None:
    try:
        return codec.decompress(stored, size, asbytes=True)
    except (OSError, pa.ArrowInvalid):
        return None


def _compress(codec: pa.Codec, payload: bytes) -> bytes:
    return codec.compress(payload, asbytes=True)


def _uncompress_zlib(stored: bytes, size: int) -> bytes | None:
    stream = zlib.decompressobj()
    try:
        payload = stream.decompress(stored, size + 1)
    except zlib.error:
        return None
    return payload if len(payload) == size and stream.eof and not stream.unused_data else None


def _uncompress_lz4(stored: bytes, size: int) -> bytes | None:
    """Decompress a block of exactly *size*; for a shorter one Arrow would return uninitialized memory."""
    codec = pa.Codec("lz4_raw")
    if not size:
        return b"" if stored == b"\0" else None
    if _of_arrow(codec, stored, size - 1) is not None:
        return None
    return _of_arrow(codec, stored, size)


def _uncompress_snappy(stored: bytes, size: int) -> bytes | None:
    return _of_arrow(pa.Codec("snappy"), stored, size) if _snappy_size(stored) == size else None


def _snappy_size(stored: bytes) -> int | None:
    """The size at the beginning of a Snappy block: seven bits a byte, the lowest first."""
    size = 0
    for place, byte in enumerate(stored[:5]):
        size |= (byte & 0x7F) << 7 * place
        if byte < 0x80:
            return size
    return None


COMPRESSIONS = {
    "LZ4": _Codec(lambda payload: _compress(pa.Codec("lz4_raw"), payload), _uncompress_lz4),
    "ZLIB": _Codec(zlib.compress, _uncompress_zlib),
    "ZSTD": _Codec(
        lambda payload: _compress(pa.Codec("zstd", _ZSTD_LEVEL), payload),
        lambda stored, size: _of_arrow(pa.Codec("zstd"), stored, size),
    ),
    "SNAPPY": _Codec(lambda payload: _compress(pa.Codec("snappy"), payload), _uncompress_snappy),
}
"""By name, as in ``CompressionType`` and the column ``compression``."""
