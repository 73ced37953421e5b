"""A root on which no broker serves, and a client on it."""

import pytest

import pulsar_spark as pulsar


@pytest.fixture
def root(root_url):
    return root_url


@pytest.fixture
def client(root):
    client = pulsar.Client(f"delta:{root}", operation_timeout_seconds=1)
    yield client
    client.shutdown()
