"""Key_Shared through the client: one owner per key, order per key, through joins, leaves and returns."""

from collections import defaultdict

import pulsar_spark as pulsar

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
