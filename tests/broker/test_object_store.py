"""The broker that plans with Spark, on a root in an object store: its plans' inputs and checkpoints lie on the disk of
its machine. What does not work there yet is refused by name, and so is a session that cannot read a store."""

import pytest

import pulsar_spark as pulsar
from pulsar_spark.admin import Admin
from pulsar_spark.broker.runner import Broker
from pulsar_spark.errors import OperationNotSupported
from pulsar_spark.frames import read_messages, to_delta
from pulsar_spark.storage.layout import Layout
from pulsar_spark.storage.session import spark_session
from tests.support.object_store import new_root
from tests.support.waiting import receive_values, send


@pytest.fixture
def url(s3) -> str:
    return new_root()


def test_a_broker_with_spark_serves_clients(spark, url):
    with Broker(spark_session(for_rounds=True), url):
        client = pulsar.Client(f"delta:{url}", operation_timeout_seconds=60)
        consumer = client.subscribe("t", "s", consumer_type=pulsar.ConsumerType.Shared)
        send(client, "t", *"abc")
        assert receive_values(consumer, 3) == [*"abc"]
        client.close()
    with pytest.raises(pulsar.InvalidConfiguration, match="no client of its store.*hadoop-aws"):
        read_messages(spark, url, "t")
    with pytest.raises(OperationNotSupported, match="in an object store"):
        to_delta(f"{url}/table")


def test_administration(url):
    admin = Admin(f"delta:{url}")
    admin.create_namespace("tenant/space")
    assert "tenant/space" in admin.namespaces("tenant")
    admin.create_partitioned_topic("persistent://tenant/space/t", 2)
    client = pulsar.Client(f"delta:{url}")
    send(client, "persistent://tenant/space/t", "a", "b")
    client.close()
    assert admin.list_partitioned_topics("tenant/space") == ["persistent://tenant/space/t"]
    assert admin.stats("persistent://tenant/space/t")["msgInCounter"] == 2
    assert admin.doctor() == admin.repair() == []
    with pytest.raises(pulsar.InvalidConfiguration, match="object store"):
        admin.set_durability("none")
    admin.delete_topic("persistent://tenant/space/t")
    assert not Layout(url).topics("tenant", "space")
