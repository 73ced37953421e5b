"""A DataFrame consumer without Spark (see ``plain``)."""

import pytest

from pulsar_spark.frames.consuming import call
from pulsar_spark.storage.spark import spark_root
from pulsar_spark.storage.topics.topics import create_topic
from pulsar_spark.testing.plain_broker import PlainBroker
from tests.frames.plain import positions


@pytest.fixture
def plain(monkeypatch):
    """No session is asked for, and a function gets the positions instead of messages."""
    monkeypatch.setattr(spark_root, "check_delta", lambda spark: None)
    monkeypatch.setattr(call.Caller, "_read", lambda self, delivery, *_: positions(delivery.exact()))


@pytest.fixture
def served(plain, tmp_path):
    """A broker with a topic "t"."""
    with PlainBroker(tmp_path / "root") as broker:
        create_topic(broker.layout, "t")
        yield broker
