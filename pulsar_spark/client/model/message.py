"""Messages as the application sees them."""

from datetime import datetime
from typing import Any

from pulsar_spark.client.model.block import ENCODED, Block
from pulsar_spark.client.receiving.delivery import Delivery
from pulsar_spark.client.schema.payloads import EncryptionContext, Opened, PayloadOpener
from pulsar_spark.errors import InvalidMessage, UnreadableMessage
from pulsar_spark.protocol.delays.instants import to_millis
from pulsar_spark.protocol.keys.sticky_key import bytes_of
from pulsar_spark.protocol.topics.message_id import MessageId


class _NotReceived:
    """Stands for the block of a message that a program created itself."""

    def __getattr__(self, name: str) -> Any:
        raise InvalidMessage("this Message was created by the program and has no content: use a received message")


class Message:
    """A received message. Only consumers and readers make messages with content."""

    __slots__ = ("_block", "_row", "_position", "_opened")

    def __init__(self, block: Block | None = None, row: int = 0, position: int = -1):
        self._block: Any = _NotReceived() if block is None else block
        self._row = row
        self._position = position
        self._opened: Opened | UnreadableMessage | None = None

    @property
    def _delivery(self) -> Delivery | None:
        return self._block.delivery

    @property
    def _topic_id(self) -> str | None:
        return self._block.topic_id

    def _open(self, opener: PayloadOpener) -> UnreadableMessage | None:
        """Decode the payload if it is compressed or encrypted; return the error that :meth:`data` then raises."""
        if isinstance(self._opened, UnreadableMessage):
            return self._opened
        if not self._block.has_encoded or not any(map(self._field, ENCODED)):
            return None
        try:
            self._opened = opener.opened(self._field("payload") or b"", self._field)
        except UnreadableMessage as error:
            self._opened = unreadable(error, self.message_id())
            return self._opened
        if self._block.first_chunk is not None:  # a block of this message alone: drop the stored form
            self._block.column("payload")[self._row] = self._opened.payload
        return None

    def _joined(
        self, payload: bytes | None, first_chunk: MessageId, wrong: UnreadableMessage | None = None
    ) -> "Message":
        """The chunked message that ends here: with this payload, or the error in *wrong*."""
        block = self._block.joined(self._row, payload, first_chunk)
        message = Message(block, 0, self._position)
        message._opened = wrong
        return message

    def _is_chunk(self) -> bool:
        """Whether the row is a chunk; messages of a batch are none."""
        return self._block.has_chunks and self._field("uuid") is not None and self._field("batch_index") is None

    def _sticky_hash(self) -> int | None:
        """The hash of its entry, if known."""
        return self._block.sticky_hash(self._row)

    def _field(self, name: str):
        return self._block.column(name)[self._row]

    def data(self) -> bytes:
        """The payload; empty for a null value. :class:`UnreadableMessage` if it could not be decrypted or
        decompressed."""
        if isinstance(self._opened, UnreadableMessage):
            raise self._opened
        payload = self._block.column("payload")[self._row] if self._opened is None else self._opened.payload
        return b"" if payload is None else payload

    def value(self) -> Any:
        """The payload decoded with the consumer's schema."""
        return self._block.schema.decode_message(self)

    def has_null_value(self) -> bool:
        """Whether the message was sent without a value (a tombstone)."""
        return self._field("payload") is None

    def properties(self) -> dict[str, str]:
        """The properties that the application set."""
        return dict(self._field("properties") or ())

    def partition_key(self) -> str:
        """The key, base64 for one of bytes; empty if there is none."""
        return self._field("partition_key") or ""

    def ordering_key(self) -> str:
        """The ordering key; empty if there is none. ``encode("utf-8", "surrogateescape")`` returns its bytes."""
        key = self._field("ordering_key") or ""
        if key and self._field("ordering_key_b64_encoded"):
            return bytes_of(key.encode()).decode("utf-8", "surrogateescape")
        return key

    def publish_timestamp(self) -> int:
        """The publish time in ms since 1970."""
        return _milliseconds(self._field("publish_time"))

    def event_timestamp(self) -> int:
        """The application's event time in ms since 1970; 0 if there is none."""
        return _milliseconds(self._field("event_time"))

    def message_id(self) -> MessageId:
        """The id of the message; for a chunked one that of its last chunk, with the first chunk's."""
        return self._block.message_id(self._row)

    def topic_name(self) -> str:
        """The full name of the topic, with its partition."""
        return self._block.topic_name

    def redelivery_count(self) -> int:
        """How often the message was returned: by a negative acknowledgement, a timeout, or a request for redelivery."""
        delivery = self._block.delivery
        return 0 if delivery is None else delivery.redelivery_count

    def schema_version(self) -> str:
        """The schema version as a text of 8 bytes; empty if there is none. ``encode("utf-8", "surrogateescape")``
        returns the bytes."""
        version = self._field("schema_version")
        return "" if version is None else version.to_bytes(8, "big").decode("utf-8", "surrogateescape")

    def int_schema_version(self) -> int:
        """The schema version as a number; -1 if there is none."""
        version = self._field("schema_version")
        return -1 if version is None else version

    def producer_name(self) -> str:
        """The name of the producer that published the message."""
        return self._field("producer_name") or ""

    def sequence_id(self) -> int:
        """The producer's number of the message; -1 if it has none."""
        sequence_id = self._field("sequence_id")
        return -1 if sequence_id is None else sequence_id

    def length(self) -> int:
        """The size of the payload in bytes."""
        return len(self.data())

    def encryption_context(self) -> EncryptionContext | None:
        """How the message was encrypted, and whether it still is; None if it was not."""
        return self._opened.encryption_context if isinstance(self._opened, Opened) else None

    def __str__(self) -> str:
        if isinstance(self._block, _NotReceived):
            return f"{type(self).__name__}(not received)"
        size = "unreadable" if isinstance(self._opened, UnreadableMessage) else f"{self.length()} bytes"
        return f"Message(id={self.message_id()}, topic={self.topic_name()!r}, {size})"

    __repr__ = __str__


def unreadable(wrong: UnreadableMessage, message_id: MessageId) -> UnreadableMessage:
    """The error *wrong* with the message's id and topic."""
    named = type(wrong)(f"message {message_id} of topic {message_id.topic_name()!r} cannot be read: {wrong}")
    named.message_id = message_id
    return named


def _milliseconds(time: datetime | None) -> int:
    return 0 if time is None else to_millis(time)
