"""The Arrow and Spark types of Avro definitions, as ``from_avro`` has them.

A union of null and one type has that type; int and long become a bigint, float and double a double. Other unions are a
struct of ``member0``, ``member1``..., one of them not null. ``time-millis`` is an int; uuids and enumeration symbols
are texts. In JSON, bytes are texts."""

import json
import re
from collections.abc import Callable, Iterator
from decimal import Context, Inexact, InvalidOperation, Overflow

import pyarrow as pa
from pyspark.sql import types as T
from pyspark.sql.pandas.types import from_arrow_type

from pulsar_spark.errors import InvalidConfiguration
from pulsar_spark.protocol.schemas.avro_resolution import AvroType, parse_definition
from pulsar_spark.protocol.schemas.schema_info import SchemaInfo, SchemaType

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
"""A context for decimals that never rounds."""
UUID_TEXT = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.IGNORECASE | re.ASCII)
_MOST_DIGITS = 38
"""The most digits of a Spark decimal."""
_WIDER = {frozenset(("int", "long")): "long", frozenset(("float", "double")): "double"}


def column_type(info: SchemaInfo) -> pa.DataType:
    """The column type of an AVRO, JSON or STRING schema; :class:`InvalidConfiguration` if it has none, as a JSON schema
    that is not a record."""
    if info.schema_type() is SchemaType.STRING:
        return pa.string()
    if info.schema_type() not in (SchemaType.AVRO, SchemaType.JSON):
        raise InvalidConfiguration(
            f"values of type {info.schema_type().name} have no column type: use AVRO, JSON or STRING"
        )
    kind = parse_definition(info.schema())
    found = arrow_type(kind)
    if info.schema_type() is SchemaType.JSON:
        if kind.kind != "record":
            raise InvalidConfiguration("a JSON schema that is not a record has no column type: give a record")
        return mapped(found, lambda leaf: pa.string() if pa.types.is_binary(leaf) else leaf)
    return found


def spark_type_of(kind: pa.DataType) -> T.DataType:
    return from_arrow_type(kind, prefer_timestamp_ntz=True)


def members(kind: AvroType) -> list[AvroType]:
    """The non-null members of a union; a pair of int and long, or float and double, counts as the wider type."""
    arms = [each for each in kind.branches if each.kind != "null"]
    wider = _WIDER.get(frozenset(each.kind for each in arms)) if len(arms) == 2 else None
    return [AvroType(wider)] if wider else arms


def kinds(kind: AvroType) -> Iterator[AvroType]:
    """*kind* and all types within it; it must have a column type."""
    yield kind
    for each in (*kind.branches, *(field.type for field in kind.fields.values())):
        yield from kinds(each)


def has_members(kind: AvroType) -> bool:
    return any(each.kind == "union" and len(members(each)) > 1 for each in kinds(kind))


def arrow_type(kind: AvroType, within: tuple[str, ...] = ()) -> pa.DataType:
    """The Arrow type of a parsed definition, *within* the records of these names; :class:`InvalidConfiguration` if
    there is none."""
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
    """A type with numbers for dates and times: days, microseconds since 1970, nanoseconds of a day."""
    return mapped(kind, _stored_leaf)


def _stored_leaf(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_date32(kind):
        return pa.int32()
    return pa.int64() if pa.types.is_timestamp(kind) or pa.types.is_time64(kind) else kind


def mapped(kind: pa.DataType, leaf: Callable[[pa.DataType], pa.DataType]) -> pa.DataType:
    if pa.types.is_struct(kind):
        return pa.struct([field.with_type(mapped(field.type, leaf)) for field in kind])
    if pa.types.is_list(kind):
        return pa.list_(kind.value_field.with_type(mapped(kind.value_type, leaf)))
    if pa.types.is_map(kind):
        return pa.map_(kind.key_field, kind.item_field.with_type(mapped(kind.item_type, leaf)))
    return leaf(kind)


def without_logical_types(definition: str) -> object:

    def plain(node: object) -> object:
        if isinstance(node, dict):
            return {
                name: each if name == "default" else plain(each) for name, each in node.items() if name != "logicalType"
            }
        return [plain(each) for each in node] if isinstance(node, list) else node

    return plain(json.loads(definition))
