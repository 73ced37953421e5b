"""Key_Shared by the client: joining with a policy, on a topic, several and partitions; what is refused, and by whom."""

import pytest

import pulsar_spark as pulsar
from pulsar_spark.admin import Admin
from pulsar_spark.broker.cursors.state import Cursor
from pulsar_spark.client.model.enums import result_of
from pulsar_spark.storage.topics.topics import create_topic
from tests.support.waiting import eventually

STICKY = pulsar.KeySharedMode.Sticky


def subscribe(client, topic="t", name="a", ranges=None, *, out_of_order=False, **options) -> pulsar.Consumer:
    policy = pulsar.ConsumerKeySharedPolicy(
        pulsar.KeySharedMode.AutoSplit if ranges is None else STICKY, out_of_order, ranges
    )
    return client.subscribe(
        topic, "s", consumer_type=pulsar.ConsumerType.KeyShared, consumer_name=name, key_shared_policy=policy, **options
    )


def cursors(broker) -> list[Cursor]:
    return list(broker.rounds.bundle.cursors.values())


def names(cursor: Cursor) -> list[str]:
    return [consumer.name for consumer in list(cursor.consumers.values())]


def owned(broker, topic="t", partition=-1) -> dict[str, list[tuple[int, int]]]:
    """Ranges by the consumer's name."""
    cursor = broker.cursor(topic, "s", partition)
    return {consumer.name: cursor.hash_ranges[consumer_id] for consumer_id, consumer in cursor.consumers.items()}


def test_a_consumer_joins_with_its_policy_and_leaves(client, broker):
    first = subscribe(client, name="a", ranges=[(0, 32767)], out_of_order=True)
    second = subscribe(client, name="b", ranges=[(40000, 65535), (32768, 39999)], out_of_order=True)
    cursor = broker.cursor("t", "s")
    assert owned(broker) == {"a": [(0, 32767)], "b": [(32768, 65535)]}
    assert (cursor.subscription_type, cursor.key_shared_mode, cursor.allows_out_of_order) == (
        "KeyShared",
        "STICKY",
        True,
    )
    first.close()
    eventually(lambda: owned(broker).keys() == {"b"})
    second.unsubscribe()


def test_adjoining_ranges_of_a_consumer_are_one_in_stats(client, service_url):
    policy = pulsar.ConsumerKeySharedPolicy(pulsar.KeySharedMode.Sticky, sticky_ranges=[(10, 19), (0, 9), (30, 40)])
    client.subscribe("t", "s", pulsar.ConsumerType.KeyShared, key_shared_policy=policy)
    (consumer,) = Admin(service_url).stats("t")["subscriptions"]["s"]["consumers"]
    assert consumer["keyHashRanges"] == ["[0, 19]", "[30, 40]"]
    assert consumer["keyHashRangeArrays"] == [[0, 19], [30, 40]]


def test_without_a_policy_hashes_are_split_in_order(client, broker):
    consumer = client.subscribe("t", "s", consumer_type=pulsar.ConsumerType.KeyShared)
    cursor = broker.cursor("t", "s")
    assert (cursor.key_shared_mode, cursor.allows_out_of_order) == ("AUTO_SPLIT", False)
    assert owned(broker) == {consumer.consumer_name(): [(0, 2**31 - 1)]}


def test_what_is_published_is_received_and_acknowledged(client, broker):
    consumer, producer = subscribe(client), client.create_producer("t")
    for number in range(6):
        producer.send(f"m{number}".encode(), partition_key=f"k{number % 2}")
    messages = [consumer.receive(60_000) for _ in range(6)]
    assert [message.data() for message in messages] == [f"m{number}".encode() for number in range(6)]
    assert [message.partition_key() for message in messages] == ["k0", "k1"] * 3
    for message in messages:
        consumer.acknowledge(message)
    eventually(lambda: broker.cursor("t", "s").mark_delete == 5)


def test_on_partitions_and_several_topics_each_has_its_owners(client, broker):
    create_topic(client._layout, "parts", 3)
    for number, name in enumerate("ab"):
        subscribe(client, ["parts", "plain"], name, [(number * 32768, number * 32768 + 32767)])
    for topic, partition in (("parts", 0), ("parts", 1), ("parts", 2), ("plain", -1)):
        assert owned(broker, topic, partition) == {"a": [(0, 32767)], "b": [(32768, 65535)]}


@pytest.mark.parametrize(
    "ranges, options, error, words",
    [
        ([(9, 20)], {}, pulsar.ConsumerAssignError, "9 to 20 overlaps 0 to 9 of consumer 'a'"),
        ([(20, 10)], {}, pulsar.ConsumerAssignError, "20 to 10 is not a hash range"),
        ([(20, 30), (20, 30)], {}, pulsar.ConsumerAssignError, "20 to 30 overlaps 20 to 30 of consumer 'b'"),
        (None, {}, pulsar.SubscriptionBusy, "key_shared mode STICKY"),
        ([(20, 30)], {"out_of_order": True}, pulsar.ConsumerBusy, "without allow_out_of_order_delivery"),
    ],
)
def test_what_the_broker_refuses_leaves_nobody_behind(client, other_client, broker, ranges, options, error, words):
    """On no partition, and what was there stays."""
    create_topic(client._layout, "parts", 2)
    subscribe(client, "parts-partition-1", "a", [(0, 9)])
    with pytest.raises(error, match=words):
        subscribe(other_client, "parts", "b", ranges, **options)
    assert owned(broker, "parts", 1) == {"a": [(0, 9)]}
    eventually(lambda: [name for cursor in cursors(broker) for name in names(cursor)] == ["a"])
    subscribe(other_client, "parts", "b", [(10, 19)])
    assert owned(broker, "parts", 1) == {"a": [(0, 9)], "b": [(10, 19)]}


def test_other_types_are_refused_while_it_is_in_use(client, broker):
    subscribe(client)
    for other in (pulsar.ConsumerType.Shared, pulsar.ConsumerType.Failover, pulsar.ConsumerType.Exclusive):
        with pytest.raises(pulsar.ConsumerBusy):
            client.subscribe("t", "s", consumer_type=other)


def test_cumulative_acknowledgements_are_refused(client, broker):
    consumer, producer = subscribe(client), client.create_producer("t")
    producer.send(b"m", partition_key="k")
    message = consumer.receive(60_000)
    for what in (message, message.message_id()):
        with pytest.raises(pulsar.CumulativeAcknowledgementNotAllowedError, match="'s' is KeyShared"):
            consumer.acknowledge_cumulative(what)
    with pytest.raises(pulsar.ConsumerAssignError) as refused:
        subscribe(client, "u", ranges=[(1, 0)])
    assert result_of(refused.value) is pulsar.Result.ConsumerAssignError
    assert consumer.is_connected() and broker.cursor("t", "s").mark_delete == -1


def test_a_policy_on_another_type_says_nothing(client, broker):
    """As with Pulsar, which sends it and does not look at it."""
    consumer = client.subscribe("t", "s", key_shared_policy=pulsar.ConsumerKeySharedPolicy(STICKY, False, [(1, 0)]))
    assert consumer.is_connected() and broker.cursor("t", "s").selector is None
