"""JsonSchema of definitions with logical types: dates, times, decimals and uuids as Python has them."""

import json
from datetime import date, datetime, time, timedelta, timezone
from decimal import Decimal
from uuid import UUID

import pytest

from pulsar_spark.schema import Array, Double, Field, JsonSchema, Map, Record, String


class Logical(Field):
    """A field as applications make their own."""

    def __init__(self, stored: str, logical: str, kind: type, **more):
        self.definition, self.kind = {"type": stored, "logicalType": logical, **more}, kind
        super().__init__()

    def type(self):
        return self.definition["type"]

    def schema_info(self, defined_names):
        return self.definition

    def python_type(self):
        return self.kind


class Inner(Record):
    day = Logical("int", "date", date)


class Outer(Record):
    name = String()
    at = Logical("long", "timestamp-millis", datetime)
    number = Logical("long", "timestamp-millis", int)
    price = Logical("bytes", "decimal", Decimal, precision=5, scale=2)
    share = Double()
    inner = Inner()
    inners = Array(Inner())
    days = Map(Logical("int", "date", date))


def test_records_with_fields_of_logical_types():
    schema = JsonSchema(Outer)
    at = datetime(2024, 2, 29, 12, 0, 0, 123000, timezone.utc)
    value = Outer(
        name="x",
        at=at,
        number=5,
        price=Decimal("1.50"),
        share=0.1,
        inner=Inner(day=date(1969, 12, 31)),
        inners=[Inner(day=date.max), Inner()],
        days={"k": date.min},
    )
    payload = schema.encode(value)
    assert schema.decode(payload) == value
    stored = json.loads(payload)
    assert (stored["at"], stored["number"], stored["price"]) == (1709208000123, 5, "1.50")
    assert (stored["inner"], stored["inners"][1]) == ({"day": -1}, {"day": None})
    assert schema.decode(b'{"name": "x", "later": 0.5, "share": "NaN", "price": 1.5}').price == Decimal("1.50")


def definition(*kinds) -> dict:
    fields = [{"name": f"f{number}", "type": kind} for number, kind in enumerate(kinds)]
    return {"type": "record", "name": "R", "fields": fields}


def logical(stored: str, name: str, **more) -> dict:
    return {"type": stored, "logicalType": name, **more}


@pytest.mark.parametrize(
    "kind, value, stored",
    [
        (logical("int", "time-millis"), time(23, 59, 59, 999000), 86399999),
        (logical("long", "time-micros"), time(0, 0, 0, 1), 1),
        (logical("long", "timestamp-micros"), datetime(1969, 12, 31, tzinfo=timezone.utc), -86_400_000_000),
        (logical("long", "local-timestamp-millis"), datetime.min, -62135596800000),
        (logical("long", "local-timestamp-micros"), datetime.max, 253402300799999999),
        (logical("string", "uuid"), UUID(int=5), str(UUID(int=5))),
        (logical("bytes", "decimal", precision=40), Decimal("9" * 40), "9" * 40),
        (["null", "string", logical("int", "date")], "x", "x"),
        (["null", {"type": "array", "items": "double"}, "string"], [0.5], [0.5]),
        (logical("string", "date"), "x", "x"),
    ],
)
def test_values_of_a_definition(kind, value, stored):
    schema = JsonSchema(None, definition(kind, ["null", kind] if not isinstance(kind, list) else kind, "double"))
    payload = schema.encode({"f0": value, "f1": None, "f2": 0.5})
    assert json.loads(payload) == {"f0": stored, "f1": None, "f2": 0.5}
    assert schema.decode(payload) == {"f0": value, "f1": None, "f2": 0.5}


def test_what_is_stored_may_be_given_and_instants_have_a_zone():
    schema = JsonSchema(None, definition(logical("long", "timestamp-micros"), ["string", logical("int", "date")]))
    there = datetime(1970, 1, 1, 2, tzinfo=timezone(timedelta(hours=2)))
    for given in (there, 0):
        assert json.loads(schema.encode({"f0": given, "f1": date(1970, 1, 2)})) == {"f0": 0, "f1": 1}
    assert schema.decode(b'{"f0": 0, "f1": 1}') == {"f0": there, "f1": 1}, "a union does not say which it is"


def test_defaults_of_a_definition_stand_for_what_is_not_there():
    kinds = definition(logical("int", "date"), "double")
    kinds["fields"][0]["default"] = 1
    assert JsonSchema(None, kinds).decode(b"{}") == {"f0": date(1970, 1, 2)}


def test_what_cannot_be():
    schema = JsonSchema(None, definition(logical("bytes", "decimal", precision=3, scale=2)))
    for value in (Decimal("10"), Decimal("1.234")):
        with pytest.raises(ValueError, match=f"'{value}' does not fit"):
            schema.encode({"f0": value})
    with pytest.raises(ValueError, match="dict"):
        schema.encode(5)
    for data, error in ((b"[]", TypeError), (b'{"f0": "12.345"}', ValueError), (b'{"f0": "x"}', ValueError)):
        with pytest.raises(error):
            schema.decode(data)
    with pytest.raises(TypeError):
        JsonSchema(None)
