"""Read JSON values of logical types and unions. Dates and times become numbers. A value that does not fit the schema is
a ValueError that names the field."""

import json
from decimal import Decimal
from typing import Any

from pulsar_spark.frames.values.value_readers import BITS, Reader, decimal_of, each_reader, fits, instant_reader
from pulsar_spark.frames.values.value_types import EXACT, UUID_TEXT, members
from pulsar_spark.protocol.schemas.avro_resolution import AvroField, AvroType


def json_reader(kind: AvroType, path: str = "") -> Reader:
    """A function that converts values from ``json`` with ``Decimal`` for numbers with a point. Nulls pass; a missing
    field gets its default."""
    inner = _json_reader(kind, path)

    def read(value: Any) -> Any:
        return None if value is None else inner(value)

    return read


def _json_reader(kind: AvroType, path: str) -> Reader:
    if kind.kind == "union":
        arms = members(kind)
        if len(arms) < 2:
            return _json_reader(arms[0], path) if arms else _json_leaf(AvroType("null"), path)
        return _json_member_reader(arms, [json_reader(arm, path) for arm in arms], path)
    if kind.kind == "record":
        return _json_record_reader(kind, path)
    if kind.kind in ("array", "map"):
        read, wanted = each_reader(kind, json_reader(kind.branches[0], path)), list if kind.kind == "array" else dict
        return lambda value: read(_of_type(value, wanted, path))
    return _json_leaf(kind, path)


def _json_record_reader(kind: AvroType, path: str) -> Reader:
    readers = {name: json_reader(field.type, f"{path}.{name}" if path else name) for name, field in kind.fields.items()}
    defaults = {name: _default(field, readers[name]) for name, field in kind.fields.items()}

    def read(value: Any) -> dict[str, Any]:
        _of_type(value, dict, path)
        return {name: reader(value[name]) if name in value else defaults[name] for name, reader in readers.items()}

    return read


def _default(field: AvroField, reader: Reader) -> Any:
    """The value of a field's default; None if it cannot be read, as for a decimal."""
    try:
        return None if field.default is None else reader(json.loads(field.default, parse_float=Decimal))
    except ValueError:
        return None


def _json_member_reader(arms: list[AvroType], readers: list[Reader], path: str) -> Reader:
    nothing = {f"member{number}": None for number in range(len(readers))}

    def read(value: Any) -> dict[str, Any]:
        for number in sorted(range(len(arms)), key=lambda number: not _is_like(value, arms[number])):
            try:
                return nothing | {f"member{number}": readers[number](value)}
            except ValueError:
                continue
        raise _wrong(value, path)

    return read


def _is_like(value: Any, arm: AvroType) -> bool:
    """Whether a value looks like one of a type: a record with its fields, a double with a point."""
    if arm.kind == "record":
        return isinstance(value, dict) and set(value) == set(arm.fields)
    if arm.kind == "enum":
        return value in arm.symbols
    if arm.logical == "uuid":
        return isinstance(value, str) and UUID_TEXT.fullmatch(value) is not None
    if isinstance(value, Decimal):
        return arm.kind in ("float", "double")
    return type(value) is not int or arm.kind in BITS


def _json_leaf(kind: AvroType, path: str) -> Reader:
    if kind.logical == "decimal":
        return lambda value: _json_decimal(value, kind, path)
    if kind.kind in BITS:
        convert = instant_reader(kind) or int

        def whole_number(value: Any) -> int:
            if type(value) is not int or not fits(value, kind.kind):
                raise _wrong(value, path)
            return convert(value)

        return whole_number
    if kind.kind in ("float", "double"):
        return lambda value: _floating(value, kind.kind, path)
    if kind.kind == "enum":  # the client writes the value of the enumeration's member
        return lambda value: str(value) if type(value) is int else _of_type(value, str, path)
    return lambda value: _of_type(value, bool if kind.kind == "boolean" else str, path)


def _of_type(value: Any, wanted: type, path: str) -> Any:
    if not isinstance(value, wanted):
        raise _wrong(value, path)
    return value


def _floating(value: Any, kind: str, path: str) -> float:
    if value in ("NaN", "Infinity", "-Infinity") and isinstance(value, str):
        return float(value)
    if isinstance(value, bool) or not isinstance(value, int | float | Decimal):
        raise _wrong(value, path)
    return float(value)


def _json_decimal(value: Any, kind: AvroType, path: str) -> Decimal:
    if isinstance(value, bool) or not isinstance(value, int | Decimal | str):
        raise _wrong(value, path)
    try:
        number = EXACT.scaleb(Decimal(value), kind.scale)
        if number.adjusted() >= kind.precision or number != number.to_integral_value():
            raise _wrong(value, path)
        return decimal_of(int(number), kind)
    except ArithmeticError:
        raise _wrong(value, path) from None


def _wrong(value: Any, path: str) -> ValueError:
    return ValueError(f"field {path!r} does not fit the schema: it is a {type(value).__name__}")
