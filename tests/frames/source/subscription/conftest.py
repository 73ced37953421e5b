"""A root that a broker without Spark serves, a client on it, and the clock of both."""

import pytest

import pulsar_spark as pulsar
from pulsar_spark.testing.broker import Broker
from pulsar_spark.testing.clock import Clock


@pytest.fixture
def clock():
    with Clock() as clock:
        yield clock


@pytest.fixture
def broker(root_url, clock):
    with Broker(root_url, clock=clock) as broker:
        yield broker


@pytest.fixture
def root(broker):
    return broker.layout.root


@pytest.fixture
def client(root):
    client = pulsar.Client(f"delta:{root}", operation_timeout_seconds=10)
    yield client
    client.shutdown()
