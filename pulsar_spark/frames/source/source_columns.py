"""The columns of a read: ours, or those of the Pulsar-Spark connector."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql import types as T
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema

from pulsar_spark.errors import InvalidConfiguration
from pulsar_spark.frames.source.options import CONNECTOR, SourceOptions
from pulsar_spark.payloads.encoding import ENCODING_COLUMNS, PAYLOAD_ERROR
from pulsar_spark.protocol.keys.sticky_key import bytes_of
from pulsar_spark.protocol.suggestions import close_names, did_you_mean
from pulsar_spark.protocol.topics.message_id import MessageId
from pulsar_spark.protocol.topics.topic_name import parse_topic_name
from pulsar_spark.table_specs import DELIVERED, KEY_FLAGS, MESSAGES

if TYPE_CHECKING:
    from pulsar_spark.frames.source.message_slices import MessageSlice
    from pulsar_spark.frames.source.typed_values import TypedValues

READ_COLUMNS = tuple(dict.fromkeys((*DELIVERED, *KEY_FLAGS, *ENCODING_COLUMNS)))
"""Columns of the topic's table that a read has, in order."""

_CONNECTOR_COLUMNS = T.StructType(
    [
        T.StructField("value", T.BinaryType()),
        T.StructField("__key", T.BinaryType()),
        T.StructField("__topic", T.StringType()),
        T.StructField("__messageId", T.BinaryType()),
        T.StructField("__publishTime", T.TimestampType()),
        T.StructField("__eventTime", T.TimestampType()),
        T.StructField("__messageProperties", T.MapType(T.StringType(), T.StringType())),
    ]
)
"""Columns of the connector for a topic without a schema; the message id is in Pulsar's binary format."""
_NEEDED: dict[str, tuple[str, ...]] = {
    "value": ("payload",),
    "__key": ("partition_key", "partition_key_b64_encoded"),
    "__topic": (),
    "__messageId": ("entry_id", "batch_index"),
    "__publishTime": ("publish_time",),
    "__eventTime": ("event_time",),
    "__messageProperties": ("properties",),
}
"""The columns of the messages table that make each."""


def source_schema(options: SourceOptions) -> T.StructType:
    """All columns that a read can have: those of ``read_messages`` and ``topic``; with a subscription also
    ``redelivery_count``, with the topic's schema also ``value`` and ``value_error``."""
    if options.columns == CONNECTOR:
        return _CONNECTOR_COLUMNS
    table = from_arrow_schema(MESSAGES.schema)
    added: list[tuple[str, T.DataType]] = [("ledger_id", T.LongType()), ("position", T.LongType())]
    if options.subscription is not None:
        added.append(("redelivery_count", T.IntegerType()))
    added.append((PAYLOAD_ERROR, T.StringType()))
    if options.value_schema is not None:
        from pulsar_spark.frames.source.typed_values import value_columns

        added += value_columns(options)
    return T.StructType(
        [
            T.StructField("topic", T.StringType()),
            *(table[name] for name in READ_COLUMNS),
            *(T.StructField(name, kind) for name, kind in added),
        ]
    )


def check_schema(schema: T.StructType, options: SourceOptions) -> None:
    """:class:`InvalidConfiguration` unless *schema*, which a user may give to read fewer columns, has columns of
    :func:`source_schema` only."""
    known = source_schema(options)
    for field in schema.fields:
        if field.name not in known.names:
            meant = did_you_mean(close_names(field.name, known.names))
            raise InvalidConfiguration(f"column {field.name!r} is none of the source's{meant or f': {known.names}'}")
        wanted = known[field.name].dataType
        if field.dataType != wanted:
            raise InvalidConfiguration(
                f"column {field.name!r} is {wanted.simpleString()}, not {field.dataType.simpleString()}: cast it after "
                "the read"
            )


class SourceColumns:
    """The columns that *schema* asks for: which of the messages table they need, and how a read's rows become them."""

    def __init__(self, schema: T.StructType, options: SourceOptions):
        check_schema(schema, options)
        self._schema, self._is_connector = schema, options.columns == CONNECTOR
        if self._is_connector:
            needed = {name for each in schema.names for name in _NEEDED[each]}
        else:
            needed = {*schema.names, *(["payload"] if PAYLOAD_ERROR in schema.names else [])}
        self._values: TypedValues | None = None
        if options.value_schema is not None:
            from pulsar_spark.frames.source import typed_values

            if {typed_values.VALUE, typed_values.VALUE_ERROR} & {*schema.names}:
                self._values = typed_values.TypedValues(options.root, typed_values.schema_of_topics(options))
                needed |= {"payload", "schema_version"}
        self.needed = tuple(name for name in READ_COLUMNS if name in needed)

    def batches(self, tables: Iterable[pa.Table], slice_: "MessageSlice") -> Iterator[pa.RecordBatch]:
        """The rows of *tables*, which ``read_slice`` gives for :attr:`needed`, as Spark wants them."""
        arrow = to_arrow_schema(self._schema, timezone="UTC")
        for rows in tables if self._values is None else self._values.added(tables, slice_.topic):
            shown = _of_connector(rows, slice_, self._schema.names) if self._is_connector else _of_ours(rows, slice_)
            yield from shown.select(self._schema.names).cast(arrow).to_batches()


def _of_ours(rows: pa.Table, slice_: "MessageSlice") -> pa.Table:
    return rows.append_column("topic", pa.repeat(pa.scalar(slice_.topic), rows.num_rows))


def _of_connector(rows: pa.Table, slice_: "MessageSlice", names: Sequence[str]) -> pa.Table:
    topic = str(parse_topic_name(slice_.topic).partition(slice_.partition))
    made: dict[str, Callable[[], pa.Array | pa.ChunkedArray]] = {
        "value": lambda: rows["payload"],
        "__key": lambda: _keys(rows),
        "__topic": lambda: pa.repeat(pa.scalar(topic), rows.num_rows),
        "__messageId": lambda: _message_ids(rows, slice_.partition),
        "__publishTime": lambda: rows["publish_time"],
        "__eventTime": lambda: rows["event_time"],
        "__messageProperties": lambda: rows["properties"],
    }
    return pa.table({name: made[name]() for name in names})


def _keys(rows: pa.Table) -> pa.Array:
    keys = zip(*(rows[name].to_pylist() for name in ("partition_key", "partition_key_b64_encoded")))
    return pa.array([None if key is None else _key(key.encode(), is_b64) for key, is_b64 in keys], pa.binary())


def _key(key: bytes, is_b64: bool | None) -> bytes:
    return bytes_of(key) if is_b64 else key


def _message_ids(rows: pa.Table, partition: int) -> pa.Array:
    places = zip(*(rows[name].to_pylist() for name in ("ledger_id", "entry_id", "batch_index")))
    in_full = ((ledger, entry, -1 if index is None else index, partition) for ledger, entry, index in places)
    return pa.array([MessageId.of_place(place, None).serialize() for place in in_full], pa.binary())
