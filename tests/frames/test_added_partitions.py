"""A DataFrame consumer that runs follows partitions that are added to its topic."""

import pytest

import pulsar_spark as pulsar
from pulsar_spark.admin import Admin
from pulsar_spark.frames import consume
from pulsar_spark.frames.consuming import consumer_thread
from tests.support.waiting import eventually


@pytest.fixture
def admin(served):
    admin = Admin(f"delta:{served.layout.root}")
    admin.create_partitioned_topic("p", 2)
    return admin


@pytest.fixture
def send(served):
    """Publishes a message to each of some partitions."""
    client = pulsar.Client(f"delta:{served.layout.root}")
    yield lambda partitions: [client.create_producer(f"p-partition-{each}").send(b"m") for each in partitions]
    client.close()


@pytest.mark.parametrize("kind", ["Exclusive", "Shared", "KeyShared"])
def test_a_consumer_gets_the_messages_of_added_partitions_from_the_first_on(served, admin, send, kind, monkeypatch):
    monkeypatch.setattr(consumer_thread, "_LOOK_SECONDS", 0.05)
    taken = []
    consumption = consume(
        None,
        served.layout.root,
        "p",
        "s",
        lambda messages, delivery: taken.extend(messages),
        subscription_type=kind,
        initial_position="Latest",
    )
    with consumption:
        admin.update_partitioned_topic("p", 4)
        send(range(4))
        eventually(lambda: sorted(taken) == [(partition, 0, 0) for partition in range(4)])
        send([3])
        eventually(lambda: (3, 1, 0) in taken)
        assert consumption.exception() is None
    eventually(lambda: served.cursor("p", "s", 3).mark_delete == 1)


def test_one_partition_stays_one(served, admin, send, monkeypatch):
    monkeypatch.setattr(consumer_thread, "_LOOK_SECONDS", 0.05)
    taken = []
    options = {"subscription_type": "Shared"}
    with consume(None, served.layout.root, "p-partition-1", "s", lambda found, _: taken.extend(found), **options):
        admin.update_partitioned_topic("p", 3)
        send([2, 1])
        eventually(lambda: taken == [(1, 0, 0)])


def test_who_is_refused_on_one_partition_is_dealt_nothing_of_another(served, admin, send):
    admin.create_subscription("p", "s", "earliest")
    send([0, 1])
    client = pulsar.Client(f"delta:{served.layout.root}")
    client.subscribe("p-partition-1", "s")
    with pytest.raises(pulsar.ConsumerBusy):
        consume(None, served.layout.root, "p", "s", print, subscription_type="Exclusive")
    eventually(lambda: not served.cursor("p", "s", 0).consumers)
    assert served.cursor("p", "s", 0).msg_out_counter == 0
    client.close()
