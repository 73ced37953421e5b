"""A root that a broker without Spark serves, and a client on it."""

import pytest

import pulsar_spark as pulsar
from pulsar_spark.testing.plain_broker import PlainBroker

collect_ignore_glob = ["scripts/*"]
"""Scripts for the ``pulsar`` package, which is not there: test_scripts runs them."""


@pytest.fixture
def broker(root_url):
    with PlainBroker(root_url) as broker:
        yield broker


@pytest.fixture
def service_url(root_url):
    return f"delta:{root_url}"


@pytest.fixture
def client(broker, service_url):
    client = pulsar.Client(service_url, operation_timeout_seconds=10)
    yield client
    client.shutdown()


@pytest.fixture
def other_client(broker, service_url):
    """Another process's client, as the broker sees it."""
    client = pulsar.Client(service_url, operation_timeout_seconds=10)
    yield client
    client.shutdown()


@pytest.fixture
def lonely_client(service_url):
    """A client without a broker on its root."""
    client = pulsar.Client(service_url, operation_timeout_seconds=1)
    yield client
    client.shutdown()
