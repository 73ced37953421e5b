"""Which definitions read each other, and which schemas a topic takes by which strategy."""

import json

import pytest

from pulsar_spark.protocol.policies.policies import SCHEMA_STRATEGIES
from pulsar_spark.protocol.schemas.avro_resolution import InvalidDefinition, parse_definition, unreadable
from pulsar_spark.protocol.schemas.schema_compatibility import (
    consumer_refusal,
    invalid,
    is_same_schema,
    refusal,
    strategy_of,
)
from pulsar_spark.protocol.schemas.schema_info import SchemaInfo, SchemaType

ENUM = {"type": "enum", "name": "n.E", "symbols": ["A", "B"]}
FIXED = {"type": "fixed", "name": "F", "size": 4}


def record(*fields, name="R", **more) -> dict:
    """A record with these fields: (name, type) or (name, type, default)."""
    return {
        "type": "record",
        "name": name,
        "fields": [dict(zip(("name", "type", "default"), each)) for each in fields],
    } | more


LIST = record(("value", "int"), ("next", ["null", "List"]), name="List")
RENAMED = {"type": "record", "name": "R", "fields": [{"name": "b", "type": "int", "aliases": ["a"]}]}


READS = [
    *[("int", kind, True) for kind in ("int", "long", "float", "double")],
    *[("long", kind, kind != "int") for kind in ("int", "long", "float", "double")],
    *[("float", kind, kind in ("float", "double")) for kind in ("int", "long", "float", "double")],
    ("double", "float", False),
    ("string", "bytes", True),
    ("bytes", "string", True),
    ("string", "int", False),
    ("null", "boolean", False),
    ({"type": "string"}, "string", True),
    ("int", ["null", "int"], True),
    ("int", ["null", "double"], True),
    ("int", ["null", "string"], False),
    (["null", "int"], "int", False),
    (["int"], "long", True),
    (["null", "int"], ["int", "null"], True),
    (["null", "int", "string"], ["null", "int"], False),
    ({"type": "array", "items": "int"}, {"type": "array", "items": "long"}, True),
    ({"type": "array", "items": "long"}, {"type": "array", "items": "int"}, False),
    ({"type": "map", "values": "int"}, {"type": "map", "values": ["null", "int"]}, True),
    ({"type": "map", "values": "int"}, {"type": "array", "items": "int"}, False),
    (ENUM, ENUM | {"symbols": ["A"]}, True),  # a message with B is an error of its own
    (ENUM, ENUM | {"name": "other.E"}, True),
    (ENUM, ENUM | {"name": "D"}, False),
    (ENUM, ENUM | {"name": "D", "aliases": ["n.E"]}, True),
    (FIXED, FIXED, True),
    (FIXED, FIXED | {"size": 5}, False),
    (record(), record(("a", "int")), False),
    (record(), record(("a", "int", 0)), True),
    (record(), record(("a", ["null", "int"], None)), True),
    (record(("a", "int")), record(), True),
    (record(("a", "int")), record(("a", "long"), name="Other"), True),  # names of records do not count
    (record(("a", "int")), record(("a", "string")), False),
    (record(("a", "int"), ("b", "string")), record(("b", "string"), ("a", "int")), True),
    (record(("a", "int")), RENAMED, True),
    (record(("c", "int")), RENAMED, False),
    (["null", record(("a", "int"))], ["null", record(("a", "long"), name="S")], True),
    (["null", record(("a", "int"))], ["null", record(("a", "string"), name="S")], False),
    (record(("a", "int")), [record(("a", "int"), name="S"), record(("a", "string"))], False),  # of its name, so it
    ([ENUM, "null"], ["null", ENUM | {"name": "other.E"}], False),
    ([ENUM, "null"], [ENUM | {"name": "other.E"}, "null"], True),
    (LIST, LIST, True),
    (LIST, record(("value", "int"), ("next", ["null", "List"]), ("more", "int"), name="List"), False),
    (record(("a", ENUM), ("b", "n.E")), record(("a", ENUM), ("b", ENUM | {"name": "G"}), namespace="n"), False),
    (record(("a", ENUM | {"name": "E"}), ("b", "E"), namespace="n"), record(("a", ENUM), ("b", "n.E")), True),
]
"""Writer, reader, and whether it reads; what Avro says is asked in tests/differential/test_avro_resolution.py."""


@pytest.mark.parametrize("writer, reader, can_read", READS)
def test_what_reads_what(writer, reader, can_read):
    why = unreadable(*(parse_definition(json.dumps(each)) for each in (writer, reader)))
    assert (why is None) is can_read, why


@pytest.mark.parametrize(
    "text",
    [
        "",
        "null",
        "5",
        "{}",
        '"colour"',
        '{"type": "record", "name": "R"}',
        '{"type": "record", "fields": []}',
        '{"type": "record", "name": "R", "fields": [{"name": "a", "type": "Q"}]}',
        '{"type": "enum", "name": "E"}',
        '{"type": "fixed", "name": "F", "size": "x"}',
        "[" * 100_000,
    ],
)
def test_what_defines_nothing(text):
    with pytest.raises(InvalidDefinition):
        parse_definition(text)
    assert invalid(SchemaInfo(SchemaType.AVRO, "AVRO", text))


def avro(*fields, name="R", kind=SchemaType.AVRO) -> SchemaInfo:
    return SchemaInfo(kind, kind.name, json.dumps(record(*fields, name=name)))


BASE = avro(("a", "int"))
ADDED = avro(("a", "int"), ("b", "int"))  # the old one reads the new one
OPTIONAL = avro(("a", "int"), ("b", "int", 0))  # each reads the other
GONE = avro()  # the new one reads the old one
OTHER = avro(("a", "string"))
CHANGES = {"added": ADDED, "optional": OPTIONAL, "gone": GONE, "other": OTHER}


@pytest.mark.parametrize(
    "strategy, producers, consumers",
    [
        ("FULL", ["optional"], ["optional", "gone"]),
        ("BACKWARD", ["optional", "gone"], ["optional", "gone"]),
        ("FORWARD", ["added", "optional"], ["optional", "gone"]),
        ("ALWAYS_COMPATIBLE", [*CHANGES], [*CHANGES]),
        ("ALWAYS_INCOMPATIBLE", [], []),
        ("FULL_TRANSITIVE", ["optional"], ["optional"]),
        ("BACKWARD_TRANSITIVE", ["optional", "gone"], ["optional", "gone"]),
        ("FORWARD_TRANSITIVE", ["added", "optional"], ["optional", "gone"]),
    ],
)
@pytest.mark.parametrize("kind", [SchemaType.AVRO, SchemaType.JSON])
def test_the_strategies(strategy, producers, consumers, kind):
    def of(info: SchemaInfo) -> SchemaInfo:
        return SchemaInfo(kind, kind.name, info.schema())

    taken = [
        [name for name, new in CHANGES.items() if judge([of(BASE)], of(new), strategy) is None]
        for judge in (refusal, consumer_refusal)
    ]
    assert taken == [producers, consumers]
    assert consumer_refusal([of(BASE)], of(BASE), strategy) is refusal([of(BASE)], of(BASE), strategy) is None
    assert refusal([], of(OTHER), strategy) is None, "the first is always taken"


def test_transitive_strategies_hold_against_all_and_the_others_against_the_latest():
    kept = [avro(("a", "int"), ("b", "int", 0)), avro(("a", "int"))]
    back = avro(("a", "int"), ("b", "string", ""))
    for strategy in ("BACKWARD", "FORWARD", "FULL"):
        assert refusal(kept, back, strategy) is None
        assert "field 'b'" in refusal(kept, back, f"{strategy}_TRANSITIVE")
    assert consumer_refusal(kept, back, "FORWARD_TRANSITIVE") is None
    assert consumer_refusal(kept, back, "BACKWARD_TRANSITIVE") and consumer_refusal(kept, back, "FULL_TRANSITIVE")


def test_types_do_not_change():
    text, as_json = SchemaInfo(SchemaType.STRING, "STRING", "null"), SchemaInfo(SchemaType.JSON, "J", BASE.schema())
    for old, new in ((BASE, as_json), (text, BASE), (BASE, text)):
        for strategy in set(SCHEMA_STRATEGIES) - {"ALWAYS_COMPATIBLE", "UNDEFINED"}:
            for judge in (refusal, consumer_refusal):
                assert "type" in judge([old], new, strategy)
        assert refusal([old], new, "ALWAYS_COMPATIBLE") is None
    assert refusal([text], SchemaInfo(SchemaType.STRING, "String", ""), "FULL") is None


def test_protobuf_goes_by_its_message():
    def point(name: str, files: str) -> SchemaInfo:
        return SchemaInfo(
            SchemaType.PROTOBUF_NATIVE, "P", json.dumps({"rootMessageTypeName": name, "fileDescriptorSet": files})
        )

    assert refusal([point("t.Point", "a")], point("t.Point", "b"), "FULL") is None
    assert "t.Other" in refusal([point("t.Point", "a")], point("t.Other", "a"), "FULL")
    assert invalid(SchemaInfo(SchemaType.PROTOBUF_NATIVE, "P", "[]"))


def test_one_schema_however_it_is_written():
    other = '{"name":"R","doc":"x","fields":[{"type":{"type":"int"},"name":"a","doc":"y"}],"type":"record"}'
    assert is_same_schema(BASE, SchemaInfo(SchemaType.AVRO, "AVRO", other))
    for different in (
        ADDED,
        avro(("a", "int", 1)),
        avro(("a", "int"), name="S"),
        avro(("a", "int"), kind=SchemaType.JSON),
    ):
        assert not is_same_schema(BASE, different)


def test_undefined_asks_on():
    topic, name = "persistent://public/default/t", "schema_compatibility_strategy"
    policies = {(topic, name): "UNDEFINED"}
    assert strategy_of(policies, topic) == "FULL"
    assert strategy_of(policies | {("public/default", name): "BACKWARD"}, topic) == "BACKWARD"
    assert strategy_of({(topic, name): "FORWARD", ("public/default", name): "BACKWARD"}, topic) == "FORWARD"
