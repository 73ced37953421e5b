"""What a column may not become, by its type and by its values, and how values of it are stored; without Spark."""

import json
from datetime import datetime, time
from decimal import Decimal

import pyarrow as pa
import pytest
from pyspark.sql import types as T
from pyspark.sql.pandas.types import to_arrow_type

from pulsar_spark.errors import InvalidConfiguration, InvalidMessage
from pulsar_spark.frames.values.value_decoding import ValueDecoder
from pulsar_spark.frames.values.value_encoding import ValueEncoder
from pulsar_spark.frames.values.value_types import column_type, spark_type_of
from pulsar_spark.protocol.schemas.schema_info import SchemaInfo, SchemaType
from pulsar_spark.schema import AvroSchema, JsonSchema
from tests.frames.value_cases import logical

AVRO, JSON = SchemaType.AVRO, SchemaType.JSON
DECIMAL = logical("bytes", "decimal", precision=6, scale=2)
SEVERAL = ["null", "int", "long", "float", "double", "string", {"type": "array", "items": "int"}]
RECORDS = [{"type": "record", "name": name, "fields": [{"name": field, "type": "int"}]} for name, field in ("Ab", "Ba")]


def info(kind, form=AVRO) -> SchemaInfo:
    record = {"type": "record", "name": "R", "fields": [{"name": "a", "type": kind}]}
    return SchemaInfo(form, form.name, json.dumps(record))


def encoder(given: str, kind, form=AVRO) -> ValueEncoder:
    return ValueEncoder(info(kind, form), T.StructType([T.StructField("a", column_of(given))]))


def encoder_of(column: pa.DataType, kind, form=AVRO) -> ValueEncoder:
    return ValueEncoder(info(kind, form), spark_type_of(column))


ATOMS = {
    "bigint": T.LongType(),
    "binary": T.BinaryType(),
    "boolean": T.BooleanType(),
    "date": T.DateType(),
    "double": T.DoubleType(),
    "float": T.FloatType(),
    "int": T.IntegerType(),
    "interval day to second": T.DayTimeIntervalType(),
    "smallint": T.ShortType(),
    "string": T.StringType(),
    "time": T.TimeType(),
    "timestamp": T.TimestampType(),
    "timestamp_ntz": T.TimestampNTZType(),
    "tinyint": T.ByteType(),
    "variant": T.VariantType(),
    "void": T.NullType(),
}


def column_of(given: str) -> T.DataType:
    """The type of that name; Spark itself would ask its JVM."""
    kind, _, inner = given.partition("<" if "<" in given else "(")
    parts = inner[:-1].split(",")
    if kind == "decimal":
        return T.DecimalType(*map(int, parts))
    if kind == "array":
        return T.ArrayType(column_of(inner[:-1]))
    if kind == "map":
        return T.MapType(*map(column_of, parts))
    if kind == "struct":
        return T.StructType([T.StructField(name, column_of(of)) for name, of in (each.split(":") for each in parts)])
    return ATOMS[given]


def arrow_of(given: str) -> pa.DataType:
    return to_arrow_type(column_of(given), timezone="UTC")


def read(payloads: pa.Array, kind, form=AVRO, writer=None) -> list:
    decoder = ValueDecoder(info(kind, form), {0: info(writer or kind, form)})
    versions = pa.array([0] * len(payloads), pa.int32())
    found = decoder.values(payloads, versions).to_pylist(maps_as_pydicts="strict")
    return [each["value"]["a"] if each["value"] else each["value_error"] for each in found]


@pytest.mark.parametrize("form", [AVRO, JSON])
@pytest.mark.parametrize(
    "given, kind",
    [
        ("double", "int"),
        ("bigint", "int"),
        ("bigint", "double"),
        ("int", "float"),
        ("double", "float"),
        ("decimal(4,2)", "double"),
        ("decimal(4,0)", "long"),
        ("boolean", "int"),
        ("int", "boolean"),
        ("int", "string"),
        ("binary", "string"),
        ("timestamp", "string"),
        ("timestamp", "long"),
        ("timestamp", logical("int", "date")),
        ("string", logical("int", "date")),
        ("date", logical("long", "timestamp-millis")),
        ("timestamp_ntz", logical("long", "timestamp-micros")),
        ("timestamp", logical("long", "local-timestamp-millis")),
        ("int", logical("string", "uuid")),
        ("decimal(7,2)", DECIMAL),
        ("decimal(6,3)", DECIMAL),
        ("double", DECIMAL),
        ("int", DECIMAL),
        ("string", DECIMAL),
        ("interval day to second", "long"),
        ("variant", "string"),
        ("struct<member0:int,member1:bigint>", SEVERAL),
        ("int", SEVERAL),
        ("array<double>", {"type": "array", "items": "int"}),
        ("map<string,double>", {"type": "map", "values": ["null", "int"]}),
        ("map<int,int>", {"type": "map", "values": "int"}),
        ("struct<ab:double>", {"type": "record", "name": "Ab", "fields": [{"name": "ab", "type": "int"}]}),
        ("struct<AB:int>", {"type": "record", "name": "Ab", "fields": [{"name": "ab", "type": "int"}]}),
        ("struct<ab:int,ab:int>", {"type": "record", "name": "Ab", "fields": [{"name": "ab", "type": "int"}]}),
    ],
)
def test_a_column_that_can_lose_something_is_refused_by_its_field(given, kind, form):
    with pytest.raises(InvalidMessage, match=r"field 'a[^']*' of column 'value'"):
        encoder(given, kind, form)


def test_bytes_have_no_json():
    with pytest.raises(InvalidConfiguration, match="field 'a'"):
        encoder("binary", "bytes", JSON)


@pytest.mark.parametrize(
    "given, kind, value, stored",
    [
        ("tinyint", "long", 5, 5),
        ("smallint", "float", 5, 5),
        ("int", "double", 5, 5),
        ("float", "double", 0.1, 0.10000000149011612),
        ("string", "bytes", "grüße", "grüße".encode()),
        ("int", logical("int", "date"), 5, 5),
        ("bigint", logical("long", "timestamp-millis"), 5, 5),
        ("bigint", DECIMAL.copy() | {"precision": 19, "scale": 0}, 2**62, (2**62).to_bytes(8, "big")),
        ("tinyint", DECIMAL, -128, (-12800).to_bytes(2, "big", signed=True)),
        ("decimal(2,1)", DECIMAL, Decimal("1.5"), b"\0\x96"),
        ("binary", DECIMAL, b"\0\x96", b"\0\x96"),
        ("time", logical("int", "time-millis"), time(0, 0, 1), 1000),
        ("timestamp", logical("long", "timestamp-millis"), datetime(2024, 2, 29, 12, 0, 0, 123000), 1709208000123),
        ("void", ["null", "int"], None, None),
    ],
)
def test_a_column_that_loses_nothing_is_taken(given, kind, value, stored):
    made = encoder(given, kind)
    kind = kind | {"logicalType": "none"} if isinstance(kind, dict) else kind
    column = arrow_of(given)
    assert read(made.payloads(pa.array([{"a": value}], pa.struct([("a", column)]))), kind) == [stored]


@pytest.mark.parametrize("form", [AVRO, JSON])
@pytest.mark.parametrize(
    "given, kind, value, why",
    [
        ("int", "int", None, "null"),
        ("boolean", "boolean", None, "null"),
        ("string", {"type": "enum", "name": "E", "symbols": ["A"]}, "B", "symbols"),
        ("string", logical("string", "uuid"), "5", "uuid"),
        ("timestamp", logical("long", "timestamp-millis"), datetime(1969, 1, 1, 0, 0, 0, 1), "milliseconds"),
        ("timestamp_ntz", ["null", logical("long", "local-timestamp-millis")], datetime.max, "milliseconds"),
        ("time", logical("int", "time-millis"), time(0, 0, 0, 1), "milliseconds"),
        ("array<int>", {"type": "array", "items": "int"}, [1, None], "null"),
        ("map<string,int>", {"type": "map", "values": "int"}, [("k", None)], "null"),
        ("string", "null", "x", "null"),
        ("struct<member0:int,member1:string>", ["int", "string"], {"member0": 1, "member1": "x"}, "2 members"),
        ("struct<member0:int,member1:string>", ["int", "string"], {}, "0 members"),
    ],
)
def test_a_value_that_loses_something_is_refused_by_its_field(given, kind, value, why, form):
    made = encoder(given, kind, form)
    with pytest.raises(InvalidMessage, match=rf"^field 'a(\[\]|{{}})?' of column 'value' .*{why}"):
        made.payloads(pa.array([{"a": value}], pa.struct([("a", arrow_of(given))])))


def test_what_only_avro_has_is_refused_by_its_field():
    for given, kind, value in (("binary", {"type": "fixed", "name": "F", "size": 2}, b"x"),):
        with pytest.raises(InvalidMessage, match="field 'a' .* 2 bytes"):
            encoder(given, kind).payloads(pa.array([{"a": value}], pa.struct([("a", arrow_of(given))])))
    text = pa.array([b"\xff"]).view(pa.string())
    with pytest.raises(InvalidMessage, match="UTF-8"):
        encoder("string", "string").payloads(pa.StructArray.from_arrays([text], ["a"]))


def union(number: int, value) -> dict:
    return {f"member{each}": value if each == number else None for each in range(len(SEVERAL) - 1)}


MEMBERS = [union(0, 5), union(1, 5), union(2, 0.5), union(3, 0.1), union(4, "x"), union(5, [1, 2]), None]


def test_a_union_of_several_types_is_a_struct_of_members():
    column = column_type(info(SEVERAL))
    values = pa.array([{"a": each} for each in MEMBERS], column)
    payloads = encoder_of(column, SEVERAL).payloads(values)
    assert read(payloads, SEVERAL) == MEMBERS
    plain = [each and next(value for value in each.values() if value is not None) for each in MEMBERS]
    schema = AvroSchema(None, json.loads(info(SEVERAL).schema()))
    assert [schema.decode(each)["a"] for each in payloads.to_pylist()] == plain
    as_written = pa.array([schema.encode({"a": each}) for each in plain], pa.binary())
    assert read(as_written, SEVERAL) == [union(0, 5), union(0, 5), union(3, 0.5), *MEMBERS[3:]]
    text = encoder_of(column, SEVERAL, JSON).payloads(values)
    assert [json.loads(each)["a"] for each in text.to_pylist()] == plain
    assert read(text, SEVERAL, JSON) == [
        union(0, 5),
        union(0, 5),
        union(2, 0.5),
        union(2, pytest.approx(0.1)),
        *MEMBERS[4:],
    ]


def test_members_that_have_names():
    kind = [
        *RECORDS,
        {"type": "enum", "name": "E", "symbols": ["A"]},
        "string",
        {"type": "fixed", "name": "F", "size": 1},
    ]
    column = column_type(info(kind))
    nothing = {f"member{each}": None for each in range(5)}
    values = [
        nothing | each
        for each in (
            {"member0": {"b": 1}},
            {"member1": {"a": 2}},
            {"member2": "A"},
            {"member3": "A"},
            {"member4": b"A"},
        )
    ]
    payloads = encoder_of(column, kind).payloads(pa.array([{"a": each} for each in values], column))
    assert read(payloads, kind) == values


@pytest.mark.parametrize(
    "kind, number, value",
    [
        (["double", "long"], 1, 2**53 + 1),
        (["double", "long"], 0, 1e16),
        ([logical("bytes", "decimal", precision=4, scale=2), "long"], 1, 5),
        ([logical("bytes", "decimal", precision=4, scale=2), "double"], 1, 0.5),
        ([logical("bytes", "decimal", precision=4, scale=2), "double"], 0, Decimal("0.50")),
        ([logical("string", "uuid"), "string"], 1, "hello"),
        ([{"type": "enum", "name": "E", "symbols": ["A"]}, "string", "int"], 1, "B"),
        ([{"type": "enum", "name": "E", "symbols": ["A"]}, "string", "int"], 2, 5),
        (RECORDS, 0, {"b": 1}),
        (RECORDS, 1, {"a": 2}),
        (RECORDS[::-1], 1, {"b": 1}),
        ([{"type": "map", "values": "int"}, RECORDS[0]], 0, {"c": 1}),
    ],
)
def test_json_of_a_union_is_read_as_the_member_that_it_is_like(kind, number, value):
    column = column_type(info(kind))
    values = [{f"member{each}": value if each == number else None for each in range(len(kind))}]
    payloads = encoder_of(column, kind, JSON).payloads(pa.array([{"a": each} for each in values], column))
    assert read(payloads, kind, JSON) == values


def test_one_of_two_numbers_is_the_wider_one():
    for given, kind, value in (
        ("bigint", ["int", "long"], 5),
        ("bigint", ["null", "long", "int"], 2**40),
        ("double", ["float", "null", "double"], 0.1),
        ("double", ["float", "double"], float("inf")),
    ):
        payloads = encoder(given, kind).payloads(pa.array([{"a": value}], pa.struct([("a", arrow_of(given))])))
        assert read(payloads, kind) == [value]


@pytest.mark.parametrize(
    "writer, reader, value, read_as",
    [
        ("int", ["long", "string"], 5, {"member0": 5, "member1": None}),
        (["int", "string"], ["string", "double"], 5, {"member0": None, "member1": 5.0}),
        (["int", "string"], ["string", "double"], "x", {"member0": "x", "member1": None}),
        (["int", "string"], "string", "x", "x"),
        (["null", "int"], ["null", "long", "string"], None, None),
        (logical("long", "timestamp-millis"), "long", 1, 1),
        ("long", logical("long", "timestamp-millis"), 1, datetime(1970, 1, 1, 0, 0, 0, 1000)),
    ],
)
def test_what_another_schema_wrote(writer, reader, value, read_as):
    payload = AvroSchema(None, json.loads(info(writer).schema())).encode({"a": value})
    (found,) = read(pa.array([payload]), reader, writer=writer)
    assert (found.replace(tzinfo=None) if isinstance(found, datetime) else found) == read_as


@pytest.mark.parametrize(
    "kind, payload",
    [
        (["int", "string", "null"], b'{"a": 2.5}'),
        (logical("int", "date"), b'{"a": 2147483648}'),
        (logical("int", "date"), b'{"a": "2024-02-29"}'),
        (logical("long", "timestamp-millis"), b'{"a": 9223372036854775807}'),
        (logical("long", "time-micros"), b'{"a": 86400000000}'),
        (DECIMAL, b'{"a": 1.234}'),
        (DECIMAL, b'{"a": "12345.67"}'),
        (DECIMAL, b'{"a": 1e999999999}'),
        (DECIMAL, b'{"a": "NaN"}'),
        (DECIMAL, b'{"a": true}'),
        (DECIMAL, b"null"),
        (DECIMAL, b"{"),
        (DECIMAL, b"\xff"),
    ],
)
def test_json_that_is_not_of_the_schema_says_so(kind, payload):
    good = b'{"a": null}'
    wrong, right = read(pa.array([payload, good]), kind, JSON)
    assert "not JSON that fits the schema" in str(wrong) or "int" in str(wrong)


def test_avro_that_no_column_holds_says_so_and_the_others_are_read():
    writers = [AvroSchema(None, json.loads(info(kind).schema())) for kind in ("int", DECIMAL)]
    big, small = (writers[0].encode({"a": each}) for each in (2**40, 5))
    wrong, right = read(pa.array([big, small]), "int")
    assert isinstance(wrong, str) and right == 5
    many = AvroSchema(None, json.loads(info("bytes").schema())).encode({"a": b"\x7f" * 9})
    assert "digits" in read(pa.array([many]), DECIMAL)[0]


def test_decimals_of_json_are_texts_of_digits_and_numbers_are_read():
    schema = JsonSchema(None, json.loads(info(["null", DECIMAL]).schema()))
    made = encoder("decimal(6,2)", ["null", DECIMAL], JSON)
    payload = made.payloads(pa.array([{"a": Decimal("1234.50")}], pa.struct([("a", pa.decimal128(6, 2))])))
    assert json.loads(payload[0].as_py()) == {"a": "1234.50"} == json.loads(schema.encode({"a": Decimal("1234.5")}))
    for text in (b'{"a": 1234.5}', b'{"a": "1234.50"}'):
        assert read(pa.array([text]), ["null", DECIMAL], JSON) == [Decimal("1234.50")]
        assert schema.decode(text) == {"a": Decimal("1234.50")}


def test_what_is_no_number_is_a_text_in_json_that_clients_read():
    schema = JsonSchema(None, json.loads(info("double").schema()))
    values = [float("nan"), float("inf"), float("-inf")]
    payloads = encoder("double", "double", JSON).payloads(pa.array([{"a": each} for each in values]))
    assert [json.loads(each)["a"] for each in payloads.to_pylist()] == ["NaN", "Infinity", "-Infinity"]
    assert str([schema.decode(each)["a"] for each in payloads.to_pylist()]) == str(values)
