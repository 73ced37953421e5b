"""What the objects that a program holds show of themselves."""

import asyncio

import pytest

import pulsar_spark as pulsar
import pulsar_spark.asyncio
from pulsar_spark.admin import Admin
from pulsar_spark.described import Described
from pulsar_spark.testing.plain_broker import PlainBroker

SECRET = b"a payload that nobody is to see"


def test_a_client_and_what_it_made_say_what_they_are(client, service_url):
    assert repr(client) == f"Client(service_url={service_url!r}, state='open')"
    producer = client.create_producer("t", producer_name="p")
    consumer = client.subscribe("t", "s", pulsar.ConsumerType.Shared, consumer_name="c")
    reader = client.create_reader("t", pulsar.MessageId.earliest)
    view = client.create_table_view("t")
    topic = "persistent://public/default/t"
    producer.send(SECRET, partition_key="k")
    assert (
        repr(producer) == f"Producer(topic={topic!r}, producer_name='p', state='open', pending=0, last_sequence_id=0)"
    )
    assert repr(consumer) == (
        f"Consumer(topic={topic!r}, subscription_name='s', consumer_type='Shared', consumer_name='c', state='open')"
    )
    assert repr(reader) == f"Reader(topic={topic!r}, state='open')"
    assert repr(view) == f"TableView(topic={topic})" and "keys" in view._repr_html_() and topic in view._repr_html_()
    message = consumer.receive(5000)
    assert repr(message) == f"Message(id={message.message_id()}, topic={topic!r}, {len(SECRET)} bytes)"
    assert repr(client).endswith("state='open', producers=1, consumers=1, readers=2)")
    shown = "".join(repr(each) + each._repr_html_() for each in (client, producer, consumer, reader))
    assert SECRET.decode() not in shown + repr(message)
    for each in (producer, consumer, reader):
        each.close()
        assert "state='closed'" in repr(each)
    client.close()
    assert "state='closed'" in repr(client)


def test_those_of_asyncio_say_what_the_client_s_say(service_url, broker):
    async def shown() -> list[str]:
        client = pulsar.asyncio.Client(service_url)
        made = [
            client,
            await client.create_producer("t", producer_name="p"),
            await client.subscribe("t", "s", consumer_name="c"),
            await client.create_reader("t", pulsar.MessageId.earliest),
        ]
        found = [repr(each) + each._repr_html_() for each in made]
        await client.close()
        return found

    found = asyncio.run(shown())
    assert [each.partition("(")[0] for each in found] == ["Client", "Producer", "Consumer", "Reader"]
    assert service_url in found[0] and "producer_name='p'" in found[1] and "subscription_name='s'" in found[2]


def test_a_broker_says_whether_it_serves(tmp_path):
    root = tmp_path / "root"
    broker = PlainBroker(root)
    assert repr(broker) == f"PlainBroker(root={str(root)!r}, bundle={broker.layout.bundle!r}, state='not serving')"
    with broker:
        assert "state='serving', round=" in repr(broker) and "subscriptions=0" in repr(broker)
        broker._fail(pulsar.BrokerFenced("who took it over"))
        assert "failure='BrokerFenced'" in repr(broker) and "state='stopped'" in repr(broker)
        broker.failure = None


def test_an_administration_says_its_root(tmp_path):
    admin = Admin(f"delta:{tmp_path / 'root'}", timeout_seconds=5)
    assert repr(admin) == f"Admin(root={str(tmp_path / 'root')!r}, timeout_seconds=5)"


def test_names_are_no_markup_in_a_notebook():
    class Named(Described):
        def _facts(self):
            return {"topic": "<b>&'", "pending": 3}

    shown = Named()._repr_html_()
    assert "&lt;b&gt;&amp;" in shown and "<b>" not in shown and "Named" in shown and ">3<" in shown


def test_what_says_no_facts_is_no_description():
    with pytest.raises(NotImplementedError):
        repr(Described())
