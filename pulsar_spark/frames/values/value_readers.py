"""Convert stored Avro to values of a column. Dates and times become numbers, which reach further than Python's types. A
value that does not fit the column is a ValueError."""

from collections.abc import Callable
from decimal import Decimal
from typing import Any

from pulsar_spark.frames.values.value_types import EXACT, members
from pulsar_spark.protocol.schemas.avro_resolution import PROMOTIONS, AvroType

Reader = Callable[[Any], Any]
BITS = {"int": 31, "long": 63}
_DAY_MICROS = 86_400_000_000
_KINDS_OF = {bool: "boolean", str: "string", bytes: "bytes", list: "array", dict: "map"}
_MARK = "pulsar_spark"
"""The logical type that marks which of a union's number types was written."""


def avro_reader(kind: AvroType, is_marked: bool) -> Reader | None:
    """A function that converts values from ``fastavro``; None if nothing is to convert.

    With *is_marked*, numbers in unions come with their kind (:func:`marked`), and named types with their name."""
    inner = _avro_reader(kind, is_marked)
    if is_marked and not (kind.kind == "union" and len(members(kind)) > 1):
        return lambda value: _read(value[1] if type(value) is tuple else value, inner)
    return inner and (lambda value: _read(value, inner))


def _read(value: Any, reader: Reader | None) -> Any:
    return value if value is None or reader is None else reader(value)


def _avro_reader(kind: AvroType, is_marked: bool) -> Reader | None:
    if kind.kind == "union":
        arms = members(kind)
        if len(arms) > 1:
            return _member_reader(arms, [avro_reader(arm, is_marked) for arm in arms])
        return avro_reader(arms[0], is_marked) if arms else None
    if kind.kind in ("array", "map"):
        element = avro_reader(kind.branches[0], is_marked)
        return element and each_reader(kind, element)
    if kind.kind == "record":
        found = ((name, avro_reader(field.type, is_marked)) for name, field in kind.fields.items())
        readers = {name: reader for name, reader in found if reader is not None}
        return (lambda value: value | {name: read(value[name]) for name, read in readers.items()}) if readers else None
    if kind.logical == "decimal":
        return lambda value: decimal_of(int.from_bytes(value, "big", signed=True), kind)
    return instant_reader(kind)


def each_reader(kind: AvroType, element: Reader) -> Reader:
    if kind.kind == "array":
        return lambda values: [element(each) for each in values]
    return lambda values: {key: element(each) for key, each in values.items()}


def _member_reader(arms: list[AvroType], readers: list[Reader | None]) -> Reader:
    nothing = {f"member{number}": None for number in range(len(arms))}

    def read(value: Any) -> dict[str, Any]:
        name, value = value if type(value) is tuple else (_KINDS_OF.get(type(value), ""), value)
        number = _arm(arms, name, value)
        return nothing | {f"member{number}": _read(value, readers[number])}

    return read


def _arm(arms: list[AvroType], name: str, value: Any) -> int:
    """The member that a value written as *name* belongs to; promotions count if there is no exact match."""
    for number, arm in enumerate(arms):
        if name in (arm.name, arm.kind) if name else _is_of(arm, value):
            return number
    wider = PROMOTIONS.get(name, ())
    for number, arm in enumerate(arms):
        if arm.kind in wider or _is_of(arm, value):
            return number
    raise ValueError(f"the schema's union has no member of the written type {name or type(value).__name__}")


def _is_of(arm: AvroType, value: Any) -> bool:
    if isinstance(value, bool):
        return arm.kind == "boolean"
    if isinstance(value, int):
        return arm.kind in BITS and fits(value, arm.kind)
    if isinstance(value, dict):
        return arm.kind == "map" or (arm.kind == "record" and set(arm.fields) == set(value))
    if isinstance(value, str):
        return arm.kind == "string" or value in arm.symbols
    if isinstance(value, bytes):
        return arm.kind == "bytes" or (arm.kind == "fixed" and arm.size == len(value))
    return arm.kind == "array" if isinstance(value, list) else arm.kind in ("double", "float")


def marked(node: Any) -> Any:
    """A definition without logical types, except marks for the numbers of unions."""
    if isinstance(node, list):
        return [{"type": _kind(arm), "logicalType": _MARK} if _kind(arm) in _NUMBERS else marked(arm) for arm in node]
    if not isinstance(node, dict):
        return node
    found = {name: marked(node[name]) if name in ("type", "items", "values") else node[name] for name in node}
    return found | {"fields": [marked(each) for each in node["fields"]]} if "fields" in node else found


_NUMBERS = ("int", "long", "float", "double")


def _kind(arm: Any) -> Any:
    return arm.get("type") if isinstance(arm, dict) else arm


MARKS = {f"{kind}-{_MARK}": lambda value, *_, kind=kind: (kind, value) for kind in _NUMBERS}
"""``fastavro`` readers for the marks of :func:`marked`."""


def fits(value: int, kind: str) -> bool:
    return -(1 << BITS[kind]) <= value < 1 << BITS[kind]


def decimal_of(number: int, kind: AvroType) -> Decimal:
    if abs(number) >= 10**kind.precision:
        raise ValueError(f"a decimal has more than {kind.precision} digits")
    return EXACT.scaleb(Decimal(number), -kind.scale)


def instant_reader(kind: AvroType) -> Reader | None:
    """A function that converts stored instants to microseconds and times of day to nanoseconds; None if they are so
    already."""
    if kind.logical == "time-micros":
        return _nanos
    if kind.logical in ("timestamp-millis", "local-timestamp-millis"):
        return lambda value: value * 1000
    return None


def _nanos(value: int) -> int:
    if not 0 <= value < _DAY_MICROS:
        raise ValueError("a time of day is beyond the day")
    return 1000 * value
