"""Records: what their fields take, what they say of themselves, and how they compare."""

import copy
import json
import pickle
from enum import Enum

import pytest

from pulsar_spark.schema import (
    Array,
    AvroSchema,
    Boolean,
    Bytes,
    CustomEnum,
    Double,
    Float,
    Integer,
    JsonSchema,
    Long,
    Map,
    Null,
    Record,
    String,
)


class Carrier(Enum):
    UA = 1
    DL = 2


class Word(Enum):
    YES = "oui"


class Gate(Record):
    number = Integer(required=True)
    open = Boolean()


class Flight(Record):
    _avro_namespace = "nyc.air"
    tail = String(required=True)
    carrier = Carrier
    other = CustomEnum(Carrier, default="DL", required=True, required_default=True)
    miles = Long(default=5, required_default=True)
    gate = Gate
    gates = Array(Gate())
    by_day = Map(Array(Integer()))
    raw = Bytes(default=b"\xff", required_default=True)


def test_the_definition_names_each_type_once_and_defaults_where_they_are_asked_for():
    assert Flight.schema() == {
        "type": "record",
        "name": "Flight",
        "namespace": "nyc.air",
        "fields": [
            {"name": "tail", "type": "string"},
            {"name": "carrier", "type": ["null", {"type": "enum", "name": "Carrier", "symbols": ["UA", "DL"]}]},
            {"name": "other", "default": "DL", "type": "Carrier"},
            {"name": "miles", "default": 5, "type": ["null", "long"]},
            {
                "name": "gate",
                "type": [
                    "null",
                    {
                        "type": "record",
                        "name": "Gate",
                        "fields": [{"name": "number", "type": "int"}, {"name": "open", "type": ["null", "boolean"]}],
                    },
                ],
            },
            {"name": "gates", "type": ["null", {"type": "array", "items": "Gate"}]},
            {"name": "by_day", "type": ["null", {"type": "map", "values": {"type": "array", "items": "int"}}]},
            {"name": "raw", "default": "\u00ff", "type": ["null", "bytes"]},
        ],
    }
    assert list(Gate.schema()) == ["type", "name", "fields"] and list(Flight.schema()["fields"][2]) == [
        "name",
        "default",
        "type",
    ], "the order of the text, byte for byte"


def test_the_text_of_a_definition():
    assert JsonSchema(Gate).schema_info().schema() == AvroSchema(Gate).schema_info().schema()
    assert JsonSchema(Gate).schema_info().schema().splitlines()[:4] == [
        "{",
        ' "type": "record",',
        ' "name": "Gate",',
        ' "fields": [',
    ]


def test_sorted_fields():
    class Sorted(Record):
        _sorted_fields = True
        b = Integer()
        a = Integer()

    assert [field["name"] for field in Sorted.schema()["fields"]] == ["a", "b"]


def test_an_enumeration_in_an_array_is_defined():
    class Carriers(Record):
        all = Array(CustomEnum(Carrier))
        last = Map(CustomEnum(Carrier))

    first, second = Carriers.schema()["fields"]
    assert first["type"][1]["items"]["symbols"] == ["UA", "DL"] and second["type"][1]["values"] == "Carrier"
    carriers = Carriers(all=[Carrier.DL], last={"a": Carrier.UA})
    for schema in (AvroSchema(Carriers), JsonSchema(Carriers)):
        assert schema.decode(schema.encode(carriers)) == carriers


@pytest.mark.parametrize(
    "field, right, wrong",
    [
        (Null(), [(None, None)], [0]),
        (Boolean(), [(True, True), (None, False)], [1, "x"]),
        (Integer(), [(3, 3), (None, None)], ["x", 1.5]),
        (Integer(default=4), [(None, 4)], [b""]),
        (Long(required=True), [(1 << 40, 1 << 40)], [None, 1.0]),
        (Float(), [(1, 1), (1.5, 1.5)], ["1"]),
        (Double(), [(2, 2)], [b"1"]),
        (Bytes(), [("ü", "ü".encode()), (b"a", b"a")], []),
        (String(), [(b"a", "a"), ("b", "b"), (None, None)], [3, ["x"]]),
        (String(required=True), [], [None]),
        (CustomEnum(Carrier), [("UA", Carrier.UA), (2, Carrier.DL), (None, None)], ["XX", 7, Word.YES, 1.5]),
        (CustomEnum(Word), [("oui", Word.YES), ("YES", Word.YES)], ["non"]),
        (Array(String()), [(["a"], ["a"]), (None, None)], ["a", [1], ["a", None]]),
        (Array(Gate()), [([], [])], [[1]]),
        (Map(Integer()), [({"a": 1}, {"a": 1}), (None, None)], [[], {"a": "1"}, {1: 1}]),
        (Gate(), [(Gate(number=1), Gate(number=1)), (None, None)], [1, Flight(tail="x")]),
        (Gate(required=True), [], [None]),
    ],
)
def test_what_fields_take(field, right, wrong):
    for given, kept in right:
        assert field.validate_type("f", given) == kept
    for given in wrong:
        with pytest.raises(TypeError, match="f"):
            field.validate_type("f", given)


@pytest.mark.parametrize(
    "make", [lambda: Integer(default="x"), lambda: Array(str), lambda: Map(Gate), lambda: CustomEnum(int)]
)
def test_fields_that_cannot_be(make):
    with pytest.raises(TypeError):
        make()


def test_values_are_checked_when_they_are_set():
    gate = Gate(number=1)
    gate.number = 2
    assert (gate.number, gate.open) == (2, False)
    with pytest.raises(TypeError, match="'number'"):
        gate.number = "2"
    with pytest.raises(AttributeError, match="colour"):
        gate.colour = "red"
    with pytest.raises(AttributeError, match="Record has no fields"):
        Record(a=1)
    assert gate == Gate(number=2) != Gate(number=3) and gate != Flight(tail="x")
    assert repr(gate) == "Gate(number=2, open=False)" and str(gate) == "{'number': 2, 'open': False}"


def test_dicts_stand_for_records_and_unknown_names_are_passed_over():
    flight = Flight(tail="N1", gate={"number": 4, "wing": "B"}, gates=[{"number": 5}], colour="red")
    assert flight.gate == Gate(number=4) and flight.gates == [Gate(number=5)] and not hasattr(flight, "colour")
    assert (flight.other, flight.miles, flight.raw) == (Carrier.DL, 5, b"\xff")


def test_records_that_were_not_given_are_each_ones_own():
    one, other = Flight(tail="a"), Flight(tail="b")
    one.gate.number = 9
    assert other.gate.number is None


def test_copies():
    flight = Flight(tail="N1", gate=Gate(number=1))
    for again in (copy.copy(flight), copy.deepcopy(flight), pickle.loads(pickle.dumps(flight))):
        assert again == flight
        again.tail = "N2"
        assert flight.tail == "N1"


def test_what_is_no_field_is_left_out():
    class Colour:
        red = 1

    class Painted(Record):
        a = Integer()
        b = Colour
        c = 5

        def method(self):
            return self.a

    assert [field["name"] for field in Painted.schema()["fields"]] == ["a"] and Painted(a=1).method() == 1
    assert json.loads(JsonSchema(Painted).encode(Painted(a=1))) == {"a": 1}
