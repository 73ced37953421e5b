"""AvroSchema and ProtobufNativeSchema: bytes and back, alone and from what another schema wrote."""

import base64
import json
import pickle
import sys
from enum import Enum

import pytest

from pulsar_spark.errors import IncompatibleSchema
from pulsar_spark.schema import (
    Array,
    AvroSchema,
    CustomEnum,
    Double,
    Integer,
    JsonSchema,
    Map,
    ProtobufNativeSchema,
    Record,
    SchemaInfo,
    SchemaType,
    String,
    StringSchema,
)


class Carrier(Enum):
    UA = 1
    DL = 2


class Leg(Record):
    origin = String()
    carrier = CustomEnum(Carrier)


class Trip(Record):
    name = String()
    first = Leg()
    legs = Array(Leg())
    by_day = Map(Array(Map(Leg())))


class TripLater(Record):
    name = String()
    legs = Array(Leg())
    price = Double(default=9.5, required_default=True, required=True)


TRIP = Trip(
    name="t",
    first=Leg(origin="JFK", carrier=Carrier.DL),
    legs=[Leg(origin="LGA"), Leg()],
    by_day={"mon": [{"a": Leg(origin="EWR")}]},
)


@pytest.mark.parametrize("schema", [AvroSchema(Trip), JsonSchema(Trip)], ids=str)
def test_nested_records_there_and_back(schema):
    assert schema.decode(schema.encode(TRIP)) == TRIP
    assert pickle.loads(pickle.dumps(schema)).encode(TRIP) == schema.encode(TRIP), "Spark sends schemas to its tasks"


def test_dicts_of_a_definition():
    schema = AvroSchema(None, schema_definition=Trip.schema())
    assert schema.decode(AvroSchema(Trip).encode(TRIP))["first"] == {"origin": "JFK", "carrier": "DL"}
    assert schema.decode(schema.encode({"name": "x", "first": None, "legs": [], "by_day": None}))["name"] == "x"
    with pytest.raises(ValueError, match="dict"):
        schema.encode(TRIP)


class _Message:
    """A message as decoding sees it."""

    def __init__(self, data: bytes | None):
        self._data = data

    def has_null_value(self) -> bool:
        return self._data is None

    def data(self) -> bytes:
        return self._data or b""


class _Kept:
    """A client that knows who wrote."""

    def __init__(self, info: SchemaInfo | None):
        self._info = info

    def _writer_schema(self, message) -> SchemaInfo | None:
        return self._info


def test_a_message_is_resolved_from_what_its_writer_wrote():
    reader, written = AvroSchema(TripLater), _Message(AvroSchema(Trip).encode(TRIP))
    for _ in range(2):
        reader.attach_client(_Kept(AvroSchema(Trip).schema_info()))
        value = reader.decode_message(written)
        assert value == TripLater(name="t", legs=TRIP.legs, price=9.5)
        reader.attach_client(_Kept(None))
        own = TripLater(name="x", price=1.0)
        assert reader.decode_message(_Message(reader.encode(own))) == own
    assert reader.decode_message(_Message(None)) is None
    reader.attach_client(_Kept(JsonSchema(Trip).schema_info()))
    with pytest.raises(IncompatibleSchema, match="JSON"):
        reader.decode_message(_Message(JsonSchema(Trip).encode(TRIP)))


def test_what_cannot_be():
    with pytest.raises(AssertionError, match="both None"):
        AvroSchema(None)
    for wrong in (Trip(name="x"), dict, "Trip"):
        with pytest.raises(TypeError):
            AvroSchema(wrong)
        with pytest.raises(TypeError):
            AvroSchema(Trip).encode(Leg(origin="x"))


def test_without_the_library_it_is_said_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "fastavro", None)
    with pytest.raises(ImportError, match=r"pulsar_spark\[avro\]"):
        AvroSchema(Trip)


def test_schemas_are_equal_by_class_and_definition():
    assert AvroSchema(Trip) == AvroSchema(Trip) != JsonSchema(Trip) and AvroSchema(Trip) != AvroSchema(Leg)
    assert StringSchema() == StringSchema() and len({StringSchema(), StringSchema(), AvroSchema(Trip)}) == 2
    assert (repr(AvroSchema(Trip)), str(StringSchema())) == ("AvroSchema(Trip)", "StringSchema")
    assert StringSchema().schema_info() == SchemaInfo(SchemaType.STRING, "STRING", "null")


@pytest.fixture
def point():
    """A generated class of Protobuf."""
    pb2 = pytest.importorskip("google.protobuf.descriptor_pb2")
    from google.protobuf import descriptor_pool, message_factory

    pool = descriptor_pool.DescriptorPool()
    for name, imports in (("unit.proto", []), ("point.proto", ["unit.proto"])):
        file = pb2.FileDescriptorProto(name=name, package="t", syntax="proto3", dependency=imports)
        message = file.message_type.add(name=name.split(".")[0].title())
        message.field.add(name="x", number=1, type=pb2.FieldDescriptorProto.TYPE_INT32, label=1)
        pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("t.Point"))


def test_protobuf(point):
    from google.protobuf.descriptor_pb2 import FileDescriptorSet

    schema = ProtobufNativeSchema(point)
    assert schema.decode(schema.encode(point(x=5))).x == 5
    said = json.loads(schema.schema_info().schema())
    files = FileDescriptorSet.FromString(base64.b64decode(said["fileDescriptorSet"])).file
    assert [file.name for file in files] == ["unit.proto", "point.proto"], "what is imported comes first"
    assert (said["rootMessageTypeName"], said["rootFileDescriptorName"]) == ("t.Point", "point.proto")
    assert schema.schema_info().schema_type() is SchemaType.PROTOBUF_NATIVE
    for call in (lambda: schema.encode("x"), lambda: ProtobufNativeSchema(str)):
        with pytest.raises(TypeError):
            call()


def test_without_protobuf_it_is_said_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "google.protobuf.message", None)
    with pytest.raises(ImportError, match=r"pulsar_spark\[protobuf\]"):
        ProtobufNativeSchema(Integer)
