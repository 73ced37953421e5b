"""A field of every Avro and JSON type and its edge values, as frames store them and as clients have them."""

from collections.abc import Callable
from datetime import date, datetime, time, timedelta, timezone
from decimal import Decimal
from typing import Any, NamedTuple
from uuid import UUID

from pulsar_spark.protocol.schemas.schema_info import SchemaType

INFINITY = float("inf")


class Case(NamedTuple):
    """A type; the SQL type of a column of it; the values that a client has; what makes of them those of the column."""

    definition: Any
    column: str
    values: list[Any]
    of_column: Callable[[Any], Any] = lambda value: value
    has_json: bool = True


def logical(kind: str, logical_type: str, **more: Any) -> dict[str, Any]:
    return {"type": kind, "logicalType": logical_type, **more}


def _instants(zone: timezone | None, micros: int) -> list[datetime]:
    begins = datetime(1, 1, 1), datetime(1969, 12, 31, 23, 59, 59), datetime(2024, 2, 29, 12), datetime(9999, 12, 31)
    return [each.replace(microsecond=micros, tzinfo=zone) for each in begins]


def _millis(value: time) -> int:
    return (datetime.combine(date.min, value) - datetime.min) // timedelta(milliseconds=1)


CASES = {
    "boolean": Case("boolean", "boolean", [True, False]),
    "int": Case("int", "int", [-(2**31), 2**31 - 1, 0]),
    "long": Case("long", "bigint", [-(2**63), 2**63 - 1]),
    "float": Case("float", "float", [0.5, INFINITY, 3.4028234663852886e38]),
    "double": Case("double", "double", [0.1, -INFINITY, 1.7976931348623157e308]),
    "string": Case("string", "string", ["", 'grüße \0 "']),
    "enumeration": Case({"type": "enum", "name": "n.Colour", "symbols": ["RED", "BLUE"]}, "string", ["RED", "BLUE"]),
    "bytes": Case("bytes", "binary", [b"", b"\0\xff"], has_json=False),
    "fixed": Case({"type": "fixed", "name": "Two", "size": 2}, "binary", [b"\0\xff"], has_json=False),
    "day": Case(logical("int", "date"), "date", [date.min, date(1969, 12, 31), date(2024, 2, 29), date.max]),
    "time_millis": Case(logical("int", "time-millis"), "int", [time(), time(23, 59, 59, 999000)], _millis),
    "time_micros": Case(logical("long", "time-micros"), "time(6)", [time(), time(23, 59, 59, 999999)]),
    "millis": Case(logical("long", "timestamp-millis"), "timestamp", _instants(timezone.utc, 123000)),
    "micros": Case(logical("long", "timestamp-micros"), "timestamp", _instants(timezone.utc, 123456)),
    "local_millis": Case(logical("long", "local-timestamp-millis"), "timestamp_ntz", _instants(None, 123000)),
    "local_micros": Case(logical("long", "local-timestamp-micros"), "timestamp_ntz", _instants(None, 123456)),
    "money": Case(
        logical("bytes", "decimal", precision=38, scale=2),
        "decimal(38,2)",
        [Decimal(each) for each in ("-" + "9" * 36 + ".99", "0.00", "-0.01", "1.28")],
    ),
    "share": Case(
        logical("fixed", "decimal", name="Share", size=4, precision=9, scale=9),
        "decimal(9,9)",
        [Decimal("0.999999999"), Decimal("-0.000000001")],
    ),
    "id": Case(logical("string", "uuid"), "string", [UUID(int=0), UUID(int=2**128 - 1)], str),
}


def definition(cases: dict[str, Case]) -> dict[str, Any]:
    """A record with each type by itself, or null, in a list with nulls, in a map and in a record in a list."""
    fields = []
    for name, case in cases.items():
        kind = case.definition
        again = kind["name"] if isinstance(kind, dict) and "name" in kind else kind
        fields += [
            {"name": name, "type": ["null", kind]},
            {"name": f"{name}_list", "type": {"type": "array", "items": ["null", again]}},
            {"name": f"{name}_map", "type": {"type": "map", "values": again}},
            {
                "name": f"{name}_records",
                "type": {
                    "type": "array",
                    "items": {"type": "record", "name": f"In_{name}", "fields": [{"name": "of", "type": again}]},
                },
            },
        ]
    return {"type": "record", "name": "Everything", "fields": fields}


def column(cases: dict[str, Case]) -> str:
    """The type of the column that such a record has."""
    parts = (
        f"{name}:{each.column},{name}_list:array<{each.column}>,{name}_map:map<string,{each.column}>,"
        f"{name}_records:array<struct<of:{each.column}>>"
        for name, each in cases.items()
    )
    return f"struct<{','.join(parts)}>"


def client_value(cases: dict[str, Case], number: int) -> dict[str, Any]:
    """What a client has: the edge value of that number of each type, null where there is none."""
    return _value({name: each.values[number : number + 1] for name, each in cases.items()})


def column_value(cases: dict[str, Case], number: int) -> dict[str, Any]:
    """What a frame has of :func:`client_value`."""
    return _value({name: [*map(each.of_column, each.values[number : number + 1])] for name, each in cases.items()})


def _value(values: dict[str, list[Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, each in values.items():
        value = each[0] if each else None
        found |= {name: value, f"{name}_list": [value, None], f"{name}_map": dict.fromkeys("k" * len(each), value)}
        found[f"{name}_records"] = [{"of": value}] * len(each)
    return found


MOST = max(len(each.values) for each in CASES.values())
"""How many edge values a type has at most; at that number all are null."""


def cases_of(form: SchemaType) -> dict[str, Case]:
    return CASES if form is SchemaType.AVRO else {name: each for name, each in CASES.items() if each.has_json}
