"""A value of every Avro and JSON type goes between frames and clients, both ways, as it is."""

import pyarrow as pa
import pytest

import pulsar_spark as pulsar
from pulsar_spark.errors import InvalidConfiguration, InvalidMessage
from pulsar_spark.frames import decode_values, publish, publish_stream, read_messages
from pulsar_spark.frames.values.value_types import column_type, spark_type_of
from pulsar_spark.protocol.schemas.schema_info import SchemaType
from pulsar_spark.schema import AvroSchema, JsonSchema, StringSchema
from tests.frames.value_cases import MOST, cases_of, client_value, column, column_value, definition, logical

FORMS = {SchemaType.AVRO: AvroSchema, SchemaType.JSON: JsonSchema}


@pytest.fixture
def client(root):
    client = pulsar.Client(f"delta:{root}")
    yield client
    client.close()


def decoded(spark, root, topic):
    return decode_values(read_messages(spark, root, topic), root, topic).orderBy("position")


def received(client, topic, schema, count) -> list:
    reader = client.create_reader(topic, pulsar.MessageId.earliest, schema=schema)
    return [reader.read_next(60_000).value() for _ in range(count)]


@pytest.mark.parametrize("form", FORMS, ids=lambda form: form.name)
def test_every_type_there_and_back(spark, root, client, form):
    """What a frame and a client publish, both read alike; and what a frame read, it publishes again."""
    cases = cases_of(form)
    schema = FORMS[form](None, definition(cases))
    kind = pa.schema([("value", column_type(schema.schema_info()))])
    rows = pa.Table.from_pylist([{"value": column_value(cases, n)} for n in range(MOST + 1)], kind)
    publish(spark.createDataFrame(rows, spark_type_of(pa.struct(kind))).coalesce(1), root, "t", schema=schema)
    producer = client.create_producer("t", schema=schema)
    wanted = [client_value(cases, n) for n in range(MOST + 1)]
    for value in wanted:
        producer.send(value)
    assert received(client, "t", schema, 2 * len(wanted)) == 2 * wanted
    found = decoded(spark, root, "t")
    assert found.schema["value"].dataType.simpleString() == column(cases)
    read = found.select("value", "value_error").toArrow()
    assert read["value_error"].to_pylist() == [None] * 2 * len(wanted)
    assert read.select(["value"]).cast(kind).to_pylist() == 2 * rows.to_pylist()
    publish(found.select("value").coalesce(1), root, "again", schema=schema)
    assert received(client, "again", schema, 2 * len(wanted)) == 2 * wanted


def record(*fields) -> dict:
    return {"type": "record", "name": "R", "fields": [{"name": name, "type": kind} for name, kind in fields]}


@pytest.fixture
def far_zone(spark):
    """The session's zone is not that of anything stored."""
    before = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", "America/New_York")
    yield
    spark.conf.set("spark.sql.session.timeZone", before)


def test_an_instant_in_milliseconds_is_not_stored_in_seconds(spark, root, far_zone):
    schema = AvroSchema(None, record(("at", logical("long", "timestamp-millis")), ("n", "int")))
    at = "timestamp'2024-02-29 12:00:00.123 UTC' AS at"
    publish(spark.sql(f"SELECT struct(5 AS n, {at}) AS value"), root, "t", schema=schema)
    (row,) = decoded(spark, root, "t").selectExpr("value", "unix_millis(value.at) AS millis").collect()
    assert (row["millis"], row["value"]["n"]) == (1709208000123, 5)
    for wrong, why in (("2.9D", "field 'n' of column 'value' is a double"), ("2.9", "decimal")):
        with pytest.raises(InvalidMessage, match=why):
            publish(spark.sql(f"SELECT struct({wrong} AS n, {at}) AS value"), root, "t", schema=schema)
    with pytest.raises(InvalidMessage, match="field 'at' of column 'value' .* milliseconds"):
        micros = at.replace(".123", ".123456")
        publish(spark.sql(f"SELECT struct(5 AS n, {micros}) AS value"), root, "t", schema=schema)
    assert decoded(spark, root, "t").count() == 1


def test_json_that_spark_writes_has_no_null_that_may_not_be(spark, root, client):
    inner = {"type": "record", "name": "In", "fields": [{"name": "x", "type": "int"}]}
    of_ins = {"type": "array", "items": ["null", inner]}
    schema = JsonSchema(None, record(("s", "string"), ("ins", of_ins), ("m", {"type": "map", "values": "double"})))
    good = "struct(map('k', 0.5D) AS m, array(null, struct(1 AS x)) AS ins, 's' AS s)"
    rows = f"SELECT inline(array(struct({good} AS value), struct(null AS value)))"
    publish(spark.sql(rows), root, "t", schema=schema)
    assert received(client, "t", schema, 1) == [{"s": "s", "ins": [None, {"x": 1}], "m": {"k": 0.5}}]
    for old, new, field in (
        ("'s' AS s", "null AS s", "'s'"),
        ("1 AS x", "cast(null AS int) AS x", r"'ins\[\]\.x'"),
        ("0.5D", "cast(null AS double)", "'m{}'"),
    ):
        with pytest.raises(InvalidMessage, match=f"field {field} of column 'value' is null"):
            publish(spark.sql(f"SELECT {good.replace(old, new)} AS value"), root, "t", schema=schema)
    assert decoded(spark, root, "t").count() == 2


def test_what_is_no_frame_of_spark_and_texts_that_no_client_reads(spark, root):
    pandas = pytest.importorskip("pandas").DataFrame({"payload": ["x"]})
    for call in (
        lambda frame: publish(frame, root, "t"),
        lambda frame: publish_stream(frame, root, "t"),
        lambda frame: decode_values(frame, root, "t"),
    ):
        for frame in (pandas, [{"payload": "x"}], spark):
            with pytest.raises(InvalidConfiguration, match=r"spark.createDataFrame\((frame|messages)\)"):
                call(frame)
    publish(spark.createDataFrame(pandas), root, "t")
    with pytest.raises(InvalidConfiguration, match="publish_stream"):
        publish(spark.readStream.format("rate").load(), root, "t")
    with pytest.raises(InvalidConfiguration, match="with publish$"):
        publish_stream(spark.createDataFrame(pandas), root, "t")
    bad = spark.sql("SELECT cast(X'FF' AS string) AS value")
    with pytest.raises(InvalidMessage, match="UTF-8"):
        publish(bad, root, "t", schema=StringSchema())
    for properties in ("map('a', cast(null AS string))", "map('a', cast(X'FF' AS string))"):
        with pytest.raises(InvalidMessage, match="column 'properties' has a"):
            publish(spark.sql(f"SELECT 'x' AS payload, {properties} AS properties"), root, "t")
    kept = spark.sql("SELECT 'x' AS payload, map('a', 'b') AS properties, cast(null AS string) AS c")
    publish(kept, root, "t", properties_from=["c"])
    assert [row["properties"] for row in read_messages(spark, root, "t").orderBy("position").collect()] == [
        None,
        {"a": "b"},
    ]
