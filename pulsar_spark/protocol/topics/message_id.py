"""Message ids, printed, compared and serialized as the ``pulsar`` package does.

Unlike in Pulsar, order includes the partition, after ledger, entry and batch index, so that it agrees with equality.
Bytes are Pulsar's ``MessageIdData``: ledgerId = 1 and entryId = 2 (uint64, required), partition = 3 and batch_index = 4
(int32, absent when -1), first_chunk_message_id = 7; no ack set. The first chunk, where a seek begins
(ChunkMessageIdImpl, semantics 1.7), does not count in comparisons."""

import re
from collections.abc import Iterator
from functools import total_ordering
from operator import index
from typing import Any

from pulsar_spark.errors import InvalidMessageId

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_UINT64 = 1 << 64
MAX_LONG = (1 << 63) - 1
"""The highest number in Pulsar's protocol and in a table."""
_MAX_INT = (1 << 31) - 1
_PRINTED = re.compile(r"\(?([0-9]{1,18})[:,]([0-9]{1,18})(?:[:,](-1|[0-9]{1,9}))?(?:[:,](-1|[0-9]{1,9}))?\)?")
_ID_FIELDS = {1: "ledger_id", 2: "entry_id", 3: "partition", 4: "batch_index"}
_FIRST_CHUNK = 7


@total_ordering
class MessageId:
    """The id of one message; immutable, hashable and ordered.

    ``ledger_id`` is the publish commit, ``entry_id`` the entry in it, ``batch_index`` the place in the entry's batch
    and ``partition`` the partition of the topic; -1 if there is none. ``topic_name`` is the topic, if it is known.
    TypeError for a value that is no whole number or has too many bits.

    >>> str(MessageId(partition=3, ledger_id=5, entry_id=7, batch_index=2))
    '(5,7,3,2)'
    >>> MessageId.earliest < MessageId(-1, 0, 0) < MessageId(-1, 0, 0, 0) < MessageId.latest
    True
    """

    __slots__ = ("_place", "_topic_name", "_first_chunk")
    earliest: "MessageId"
    latest: "MessageId"

    def __init__(
        self,
        partition: int = -1,
        ledger_id: int = -1,
        entry_id: int = -1,
        batch_index: int = -1,
        topic_name: str | None = None,
    ):
        self._place = (
            _checked("ledger_id", ledger_id, MAX_LONG),
            _checked("entry_id", entry_id, MAX_LONG),
            _checked("batch_index", batch_index, _MAX_INT),
            _checked("partition", partition, _MAX_INT),
        )
        self._topic_name = topic_name
        self._first_chunk: MessageId | None = None

    @staticmethod
    def of_place(place: tuple[int, int, int, int], topic_name: str | None) -> "MessageId":
        """The id of a stored message, unchecked: ``place`` is ledger id, entry id, batch index and partition,
        ``topic_name`` the topic."""
        made = MessageId.__new__(MessageId)
        made._place, made._topic_name, made._first_chunk = place, topic_name, None
        return made

    def ledger_id(self) -> int:
        """The publish commit: the version of the topic's table."""
        return self._place[0]

    def entry_id(self) -> int:
        """The entry within its publish commit and partition."""
        return self._place[1]

    def batch_index(self) -> int:
        """The place in the entry's batch, -1 outside a batch."""
        return self._place[2]

    def partition(self) -> int:
        """The partition; -1 if the topic has none."""
        return self._place[3]

    def topic_name(self) -> str | None:
        """The topic, if it is known; comparisons ignore it. A consumer of several topics needs it."""
        return self._topic_name

    def of_topic(self, topic: str | None) -> "MessageId":
        """This id with its *topic*."""
        copy = MessageId.of_place(self._place, topic)
        copy._first_chunk = self._first_chunk
        return copy

    def first_chunk_message_id(self) -> "MessageId | None":
        """The id of the first chunk of a chunked message; None for other messages."""
        return self._first_chunk

    def of_chunks(self, first: "MessageId") -> "MessageId":
        """This id as that of a chunked message whose first chunk is *first*.

        >>> message_id = MessageId(ledger_id=5, entry_id=7).of_chunks(MessageId(ledger_id=5, entry_id=1))
        >>> str(message_id), message_id == MessageId(ledger_id=5, entry_id=7)
        ('(5,1,-1,-1);(5,7,-1,-1)', True)
        """
        copy = MessageId.__new__(type(self))
        copy._place, copy._topic_name, copy._first_chunk = self._place, self._topic_name, first
        return copy

    def serialize(self) -> bytes:
        """The id in Pulsar's binary format.

        >>> MessageId(3, 5, 7, 2).serialize()
        b'\\x08\\x05\\x10\\x07\\x18\\x03 \\x02'
        """
        values = ((1, self.ledger_id()), (2, self.entry_id()), (3, self.partition()), (4, self.batch_index()))
        own = b"".join(
            _varint(number << 3 | _VARINT) + _varint(value) for number, value in values if number < 3 or value != -1
        )
        if self._first_chunk is None:
            return own
        first = self._first_chunk.serialize()
        return own + _varint(_FIRST_CHUNK << 3 | _BYTES) + _varint(len(first)) + first

    @staticmethod
    def deserialize(message_id_bytes: bytes, topic: str | None = None) -> "MessageId":
        """Read an id from *message_id_bytes*, skipping unknown fields. *topic* becomes its topic name.
        :class:`InvalidMessageId` if the bytes are not an id.

        >>> str(MessageId.deserialize(b"\\x08\\x05\\x10\\x07"))
        '(5,7,-1,-1)'
        """
        if not isinstance(message_id_bytes, (bytes, bytearray, memoryview)):
            raise InvalidMessageId(
                f"message id {message_id_bytes!r} is not bytes: give what MessageId.serialize() returned"
            )
        data = bytes(message_id_bytes)
        found = dict(_fields(data))
        message_id, first = _place_of(found, data).of_topic(topic), found.get(_FIRST_CHUNK)
        if not isinstance(first, bytes):
            return message_id
        return message_id.of_chunks(_place_of(dict(_fields(first)), data).of_topic(topic))

    @classmethod
    def wrap(cls, msg_id: "MessageId") -> "MessageId":
        """Return *msg_id*, as the ``pulsar`` package does; ValueError for anything but an id."""
        if not isinstance(msg_id, MessageId):
            raise ValueError(f"argument msg_id: MessageId expected, not {type(msg_id).__name__}")
        return msg_id

    def __str__(self) -> str:
        ledger_id, entry_id, batch_index, partition = self._place
        own = f"({ledger_id},{entry_id},{partition},{batch_index})"
        return own if self._first_chunk is None else f"{self._first_chunk};{own}"

    def __repr__(self) -> str:
        own = (
            f"MessageId(partition={self.partition()}, ledger_id={self.ledger_id()}, entry_id={self.entry_id()}, "
            f"batch_index={self.batch_index()})"
        )
        return own if self._first_chunk is None else f"{own}.of_chunks({self._first_chunk!r})"

    def __eq__(self, other: object) -> bool:
        return self._place == other._place if isinstance(other, MessageId) else NotImplemented

    def __lt__(self, other: object) -> bool:
        return self._place < other._place if isinstance(other, MessageId) else NotImplemented

    def __hash__(self) -> int:
        return hash(self._place)


class SentMessageId(MessageId):
    """The id that a send returns, made from its *place* alone, for speed. It knows its topic, so that other topics'
    consumers refuse it."""

    __slots__ = ()

    def __init__(self, place: tuple[int, int, int, int], topic_name: str):
        self._place, self._topic_name, self._first_chunk = place, topic_name, None


def parse_message_id(text: str) -> MessageId:
    """Parse ``ledger:entry``, ``ledger:entry:partition`` or ``ledger:entry:partition:batch``; a chunked message has
    two, separated by a semicolon. :class:`InvalidMessageId` for other text.

    >>> str(parse_message_id("5:7")), str(parse_message_id("(5,7,3,-1)")), str(parse_message_id("5:1;5:7"))
    ('(5,7,-1,-1)', '(5,7,3,-1)', '(5,1,-1,-1);(5,7,-1,-1)')
    """
    first, separator, last = text.partition(";")
    if separator:
        return parse_message_id(last).of_chunks(parse_message_id(first))
    found = _PRINTED.fullmatch(text.strip())
    if not found:
        raise InvalidMessageId(
            f"message id {text!r}: give ledger:entry, ledger:entry:partition or ledger:entry:partition:batch, such "
            "as 5:0:-1"
        )
    ledger_id, entry_id, partition, batch_index = (-1 if number is None else int(number) for number in found.groups())
    return MessageId(partition, ledger_id, entry_id, batch_index)


def _checked(name: str, value: int, most: int) -> int:
    """*value* (NumPy's integers too) as an int of at most *most*; else TypeError."""
    number = index(value) if hasattr(value, "__index__") else None
    if number is None or not -most - 1 <= number <= most:
        raise TypeError(f"argument {name}: a whole number of {most.bit_length() + 1} bits expected, not {value!r}")
    return number


MessageId.earliest = MessageId()
MessageId.latest = MessageId(ledger_id=MAX_LONG, entry_id=MAX_LONG)


def _varint(value: int) -> bytes:
    rest, out = value % _UINT64, bytearray()
    while rest > 0x7F:
        out.append(rest & 0x7F | 0x80)
        rest >>= 7
    out.append(rest)
    return bytes(out)


def _read_varint(data: bytes, at: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, 70, 7):
        if at >= len(data):
            raise InvalidMessageId(f"message id {data!r} breaks off: give what MessageId.serialize() returned")
        byte, at = data[at], at + 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            value %= _UINT64
            return (value - _UINT64 if value > MAX_LONG else value), at
    raise InvalidMessageId(
        f"message id {data!r} holds a number of more than 64 bits: give what MessageId.serialize() returned"
    )


def _place_of(fields: dict[int, int | bytes], data: bytes) -> MessageId:
    place: dict[str, Any] = {
        name: fields[number] for number, name in _ID_FIELDS.items() if isinstance(fields.get(number), int)
    }
    if not {"ledger_id", "entry_id"} <= place.keys():
        raise InvalidMessageId(
            f"message id {data!r} lacks its ledger or entry: give what MessageId.serialize() returned"
        )
    try:
        return MessageId(**place)
    except TypeError as wrong:
        raise InvalidMessageId(f"message id {data!r}: {wrong}; give what MessageId.serialize() returned") from wrong


def _fields(data: bytes) -> Iterator[tuple[int, int | bytes]]:
    """The number and value of each integer or bytes field."""
    at = 0
    while at < len(data):
        key, at = _read_varint(data, at)
        number, wire_type = key >> 3, key & 7
        if number < 1 or wire_type not in (_VARINT, _FIXED64, _BYTES, _FIXED32):
            raise InvalidMessageId(
                f"message id {data!r} is not a protobuf message: give what MessageId.serialize() returned"
            )
        if wire_type == _VARINT:
            value, at = _read_varint(data, at)
            yield number, value
            continue
        length = {_FIXED64: 8, _FIXED32: 4}.get(wire_type)
        if length is None:
            length, at = _read_varint(data, at)
        at += length
        if length < 0 or at > len(data):
            raise InvalidMessageId(f"message id {data!r} breaks off: give what MessageId.serialize() returned")
        if wire_type == _BYTES:
            yield number, data[at - length : at]
