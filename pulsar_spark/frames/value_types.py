"""The Spark types of what Avro definitions define: a value of a topic's schema as a column.

A union of null and one type is that type; other unions, and records that hold themselves, have no column. Logical types
are as they are stored: a date is a number of days. Enumerations are texts. In JSON bytes are texts.
"""

import json

import pyarrow as pa

from pulsar_spark.errors import InvalidConfiguration
from pulsar_spark.protocol.avro_resolution import AvroType, parse_definition

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


def value_type(definition: str) -> pa.DataType:
    """The type of the column; :class:`InvalidConfiguration` for a definition of which there is none.

    >>> value_type('{"type": "record", "name": "R", "fields": [{"name": "a", "type": ["null", "int"]}]}')
    StructType(struct<a: int32>)
    """
    return _arrow_type(parse_definition(definition), ())


def _arrow_type(kind: AvroType, within: tuple[str, ...]) -> pa.DataType:
    if kind.kind == "union":
        arms = [each for each in kind.branches if each.kind != "null"]
        if len(arms) > 1:
            names = ", ".join(each.name or each.kind for each in arms)
            raise InvalidConfiguration(f"a union of {names} has no column: decode the payloads in a function of yours")
        return _arrow_type(arms[0], within) if arms else _PLAIN["null"]
    if kind.kind == "array":
        return pa.list_(_arrow_type(kind.branches[0], within))
    if kind.kind == "map":
        return pa.map_(pa.string(), _arrow_type(kind.branches[0], within))
    if kind.kind != "record":
        return _PLAIN[kind.kind]
    if kind.name in within:
        raise InvalidConfiguration(
            f"record {kind.name!r} holds itself, so it has no column: decode the payloads in a function of yours"
        )
    return pa.struct([(name, _arrow_type(each.type, (*within, kind.name))) for name, each in kind.fields.items()])


def without_logical_types(definition: str) -> object:
    """A definition in which values are what is stored."""

    def plain(node: object) -> object:
        if isinstance(node, dict):
            return {
                name: each if name == "default" else plain(each) for name, each in node.items() if name != "logicalType"
            }
        return [plain(each) for each in node] if isinstance(node, list) else node

    return plain(json.loads(definition))
