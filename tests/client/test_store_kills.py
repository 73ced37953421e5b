"""Brokers and producers on a root in an object store that are killed, by SIGKILL, at one of their writes: the store has
it or has not, and they are told neither. Nothing is lost and nothing unexpected is there.
``PULSAR_SPARK_KILLS_AT_WRITES`` says how many, as for those on a disk."""

import os
import signal
import threading
from collections import Counter

import pytest

import pulsar_spark as pulsar
from pulsar_spark.testing.plain_broker import PlainBroker
from tests.support.object_store import asking, new_root
from tests.support.processes import Program
from tests.support.s3_proxy import LOST_BEFORE, LOST_BEHIND, PASS, Answer, Asked, s3_proxy
from tests.support.waiting import eventually

KILLS = max(1, int(os.environ.get("PULSAR_SPARK_KILLS_AT_WRITES", "12")) // 6)
APART = 3
"""Writes by which each comes later than the one before it: those of a start, and of rounds and leases behind it."""
A_BROKER = """
from pulsar_spark.storage.processes import lease
from pulsar_spark.testing.plain_broker import PlainBroker
lease.LEASE_SECONDS = 1.0
with PlainBroker(url) as broker:
    broker.wait()
"""
A_PRODUCER = """
client = pulsar.Client(f"delta:{url}")
producer = client.create_producer("t")
for number in range(1000):
    print(number)
    producer.send(str(number).encode())
    print(f"sent {number}")
"""


class AtWrite:
    """What becomes of requests: that of the write of a *number* gets no answer, and *came* is set."""

    def __init__(self):
        self.left, self.came, self.bad = 0, threading.Event(), PASS

    def next_at(self, number: int, *, is_made: bool) -> None:
        self.came.clear()
        self.bad, self.left = LOST_BEHIND if is_made else LOST_BEFORE, number

    def __call__(self, asked: Asked) -> Answer:
        if asked.method == "GET" or asked.method == "HEAD":
            return PASS
        self.left -= 1
        if self.left > 0:
            return PASS
        self.came.set()
        return self.bad if self.left == 0 else LOST_BEFORE


def run_until_killed(source: str, url: str, proxy: str, at_write: AtWrite) -> list[str]:
    """Run a program that is killed as soon as that write came; what it had printed."""
    with asking(proxy), Program(source, url) as program:
        assert at_write.came.wait(60)
        os.killpg(program.process.pid, signal.SIGKILL)
        return program.end()[1]


def test_brokers(s3, monkeypatch):
    from pulsar_spark.storage.processes import lease

    monkeypatch.setattr(lease, "LEASE_SECONDS", 1.0)
    at_write, url, received = AtWrite(), new_root(), Counter()
    with PlainBroker(url):
        client = pulsar.Client(f"delta:{url}", operation_timeout_seconds=60)
        consumer = client.subscribe("t", "s", consumer_type=pulsar.ConsumerType.Shared)

    def receive(milliseconds: int) -> bool:
        try:
            message = consumer.receive(milliseconds)
        except pulsar.Timeout:
            return False
        received[message.data().decode()] += 1
        consumer.acknowledge(message)
        return True

    producer = client.create_producer("t")
    with s3_proxy(s3, at_write) as proxy:
        for number in range(KILLS):
            producer.send(str(number).encode())
            at_write.next_at(2 + APART * number, is_made=number % 2 == 0)
            run_until_killed(A_BROKER, url, proxy, at_write)
            receive(10)
    with PlainBroker(url) as broker:
        eventually(lambda: receive(1000) or sum(received.values()) >= KILLS, 60)
        while sum(received.values()) < KILLS:
            assert receive(60_000)
        assert received == {str(number): 1 for number in range(KILLS)} and not receive(300)
        eventually(lambda: broker.cursor("t", "s").mark_delete == KILLS - 1)
        client.close()


@pytest.mark.parametrize("is_made", [False, True], ids=["before", "behind"])
def test_producers(s3, is_made):
    """What it was told is sent is there, once; beside it at most what it was about to send."""
    at_write = AtWrite()
    with s3_proxy(s3, at_write) as proxy:
        for number in range(KILLS):
            url = new_root()
            with PlainBroker(url):
                client = pulsar.Client(f"delta:{url}", operation_timeout_seconds=60)
                consumer = client.subscribe("t", "s")
                at_write.next_at(5 + APART * number, is_made=is_made)
                said = run_until_killed(A_PRODUCER, url, proxy, at_write)
                sent = [line.removeprefix("sent ") for line in said if line.startswith("sent")]
                begun = [line for line in said if not line.startswith("sent")]
                found = [consumer.receive(60_000).data().decode() for _ in sent]
                assert found == sent
                try:
                    found.append(consumer.receive(500).data().decode())
                except pulsar.Timeout:
                    pass
                assert found == begun[: len(found)]
                client.close()
