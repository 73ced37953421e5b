"""``pulsar.schema.definition`` for scripts: the fields of records."""

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
from pulsar_spark.schema.record import Record, RecordMeta

__all__ = [
    "Array",
    "Boolean",
    "Bytes",
    "CustomEnum",
    "Double",
    "Field",
    "Float",
    "Integer",
    "Long",
    "Map",
    "Null",
    "Record",
    "RecordMeta",
    "String",
]
