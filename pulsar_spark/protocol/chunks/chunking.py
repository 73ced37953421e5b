"""Chunked messages: how a payload is split, and which chunks make up a message.

Rule: semantics 1.2, 1.4, 0.9 (ProducerImpl) and 1.10-1.13 (ConsumerImpl.processMessageChunk). A *group* is the
chunks of one (producer name, uuid), by position; verdicts follow from it alone, so all subscriptions and readers
agree:

====================================  ==================  ===========================================================
chunk                                 verdict             the group then
====================================  ==================  ===========================================================
0                                     TAKEN               is open anew; what it had before is dropped (1.10)
the next one expected                 TAKEN               expects the one after it (1.11)
the next one, and the last of all     COMPLETES           is closed: the message lies where this chunk lies
one it has                            REPEATED            stays as it is (1.12)
one beyond the next                   GAP                 is thrown away (1.13)
any but 0 while nothing is open       NO_FIRST            stays closed (1.13)
the next, with another chunk count    DISAGREES           is thrown away: one of the two counts lies
outside 0..num_chunks_from_msg - 1    MALFORMED           is thrown away: it is a chunk of no message
====================================  ==================  ===========================================================

Chunks outside a complete message are never delivered. A message of the wrong size (:func:`wrong_size`) is
delivered, and unreadable.
"""

from collections.abc import Iterable
from enum import IntEnum
from typing import NamedTuple

import numpy as np

from pulsar_spark.errors import InvalidMessage

MAX_MESSAGE_SIZE = 5 * 1024 * 1024
"""Pulsar's maxMessageSize: bytes of an entry, its metadata included."""

NUMBERS_BYTES, TEXT_BYTES = 64, 6
"""Upper bounds of bytes in a message's metadata: of all numbers, and of a text's length and tag."""

MAX_PENDING = "max_pending_chunked_message"
AUTO_ACK_OLDEST = "auto_ack_oldest_chunked_message_on_queue_full"
EXPIRE_TIME_MS = "expire_time_of_incomplete_chunked_message_ms"
"""Properties of a subscribe request: limits for incomplete messages (see chunk_limits); no limit if absent (0.25)."""


class Verdict(IntEnum):
    TAKEN = 0
    COMPLETES = 1
    REPEATED = 2
    NO_FIRST = 3
    GAP = 4
    MALFORMED = 5
    DISAGREES = 6


REASONS = {
    Verdict.TAKEN: "the chunks after it are missing",
    Verdict.REPEATED: "the chunk was there already",
    Verdict.NO_FIRST: "chunk 0 is missing before it",
    Verdict.GAP: "the chunk before it is missing",
    Verdict.MALFORMED: "chunk_id is not one of 0 to num_chunks_from_msg - 1",
    Verdict.DISAGREES: "num_chunks_from_msg differs from that of chunk 0",
}
"""By verdict, why an entry belongs to no complete message."""


def chunk_count(payload_bytes: int, chunk_payload_bytes: int) -> int:
    """The number of chunks of a payload (after compression and encryption); 1 for an empty one.

    >>> chunk_count(0, 5), chunk_count(5, 5), chunk_count(6, 5)
    (1, 1, 2)
    """
    return -(-max(1, payload_bytes) // chunk_payload_bytes)


def chunk_payload_bytes(max_message_size: int, metadata_bytes: int, chunk_max_message_size: int = -1) -> int:
    """Payload bytes of each chunk but the last; *chunk_max_message_size* <= 0 means no extra limit.
    :class:`InvalidMessage` if the metadata alone fills a message.

    >>> chunk_payload_bytes(100, 10), chunk_payload_bytes(100, 10, 50), chunk_payload_bytes(100, 10, 95)
    (90, 50, 90)
    """
    room = max_message_size - metadata_bytes
    if room <= 0:
        raise InvalidMessage(
            f"the metadata alone takes {metadata_bytes} of the {max_message_size} bytes that a message may have: "
            "send fewer or shorter properties and keys"
        )
    return min(room, chunk_max_message_size) if chunk_max_message_size > 0 else room


def metadata_bytes(texts: Iterable[bytes | None], properties: Iterable[tuple[bytes, bytes]] = ()) -> int:
    """An upper bound of a message's metadata, with *texts* (names, keys, uuid) and *properties*. It is a sum, which
    Spark can compute too.

    >>> metadata_bytes([b"producer", None, b"key"], [(b"colour", b"red")])
    108
    """
    of_texts = sum(TEXT_BYTES + len(text) for text in texts if text is not None)
    return NUMBERS_BYTES + of_texts + sum(2 * TEXT_BYTES + len(name) + len(value) for name, value in properties)


class Open(NamedTuple):
    """The state of groups, by index: next chunk expected (0: closed), chunk count, and the row of chunk 0 (-1: before
    the rows)."""

    next_chunks: np.ndarray
    num_chunks: np.ndarray
    openers: np.ndarray


class Judged(NamedTuple):
    """The :class:`Verdict` of each row, and for TAKEN or COMPLETES the row of chunk 0 (-1: before the rows). ``left``
    is the state afterwards."""

    verdicts: np.ndarray
    openers: np.ndarray
    left: Open


def judged(groups: np.ndarray, chunk_ids: np.ndarray, num_chunks: np.ndarray, before: Open) -> Judged:
    """Judge chunks, which are ordered by position. *groups* are indexes into *before*; a null chunk id or count is
    -1."""
    count = len(before.next_chunks)
    was_open = before.next_chunks > 0
    # A first row per group stands for its earlier state: its last chunk, with an unknown opener.
    group = np.concatenate([np.arange(count), groups])
    order = np.argsort(group, kind="stable")
    group = group[order]
    chunk = np.concatenate([before.next_chunks - 1, chunk_ids]).astype(np.int64)[order]
    of = np.concatenate([before.num_chunks, num_chunks]).astype(np.int64)[order]
    row = (np.arange(len(group)) - count)[order]
    is_row = np.concatenate([np.zeros(count, bool), np.ones(len(groups), bool)])[order]
    is_malformed = is_row & ((chunk < 0) | (chunk >= of))
    begins = ~is_row | ((chunk == 0) & ~is_malformed)

    run = np.cumsum(begins) - 1
    begun = np.flatnonzero(begins)
    highest = np.maximum.accumulate((run << 32) + np.where(is_malformed, -1, np.minimum(chunk, 1 << 31)) + 1)
    expected = np.roll(highest, 1) - (run << 32)  # without errors: the chunks of the run before this row
    is_next = ~begins & ~is_malformed & (chunk == expected)
    disagrees = is_next & (of != of[begun][run])
    is_gap = ~begins & ~is_malformed & (chunk > expected)
    taken = begins | (is_next & ~disagrees)
    completes = is_row & taken & (chunk == of - 1)
    closes = completes | disagrees | is_gap | is_malformed
    closes[~is_row] = ~was_open[group[~is_row]]
    closed_so_far = np.cumsum(closes)
    was_closed = (closed_so_far - closes) > (closed_so_far - closes)[begun][run]

    verdict = np.select(
        [is_malformed, was_closed, completes, taken, disagrees, is_gap],
        [Verdict.MALFORMED, Verdict.NO_FIRST, Verdict.COMPLETES, Verdict.TAKEN, Verdict.DISAGREES, Verdict.GAP],
        Verdict.REPEATED,
    ).astype(np.int8)
    opener = np.where(verdict <= Verdict.COMPLETES, np.maximum(row[begun][run], -1), -1)
    ends = np.append(np.flatnonzero(group[1:] != group[:-1]), len(group) - 1) if count else np.zeros(0, np.int64)
    is_left = ~(was_closed | closes)[ends]
    left = Open(
        np.where(is_left, highest[ends] - (run[ends] << 32), 0),
        np.where(is_left, of[begun][run[ends]], 0),
        np.where(is_left, np.maximum(row[begun][run[ends]], -1), -1),
    )
    back = np.empty(len(group), np.int64)
    back[order] = np.arange(len(group))
    return Judged(verdict[back[count:]], opener[back[count:]], left)


def none_open(count: int) -> Open:
    return Open(np.zeros(count, np.int64), np.zeros(count, np.int64), np.full(count, -1))


WRONG_SIZE = "its chunks have %d bytes%s together, and one of them gives the message %d (total_chunk_msg_size)"
"""The text of :func:`wrong_size`, also for Spark's ``format_string``: bytes, " and more" or nothing, and the size."""


def wrong_size(payload_bytes: int, stated_sizes: Iterable[int | None], *, is_whole: bool = True) -> str | None:
    """Why *payload_bytes* of chunks contradict one of their *stated_sizes* (``total_chunk_msg_size``; None: not
    stated). None if they agree, or (unless *is_whole*) may agree once more chunks come.

    >>> wrong_size(4, {4, None}), wrong_size(4, {9}, is_whole=False)
    (None, None)
    >>> wrong_size(4, {4, 5})
    'its chunks have 4 bytes together, and one of them gives the message 5 (total_chunk_msg_size)'
    """
    for size in stated_sizes:
        if size is not None and (payload_bytes > size or (is_whole and payload_bytes != size)):
            return WRONG_SIZE % (payload_bytes, "" if is_whole else " and more", size)
    return None


def parts_of(chunk_ids: np.ndarray, num_chunks: np.ndarray) -> np.ndarray:
    """Rows, in chunk order, of the message that the last row of one group completes; empty if none. Rows are ordered by
    position.

    >>> parts_of(np.array([0, 0, 1, 1, 2]), np.full(5, 3)).tolist()
    [1, 2, 4]
    """
    rows = len(chunk_ids)
    verdicts, openers, _ = judged(np.zeros(rows, np.int64), chunk_ids, num_chunks, none_open(1))
    if not rows or verdicts[-1] != Verdict.COMPLETES:
        return np.zeros(0, np.int64)
    return np.flatnonzero((verdicts <= Verdict.COMPLETES) & (openers == openers[-1]))
