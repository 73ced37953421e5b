"""Entries that wait for their deliver time: which do, and the numbers they get when they come due.

Rule: semantics 5 with decisions 0.21 and 0.24. Whether an entry is *delayed* is decided once, when it is numbered. A
delayed entry that comes due is *promoted*: it gets the next number of its topic partition, in order of (deliver time,
position), once for all subscriptions. Cursors keep ranges of these numbers beside their ranges of positions, as
*virtual positions*: the number, counted from :data:`DUE_BASE` on, where no topic has positions of its own.
"""

import numpy as np

DUE_BASE = 1 << 60
"""The virtual position of number 0."""

DUE_LANE = "due"
"""The lane, as rows name it, whose ranges are of virtual positions."""


def virtual(number: int) -> int:
    """Where a number lies among positions.

    >>> virtual(7) - DUE_BASE, number_of(virtual(7)), is_virtual(virtual(0)), is_virtual(7)
    (7, 7, True, False)
    """
    return DUE_BASE + number


def number_of(position: int) -> int:
    """The number that a virtual position stands for."""
    return position - DUE_BASE


def is_virtual(position: int) -> bool:
    """Whether a position stands for a number."""
    return position >= DUE_BASE


def is_delayed(deliver_at_time: int | None, delayed_after: int | None) -> bool:
    """Whether an entry belongs to the delay index, by its deliver time and its run's ``delayed_after``, both in
    microseconds. A deliver time that has come when the entry is numbered is none (5.2), and runs without
    ``delayed_after`` have no delayed entries: the release that numbered them kept what waits in its cursors.

    >>> is_delayed(11, 10), is_delayed(10, 10), is_delayed(None, 10), is_delayed(11, None)
    (True, False, False, False)
    """
    return deliver_at_time is not None and delayed_after is not None and deliver_at_time > delayed_after


def packed(positions: np.ndarray) -> bytes:
    """Positions in the order given, as few bytes: each as its difference to the one before, zigzag, as a varint
    (Protocol Buffers' encoding). Entries that came due in the order of their positions take a byte each.

    >>> packed(np.array([300, 301, 302, 9])), unpacked(packed(np.array([300, 301, 302, 9]))).tolist()
    (b'\\xd8\\x04\\x02\\x02\\xc9\\x04', [300, 301, 302, 9])
    """
    differences = np.diff(np.asarray(positions, np.int64), prepend=0)
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
    """The positions that :func:`packed` packed, in their order."""
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
