"""Values to bytes and back."""

import enum
from dataclasses import dataclass, field

import pytest

from pulsar_spark.schema import Array, BytesSchema, Integer, JsonSchema, Record, SchemaType, String, StringSchema


class Carrier(enum.Enum):
    UA = "United"


@dataclass
class Flight:
    tail_number: str
    carrier: Carrier | str | None = None
    delay: int = 0


class Row(Record):
    name = String()
    size = Integer(default=0)


def test_bytes_and_text():
    assert BytesSchema().decode(BytesSchema().encode(b"x")) == b"x"
    assert StringSchema().decode(StringSchema().encode("grüße")) == "grüße"
    for schema, wrong in ((BytesSchema(), "x"), (StringSchema(), b"x"), (JsonSchema(Flight), {"tail_number": "N1"})):
        with pytest.raises(TypeError):
            schema.encode(wrong)


def test_json():
    schema = JsonSchema(Flight)
    assert schema.decode(schema.encode(Flight("N14228", delay=3))) == Flight("N14228", delay=3)
    assert schema.decode(schema.encode(Flight("N14228", Carrier.UA))).carrier == "United"
    rows = JsonSchema(Row)
    assert rows.decode(rows.encode(Row(name="a"))) == Row(name="a") != Row(name="b")
    assert rows.schema_info().schema_type() is SchemaType.JSON
    assert not schema.schema_info().is_kept, "of a dataclass a topic is told nothing"
    with pytest.raises(TypeError):
        schema.encode(Flight("N1", delay=object.__new__(type("NoFields", (), {"__slots__": ()}))))


@dataclass
class Leg:
    origin: str
    gates: list[int] = field(default_factory=list)


@dataclass
class Stop:
    place: str
    minutes: int = 0


@dataclass
class Trip:
    name: str
    first: Leg
    last: Leg | None = None
    others: list[Leg] = field(default_factory=list)
    by_day: dict[str, Leg] = field(default_factory=dict)
    by_number: dict[int, list[Leg]] = field(default_factory=dict)
    pair: tuple[Leg, int] | None = None
    seats: set[int] = field(default_factory=set)
    what: Leg | Stop | None = None
    carrier: Carrier | None = None
    raw: bytes = b""
    parent: "Trip | None" = None
    number: int = field(default=0, init=False)


class Place(Record):
    name = String()
    country = String(default="US")


class Journey(Record):
    title = String()
    start = Place()
    stops = Array(Place())


class Plain:
    def __init__(self, a, b=2):
        self.a, self.b = a, b


def test_nested_values_come_back_as_what_they_were():
    leg = Leg("JFK", [1, 2])
    trip = Trip(
        "t",
        leg,
        Leg("LGA"),
        [leg, leg],
        {"mon": leg},
        {5: [leg]},
        (leg, 3),
        {3, 1},
        Stop("BOS", 5),
        Carrier.UA,
        "grüße".encode(),
        Trip("p", leg),
    )
    trip.number = 7
    schema = JsonSchema(Trip)
    back = schema.decode(schema.encode(trip))
    assert back == trip
    assert [
        type(each)
        for each in (
            back.others[0],
            back.by_day["mon"],
            back.by_number[5][0],
            back.pair[0],
            back.what,
            back.parent.first,
            back.carrier,
        )
    ] == [Leg, Leg, Leg, Leg, Stop, Leg, Carrier]
    journeys = JsonSchema(Journey)
    journey = Journey(title="x", start=Place(name="NYC"), stops=[Place(name="BOS")])
    assert journeys.decode(journeys.encode(journey)) == journey
    assert type(journeys.decode(journeys.encode(journey)).start) is Place


def test_fields_that_the_class_does_not_have_are_passed_over():
    data = b'{"name": "t", "colour": 5, "first": {"origin": "JFK", "terminal": {"x": [1]}}, "others": [{"origin": "LGA", "new": null}]}'
    assert JsonSchema(Trip).decode(data) == Trip("t", Leg("JFK"), others=[Leg("LGA")])
    assert JsonSchema(Journey).decode(b'{"title": "x", "colour": "red", "start": {"name": "a", "b": 1}}') == Journey(
        title="x", start=Place(name="a")
    )
    assert vars(JsonSchema(Plain).decode(b'{"a": 1, "c": 3}')) == {"a": 1, "b": 2}


@pytest.mark.parametrize(
    "data, error",
    [
        (b"[]", TypeError),
        (b"5", TypeError),
        (b"null", TypeError),
        (b"{}", TypeError),
        (b"{", ValueError),
        (b"\xff", ValueError),
        (b'{"name": "t", "first": {"origin": "a"}, "carrier": "none such"}', ValueError),
    ],
)
def test_payloads_that_are_no_such_record(data, error):
    with pytest.raises(error):
        JsonSchema(Trip).decode(data)


def test_classes_made_in_a_function():
    @dataclass
    class Inner:
        a: int

    @dataclass
    class Outer:
        inner: Inner
        later: "Inner | None" = None

    schema = JsonSchema(Outer)
    assert schema.decode(schema.encode(Outer(Inner(1)))) == Outer(Inner(1))
