"""Key_Shared through the client: one owner per key, order per key, through joins, leaves and returns."""

from collections import defaultdict

import pulsar_spark as pulsar
from pulsar_spark.protocol.keys.sticky_key import NONE_KEY, sticky_key_hash
from pulsar_spark.storage.delta.scan import open_table
from pulsar_spark.storage.delta.tables import AppendTable
from pulsar_spark.storage.topics.topics import read_topic
from pulsar_spark.table_specs import REQUESTS
from pulsar_spark.testing.plain_broker import PlainBroker
from tests.support.hash_owners import select
from tests.support.requests import request
from tests.support.waiting import eventually

TOPIC = "orders"


def subscribe(client, name, **options):
    return client.subscribe(TOPIC, "s", consumer_type=pulsar.ConsumerType.KeyShared, consumer_name=name, **options)


def publish(client, messages):
    producer = client.create_producer(TOPIC)
    for key, number in messages:
        producer.send(str(number).encode(), partition_key=key)
    producer.close()


def drain(consumer, timeout=600):
    found = []
    while True:
        try:
            found.append(consumer.receive(timeout))
        except pulsar.Timeout:
            return found


def numbers(messages):
    by_key = defaultdict(list)
    for message in messages:
        by_key[message.partition_key()].append(int(message.data()))
    return dict(by_key)


def test_each_key_has_one_holder_and_is_in_order(client):
    consumers = {name: subscribe(client, name) for name in "abc"}
    sent = [(f"key-{number % 20}", number) for number in range(200)]
    publish(client, sent)
    found = {name: drain(consumer) for name, consumer in consumers.items()}
    by_key = {}
    for _name, messages in found.items():
        for key, got in numbers(messages).items():
            assert key not in by_key, "two consumers have it"
            by_key[key] = got
    assert by_key == {f"key-{k}": list(range(k, 200, 20)) for k in range(20)}
    assert all(found.values())


def test_a_key_that_moves_waits_for_its_old_holder(client):
    a = subscribe(client, "a")
    publish(client, [(f"key-{number % 20}", number) for number in range(40)])
    first = drain(a)
    assert len(first) == 40
    b = subscribe(client, "b")
    publish(client, [(f"key-{number % 20}", number) for number in range(40, 60)])
    publish(client, [(f"other-{number % 20}", number) for number in range(40)])
    more_a, more_b = drain(a), drain(b)
    assert {m.partition_key() for m in more_b} and all(m.partition_key().startswith("other") for m in more_b)
    for message in first:
        a.acknowledge(message)
    rest = drain(b)
    assert rest and all(m.partition_key().startswith("key") for m in rest)
    assert len(more_a) + len(more_b) + len(rest) == 60


def test_who_held_what_is_deleted_is_gone_after_a_restart(tmp_path):
    """A deleted entry has no key any more: a broker that starts lets it be skipped."""
    root = tmp_path / "root"
    with PlainBroker(root) as broker:
        clients = [pulsar.Client(f"delta:{root}", operation_timeout_seconds=10) for _ in range(3)]
        consumers = [subscribe(client, name) for client, name in zip(clients, "ab")]
        publish(clients[2], [(f"key-{number % 10}", number) for number in range(40)])
        held = [drain(consumer) for consumer in consumers]
    cursor = broker.cursor(TOPIC, "s")
    keyless = select(cursor.selector, sticky_key_hash(NONE_KEY))
    leaves = int(cursor.consumers[keyless].name == "a")
    deleted = ", ".join(f"'{int(message.data())}'" for message in held[leaves][1:4])
    open_table(read_topic(clients[2]._layout, TOPIC).path).delete(f"cast(payload as string) in ({deleted})")
    with PlainBroker(root) as broker:
        consumers[leaves].close()
        stays = consumers[1 - leaves]
        for message in [*held[1 - leaves], *drain(stays)]:
            stays.acknowledge(message)
        last = broker.rounds.bundle.topics[cursor.topic].end_position(-1) - 1
        eventually(lambda: broker.cursor(TOPIC, "s").mark_delete == last)
        for client in clients:
            client.shutdown()


def test_an_ack_set_does_not_go_with_a_delivery(client, broker, caplog):
    """It would say that some messages are left, of nobody knows which entry: nothing is acknowledged."""
    consumer = subscribe(client, "a")
    publish(client, [("key", 0)])
    assert len(drain(consumer)) == 1
    (held,) = broker.cursor(TOPIC, "s").ranges()
    properties = {"delivery_round": held.delivery_round}
    for ack_set in ([1], []):
        place = {"topic": broker.cursor(TOPIC, "s").topic, "partition": -1, "subscription": "s"}
        row = request(
            "ack",
            properties=properties,
            consumer_id=held.consumer_id,
            first=0,
            last=held.last,
            ack_set=ack_set,
            **place,
        )
        AppendTable(broker.layout.broker_table("requests")).append(REQUESTS.rows([row]))
        broker.asked("ack")
    assert list(broker.cursor(TOPIC, "s").ranges()) == [held]
    assert f"ack set for what round {held.delivery_round} delivered of positions 0 to 0" in caplog.text
