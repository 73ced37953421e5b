"""A typed value that is not the client's, or one that does not fit and is published all the same, is found here."""

import pyarrow as pa
import pytest
from pyspark.sql import types as T

import pulsar_spark as pulsar
from pulsar_spark.errors import IncompatibleSchema, InvalidConfiguration, InvalidMessage
from pulsar_spark.schema import AvroSchema, Integer, JsonSchema, Record, String, StringSchema
from tests.frames.source.reading import read_batch, read_slices, source
from tests.frames.source.test_write import Write, again, in_task, write

TYPED = {"valueSchema": "topic"}


class Order(Record):
    customer = String(required=True)
    items = Integer(default=1, required=True, required_default=True)


VALUE = T.StructType([T.StructField("customer", T.StringType()), T.StructField("items", T.IntegerType())])
ROWS = [{"customer": "a", "items": 2}, None, {"customer": "b", "items": 3}]
TABLE = pa.table({"value": pa.array(ROWS), "key": ["k", None, "l"]})
TABLE = TABLE.set_column(0, "value", pa.array(ROWS, pa.struct({"customer": pa.string(), "items": pa.int32()})))


def send(client, schema, *values, topic="t"):
    producer = client.create_producer(topic, schema=schema)
    for value in values:
        producer.send(value)
    producer.close()


def values(root, **options) -> list:
    found = read_batch(root, **{"topic": "t", **TYPED, **options})
    return list(zip(found["value"].to_pylist(), found["value_error"].to_pylist()))


@pytest.mark.parametrize("schema", [AvroSchema(Order), JsonSchema(Order)], ids=["avro", "json"])
def test_values_there_and_back(root, client, schema):
    send(client, schema, Order(customer="c", items=7))
    assert source(root, topic="t", **TYPED).schema()["value"].dataType == VALUE
    write(root, TABLE, topic="t")
    assert values(root) == [({"customer": "c", "items": 7}, None), *((row, None) for row in ROWS)]
    reader = client.create_reader("t", pulsar.MessageId.earliest, schema)
    read = [reader.read_next(1000).value() for _ in range(2)]
    assert [(each.customer, each.items) for each in read] == [("c", 7), ("a", 2)]


def test_texts_there_and_back(root, client):
    send(client, StringSchema(), "grüße")
    write(root, pa.table({"value": ["a", None]}), topic="t")
    client.create_producer("t").send(b"\xff")
    assert values(root) == [("grüße", None), ("a", None), (None, None), (None, "ValueError: the payload is not UTF-8")]


def test_a_stream_writes_and_reads_values(root, client):
    send(client, AvroSchema(Order), Order(customer="c", items=7))
    made = source(root, topic="t")
    with in_task(0):
        written = again(made.streamWriter(T.StructType([T.StructField("value", VALUE)]), False)).write(
            iter(TABLE.select(["value"]).to_batches())
        )
    made.streamWriter(T.StructType([T.StructField("value", VALUE)]), False).commit([written], 0)
    made = source(root, topic="t", **TYPED)
    reader = made.streamReader(made.schema())
    begin = reader.initialOffset()
    slices = reader.partitions(begin, reader.latestOffset(begin, reader.getDefaultReadLimit()))
    reader = made.streamReader(made.schema())
    assert read_slices(reader, slices, made.schema())["value"].to_pylist() == [{"customer": "c", "items": 7}, *ROWS]


def test_older_versions_are_read_as_the_latest(root, client):
    class Older(Record):
        customer = String(required=True)

    send(client, AvroSchema(Older), Older(customer="old"))
    send(client, AvroSchema(Order), Order(customer="new", items=2))
    assert [value for value, _ in values(root)] == [{"customer": "old", "items": 1}, {"customer": "new", "items": 2}]


def test_few_columns_and_several_topics(root, client):
    for topic in ("t", "u"):
        send(client, AvroSchema(Order), Order(customer=topic), topic=topic)
    schema = T.StructType([T.StructField("value", VALUE)])
    found = read_batch(root, schema, topics="t,u", **TYPED)
    assert found.to_pylist() == [{"value": {"customer": name, "items": 1}} for name in ("t", "u")]
    send(client, StringSchema(), "text", topic="v")
    with pytest.raises(IncompatibleSchema, match="default/t' and '.*default/v' have different types: read them one"):
        source(root, topics="t,v", **TYPED).schema()


@pytest.mark.parametrize(
    "value, error",
    [
        (pa.array([1]), "column 'value' is a bigint"),
        (pa.array([{"customer": "a", "items": 1.5}]), "field 'items' of column 'value' is a double"),
        (pa.array([{"customer": None, "items": 1}], pa.struct({"customer": pa.string(), "items": pa.int32()})), "null"),
        (pa.array([{"customer": "a", "item": 1}]), "'item'"),
    ],
)
@pytest.mark.parametrize("schema", [AvroSchema(Order), JsonSchema(Order)], ids=["avro", "json"])
def test_a_value_of_the_wrong_type_is_named_and_publishes_nothing(root, client, schema, value, error):
    send(client, schema, Order(customer="c", items=7))
    with pytest.raises(InvalidMessage, match=error) as failed:
        Write(root, pa.table({"value": value}), topic="t").commit()
    assert "pulsar_spark refuses" not in str(failed.value)
    assert len(values(root)) == 1


def test_topics_without_a_schema(root, client):
    with pytest.raises(InvalidMessage, match="topic 't' has no schema by which to encode column 'value'"):
        write(root, TABLE, topic="t")
    client.create_producer("t").send(b"x")
    with pytest.raises(InvalidMessage, match="topic 't' has no schema by which to encode column 'value'"):
        write(root, TABLE, topic="t")
    with pytest.raises(IncompatibleSchema, match="default/t' has no schema: leave out the option 'valueSchema'"):
        source(root, topic="t", **TYPED).schema()
    with pytest.raises(InvalidConfiguration, match="option 'valueSchema' is 'order': give 'topic', the topic's schema"):
        source(root, topic="t", valueSchema="order").schema()
    with pytest.raises(InvalidConfiguration, match="options valueSchema and columns contradict each other"):
        source(root, topic="t", columns="connector", **TYPED).schema()
