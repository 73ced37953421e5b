"""Fixtures of pytest: a root in a temporary folder, its broker in this process, a client and a clock."""

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pulsar_spark.client.client import Client
    from pulsar_spark.testing.broker import Broker
    from pulsar_spark.testing.clock import Clock


@pytest.fixture(scope="session")
def _new_pulsar_root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A root that tests copy, as that is faster than making one."""
    from pulsar_spark.storage.layout import Layout
    from pulsar_spark.storage.store.durability import NONE, write_durability
    from pulsar_spark.storage.topics.topics import prepare_root

    root = tmp_path_factory.mktemp("pulsar") / "root"
    prepare_root(Layout(root))
    write_durability(root, NONE)
    return root


@pytest.fixture
def pulsar_root(_new_pulsar_root: Path, tmp_path: Path) -> Path:
    """An empty root in a folder of the test."""
    return Path(shutil.copytree(_new_pulsar_root, tmp_path / "pulsar"))


@pytest.fixture
def _pulsar_time() -> "Iterator[Clock]":
    from pulsar_spark.testing.clock import Clock

    with Clock() as clock:
        yield clock


@pytest.fixture
def pulsar_broker(pulsar_root: Path, _pulsar_time: "Clock") -> "Iterator[Broker]":
    """A broker of the root in this process, without Java. What ended it fails the test."""
    from pulsar_spark.testing.broker import Broker

    with Broker(pulsar_root, clock=_pulsar_time) as broker:
        yield broker


@pytest.fixture
def pulsar_service_url(pulsar_broker: "Broker") -> str:
    """The address for clients."""
    return pulsar_broker.service_url


@pytest.fixture
def pulsar_client(pulsar_service_url: str) -> "Iterator[Client]":
    """A client, which is shut down after the test."""
    from pulsar_spark.client.client import Client

    client = Client(pulsar_service_url)
    yield client
    client.shutdown()


@pytest.fixture
def pulsar_clock(pulsar_broker: "Broker", _pulsar_time: "Clock") -> "Clock":
    """The time of broker and clients: it stands still, and ``advance(minutes=5)`` moves it."""
    _pulsar_time.stop()
    return _pulsar_time
