"""A root with a fake broker, and a client on it."""

import pytest

import pulsar_spark as pulsar
from tests.client.fake_broker import FakeBroker


@pytest.fixture
def broker(tmp_path):
    with FakeBroker(tmp_path / "root") as broker:
        yield broker


@pytest.fixture
def service_url(tmp_path):
    return f"delta:{tmp_path / 'root'}"


@pytest.fixture
def client(broker, service_url):
    client = pulsar.Client(service_url, operation_timeout_seconds=10)
    yield client
    client.shutdown()


@pytest.fixture
def lonely_client(service_url):
    """A client without a broker on its root."""
    client = pulsar.Client(service_url, operation_timeout_seconds=1)
    yield client
    client.shutdown()
