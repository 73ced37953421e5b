"""Positions in few bytes, for rows and requests (ours, not Pulsar's)."""

import base64
import binascii

import numpy as np

from pulsar_spark.errors import InvalidMessage, shown
from pulsar_spark.protocol.acknowledgement.positions import Positions, as_array


def packed(positions: np.ndarray) -> bytes:
    """Positions in the given order, as zigzag varints (Protocol Buffers') of their differences.

    >>> packed(np.array([300, 301, 302, 9])), unpacked(packed(np.array([300, 301, 302, 9]))).tolist()
    (b'\\xd8\\x04\\x02\\x02\\xc9\\x04', [300, 301, 302, 9])
    """
    differences = np.diff(np.asarray(positions, np.int64), prepend=0).astype(np.int64, copy=False)
    values = ((differences << 1) ^ (differences >> 63)).view(np.uint64)
    lengths = np.ones(len(values), np.int64)
    longest = int(values.max()).bit_length() // 7 + 1 if len(values) else 0
    for length in range(1, longest):
        lengths += values >= np.uint64(1 << 7 * length)
    ends = np.cumsum(lengths)
    written = np.empty(int(ends[-1]) if len(ends) else 0, np.uint8)
    starts = ends - lengths
    for byte in range(longest):
        has_byte = lengths > byte
        bits = (values[has_byte] >> np.uint64(7 * byte)) & np.uint64(0x7F)
        more = (lengths[has_byte] > byte + 1).astype(np.uint64) << np.uint64(7)
        written[starts[has_byte] + byte] = bits | more
    return written.tobytes()


def unpacked(data: bytes) -> np.ndarray:
    """The positions in *data*, in their order."""
    read = np.frombuffer(data, np.uint8)
    ends = np.flatnonzero(read < 0x80) + 1
    starts = np.concatenate([[0], ends[:-1]]).astype(np.int64)[: len(ends)]
    lengths = ends - starts
    values = np.zeros(len(ends), np.uint64)
    for byte in range(int(lengths.max()) if len(lengths) else 0):
        has_byte = lengths > byte
        bits = read[starts[has_byte] + byte].astype(np.uint64) & np.uint64(0x7F)
        values[has_byte] |= bits << np.uint64(7 * byte)
    differences = (values >> np.uint64(1)).view(np.int64) ^ -(values & np.uint64(1)).view(np.int64)
    return np.cumsum(differences)


def packed_pairs(firsts: np.ndarray, lasts: np.ndarray) -> bytes | None:
    """First and last positions of chunked messages, packed; they may interleave. None if empty.

    >>> unpacked_pairs(packed_pairs(np.array([3, 4]), np.array([9, 6]))), unpacked_pairs(None)
    ([(3, 9), (4, 6)], [])
    """
    return packed(np.stack((firsts, lasts), axis=1).ravel()) if len(lasts) else None


def unpacked_pairs(data: bytes | None) -> list[tuple[int, int]]:
    return list(map(tuple, unpacked(data).reshape(-1, 2).tolist())) if data else []


def packed_stretches(stretches: Positions | None) -> bytes | None:
    """Ranges of positions, packed; None if empty.

    >>> list(unpacked_stretches(packed_stretches(Positions([(3, 9), (20, 20)]))))
    [(3, 9), (20, 20)]
    """
    return packed_pairs(*as_array(stretches)) if stretches else None


def unpacked_stretches(data: bytes | None) -> Positions:
    return Positions(unpacked_pairs(data))


def named(positions: np.ndarray) -> str:
    """Positions in the format of the property :data:`~pulsar_spark.protocol.delays.delays.POSITIONS`.

    >>> named(np.array([3, 9, 4])), named_positions(named(np.array([3, 9, 4]))).tolist()
    ('BgwJ', [3, 9, 4])
    """
    return base64.b64encode(packed(positions)).decode()


def named_positions(text: str) -> np.ndarray:
    """The positions that :func:`named` wrote; :class:`InvalidMessage` for other text."""
    try:
        return unpacked(base64.b64decode(text, validate=True))
    except (binascii.Error, ValueError) as wrong:
        raise InvalidMessage(f"positions {shown(text)}: not in the format of this release's clients") from wrong
