"""Schemas: how a message's value becomes bytes and back, with the names of ``pulsar.schema``.

What a schema says of itself (``schema_info``) a topic keeps, and judges others by: see protocol.schema_compatibility.
"""

from pulsar_spark.protocol.schema_info import SchemaInfo, SchemaType
from pulsar_spark.schema.avro_schema import AvroSchema
from pulsar_spark.schema.fields import (
    Array,
    Boolean,
    Bytes,
    CustomEnum,
    Double,
    Field,
    Float,
    Integer,
    Long,
    Map,
    Null,
    String,
)
from pulsar_spark.schema.json_schema import JsonSchema
from pulsar_spark.schema.protobuf_native_schema import ProtobufNativeSchema
from pulsar_spark.schema.record import Record
from pulsar_spark.schema.schema import BytesSchema, Schema, StringSchema

__all__ = [
    "Array",
    "AvroSchema",
    "Boolean",
    "Bytes",
    "BytesSchema",
    "CustomEnum",
    "Double",
    "Field",
    "Float",
    "Integer",
    "JsonSchema",
    "Long",
    "Map",
    "Null",
    "ProtobufNativeSchema",
    "Record",
    "Schema",
    "SchemaInfo",
    "SchemaType",
    "String",
    "StringSchema",
]
