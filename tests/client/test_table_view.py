"""The latest value of each key."""

import threading

import pytest

import pulsar_spark as pulsar
from pulsar_spark.admin import Admin
from pulsar_spark.client.readers import table_view
from pulsar_spark.schema import AvroSchema, BytesSchema, JsonSchema, Record, String, StringSchema
from tests.support.waiting import eventually


@pytest.fixture
def producer(lonely_client):
    return lonely_client.create_producer("t")


def test_what_is_there_is_in_it_and_what_comes_is_followed(lonely_client, producer):
    producer.send(b"1", partition_key="a")
    producer.send(b"\xff\xfe", partition_key="b")
    producer.send(b"3", partition_key="a")
    producer.send(b"of no key")
    view = lonely_client.create_table_view("t")
    assert (len(view), view.get("a"), view.get("b"), view.get("c")) == (2, b"3", b"\xff\xfe", None)
    assert "a" in view and "c" not in view
    assert view.snapshot() == {"a": b"3", "b": b"\xff\xfe"}
    producer.send(b"4", partition_key="c")
    assert eventually(lambda: view.get("c")) == b"4"
    assert str(view) == "TableView(topic=persistent://public/default/t)"


def test_a_null_value_and_an_empty_one_remove_their_key(lonely_client, producer):
    view = lonely_client.create_table_view("t", "mine")
    heard = []
    for key in "abc":
        producer.send(b"x", partition_key=key)
    eventually(lambda: len(view) == 3)
    view.for_each_and_listen(lambda key, value: heard.append((key, value)))
    assert sorted(heard) == [("a", b"x"), ("b", b"x"), ("c", b"x")]
    producer.send(None, partition_key="a")
    producer.send(b"", partition_key="b")
    eventually(lambda: len(heard) == 5)
    assert heard[3:] == [("a", b""), ("b", b"")] and view.snapshot() == {"c": b"x"}
    assert "mine" in repr(view)


def test_values_are_the_schema_s_and_keys_of_all_partitions(lonely_client, service_url):
    Admin(service_url).create_partitioned_topic("p", 3)
    producer = lonely_client.create_producer("p", schema=StringSchema())
    for number in range(10):
        producer.send(f"v{number}", partition_key=f"k{number}")
    view, seen = lonely_client.create_table_view("p", schema=StringSchema()), {}
    view.for_each(seen.__setitem__)
    assert seen == {f"k{number}": f"v{number}" for number in range(10)}


class Order(Record):
    customer = String()


@pytest.mark.parametrize(
    "schema, value",
    [(JsonSchema(Order), Order(customer="c")), (AvroSchema(Order), Order(customer="c")), (StringSchema(), "c")],
    ids=lambda each: type(each).__name__,
)
def test_a_listener_hears_of_removals_whatever_the_schema(lonely_client, producer, schema, value, caplog):
    view, heard = lonely_client.create_table_view("t", schema=schema), []
    view.for_each_and_listen(lambda key, value: heard.append((key, value is None)))
    payload = schema.encode(value)
    for sent in (payload, b"", payload, None, b""):
        producer.send(sent, partition_key="a")
    eventually(lambda: len(heard) == 5)
    assert heard == [("a", is_removal) for is_removal in (False, True, False, True, True)] and not len(view)
    assert not caplog.text


def test_without_a_schema_a_removal_is_an_empty_payload_as_in_the_package(lonely_client, producer):
    view, heard = lonely_client.create_table_view("t", schema=BytesSchema()), []
    view.for_each_and_listen(lambda key, value: heard.append((key, len(value))))
    for sent in (b"c", b"", b"c", None):
        producer.send(sent, partition_key="a")
    eventually(lambda: heard == [("a", 1), ("a", 0), ("a", 1), ("a", 0)])
    assert not len(view)


def test_a_value_that_cannot_be_decoded_is_logged_and_passed_over(lonely_client, producer, caplog):
    view, heard = lonely_client.create_table_view("t", schema=JsonSchema(Order)), []
    view.for_each_and_listen(lambda key, value: heard.append((key, value.customer)))
    producer.send(b"no JSON", partition_key="a")
    producer.send(JsonSchema(Order).encode(Order(customer="c")), partition_key="b")
    eventually(lambda: heard == [("b", "c")])
    assert caplog.text.count("cannot decode") == 1 and "'a'" in caplog.text


def test_a_function_that_raises_harms_nobody_else(lonely_client, producer, caplog):
    view, heard = lonely_client.create_table_view("t"), []
    threads = len([each for each in threading.enumerate() if "listener-view" in each.name])
    view.for_each_and_listen(lambda key, value: 1 / 0 if key == "bad" else None)
    view.for_each_and_listen(lambda key, value: heard.append(key))
    for key in ("a", "bad", "b"):
        producer.send(b"x", partition_key=key)
    eventually(lambda: heard == ["a", "bad", "b"])
    assert set(view.snapshot()) == {"a", "bad", "b"}
    assert [record.getMessage().count("ZeroDivisionError") for record in caplog.records] == [1]
    assert len([each for each in threading.enumerate() if "listener-view" in each.name]) == threads


def test_a_listener_that_fails_with_what_is_there_already_hears_what_comes(lonely_client, producer, caplog):
    order = JsonSchema(Order).encode(Order(customer="c"))
    for key, payload in (("no JSON", b"no JSON"), ("bad", order), ("a", order)):
        producer.send(payload, partition_key=key)
    view, heard = lonely_client.create_table_view("t", schema=JsonSchema(Order)), []
    view.for_each_and_listen(lambda key, _: 1 / 0 if key == "bad" else heard.append(key))
    assert heard == ["a"]
    assert "key 'no JSON': " in caplog.text and "failed: key 'bad': ZeroDivisionError" in caplog.text
    producer.send(order, partition_key="b")
    eventually(lambda: heard == ["a", "b"])


def test_a_view_that_cannot_be_made_leaves_no_reader(lonely_client, producer, monkeypatch):
    producer.send(b"x", partition_key="a")
    monkeypatch.setattr(table_view.TableView, "_take", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        lonely_client.create_table_view("t")
    assert lonely_client._open == [producer]


def test_a_closed_view_stays_as_it_is(lonely_client, producer):
    view = lonely_client.create_table_view("t")
    view.close()
    with pytest.raises(pulsar.AlreadyClosed):
        view.close()
    assert len(view) == 0
    with pytest.raises(ValueError):
        lonely_client.create_table_view(None)
