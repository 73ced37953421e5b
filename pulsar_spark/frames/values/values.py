"""Decode message payloads into a typed column: JSON of plain types by Spark itself, the rest by Python workers."""

import json
import os
from collections.abc import Iterator, Mapping
from typing import cast

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from pulsar_spark.columns import arrow_udf
from pulsar_spark.errors import IncompatibleSchema, InvalidConfiguration
from pulsar_spark.frames.given_frames import check_frame
from pulsar_spark.frames.values.value_decoding import VALUE, VALUE_ERROR, WRONG_JSON, WRONG_TEXT, ValueDecoder
from pulsar_spark.frames.values.value_types import column_type, has_members, kinds, spark_type_of
from pulsar_spark.protocol.schemas.avro_resolution import parse_definition
from pulsar_spark.protocol.schemas.schema_info import SchemaInfo, SchemaType
from pulsar_spark.schema import Schema
from pulsar_spark.storage.layout import Layout
from pulsar_spark.storage.topics.schemas import SchemaTable
from pulsar_spark.storage.topics.topics import resolve_topic

_CORRUPT, _DECODED = "_corrupt_record", "_pulsar_spark_decoded"
"""Internal column names that no frame or value uses."""


def decode_values(
    messages: DataFrame, root: str | os.PathLike, topic: str, *, schema: Schema | None = None
) -> DataFrame:
    """Decode the payloads of *messages* of *topic* into the column ``value``, with errors in ``value_error``.

    The root is the folder *root*. *messages* are rows with plain ``payload`` and ``schema_version``, as a consumer's
    function and :func:`read_messages` give them. For letters, *topic* is the one they came from.

    ``value`` has the type of *schema*, or of the latest schema that the topic keeps: a struct for AVRO and JSON, a text
    for STRING. Fields have the types that ``from_avro`` gives them; a union of several types is a struct of
    ``member0``, ``member1``... An AVRO message without a schema version is read with that schema. A value that cannot
    be read is null and has a ``value_error``. :class:`IncompatibleSchema` if there is no schema,
    :class:`InvalidConfiguration` if it has no column type."""
    check_frame(messages, "messages")
    layout = Layout(root)
    found, _ = resolve_topic(layout, topic)
    table = SchemaTable(layout)
    if schema is None:
        kept = table.kept(found.topic_id)
        if not kept:
            raise IncompatibleSchema(f"topic {str(found.name)!r} has no schema: give one with schema=")
        info = kept[-1].info
    else:
        info = schema.schema_info()
    missing = {"payload", "schema_version"} - set(messages.columns)
    if missing:
        raise InvalidConfiguration(f"the frame has no column {sorted(missing)}, only {messages.columns}")
    if info.schema_type() is SchemaType.STRING:
        text = F.try_validate_utf8(F.col("payload").cast("string"))
        error = F.when(text.isNull() & F.col("payload").isNotNull(), F.lit(WRONG_TEXT))
        return messages.withColumns({VALUE: text, VALUE_ERROR: error})
    if info.schema_type() is SchemaType.JSON:
        return _from_json(messages, info)
    return _read_by_workers(messages, info, table.written(found.topic_id))


def _read_by_workers(messages: DataFrame, info: SchemaInfo, writers: Mapping[int, SchemaInfo]) -> DataFrame:
    decoded = pa.struct({VALUE: column_type(info), VALUE_ERROR: pa.string()})

    def values(batches: Iterator[tuple[pa.Array, pa.Array]]) -> Iterator[pa.Array]:
        decoder = ValueDecoder(info, writers)
        for payloads, versions in batches:
            yield decoder.values(payloads, versions)

    read = arrow_udf(values, spark_type_of(decoded))(F.col("payload"), F.col("schema_version"))
    columns = {name: F.col(_DECODED)[name] for name in (VALUE, VALUE_ERROR)}
    return messages.withColumn(_DECODED, read).withColumns(columns).drop(_DECODED)


def _from_json(messages: DataFrame, info: SchemaInfo) -> DataFrame:
    wanted, kind = cast(T.StructType, spark_type_of(column_type(info))), parse_definition(info.schema())
    if has_members(kind) or any(each.logical for each in kinds(kind)):
        return _read_by_workers(messages, info, {})
    with_corrupt = T.StructType([*wanted.fields, T.StructField(_CORRUPT, T.StringType())])
    text = F.col("payload").cast("string")
    read = F.from_json(text, with_corrupt, {"columnNameOfCorruptRecord": _CORRUPT})
    defaults = _plain_defaults(info.schema())
    fields = [_or_default(text, field, defaults.get(field.name)).alias(field.name) for field in wanted.fields]
    is_corrupt = F.col("payload").isNotNull() & (F.col(_DECODED).isNull() | F.col(_DECODED)[_CORRUPT].isNotNull())
    is_read = F.col("payload").isNotNull() & ~is_corrupt
    columns = {VALUE: F.when(is_read, F.struct(*fields)), VALUE_ERROR: F.when(is_corrupt, F.lit(WRONG_JSON))}
    return messages.withColumn(_DECODED, read).withColumns(columns).drop(_DECODED)


_PLAIN = (T.StringType, T.BooleanType, T.IntegerType, T.LongType, T.FloatType, T.DoubleType)
"""Types whose default in a schema is the value itself; a timestamp's default is a number of milliseconds."""


def _plain_defaults(definition: str) -> dict[str, str | int | float | bool]:
    found = {each["name"]: each.get("default") for each in json.loads(definition)["fields"]}
    return {name: default for name, default in found.items() if isinstance(default, str | int | float | bool)}


def _or_default(text: Column, field: T.StructField, default: str | int | float | bool | None) -> Column:
    """A decoded field, or its *default* if the JSON *text* lacks it."""
    value = F.col(_DECODED)[field.name]
    if default is None or not isinstance(field.dataType, _PLAIN):
        return value
    is_there = F.array_contains(F.json_object_keys(text), field.name)
    return F.when(is_there, value).otherwise(F.lit(default).cast(field.dataType))
