"""Rows of messages, whose columns become Python values when first used."""

from copy import copy

import pyarrow as pa

from pulsar_spark.client.receiving.delivery import Delivery
from pulsar_spark.protocol.topics.message_id import MessageId
from pulsar_spark.schema import BytesSchema, Schema
from pulsar_spark.storage.entries.key_hashes import hashes_in

_BYTES = BytesSchema()
ENCODED = ("compression", "encryption_keys")
"""Columns that are null unless a payload is compressed or encrypted."""


class Block:
    """Rows of one partition's messages.

    They share *schema*, *delivery* (or None) and *topic_id* (None if only the name is known). If they do not share
    *ledger_id* either, it is None, and the rows have a column ``ledger_id``.
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
        self.has_encoded = any(rows.column(name).null_count < rows.num_rows for name in ENCODED if name in names)
        self.has_chunks = "uuid" in names and rows.column("uuid").null_count < rows.num_rows
        self._columns: dict[str, list] = {}
        self._hashes: list[int] | None = None

    def sticky_hash(self, row: int) -> int | None:
        """The hash of the sticky key of a row's entry, that is of the entry's first message; None if that message is in
        another block."""
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
        entry_id, batch_index = self.column("entry_id")[row], self.column("batch_index")[row]
        ledger_id = self.column("ledger_id")[row] if self.ledger_id is None else self.ledger_id
        place = ledger_id, entry_id, -1 if batch_index is None else batch_index, self.partition
        message_id = MessageId.of_place(place, self.topic_name)
        return message_id if self.first_chunk is None else message_id.of_chunks(self.first_chunk)

    @property
    def nbytes(self) -> int:
        return self._rows.nbytes

    def __len__(self) -> int:
        return self._rows.num_rows

    def column(self, name: str) -> list:
        values = self._columns.get(name)
        if values is None:
            values = self._columns[name] = self._rows.column(name).to_pylist()
        return values
