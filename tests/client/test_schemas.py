"""Producers, consumers and readers with schemas, on topics that keep them."""

import pytest

import pulsar_spark as pulsar
from pulsar_spark.admin import Admin
from pulsar_spark.schema import AvroSchema, BytesSchema, Integer, JsonSchema, Record, String, StringSchema
from pulsar_spark.storage.topics.schemas import SchemaTable
from pulsar_spark.storage.topics.topics import read_topic


class Flight(Record):
    tail = String(required=True)
    delay = Integer(default=0, required=True, required_default=True)


class FlightWithGate(Record):
    tail = String(required=True)
    gate = Integer(default=-1, required=True, required_default=True)


class WrongFlight(Record):
    tail = Integer(required=True)


class Aged(Record):
    tail = String(required=True)
    age = Integer(required=True)


def kept(client, topic: str) -> list[tuple[int, str]]:
    found = SchemaTable(client._layout).kept(read_topic(client._layout, topic).topic_id)
    return [(each.version, each.info.schema_type().name) for each in found]


@pytest.mark.parametrize("schema", [AvroSchema, JsonSchema])
def test_values_there_and_back_with_their_version(client, schema):
    consumer = client.subscribe("t", "s", schema=schema(Flight))
    producer = client.create_producer("t", schema=schema(Flight), batching_enabled=True)
    producer.send_async(Flight(tail="N1", delay=5), None)
    producer.send(Flight(tail="N2"))
    producer.send(None)
    messages = [consumer.receive(60_000) for _ in range(3)]
    assert [message.value() for message in messages] == [Flight(tail="N1", delay=5), Flight(tail="N2"), None]
    assert {message.int_schema_version() for message in messages} == {0}
    assert messages[0].schema_version() == "\0" * 8
    assert kept(client, "t") == [(0, schema.__name__.removesuffix("Schema").upper())], "the consumer's, then the same"


def test_bytes_say_no_version(client):
    consumer = client.subscribe("t", "s")
    client.create_producer("t").send(b"x")
    message = consumer.receive(60_000)
    assert (message.int_schema_version(), message.schema_version()) == (-1, "")


def test_a_table_view_decodes_each_value_as_it_was_written(lonely_client):
    old = lonely_client.create_producer("t", schema=AvroSchema(Flight))
    new = lonely_client.create_producer("t", schema=AvroSchema(FlightWithGate))
    old.send(Flight(tail="N1", delay=5), partition_key="a")
    new.send(FlightWithGate(tail="N2", gate=7), partition_key="b")
    view = lonely_client.create_table_view("t", schema=AvroSchema(FlightWithGate))
    assert view.get("a") == FlightWithGate(tail="N1", gate=-1)
    assert view.snapshot() == {"a": FlightWithGate(tail="N1", gate=-1), "b": FlightWithGate(tail="N2", gate=7)}


def test_what_does_not_fit_is_refused_and_leaves_nothing(lonely_client):
    client = lonely_client
    client.create_producer("t", schema=AvroSchema(Flight))
    for schema in (AvroSchema(WrongFlight), JsonSchema(Flight), StringSchema()):
        for call in (
            lambda: client.create_producer("t", schema=schema),
            lambda: client.subscribe("t", "s", schema=schema),
            lambda: client.create_reader("t", pulsar.MessageId.earliest, schema=schema),
        ):
            with pytest.raises(pulsar.IncompatibleSchema, match="t'.*schema_compatibility_strategy"):
                call()
    assert kept(client, "t") == [(0, "AVRO")]
    client.create_producer("t").send(b"bytes say nothing of their form")


def test_a_definition_that_is_none_is_refused(lonely_client):
    class Unknown(BytesSchema):
        def schema_info(self):
            return pulsar.schema.SchemaInfo(pulsar.schema.SchemaType.AVRO, "AVRO", '"colour"')

    with pytest.raises(pulsar.IncompatibleSchema, match="'colour'"):
        lonely_client.create_producer("t", schema=Unknown())
    assert kept(lonely_client, "t") == []


def test_each_message_is_read_as_it_was_written(lonely_client):
    client = lonely_client
    old = client.create_producer("t", schema=AvroSchema(Flight))
    new = client.create_producer("t", schema=AvroSchema(FlightWithGate))
    old.send(Flight(tail="N1", delay=9))
    new.send(FlightWithGate(tail="N2", gate=7))
    old.send(Flight(tail="N3", delay=-9))
    reader = client.create_reader("t", pulsar.MessageId.earliest, schema=AvroSchema(FlightWithGate))
    messages = [reader.read_next(1000) for _ in range(3)]
    assert [message.int_schema_version() for message in messages] == [0, 1, 0]
    assert [message.value() for message in messages] == [
        FlightWithGate(tail="N1"),
        FlightWithGate(tail="N2", gate=7),
        FlightWithGate(tail="N3"),
    ]
    as_dicts = client.create_reader("t", pulsar.MessageId.earliest, schema=AvroSchema(None, Flight.schema()))
    assert as_dicts.read_next(1000).value() == {"tail": "N1", "delay": 9}


def test_a_topic_made_again_under_its_name_keeps_schemas_of_its_own(lonely_client):
    admin = Admin(f"delta:{lonely_client._layout.root}")
    for cls, value in ((Flight, Flight(tail="N1", delay=5)), (FlightWithGate, FlightWithGate(tail="N1", gate=7))):
        lonely_client.create_producer("t", schema=AvroSchema(cls)).send(value)
        reader = lonely_client.create_reader("t", pulsar.MessageId.earliest, schema=AvroSchema(cls))
        message = reader.read_next(60_000)
        assert (message.int_schema_version(), message.value()) == (0, value)
        admin.delete_topic("t")


def test_a_consumers_schema_is_kept_where_nothing_is_and_not_judged_where_only_bytes_are(lonely_client):
    client = lonely_client
    client.create_reader("new", pulsar.MessageId.earliest, schema=AvroSchema(Flight))
    assert kept(client, "new") == [(0, "AVRO")]
    with pytest.raises(pulsar.IncompatibleSchema):
        client.create_producer("new", schema=AvroSchema(WrongFlight))
    client.create_producer("used").send(AvroSchema(Flight).encode(Flight(tail="N1")))
    reader = client.create_reader("used", pulsar.MessageId.earliest, schema=AvroSchema(Flight))
    assert reader.read_next(1000).value() == Flight(tail="N1") and kept(client, "used") == []


def test_a_partition_keeps_what_its_topic_keeps(lonely_client):
    client = lonely_client
    Admin(f"delta:{client._layout.root}").create_partitioned_topic("p", 2)
    client.create_producer("p-partition-1", schema=AvroSchema(Flight)).send(Flight(tail="N1"))
    with pytest.raises(pulsar.IncompatibleSchema):
        client.create_producer("p", schema=AvroSchema(WrongFlight))
    reader = client.create_reader("p", pulsar.MessageId.earliest, schema=AvroSchema(FlightWithGate))
    assert reader.read_next(1000).value() == FlightWithGate(tail="N1")


def test_policies_decide(client, service_url):
    admin = Admin(service_url)
    client.create_producer("t", schema=AvroSchema(Flight))
    with pytest.raises(pulsar.IncompatibleSchema):
        client.create_producer("t", schema=AvroSchema(Aged))
    admin.set_policy("public/default", "schema_compatibility_strategy", "FORWARD")
    client.create_producer("t", schema=AvroSchema(Aged))
    admin.set_policy("persistent://public/default/t", "schema_compatibility_strategy", "ALWAYS_COMPATIBLE")
    client.create_producer("t", schema=StringSchema())
    assert kept(client, "t") == [(0, "AVRO"), (1, "AVRO"), (2, "STRING")]

    admin.set_policy("public/default", "is_allow_auto_update_schema", 0)
    client.create_producer("t", schema=StringSchema())
    with pytest.raises(pulsar.IncompatibleSchema, match="is_allow_auto_update_schema"):
        client.create_producer("t", schema=JsonSchema(Aged))

    client.create_producer("t")
    admin.set_policy("public/default", "schema_validation_enforced", 1)
    with pytest.raises(pulsar.IncompatibleSchema, match="schema_validation_enforced"):
        client.create_producer("t")
    client.create_producer("another")
    with pytest.raises(pulsar.InvalidConfiguration, match="FULL_TRANSITIVE"):
        admin.set_policy("public/default", "schema_compatibility_strategy", "SOME")


def test_letters_are_read_with_the_schema_of_where_they_came_from(client, broker):
    policy = pulsar.ConsumerDeadLetterPolicy(1)
    client.create_producer("t", schema=AvroSchema(Flight)).send(Flight(tail="N1", delay=3))
    consumer = client.subscribe(
        "t",
        "s",
        schema=AvroSchema(FlightWithGate),
        consumer_type=pulsar.ConsumerType.Shared,
        negative_ack_redelivery_delay_ms=0,
        dead_letter_policy=policy,
        retry_enable=True,
        initial_position=pulsar.InitialPosition.Earliest,
    )
    letters = client.subscribe(
        "t-s-DLQ", "l", schema=AvroSchema(FlightWithGate), initial_position=pulsar.InitialPosition.Earliest
    )
    consumer.reconsume_later(consumer.receive(60_000), delay_millis=0)
    again = consumer.receive(60_000)
    assert again.topic_name().endswith("t-s-RETRY") and again.value() == FlightWithGate(tail="N1")
    consumer.reconsume_later(again, delay_millis=0)
    letter = letters.receive(60_000)
    assert letter.value() == FlightWithGate(tail="N1") and letter.int_schema_version() == 0
    assert kept(client, "t-s-DLQ") == [(0, "AVRO")], "its version 0 is another one"
