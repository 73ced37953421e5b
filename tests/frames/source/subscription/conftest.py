"""A root that a broker without Spark serves, and a client on it."""

import pytest

import pulsar_spark as pulsar
from pulsar_spark.testing.plain_broker import PlainBroker


@pytest.fixture
def broker(tmp_path):
    with PlainBroker(tmp_path / "root") as broker:
        yield broker


@pytest.fixture
def root(broker):
    return broker.layout.root


@pytest.fixture
def client(root):
    client = pulsar.Client(f"delta:{root}", operation_timeout_seconds=10)
    yield client
    client.shutdown()
