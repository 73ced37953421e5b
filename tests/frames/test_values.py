"""Typed columns: published with a schema that the topic keeps, and read by frames and clients as they were written."""

import json

import pytest
from pyspark.sql import functions as F

import pulsar_spark as pulsar
from pulsar_spark.admin import Admin
from pulsar_spark.errors import IncompatibleSchema, InvalidConfiguration, InvalidMessage
from pulsar_spark.frames import consume, decode_values, publish, read_messages
from pulsar_spark.frames.values.value_types import arrow_type
from pulsar_spark.protocol.schemas.avro_resolution import parse_definition
from pulsar_spark.schema import (
    Array,
    AvroSchema,
    Bytes,
    BytesSchema,
    Integer,
    JsonSchema,
    Map,
    Record,
    String,
    StringSchema,
)
from pulsar_spark.testing.plain_broker import PlainBroker


class Item(Record):
    name = String(required=True)
    raw = Bytes()


class Order(Record):
    customer = String(required=True)
    items = Array(Item(), required_default=True)
    counts = Map(Integer(), required_default=True)


class Simple(Record):
    customer = String(required=True)
    price = Integer(default=7, required=True, required_default=True)


class Plain(Record):
    customer = String(required=True)
    words = Array(String())


ORDERS = "customer string, items array<struct<name: string, raw: binary>>, counts map<string, int>"


@pytest.fixture
def client(root):
    client = pulsar.Client(f"delta:{root}")
    yield client
    client.close()


def values(frame) -> list:
    rows = frame.orderBy("position").select(F.to_json("value"), "value_error").collect()
    return [json.loads(row[0]) if row[0] else row[1] for row in rows]


def received(client, topic: str, schema, count: int) -> list:
    reader = client.create_reader(topic, pulsar.MessageId.earliest, schema=schema)
    return [reader.read_next(60_000).value() for _ in range(count)]


def test_avro_there_and_back(spark, root, client):
    """A frame is published, a client too, with another schema, and each reads what both wrote."""
    rows = spark.createDataFrame(
        [(("a", [("x", b"\x00"), ("y", None)], {"n": 1}), "k"), (("b", None, None), "k"), (None, "k")],
        f"value struct<{ORDERS}>, key string",
    ).coalesce(1)
    assert publish(rows, root, "t", schema=AvroSchema(Order)).messages == 3
    client.create_producer("t", schema=AvroSchema(Simple)).send(Simple(customer="c", price=3))
    client.create_producer("t").send(b"\x07")
    assert received(client, "t", AvroSchema(Order), 4) == [
        Order(customer="a", items=[Item(name="x", raw=b"\x00"), Item(name="y")], counts={"n": 1}),
        Order(customer="b"),
        None,
        Order(customer="c"),
    ]
    messages = read_messages(spark, root, "t").selectExpr("*", "1 AS decoded")
    found = decode_values(messages, root, "t", schema=AvroSchema(Order))
    assert set(found.columns) == {*messages.columns, "value", "value_error"}, "columns of one's own stay"
    assert found.schema["value"].dataType.simpleString() == (
        "struct<customer:string,items:array<struct<name:string,raw:binary>>,counts:map<string,int>>"
    )
    *said, wrong = values(found)
    assert said == [
        {"customer": "a", "items": [{"name": "x", "raw": "AA=="}, {"name": "y"}], "counts": {"n": 1}},
        {"customer": "b"},
        None,
        {"customer": "c"},
    ]
    assert isinstance(wrong, str) and wrong, "what cannot be read says why, and the others are read"
    latest = decode_values(messages, root, "t").filter("partition_key is not null and value is not null")
    assert sorted(values(latest), key=str) == [{"customer": "a", "price": 7}, {"customer": "b", "price": 7}]


def test_json_and_text_by_a_consumer(spark, root, client):
    plain = spark.sql("SELECT named_struct('words', array('x'), 'customer', id || '') value FROM range(2)").coalesce(1)
    publish(plain, root, "j", schema=JsonSchema(Plain))
    client.create_producer("j").send(b"{")
    client.create_producer("j").send(None)
    assert received(client, "j", JsonSchema(Plain), 2) == [Plain(customer=str(n), words=["x"]) for n in (0, 1)]
    publish(spark.sql("SELECT 'grüße' value"), root, "s", schema=StringSchema())
    assert received(client, "s", StringSchema(), 1) == ["grüße"]
    got = []
    with PlainBroker(root):
        consumption = consume(
            spark, root, "j", "s", lambda messages, _: got.extend(values(decode_values(messages, root, "j"))),
            available_now=True,
        )  # fmt: skip
        assert consumption.await_termination(60)
    *said, wrong, nothing = got
    assert said == [{"customer": "0", "words": ["x"]}, {"customer": "1", "words": ["x"]}]
    assert "not JSON" in wrong and nothing is None
    (row,) = decode_values(read_messages(spark, root, "s"), root, "s").collect()
    assert (row["value"], row["value_error"], row["schema_version"]) == ("grüße", None, 0)


class Earlier(Record):
    customer = String(required=True)


class Later(Record):
    """The same record, as a later release writes it."""

    customer = String(required=True)
    price = Integer(default=7, required=True, required_default=True)
    note = String(default="none", required_default=True)


Later.__name__ = Earlier.__name__


def test_json_that_lacks_a_field_has_its_default(spark, root, client):
    """As the client's records have it; a null that is written is a null in a frame."""
    publish(spark.sql("SELECT named_struct('customer', 'a') value"), root, "d", schema=JsonSchema(Earlier))
    client.create_producer("d", schema=JsonSchema(Later)).send(Later(customer="b", price=3))
    written = spark.sql("SELECT named_struct('customer', 'c', 'price', 5, 'note', CAST(null AS STRING)) value")
    publish(written, root, "d", schema=JsonSchema(Later))
    assert [(each.price, each.note) for each in received(client, "d", JsonSchema(Later), 3)] == [
        (7, "none"),
        (3, "none"),
        (5, "none"),
    ]
    assert values(decode_values(read_messages(spark, root, "d"), root, "d")) == [
        {"customer": "a", "price": 7, "note": "none"},
        {"customer": "b", "price": 3, "note": "none"},
        {"customer": "c", "price": 5},
    ]


def test_what_does_not_fit_is_refused_and_publishes_nothing(spark, root, client):
    order = spark.createDataFrame([(("a", None, None),)], f"value struct<{ORDERS}>")
    client.create_producer("t", schema=AvroSchema(Simple))
    bad = order.withColumn("value", F.col("value").withField("customer", F.lit(None).cast("string")))
    for frame, schema, error in [
        (order.withColumn("payload", F.lit("x")), AvroSchema(Order), InvalidMessage),
        (order.select("value.customer"), AvroSchema(Order), InvalidMessage),
        (order.selectExpr("value.customer value"), AvroSchema(Order), InvalidMessage),
        (order, AvroSchema(Simple), InvalidMessage),
        (order, StringSchema(), InvalidMessage),
        (order, BytesSchema(), InvalidConfiguration),
        (order, JsonSchema(Order), InvalidConfiguration),
        (order, "avro", InvalidConfiguration),
        (bad, AvroSchema(Order), InvalidMessage),
        (
            order.selectExpr("named_struct('customer', 'a', 'words', array('b')) value"),
            JsonSchema(Plain),
            IncompatibleSchema,
        ),
    ]:
        with pytest.raises(error):
            publish(frame, root, "t", schema=schema)
    assert Admin(f"delta:{root}").stats("t")["msgInCounter"] == 0
    with pytest.raises(IncompatibleSchema, match="has no schema"):
        client.create_producer("other").send(b"x")
        decode_values(read_messages(spark, root, "other"), root, "other")
    with pytest.raises(InvalidConfiguration, match="schema_version"):
        decode_values(read_messages(spark, root, "t").drop("schema_version"), root, "t")


@pytest.mark.parametrize(
    "definition, what",
    [
        ('{"type": "bytes", "logicalType": "decimal", "precision": 39}', "39"),
        ('{"type": "record", "name": "L", "fields": [{"name": "next", "type": ["null", "L"]}]}', "contains itself"),
    ],
)
def test_definitions_without_a_column(definition, what):
    with pytest.raises(InvalidConfiguration, match=what):
        arrow_type(parse_definition(definition))
