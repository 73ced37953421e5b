"""Values of messages as a typed column, read with the schemas that their topic keeps.

JSON is read by Spark itself, a field that the text does not have as its default, if that is a plain value; Avro batch
by batch in Python workers, by ``fastavro``, each message from what its version says its writer wrote. What cannot be
read is null, and says why.
"""

import io
import json
import os
from collections.abc import Callable, Iterator, Mapping

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T
from pyspark.sql.functions import arrow_udf
from pyspark.sql.pandas.types import from_arrow_type

from pulsar_spark.errors import IncompatibleSchema, InvalidConfiguration
from pulsar_spark.frames.value_types import value_type, without_logical_types
from pulsar_spark.protocol.schema_info import SchemaInfo, SchemaType
from pulsar_spark.schema import Schema
from pulsar_spark.schema.schema_avro import fastavro, parsed_writer
from pulsar_spark.storage.layout import Layout
from pulsar_spark.storage.schemas import SchemaTable
from pulsar_spark.storage.topics import resolve_topic

VALUE, VALUE_ERROR = "value", "value_error"
"""Columns of a message's value, and of why there is none; both null for a null value."""

_CORRUPT, _DECODED = "_corrupt_record", "_pulsar_spark_decoded"
"""Beside the columns of the frame, which may be called anything, and of a value."""


def decode_values(
    messages: DataFrame, root: str | os.PathLike, topic: str, *, schema: Schema | None = None
) -> DataFrame:
    """*messages* of *topic* of the root in the folder *root*, with plain payloads, and the columns ``value`` and
    ``value_error``.

    The messages are rows with ``payload`` and ``schema_version``, as a consumer's function and :func:`read_messages`
    give them; of letters *topic* is the one they came from. Values are those of *schema*, or of the latest that the
    topic keeps: a struct of AVRO and JSON, a text of STRING. A message of AVRO without a version counts as written with
    that schema. A value that cannot be read is null with a ``value_error``. :class:`IncompatibleSchema` where there is
    no schema, :class:`InvalidConfiguration` for one that has no column."""
    layout = Layout(root)
    found, _ = resolve_topic(layout, topic)
    table = SchemaTable(layout)
    if schema is None:
        kept = table.kept(found.topic_id)
        if not kept:
            raise IncompatibleSchema(f"topic {str(found.name)!r} keeps no schema: give one with schema=")
        info = kept[-1].info
    else:
        info = schema.schema_info()
    missing = {"payload", "schema_version"} - set(messages.columns)
    if missing:
        raise InvalidConfiguration(f"the frame has no column {sorted(missing)}, only {messages.columns}")
    if info.schema_type() is SchemaType.STRING:
        text = F.try_validate_utf8(F.col("payload").cast("string"))
        error = F.when(text.isNull() & F.col("payload").isNotNull(), F.lit("the payload is no text in UTF-8"))
        return messages.withColumns({VALUE: text, VALUE_ERROR: error})
    if info.schema_type() is SchemaType.JSON:
        return _from_json(messages, info)
    if info.schema_type() is SchemaType.AVRO:
        writers = {each.version: each.info for each in table.versions(found.topic_id) if not each.is_removed}
        decoded = _from_avro(info, writers)(F.col("payload"), F.col("schema_version"))
        columns = {name: F.col(_DECODED)[name] for name in (VALUE, VALUE_ERROR)}
        return messages.withColumn(_DECODED, decoded).withColumns(columns).drop(_DECODED)
    raise InvalidConfiguration(f"values of type {info.schema_type().name} have no column: use AVRO, JSON or STRING")


def _from_json(messages: DataFrame, info: SchemaInfo) -> DataFrame:
    wanted = _bytes_as_texts(from_arrow_type(value_type(info.schema())))
    if not isinstance(wanted, T.StructType):
        raise InvalidConfiguration("a JSON schema that is no record has no column: give a record")
    asked = T.StructType([*wanted.fields, T.StructField(_CORRUPT, T.StringType())])
    text = F.col("payload").cast("string")
    read = F.from_json(text, asked, {"columnNameOfCorruptRecord": _CORRUPT})
    defaults = _plain_defaults(info.schema())
    fields = [_or_default(text, field, defaults.get(field.name)).alias(field.name) for field in wanted.fields]
    is_corrupt = F.col("payload").isNotNull() & (F.col(_DECODED).isNull() | F.col(_DECODED)[_CORRUPT].isNotNull())
    is_read = F.col("payload").isNotNull() & ~is_corrupt
    columns = {
        VALUE: F.when(is_read, F.struct(*fields)),
        VALUE_ERROR: F.when(is_corrupt, F.lit("the payload is no JSON of the schema")),
    }
    return messages.withColumn(_DECODED, read).withColumns(columns).drop(_DECODED)


_PLAIN = (T.StringType, T.BooleanType, T.IntegerType, T.LongType, T.FloatType, T.DoubleType)
"""Types of which a schema's default is the value itself; of a timestamp it is a number of milliseconds."""


def _plain_defaults(definition: str) -> dict[str, str | int | float | bool]:
    """What fields of a record are where a writer did not know them, as the client's records have it; of those that are
    plain values."""
    found = {each["name"]: each.get("default") for each in json.loads(definition)["fields"]}
    return {name: default for name, default in found.items() if isinstance(default, str | int | float | bool)}


def _or_default(text: Column, field: T.StructField, default: str | int | float | bool | None) -> Column:
    """A field of what was decoded, or its *default* where the JSON *text* does not have it."""
    value = F.col(_DECODED)[field.name]
    if default is None or not isinstance(field.dataType, _PLAIN):
        return value
    is_there = F.array_contains(F.json_object_keys(text), field.name)
    return F.when(is_there, value).otherwise(F.lit(default).cast(field.dataType))


def _bytes_as_texts(kind: T.DataType) -> T.DataType:
    if isinstance(kind, T.StructType):
        return T.StructType([T.StructField(each.name, _bytes_as_texts(each.dataType)) for each in kind.fields])
    if isinstance(kind, T.ArrayType):
        return T.ArrayType(_bytes_as_texts(kind.elementType))
    if isinstance(kind, T.MapType):
        return T.MapType(kind.keyType, _bytes_as_texts(kind.valueType))
    return T.StringType() if isinstance(kind, T.BinaryType) else kind


def _from_avro(info: SchemaInfo, writers: Mapping[int, SchemaInfo]) -> Callable[..., Column]:
    """A function of payload and schema version that gives value and error."""
    decoded = pa.struct({VALUE: value_type(info.schema()), VALUE_ERROR: pa.string()})
    reader = without_logical_types(info.schema())
    plain = {
        version: without_logical_types(each.schema())
        for version, each in writers.items()
        if each.schema_type() is SchemaType.AVRO
    }

    def values(batches: Iterator[tuple[pa.Array, pa.Array]]) -> Iterator[pa.Array]:
        decoder = _AvroDecoder(reader, plain)
        for payloads, versions in batches:
            pairs = zip(payloads.to_pylist(), versions.to_pylist(), strict=True)
            yield pa.array([decoder.decode(*pair) for pair in pairs], decoded)

    return arrow_udf(values, from_arrow_type(decoded))


class _AvroDecoder:
    """Reads payloads, each as its version was written; what went wrong is said with the value it has not."""

    def __init__(self, reader: object, writers: Mapping[int, object]):
        self._read, self._reader = fastavro().schemaless_reader, fastavro().parse_schema(reader)
        self._writers = {version: parsed_writer(each, reader) for version, each in writers.items() if each != reader}

    def decode(self, payload: bytes | None, version: int | None) -> dict[str, object]:
        if payload is None:
            return {VALUE: None, VALUE_ERROR: None}
        writer = self._writers.get(version)
        try:
            if writer is None:
                found = self._read(io.BytesIO(payload), self._reader, None)
            else:
                found = self._read(io.BytesIO(payload), writer, self._reader)
        except (ValueError, TypeError, KeyError, IndexError, EOFError, OverflowError, MemoryError) as failed:
            return {VALUE: None, VALUE_ERROR: f"{type(failed).__name__}: {str(failed)[:200]}"}
        return {VALUE: found, VALUE_ERROR: None}
