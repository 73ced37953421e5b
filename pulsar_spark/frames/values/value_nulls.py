"""JSON that Spark itself writes: which values qualify, and how forbidden nulls are found."""

from collections.abc import Callable, Iterator

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql import types as T

from pulsar_spark.frames.publishing.message_columns import refusal
from pulsar_spark.frames.values.value_decoding import VALUE
from pulsar_spark.frames.values.value_types import has_members, kinds, members
from pulsar_spark.protocol.schemas.avro_resolution import AvroType

_PLAIN = frozenset(("boolean", "int", "long", "float", "double", "string", "record", "array", "map", "union"))


def is_plain(given: T.DataType, kind: AvroType) -> bool:
    """Whether Spark writes values of the type *given* as the schema requires, but for nulls."""
    is_known = all(each.kind in _PLAIN and not each.logical for each in kinds(kind))
    return is_known and not has_members(kind) and _has_same_leaves(given, kind)


def _has_same_leaves(given: T.DataType, kind: AvroType) -> bool:
    if kind.kind == "union":
        return all(_has_same_leaves(given, arm) for arm in members(kind))
    if isinstance(given, T.StructType):
        is_by_name = len({name.lower() for name in given.fieldNames()}) == len(given.fieldNames())
        return is_by_name and all(_has_same_leaves(each.dataType, kind.fields[each.name].type) for each in given.fields)
    if isinstance(given, T.ArrayType):
        return _has_same_leaves(given.elementType, kind.branches[0])
    if isinstance(given, T.MapType):
        return _has_same_leaves(given.valueType, kind.branches[0])
    return not (isinstance(given, T.FloatType) and kind.kind == "double")


def nulls_refused(given: T.DataType, kind: AvroType, payload: Column) -> Column:
    """The *payload* of the column ``value``; a null that the schema forbids fails the job that writes it."""
    is_there = F.col(VALUE).isNotNull()
    for path, has_null in _required(given, True, kind, ""):
        text = f"field {path!r} of column 'value' is null, which the schema does not allow: nothing was published"
        payload = F.when(is_there & has_null(F.col(VALUE)), refusal("InvalidMessage", text).cast("binary")).otherwise(
            payload
        )
    return payload


_HasNull = Callable[[Column], Column]


def _required(given: T.DataType, is_nullable: bool, kind: AvroType, path: str) -> Iterator[tuple[str, _HasNull]]:
    """The path of each field that must not be null, and a test for null in the value that holds it."""
    if kind.kind == "union":
        if not any(each.kind == "null" for each in kind.branches) and is_nullable and path:
            yield path, lambda value: value.isNull()
        kind = members(kind)[0]
    elif is_nullable and path:
        yield path, lambda value: value.isNull()
    for name, inner, is_nullable_inner, inner_kind in _parts(given, kind):
        below = name if not path else f"{path}.{name}" if isinstance(given, T.StructType) else f"{path}{name}"
        for where, has_null in _required(inner, is_nullable_inner, inner_kind, below):
            guarded = has_null if where == below else _guarded(has_null)
            yield where, _within(given, name, guarded)


def _parts(given: T.DataType, kind: AvroType) -> Iterator[tuple[str, T.DataType, bool, AvroType]]:
    if isinstance(given, T.StructType):
        for field in given.fields:
            yield field.name, field.dataType, field.nullable, kind.fields[field.name].type
    elif isinstance(given, T.ArrayType):
        yield "[]", given.elementType, given.containsNull, kind.branches[0]
    elif isinstance(given, T.MapType):
        yield "{}", given.valueType, given.valueContainsNull, kind.branches[0]


def _guarded(has_null: _HasNull) -> _HasNull:
    return lambda value: value.isNotNull() & has_null(value)


def _within(given: T.DataType, name: str, has_null: _HasNull) -> _HasNull:
    if isinstance(given, T.StructType):
        return lambda value: has_null(value.getField(name))
    return lambda value: F.exists(value if isinstance(given, T.ArrayType) else F.map_values(value), has_null)
