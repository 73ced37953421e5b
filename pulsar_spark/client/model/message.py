"""Messages as the application sees them: rows in blocks of columns, which become Python values when first used."""

from copy import copy
from datetime import datetime
from typing import Any

import pyarrow as pa

from pulsar_spark.client.receiving.delivery import Delivery
from pulsar_spark.client.receiving.key_order import KeyPlace
from pulsar_spark.client.schema.payloads import EncryptionContext, Opened, PayloadOpener
from pulsar_spark.client.sending.publish_rows import Outgoing
from pulsar_spark.errors import InvalidMessage, UnreadableMessage
from pulsar_spark.protocol.delays.instants import to_millis
from pulsar_spark.protocol.keys.sticky_key import bytes_of
from pulsar_spark.protocol.topics.message_id import MessageId
from pulsar_spark.schema import BytesSchema, Schema
from pulsar_spark.storage.entries.key_hashes import hashes_in

_BYTES = BytesSchema()
_ENCODED = ("compression", "encryption_keys")


class Block:
    """Rows of one partition's messages, decoded by column on demand. Without *ledger id* a column has it.

    Its messages share *schema*, *delivery* (or None) and *topic id* (None if only the name is known).
    """

    __slots__ = (
        "_rows",
        "_columns",
        "topic_name",
        "topic_id",
        "partition",
        "ledger_id",
        "schema",
        "delivery",
        "first_chunk",
        "has_encoded",
        "has_chunks",
        "_hashes",
    )

    def __init__(
        self,
        rows: pa.Table,
        topic_name: str,
        partition: int,
        ledger_id: int | None = None,
        *,
        schema: Schema = _BYTES,
        delivery: Delivery | None = None,
        topic_id: str | None = None,
    ):
        self.schema, self.delivery = schema, delivery
        self.topic_name, self.topic_id = topic_name, topic_id
        self.partition = partition
        self.ledger_id = ledger_id
        self.first_chunk: MessageId | None = None
        self._take(rows)

    def _take(self, rows: pa.Table) -> None:
        self._rows, names = rows, rows.column_names
        self.has_encoded = any(rows.column(name).null_count < rows.num_rows for name in _ENCODED if name in names)
        self.has_chunks = "uuid" in names and rows.column("uuid").null_count < rows.num_rows
        self._columns: dict[str, list] = {}
        self._hashes: list[int] | None = None

    def sticky_hash(self, row: int) -> int | None:
        """The hash of the sticky key of a row's entry; None if the first message of its batch is elsewhere."""
        index = self.column("batch_index")[row]
        if index:
            first, positions = row - index, self.column("position")
            if first < 0 or positions[first] != positions[row] or self.column("batch_index")[first] != 0:
                return None
            row = first
        if self._hashes is None:
            self._hashes = hashes_in(self._rows).tolist()
        return self._hashes[row]

    def joined(self, row: int, payload: bytes | None, first_chunk: MessageId) -> "Block":
        """The chunked message whose last chunk is *row*, as a block of its own."""
        block = copy(self)
        block._take(self._rows.drop_columns(["payload"]).slice(row, 1))
        block._columns["payload"], block.first_chunk = [payload], first_chunk
        return block

    def message_id(self, row: int) -> MessageId:
        """The id of a row."""
        entry_id, batch_index = self.column("entry_id")[row], self.column("batch_index")[row]
        ledger_id = self.column("ledger_id")[row] if self.ledger_id is None else self.ledger_id
        place = ledger_id, entry_id, -1 if batch_index is None else batch_index, self.partition
        message_id = MessageId.of_place(place, self.topic_name)
        return message_id if self.first_chunk is None else message_id.of_chunks(self.first_chunk)

    def __len__(self) -> int:
        return self._rows.num_rows

    def column(self, name: str) -> list:
        values = self._columns.get(name)
        if values is None:
            values = self._columns[name] = self._rows.column(name).to_pylist()
        return values


class _NotReceived:
    """Stands for the block of a message that a program created itself."""

    def __getattr__(self, name: str) -> Any:
        raise InvalidMessage("this Message was created by the program and has no content: use a received message")


class Message:
    """A received message. Consumers and readers make messages; a program cannot make one with content, only derive from
    the class.
    """

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
        if not self._block.has_encoded or not any(map(self._field, _ENCODED)):
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
        """The chunked message whose last chunk this is: with this payload, or the error in *wrong*."""
        block = self._block.joined(self._row, payload, first_chunk)
        message = Message(block, 0, self._position)
        message._opened = wrong
        return message

    def _is_chunk(self) -> bool:
        """Whether the row is a chunk; messages of a batch are none."""
        return self._block.has_chunks and self._field("uuid") is not None and self._field("batch_index") is None

    def _key_place(self) -> KeyPlace | None:
        """The place of a delivered message's entry among those of its hash, if the hash is known."""
        sticky_hash = self._block.sticky_hash(self._row)
        return None if sticky_hash is None else KeyPlace(sticky_hash, self._position)

    def _field(self, name: str):
        return self._block.column(name)[self._row]

    def data(self) -> bytes:
        """The payload; empty for a null value. :class:`UnreadableMessage` if it could not be decrypted or
        decompressed.
        """
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
        """The key; empty if there is none. A key of bytes comes as base64, as in Pulsar."""
        return self._field("partition_key") or ""

    def ordering_key(self) -> str:
        """The ordering key; empty if there is none.

        Bytes of a key that are not UTF-8 become surrogates: ``encode("utf-8", "surrogateescape")`` returns the bytes.
        """
        key = self._field("ordering_key") or ""
        if key and self._field("ordering_key_b64_encoded"):
            return bytes_of(key.encode()).decode("utf-8", "surrogateescape")
        return key

    def publish_timestamp(self) -> int:
        """The publish time, ms since 1970."""
        return _milliseconds(self._field("publish_time"))

    def event_timestamp(self) -> int:
        """The event time set by the application, ms since 1970; 0 if there is none."""
        return _milliseconds(self._field("event_time"))

    def message_id(self) -> MessageId:
        """The id of the message. For a chunked message it is that of the last chunk, and also has that of the first."""
        return self._block.message_id(self._row)

    def topic_name(self) -> str:
        """The full name of the topic, with its partition."""
        return self._block.topic_name

    def redelivery_count(self) -> int:
        """How often the message was returned: by a negative acknowledgement, a timeout, or a request for redelivery."""
        delivery = self._block.delivery
        return 0 if delivery is None else delivery.redelivery_count

    def schema_version(self) -> str:
        """The schema version of the payload: 8 bytes as a text; empty if there is none.

        ``encode("utf-8", "surrogateescape")`` returns the bytes.
        """
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
    """The error with the message's name added."""
    named = type(wrong)(f"message {message_id} of topic {message_id.topic_name()!r} cannot be read: {wrong}")
    named.message_id = message_id
    return named


class RoutedMessage:
    """The view of an unsent message for a message router."""

    __slots__ = ("_message", "_schema")

    def __init__(self, message: Outgoing, schema: Schema):
        self._message = message
        self._schema = schema

    def data(self) -> bytes:
        return bytes(self._message.payload or b"")

    def value(self) -> Any:
        return self._schema.decode_message(self)

    def has_null_value(self) -> bool:
        return self._message.payload is None

    def properties(self) -> dict[str, str]:
        return dict(self._message.properties or ())

    def partition_key(self) -> str:
        return self._message.partition_key or ""

    def ordering_key(self) -> str:
        return self._message.ordering_key or ""

    def event_timestamp(self) -> int:
        return self._message.event_ms or 0

    def length(self) -> int:
        return len(self.data())


def _milliseconds(time: datetime | None) -> int:
    return 0 if time is None else to_millis(time)
