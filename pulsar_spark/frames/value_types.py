"""The Spark types of what Avro definitions define: a value of a topic's schema as a column, as ``from_avro`` has it.

A union of null and one type is that type, one of int and long a bigint, one of float and double a double; any other is
a struct of ``member0``, ``member1``..., of which one is not null. Records that hold themselves have no column. A date
is a DATE, an instant a TIMESTAMP, one without a zone a TIMESTAMP_NTZ, a decimal a DECIMAL, ``time-micros`` a TIME;
``time-millis`` is an int, a uuid and a symbol of an enumeration are texts. In JSON bytes are texts.
"""

import json
import re
from collections.abc import Callable, Iterator
from decimal import Context, Inexact, InvalidOperation, Overflow

import pyarrow as pa
from pyspark.sql import types as T
from pyspark.sql.pandas.types import from_arrow_type

from pulsar_spark.errors import InvalidConfiguration
from pulsar_spark.protocol.avro_resolution import AvroType, parse_definition
from pulsar_spark.protocol.schema_info import SchemaInfo, SchemaType

_PLAIN = {
    "null": pa.string(),
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "bytes": pa.binary(),
    "string": pa.string(),
    "enum": pa.string(),
    "fixed": pa.binary(),
}
_LOGICAL = {
    "date": pa.date32(),
    "time-micros": pa.time64("ns"),
    "timestamp-millis": pa.timestamp("us", "UTC"),
    "timestamp-micros": pa.timestamp("us", "UTC"),
    "local-timestamp-millis": pa.timestamp("us"),
    "local-timestamp-micros": pa.timestamp("us"),
}
EXACT = Context(prec=100, traps=[InvalidOperation, Overflow, Inexact])
"""For decimals of any column: it rounds none."""
UUID_TEXT = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.IGNORECASE | re.ASCII)
_MOST_DIGITS = 38
"""Of a decimal of Spark."""
_WIDER = {frozenset(("int", "long")): "long", frozenset(("float", "double")): "double"}


def value_type(definition: str) -> pa.DataType:
    """The type of the column; :class:`InvalidConfiguration` for a definition of which there is none.

    >>> value_type('{"type": "record", "name": "R", "fields": [{"name": "a", "type": ["null", "int"]}]}')
    StructType(struct<a: int32>)
    >>> value_type('["null", "string", {"type": "int", "logicalType": "date"}]')
    StructType(struct<member0: string, member1: date32[day]>)
    """
    return arrow_type(parse_definition(definition))


def column_type(info: SchemaInfo) -> pa.DataType:
    """The type of the column, of a schema of AVRO or JSON, which has texts for bytes."""
    found = value_type(info.schema())
    if info.schema_type() is SchemaType.JSON:
        return mapped(found, lambda leaf: pa.string() if pa.types.is_binary(leaf) else leaf)
    return found


def spark_type_of(kind: pa.DataType) -> T.DataType:
    """A type of Arrow as Spark names it; an instant without a zone stays one."""
    return from_arrow_type(kind, prefer_timestamp_ntz=True)


def members(kind: AvroType) -> list[AvroType]:
    """What a union may be except null: one type where its column is of that type."""
    arms = [each for each in kind.branches if each.kind != "null"]
    wider = _WIDER.get(frozenset(each.kind for each in arms)) if len(arms) == 2 else None
    return [AvroType(wider)] if wider else arms


def kinds(kind: AvroType) -> Iterator[AvroType]:
    """*kind* and all that it holds; only of a kind that has a column."""
    yield kind
    for each in (*kind.branches, *(field.type for field in kind.fields.values())):
        yield from kinds(each)


def has_members(kind: AvroType) -> bool:
    """Whether *kind* has a union whose column is a struct of members."""
    return any(each.kind == "union" and len(members(each)) > 1 for each in kinds(kind))


def arrow_type(kind: AvroType, within: tuple[str, ...] = ()) -> pa.DataType:
    """The type of the column of what was parsed, *within* these records."""
    if kind.kind == "union":
        arms = [arrow_type(each, within) for each in members(kind)]
        if len(arms) > 1:
            return pa.struct([(f"member{number}", arm) for number, arm in enumerate(arms)])
        return arms[0] if arms else _PLAIN["null"]
    if kind.kind == "array":
        return pa.list_(arrow_type(kind.branches[0], within))
    if kind.kind == "map":
        return pa.map_(pa.string(), arrow_type(kind.branches[0], within))
    if kind.logical == "decimal":
        if kind.precision > _MOST_DIGITS:
            raise InvalidConfiguration(
                f"a decimal of '{kind.precision}' digits has no column type (at most {_MOST_DIGITS} digits): "
                "decode the payloads in your own function"
            )
        return pa.decimal128(kind.precision, kind.scale)
    if kind.kind != "record":
        return _LOGICAL.get(kind.logical, _PLAIN[kind.kind])
    if kind.name in within:
        raise InvalidConfiguration(
            f"record {kind.name!r} contains itself, so it has no column type: decode the payloads in your own function"
        )
    return pa.struct([(name, arrow_type(each.type, (*within, kind.name))) for name, each in kind.fields.items()])


def stored_type(kind: pa.DataType) -> pa.DataType:
    """A type with numbers for dates and times, which reach further than Python's: days, microseconds since 1970,
    nanoseconds of a day."""
    return mapped(kind, _stored_leaf)


def _stored_leaf(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_date32(kind):
        return pa.int32()
    return pa.int64() if pa.types.is_timestamp(kind) or pa.types.is_time64(kind) else kind


def mapped(kind: pa.DataType, leaf: Callable[[pa.DataType], pa.DataType]) -> pa.DataType:
    """A type in which *leaf* has replaced every type that holds no other."""
    if pa.types.is_struct(kind):
        return pa.struct([field.with_type(mapped(field.type, leaf)) for field in kind])
    if pa.types.is_list(kind):
        return pa.list_(kind.value_field.with_type(mapped(kind.value_type, leaf)))
    if pa.types.is_map(kind):
        return pa.map_(kind.key_field, kind.item_field.with_type(mapped(kind.item_type, leaf)))
    return leaf(kind)


def without_logical_types(definition: str) -> object:
    """A definition in which values are what is stored."""

    def plain(node: object) -> object:
        if isinstance(node, dict):
            return {
                name: each if name == "default" else plain(each) for name, each in node.items() if name != "logicalType"
            }
        return [plain(each) for each in node] if isinstance(node, list) else node

    return plain(json.loads(definition))
