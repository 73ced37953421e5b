"""The columns of a read: ours, or those of the Pulsar-Spark connector."""

from pyspark.sql import types as T
from pyspark.sql.pandas.types import from_arrow_schema

from pulsar_spark.errors import InvalidConfiguration
from pulsar_spark.frames.reading.payloads import PAYLOAD_ERROR
from pulsar_spark.frames.source.options import CONNECTOR, SourceOptions
from pulsar_spark.payloads.encoding import ENCODING_COLUMNS
from pulsar_spark.protocol.suggestions import close_names, did_you_mean
from pulsar_spark.table_specs import DELIVERED, KEY_FLAGS, MESSAGES

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


def source_schema(options: SourceOptions) -> T.StructType:
    """All columns that a read can have: those of ``read_messages`` and ``topic``; with a subscription also
    ``redelivery_count``."""
    if options.columns == CONNECTOR:
        return _CONNECTOR_COLUMNS
    table = from_arrow_schema(MESSAGES.schema)
    added: list[tuple[str, T.DataType]] = [("ledger_id", T.LongType()), ("position", T.LongType())]
    if options.subscription is not None:
        added.append(("redelivery_count", T.IntegerType()))
    added.append((PAYLOAD_ERROR, T.StringType()))
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
