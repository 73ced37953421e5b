"""Publishing a typed column: values become payloads of a schema. JSON is written by Spark itself, Avro batch by batch
in Python workers, by ``fastavro``."""

import io
from collections.abc import Callable, Iterator
from types import ModuleType

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T
from pyspark.sql.functions import arrow_udf
from pyspark.sql.pandas.types import from_arrow_type

from pulsar_spark.errors import InvalidConfiguration, InvalidMessage
from pulsar_spark.frames.message_columns import REFUSED
from pulsar_spark.frames.value_types import value_type, without_logical_types
from pulsar_spark.frames.values import VALUE
from pulsar_spark.protocol.schema_info import SchemaInfo, SchemaType
from pulsar_spark.schema import Schema
from pulsar_spark.schema.schema_avro import fastavro


def with_payloads(frame: DataFrame, schema: Schema | None) -> DataFrame:
    """*frame* with a column ``payload`` in the place of ``value``, where *schema* says how; as it is without one. A
    null value is a null payload. :class:`InvalidMessage` for a frame whose values are not of the schema."""
    if schema is None:
        return frame
    if not isinstance(schema, Schema):
        raise InvalidConfiguration(
            f"schema {schema!r:.80}: give a schema of pulsar_spark.schema, such as AvroSchema(Order)"
        )
    info = schema.schema_info()
    given = {field.name: field.dataType for field in frame.schema.fields}
    if VALUE not in given or "payload" in given:
        raise InvalidMessage(
            f"the frame has the columns {sorted(given)}: with a schema give the column 'value', and no 'payload'"
        )
    return frame.withColumn("payload", _payload(info, given[VALUE])).drop(VALUE)


def _payload(info: SchemaInfo, given: T.DataType) -> Column:
    kind = info.schema_type()
    if kind is SchemaType.STRING:
        if not isinstance(given, T.StringType):
            raise InvalidMessage(f"column 'value' is a {given.simpleString()}, the schema a text: cast it to string")
        return F.col(VALUE).cast("binary")
    if kind not in (SchemaType.AVRO, SchemaType.JSON):
        raise InvalidConfiguration(f"a schema of type {kind.name} writes no column: use AVRO, JSON or STRING")
    wanted = from_arrow_type(value_type(info.schema()))
    if not isinstance(wanted, T.StructType) or not isinstance(given, T.StructType):
        raise InvalidMessage(f"column 'value' is a {given.simpleString()}: give a struct, {wanted.simpleString()}")
    if set(given.fieldNames()) != set(wanted.fieldNames()):
        raise InvalidMessage(
            f"column 'value' has the fields {sorted(given.fieldNames())}, the schema {sorted(wanted.fieldNames())}"
        )
    in_order = F.struct(*(F.col(VALUE)[name].alias(name) for name in wanted.fieldNames()))
    value = F.when(F.col(VALUE).isNotNull(), in_order.cast(wanted))
    if kind is SchemaType.AVRO:
        return _avro(info)(value)
    if "binary" in wanted.simpleString():
        raise InvalidConfiguration("a JSON schema with bytes writes no column: give its field the type String")
    return F.to_json(value, {"ignoreNullFields": "false"}).cast("binary")


def _avro(info: SchemaInfo) -> Callable[[Column], Column]:
    definition = without_logical_types(info.schema())

    def payloads(batches: Iterator[pa.Array]) -> Iterator[pa.Array]:
        library = fastavro()
        parsed = library.parse_schema(definition)
        for values in batches:
            yield pa.array(
                [_encoded(library, parsed, each) for each in values.to_pylist(maps_as_pydicts="strict")], pa.binary()
            )

    return arrow_udf(payloads, "binary")


def _encoded(library: ModuleType, parsed: object, value: object) -> bytes | None:
    if value is None:
        return None
    buffer = io.BytesIO()
    try:
        library.schemaless_writer(buffer, parsed, value)
    except (ValueError, TypeError, KeyError, OverflowError, AttributeError) as failed:
        raise InvalidMessage(
            f"{REFUSED}InvalidMessage: a value is not of the schema ({type(failed).__name__}): see "
            "which of its fields may be null"
        ) from None
    return buffer.getvalue()
