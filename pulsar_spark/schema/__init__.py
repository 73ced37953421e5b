"""Schemas turn the value of a message into bytes and back, with the names of ``pulsar.schema``."""

from pulsar_spark.protocol.schemas.schema_info import SchemaInfo, SchemaType
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
from pulsar_spark.schema.record import Record
from pulsar_spark.schema.schema import BytesSchema, JsonSchema, Schema, StringSchema
from pulsar_spark.schema.schema_avro import AvroSchema
from pulsar_spark.schema.schema_protobuf import ProtobufNativeSchema

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
