"""A root that a real broker serves, without Spark, and a client on it; and what people do to a topic's table."""

import json

import pyarrow as pa
import pytest
from deltalake import DeltaTable

import pulsar_spark as pulsar
from pulsar_spark.admin import Admin
from pulsar_spark.storage.delta.log import TableLog
from pulsar_spark.storage.delta.scan import dataset_of
from pulsar_spark.storage.topics.topics import read_topic
from pulsar_spark.testing.plain_broker import PlainBroker

EARLIEST = {"initial_position": pulsar.InitialPosition.Earliest}
SHARED = {"consumer_type": pulsar.ConsumerType.Shared}


class Root:
    """A root, the people on it, and a topic's table as anybody may open it."""

    def __init__(self, folder):
        self.folder = folder
        self.url = f"delta:{folder}"
        self.admin = Admin(self.url, timeout_seconds=20)
        self.client = pulsar.Client(self.url, operation_timeout_seconds=20)

    def path(self, topic="t"):
        return read_topic(self.client._layout, topic).path

    def table(self, topic="t") -> DeltaTable:
        return DeltaTable(str(self.path(topic)))

    def rows(self, topic="t") -> pa.Table:
        return dataset_of(self.path(topic)).to_table()

    def send(self, values, topic="t", **options) -> None:
        producer = self.client.create_producer(topic, **options)
        for value in values:
            producer.send_async(str(value).encode(), None)
        producer.flush()
        producer.close()

    def send_one(self, value, topic="t") -> None:
        self.client.create_producer(topic).send(value.encode())

    def subscribe(self, name="s", topic="t", **options) -> pulsar.Consumer:
        return self.client.subscribe(topic, name, **{**EARLIEST, **options})

    def stats(self, topic="t") -> dict:
        return self.admin.stats(topic)

    def line(self, text: bytes | str, topic="t") -> int:
        """Put a commit of these bytes behind the topic's log; its version."""
        log = TableLog(self.path(topic))
        version = log.latest() + 1
        fresh = log.folder / ".line"
        fresh.write_bytes(text if isinstance(text, bytes) else text.encode())
        fresh.rename(log.folder / f"{version:020d}.json")
        return version

    def add(self, topic="t", **changed) -> str:
        """An ``add`` action of a file that is there, with other values of some of its fields."""
        log = TableLog(self.path(topic))
        actions = [json.loads(line) for line in (log.folder / f"{1:020d}.json").read_text().splitlines()]
        return json.dumps({"add": {**next(action["add"] for action in actions if "add" in action), **changed}})


@pytest.fixture
def root(tmp_path):
    root = Root(tmp_path / "root")
    with PlainBroker(root.folder) as broker:
        root.broker = broker
        yield root
        root.client.shutdown()


def receive(consumer, count=None, timeout_ms=10_000, acknowledge=True) -> list[str]:
    """*count* messages, or all that come until nothing comes for a while."""
    values = []
    while count is None or len(values) < count:
        try:
            message = consumer.receive(timeout_ms if count is not None or not values else 1500)
        except pulsar.Timeout:
            if count is None:
                return values
            raise
        values.append(message.data().decode())
        if acknowledge:
            consumer.acknowledge(message)
    return values


def receive_all(consumer, count: int) -> list[str]:
    """The next *count* messages, and what comes behind them when nothing more should: that is not waited for long."""
    values = receive(consumer, count)
    try:
        while True:
            values.append(consumer.receive(200).data().decode())
    except pulsar.Timeout:
        return values
