"""Acknowledgements that wait for others to go with are sent by whatever ends that wait: a close, a consumer that is let
go, their time."""

import pulsar_spark as pulsar
from pulsar_spark.admin import Admin
from pulsar_spark.broker.committing import snapshots
from pulsar_spark.protocol.acknowledgement.cursor import ACKNOWLEDGED
from tests.support.waiting import eventually, receive_values, send

HOUR_MS = 3_600_000
SHARED = dict(consumer_type=pulsar.ConsumerType.Shared, initial_position=pulsar.InitialPosition.Earliest)


def test_they_are_sent_before_the_consumer_closes(client, other_client):
    send(client, "t", "m0", "m1", "m2")
    consumer = client.subscribe("t", "s", ack_group_time_ms=HOUR_MS, **SHARED)
    messages = [consumer.receive(60_000) for _ in range(3)]
    consumer.acknowledge(messages[0])
    consumer.acknowledge(messages[2])
    consumer.close()
    assert receive_values(other_client.subscribe("t", "s", **SHARED), 1) == ["m1"]


def test_they_are_sent_before_it_subscribes_again(client, service_url):
    send(client, "t", "m0", "m1", "m2")
    consumer = client.subscribe("t", "s", ack_group_time_ms=HOUR_MS, **SHARED)
    messages = [consumer.receive(60_000) for _ in range(3)]
    consumer.acknowledge(messages[0])
    consumer.acknowledge(messages[2])
    Admin(service_url, timeout_seconds=60).unload("t")
    assert receive_values(consumer, 1) == ["m1"]


def test_those_behind_the_ones_that_were_sent_are_sent_too(client, broker):
    send(client, "t", "m0", "m1", "m2")
    consumer = client.subscribe("t", "s", ack_group_time_ms=10, **SHARED)
    for position in range(3):
        consumer.acknowledge(consumer.receive(60_000))
        eventually(lambda: broker.cursor("persistent://public/default/t", "s").mark_delete == position)


def test_what_a_round_only_writes_again_is_not_delivered_again(client, broker, monkeypatch):
    """Each round writes the whole state, also what was delivered before."""
    monkeypatch.setattr(snapshots, "SNAPSHOT_EVERY", 1)
    send(client, "t", "m0", "m1", "m2")
    consumer = client.subscribe("t", "s", ack_group_time_ms=10, **SHARED)
    messages = [consumer.receive(60_000) for _ in range(3)]
    consumer.acknowledge(messages[1])
    eventually(lambda: broker.statuses("persistent://public/default/t", "s").get(1) == ACKNOWLEDGED)
    send(client, "t", "new")
    assert receive_values(consumer, 1) == ["new"]
