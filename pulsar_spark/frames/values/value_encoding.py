"""Encode a typed column as payloads of a schema: Spark writes JSON of plain types, Python workers the rest."""

import io
import json
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from pulsar_spark.columns import arrow_udf
from pulsar_spark.errors import InvalidConfiguration, InvalidMessage
from pulsar_spark.frames.publishing.message_columns import REFUSED, refusal
from pulsar_spark.frames.values.value_decoding import VALUE
from pulsar_spark.frames.values.value_nulls import is_plain, nulls_refused
from pulsar_spark.frames.values.value_types import column_type, stored_type, without_logical_types
from pulsar_spark.frames.values.value_writers import Misfit, Place, value_writer
from pulsar_spark.protocol.schemas.avro_resolution import parse_definition
from pulsar_spark.protocol.schemas.schema_info import SchemaInfo, SchemaType
from pulsar_spark.schema import Schema
from pulsar_spark.schema.schema_avro import fastavro

_NO_UTF8 = "column 'value' has a text that is not valid UTF-8"


def with_payloads(frame: DataFrame, schema: Schema | None) -> DataFrame:
    """*frame* with ``payload`` instead of ``value``, encoded by *schema*; unchanged without a schema.

    A null value is a null payload. :class:`InvalidMessage` if the values do not fit the schema."""
    if schema is None:
        return frame
    if not isinstance(schema, Schema):
        raise InvalidConfiguration(
            f"schema {schema!r:.80}: give a schema of pulsar_spark.schema, such as AvroSchema(Order)"
        )
    info = schema.schema_info()
    given = {field.name: field.dataType for field in frame.schema.fields}
    names = [name.lower() for name in frame.columns]
    if VALUE not in given or "payload" in names or names.count(VALUE) > 1:
        raise InvalidMessage(
            f"the frame has the columns {sorted(given)}: with a schema it needs 'value', and no 'payload'"
        )
    return frame.withColumn("payload", _payload(info, given[VALUE])).drop(VALUE)


def check_value(info: SchemaInfo, given: T.DataType) -> None:
    """:class:`InvalidMessage` unless a column of the type *given* loses nothing as values of *info*;
    :class:`InvalidConfiguration` if no column can be such values."""
    form = info.schema_type()
    if form is SchemaType.STRING:
        if not isinstance(given, T.StringType | T.CharType | T.VarcharType | T.NullType):
            raise InvalidMessage(f"column 'value' is a {given.simpleString()}, the schema a text: cast it to string")
        return
    if form not in (SchemaType.AVRO, SchemaType.JSON):
        raise InvalidConfiguration(f"a schema of type {form.name} cannot encode a column: use AVRO, JSON or STRING")
    column_type(info)  # refused without one
    value_writer(given, parse_definition(info.schema()), Place(form, is_strict=False))


def _payload(info: SchemaInfo, given: T.DataType) -> Column:
    check_value(info, given)
    form = info.schema_type()
    if form is SchemaType.STRING:
        return _text()
    kind = parse_definition(info.schema())
    if isinstance(given, T.NullType):
        return F.lit(None).cast("binary")
    if form is SchemaType.AVRO or not is_plain(given, kind):
        return _encoded_by_workers(info, given)
    return nulls_refused(given, kind, F.to_json(F.col(VALUE), {"ignoreNullFields": "false"}).cast("binary"))


def _text() -> Column:
    text = F.col(VALUE).cast("string")
    unreadable = refusal("InvalidMessage", f"{_NO_UTF8}: publish bytes, without a schema")
    return F.when(~F.is_valid_utf8(text), unreadable.cast("binary")).otherwise(text.cast("binary"))


def _encoded_by_workers(info: SchemaInfo, given: T.DataType) -> Column:
    def payloads(batches: Iterator[pa.Array]) -> Iterator[pa.Array]:
        encoder = ValueEncoder(info, given)
        try:
            for values in batches:
                yield encoder.payloads(values)
        except InvalidMessage as failed:
            raise InvalidMessage(f"{REFUSED}InvalidMessage: {failed}") from None

    return arrow_udf(payloads, "binary")(F.col(VALUE))


class ValueEncoder:
    """Encodes values of a column of the type *given* by the schema *info*; create it in the worker."""

    def __init__(self, info: SchemaInfo, given: T.DataType):
        self._form = info.schema_type()
        if self._form is SchemaType.STRING:
            return
        kind = parse_definition(info.schema())
        is_json = self._form is SchemaType.JSON
        place = Place(self._form, is_strict=True)
        self._strict = value_writer(given, kind, place)
        self._convert = self._strict if is_json else value_writer(given, kind, place._replace(is_strict=False))
        if not is_json:
            self._parsed = fastavro().parse_schema(without_logical_types(info.schema()))
            self._write = fastavro().schemaless_writer

    def payloads(self, values: pa.Array) -> pa.Array:
        """The payloads, null for null values; :class:`InvalidMessage` if a value does not fit."""
        if self._form is SchemaType.STRING:
            return _text_bytes(values)
        stored = stored_type(values.type)
        values = values if stored == values.type else values.view(stored)
        try:
            try:
                return pa.array(map(self._payload, values.to_pylist(maps_as_pydicts="strict")), pa.binary())
            except Misfit:
                raise
            except (ValueError, TypeError, KeyError, OverflowError, AttributeError) as failed:
                self._explain(values, failed)
        except Misfit as wrong:
            raise InvalidMessage(f"{wrong}: nothing was published") from None

    def _payload(self, value: Any) -> bytes | None:
        if value is None:
            return None
        if self._convert is not None:
            value = self._convert(value)
        if self._form is SchemaType.JSON:
            return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()
        buffer = io.BytesIO()
        self._write(buffer, self._parsed, value)
        return buffer.getvalue()

    def _explain(self, values: pa.Array, failed: Exception) -> None:
        try:
            for value in values:
                found = value.as_py(maps_as_pydicts="strict")
                if found is not None and self._strict is not None:
                    self._strict(found)
        except UnicodeDecodeError:
            raise Misfit(_NO_UTF8) from None
        raise Misfit(f"a value does not fit the schema ({type(failed).__name__})")


def _text_bytes(texts: pa.Array) -> pa.Array:
    try:
        texts.validate(full=True)
    except pa.ArrowInvalid:
        raise InvalidMessage(f"{_NO_UTF8}: publish bytes, without a schema") from None
    return texts.cast(pa.binary())
