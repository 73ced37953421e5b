"""Brokers as processes: killed, replaced by a standby, started without their checkpoint, stopped."""

import os
import shutil
import signal
import subprocess
import sys

import pytest

import pulsar_spark as pulsar
from pulsar_spark.storage.layout import Layout
from pulsar_spark.storage.processes.lease import BundleLease

PATIENCE_MS = 600_000


class BrokerProcess:
    """``pulsar-spark broker`` on a root."""

    def __init__(self, root, log):
        self.log = open(log, "w")
        self.process = subprocess.Popen(
            [sys.executable, "-m", "pulsar_spark.cli", "broker", "--root", str(root)],
            stdout=self.log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )

    def stop(self, number: signal.Signals) -> int:
        """Signal the process and its JVM together, as a service manager does; the exit code."""
        os.killpg(self.process.pid, number)
        self.log.close()
        return self.process.wait(timeout=PATIENCE_MS // 1000)


@pytest.fixture
def client(root):
    client = pulsar.Client(f"delta:{root}", operation_timeout_seconds=PATIENCE_MS // 1000)
    yield client
    client.close()


def receive(consumer, count: int) -> list:
    return [consumer.receive(timeout_millis=PATIENCE_MS) for _ in range(count)]


def values(messages: list) -> list[str]:
    return [message.data().decode() for message in messages]


@pytest.mark.java
def test_a_killed_broker_is_replaced_and_nothing_is_lost(root, client, tmp_path):
    first = BrokerProcess(root, tmp_path / "first.log")
    consumer = client.subscribe(
        "t", "s", consumer_type=pulsar.ConsumerType.Shared, initial_position=pulsar.InitialPosition.Earliest
    )
    standby = BrokerProcess(root, tmp_path / "standby.log")
    producer = client.create_producer("t")
    for number in range(20):
        producer.send(str(number).encode())
    before = receive(consumer, 20)
    for message in before[::2]:
        consumer.acknowledge(message)
    held_by = BundleLease(Layout(root), "test").holder().pid
    assert held_by == first.process.pid
    first.stop(signal.SIGKILL)
    shutil.rmtree(Layout(root).checkpoint(), ignore_errors=True)
    for number in range(20, 30):
        producer.send(str(number).encode())
    after = receive(consumer, 10)
    consumer.acknowledge(after[0])
    assert values(before) == [str(number) for number in range(20)]
    assert values(after) == [str(number) for number in range(20, 30)], (
        "what the killed broker had delivered is not delivered again"
    )
    consumer.close()
    again = client.subscribe("t", "s", consumer_type=pulsar.ConsumerType.Shared)
    assert values(receive(again, 19)) == [str(number) for number in [*range(1, 20, 2), *range(21, 30)]]
    with pytest.raises(pulsar.Timeout):
        again.receive(timeout_millis=2000)
    assert BundleLease(Layout(root), "test").holder().pid == standby.process.pid
    assert standby.stop(signal.SIGTERM) == 0, (tmp_path / "standby.log").read_text()
    assert BundleLease(Layout(root), "test").holder() is None
