"""Names that Pulsar accepts work here, whatever letters they have, and what it refuses is refused before anything is
made: names of topics, subscriptions, consumers, producers and properties."""

import contextlib
import json
import re
from itertools import cycle

import pytest

import pulsar_spark as pulsar
from pulsar_spark.admin import Admin
from pulsar_spark.admin.upkeep import optimize, vacuum
from pulsar_spark.protocol.topics.topic_name import MAX_OWN_NAME_LENGTH
from pulsar_spark.testing.plain_broker import PlainBroker
from tests.support.commands import say
from tests.support.waiting import eventually

EARLIEST = dict(initial_position=pulsar.InitialPosition.Earliest)
SHARED = pulsar.ConsumerType.Shared
ODD = {
    "a space": "a b",
    "spaces around": " a ",
    "per cent": "50% of%20it%2F",
    "quotes": 'it\'s "so" `called`',
    "a backslash": "a\\b\\n",
    "what SQL and shells read": "a;--$(b) {c} [d] *?<e>|&!",
    "what URLs read": "a?b=c&d#e@f:1",
    "what Spark's paths read": "k=v,w+x~y^z",
    "other scripts": "Straße/訂單/тема".replace("/", " "),
    "beyond sixteen bits": "🚀🇩🇪",
    "not composed": "e\u0301",
    "right to left": "a\u202eb\u200f",
    "control characters": "a\tb\nc\x00d\x1b[31m",
    "dots": "...",
    "a hyphen first": "-rf",
    "an underscore and hexadecimals": "_62_75undles",
    "like a partition": "a b-partition-x",
    "as long as topics may be": "x" * 200,
}
ONLY_OWN = {
    "a slash": "a/b/../c",
    "a URL": "persistent://public/default/t",
    "two dots": "..",
    "as long as it may be": "é" * MAX_OWN_NAME_LENGTH,
}
"""Names that topics cannot have and subscriptions, consumers and producers can."""

odd_names = pytest.mark.parametrize("name", ODD.values(), ids=ODD)
own_names = pytest.mark.parametrize("name", {**ODD, **ONLY_OWN}.values(), ids={**ODD, **ONLY_OWN})


@pytest.fixture
def admin(root_url, broker):
    return Admin(f"delta:{root_url}", timeout_seconds=10)


@pytest.mark.parametrize("name, partitions", [*zip(ODD.values(), cycle([0, 2]))], ids=ODD)
def test_a_topic(client, admin, name, partitions):
    full_name = f"persistent://public/default/{name}"
    admin.create_partitioned_topic(name, partitions) if partitions else admin.create_topic(name)
    consumer = client.subscribe(name, "s")
    producer = client.create_producer(full_name)
    assert producer.topic() == full_name
    sent = [producer.send(text.encode()) for text in ("first", "second")]
    received = [consumer.receive(60_000) for _ in sent]
    assert sorted(each.data() for each in received) == [b"first", b"second"]
    named = {full_name} if not partitions else {f"{full_name}-partition-{index}" for index in range(partitions)}
    assert {each.topic_name() for each in received} <= named and {*client.get_topic_partitions(name)} == named
    for each in received:
        consumer.acknowledge(each)
    consumer.close()
    of = admin.list_topics("public/default")
    assert [found["topic"] for found in of] == [full_name]
    eventually(lambda: admin.stats(name)["subscriptions"]["s"]["msgBacklog"] == 0)
    admin.reset_cursor(name, "s", "earliest")
    assert admin.stats(name)["subscriptions"]["s"]["msgBacklog"] == 2
    if not partitions:
        assert [each.data() for each in admin.peek_messages(name, "s", 2)] == [b"first", b"second"]
        assert client.create_reader(name, pulsar.MessageId.earliest).read_next(60_000).data() == b"first"
    producer.close()
    admin.delete_topic(name, force=True)
    assert admin.list_topics("public/default") == []


@own_names
def test_a_subscription_a_consumer_and_a_producer(client, admin, name):
    admin.create_subscription("t", name, create=True)
    consumer = client.subscribe(
        "t", name, consumer_type=pulsar.ConsumerType.KeyShared, consumer_name=name, properties={name: name}
    )
    assert (consumer.subscription_name(), consumer.consumer_name()) == (name, name)
    producer = client.create_producer("t", producer_name=name, properties={name: name})
    assert producer.producer_name() == name
    producer.send(b"first", properties={name: name}, partition_key=name, ordering_key=name)
    message = consumer.receive(60_000)
    assert (message.producer_name(), message.properties()) == (name, {name: name})
    assert (message.partition_key(), message.ordering_key()) == (name, name)
    stats = admin.stats("t")["subscriptions"]
    assert [*stats] == [name] and stats[name]["consumers"][0]["consumerName"] == name
    assert [each.data() for each in admin.peek_messages("t", name, 2)] == [b"first"]
    consumer.acknowledge(message)
    eventually(lambda: admin.stats("t")["subscriptions"][name]["msgBacklog"] == 0)
    consumer.close()
    admin.reset_cursor("t", name, "earliest")
    assert admin.skip_messages("t", name, 1) == 1
    assert admin.subscriptions("t") == [name]
    admin.unsubscribe("t", name)
    assert admin.subscriptions("t") == []


@own_names
def test_a_broker_that_comes_next_knows_them(root_url, name):
    topic = name if name in ODD.values() else "t"
    with PlainBroker(root_url), contextlib.closing(pulsar.Client(f"delta:{root_url}")) as client:
        consumer = client.subscribe(topic, name, consumer_type=SHARED, consumer_name=name)
        client.create_producer(topic).send(b"first")
        assert consumer.receive(60_000).data() == b"first"
        with PlainBroker(root_url) as next_broker:
            eventually(lambda: len(next_broker.rounds.bundle.cursors) == 1)
            (held,) = next_broker.cursor(topic, name).consumers.values()
            assert held.name == name
            client.create_producer(topic).send(b"second")
            assert consumer.receive(60_000).data() == b"second"


@odd_names
def test_letters_go_where_names_lead(client, admin, name):
    subscription = "s" if len(name) == 200 else name
    topic = "t" if len(name) == 200 else name
    policy = pulsar.ConsumerDeadLetterPolicy(1, initial_subscription_name=name)
    consumer = client.subscribe(
        topic,
        subscription,
        consumer_type=SHARED,
        consumer_name=name,
        dead_letter_policy=policy,
        negative_ack_redelivery_delay_ms=100,
        retry_enable=True,
    )
    client.create_producer(topic).send(b"first", properties={name: name})
    consumer.reconsume_later(consumer.receive(60_000), 0, {name: name})
    again = consumer.receive(60_000)
    assert again.properties()["REAL_SUBSCRIPTION"] == subscription and again.properties()[name] == name
    consumer.reconsume_later(again, 0)
    dead = client.subscribe(f"{topic}-{subscription}-DLQ", name).receive(60_000)
    assert (dead.data(), dead.properties()["REAL_SUBSCRIPTION"]) == (b"first", subscription)


@own_names
def test_deduplication_and_access_by_a_producers_name(client, admin, name):
    admin.create_topic("t")
    admin.set_policy("public/default", "deduplication_enabled", 1)
    reader = client.create_reader("t", pulsar.MessageId.earliest)
    alone = dict(producer_name=name, access_mode=pulsar.ProducerAccessMode.Exclusive)
    producer = client.create_producer("t", **alone)
    producer.send(b"first", sequence_id=5)
    with pytest.raises(pulsar.ProducerFenced):
        client.create_producer("t", **alone)
    producer.close()
    producer = client.create_producer("t", **alone)
    assert producer.last_sequence_id() == 5
    producer.send(b"first again", sequence_id=5)
    producer.send(b"second", sequence_id=6)
    assert [reader.read_next(60_000).data() for _ in range(2)] == [b"first", b"second"]


@odd_names
def test_what_administrators_do_to_a_topic(client, admin, name):
    full_name = f"persistent://public/default/{name}"
    consumer = client.subscribe(name, name, pulsar.ConsumerType.KeyShared, consumer_name=name)
    producer = client.create_producer(name, schema=pulsar.schema.StringSchema())
    assert admin.get_schema_info(name)["version"] == 0
    for _ in range(2):
        producer.send("text", partition_key=name)
    consumer.receive(60_000)
    admin.set_policy(full_name, "message_ttl_seconds", 1000)
    assert admin.get_policies(full_name) == {"message_ttl_seconds": "1000"}
    assert {each["consumer_name"] for each in admin.hash_ranges(name, name)} == {name}
    assert admin.partition_for_key(name, name) == full_name
    assert (admin.describe(name)["topic"], admin.lost_messages(name), admin.mend(name)) == (full_name, [], [])
    admin.compact(name)
    assert client.create_reader(name, pulsar.MessageId.earliest, is_read_compacted=True).read_next(60_000)
    for tend in (optimize, vacuum):
        assert tend(admin.layout, topic=name)
    admin.unload(name)
    assert admin.doctor() == []
    pattern = re.compile(f"public/default/{re.escape(name)}")
    assert client.subscribe(pattern, "by pattern", **EARLIEST).receive(60_000).topic_name() == full_name


@odd_names
def test_the_command_line(client, admin, root_url, name):
    full_name = f"persistent://public/default/{name}"
    say(root_url, "topics", "create", full_name)
    consumer = client.subscribe(name, name, consumer_name=name)
    assert json.loads(say(root_url, "topics", "list", "--json"))[0]["topic"] == full_name
    key, value = name.replace("=", "-"), name
    say(root_url, "produce", full_name, "text", f"--property={key}={value}", f"--key={name}")
    message = consumer.receive(60_000)
    assert (message.properties(), message.partition_key()) == ({key: value}, name)
    stats = json.loads(say(root_url, "stats", full_name, "--json"))
    assert [*stats["subscriptions"]] == [name]
    consumer.close()
    say(root_url, "subscriptions", "seek", full_name, f"--subscription={name}", "--to", "earliest")
    peeked = say(root_url, "subscriptions", "peek", full_name, f"--subscription={name}", "--json")
    assert json.loads(peeked.splitlines()[0])["key"] == name
    consumed = say(root_url, "consume", full_name, f"--subscription={name}", "--json", "-n", "1")
    assert json.loads(consumed.splitlines()[0])["properties"] == {key: value}
    for_people = say(root_url, "stats", full_name) + say(root_url, "topics", "list")
    assert not any(letter in for_people for letter in "\0\x1b"), "what controls a terminal"
    say(root_url, "subscriptions", "delete", full_name, f"--subscription={name}")
    say(root_url, "topics", "delete", full_name)
    assert json.loads(say(root_url, "topics", "list", "--json")) == []


BLANK = ["", " ", "\t\n", "\u3000"]
HALF = "a\ud800"


@pytest.mark.local_disk
@pytest.mark.parametrize("name", [*BLANK, ".", "..", "a/b", "c/ü/t", "ü/n/t", "t/n n/t", "t/c/n/topic", HALF, 5, None])
def test_topics_that_cannot_be(lonely_client, name):
    before = sorted(map(str, lonely_client._layout.root.parent.rglob("*")))
    for ask in (
        lonely_client.create_producer,
        lambda name: lonely_client.subscribe(name, "s"),
        lambda name: lonely_client.create_reader(name, pulsar.MessageId.earliest),
        Admin(f"delta:{lonely_client._layout.root}").create_topic,
    ):
        with pytest.raises((pulsar.InvalidTopicName, ValueError), match="not a valid name|neither|expected|not a text"):
            ask(name)
    assert sorted(map(str, lonely_client._layout.root.parent.rglob("*"))) == before


@pytest.mark.local_disk
@pytest.mark.parametrize("name", [*BLANK, HALF, "x" * (MAX_OWN_NAME_LENGTH + 1), "pulsar.repl.eu", "pulsar.dedup"])
def test_subscriptions_that_cannot_be(lonely_client, name):
    before = sorted(map(str, lonely_client._layout.root.parent.rglob("*")))
    with pytest.raises(pulsar.InvalidConfiguration, match="not a valid name|1 too many"):
        lonely_client.subscribe("t", name)
    with pytest.raises(pulsar.InvalidConfiguration, match="initial subscription.*(not a valid name|1 too many)"):
        policy = pulsar.ConsumerDeadLetterPolicy(1, initial_subscription_name=name or " ")
        lonely_client.subscribe("t", "s", dead_letter_policy=policy)
    with pytest.raises(pulsar.InvalidTopicName, match="not a valid name|1 too many"):
        Admin(f"delta:{lonely_client._layout.root}").create_subscription("t", name)
    assert sorted(map(str, lonely_client._layout.root.parent.rglob("*"))) == before


@pytest.mark.local_disk
def test_consumers_and_producers_that_cannot_be(lonely_client):
    before = sorted(map(str, lonely_client._layout.root.parent.rglob("*")))
    for name in (HALF, "x" * (MAX_OWN_NAME_LENGTH + 1)):
        with pytest.raises(pulsar.InvalidConfiguration, match="consumer .*(not a valid name|1 too many)"):
            lonely_client.subscribe("t", "s", consumer_name=name)
    with pytest.raises(ValueError, match="producer_name: .* cannot be encoded as UTF-8"):
        lonely_client.create_producer("t", producer_name=HALF)
    assert sorted(map(str, lonely_client._layout.root.parent.rglob("*"))) == before


@pytest.mark.local_disk
def test_properties_that_cannot_be(lonely_client):
    before = sorted(map(str, lonely_client._layout.root.parent.rglob("*")))
    for wrong in ({HALF: "a"}, {"a": HALF}):
        with pytest.raises(ValueError, match="properties: .* cannot be encoded as UTF-8"):
            lonely_client.create_producer("t", properties=wrong)
        with pytest.raises(ValueError, match="properties: .* cannot be encoded as UTF-8"):
            lonely_client.subscribe("t", "s", properties=wrong)
    assert sorted(map(str, lonely_client._layout.root.parent.rglob("*"))) == before


@pytest.mark.local_disk
def test_a_slash_in_a_subscription_that_has_letters(lonely_client):
    """Its letter topics' names would have a cluster."""
    policy = pulsar.ConsumerDeadLetterPolicy(1)
    with pytest.raises(pulsar.InvalidTopicName, match="dead_letter_topic"):
        lonely_client.subscribe("t", "a/b", dead_letter_policy=policy)
    assert lonely_client._layout.namespaces() == []
