"""``python -m tests.benchmarks.past_process <load | start | receive> <folder> <publish commits>``: one measurement on a
root that tests.benchmarks.past, or holes, has written, in a process of its own. Prints JSON."""

import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pulsar_spark as pulsar
from pulsar_spark.admin import Admin
from pulsar_spark.broker.bundle.load_bundle import load_bundle
from pulsar_spark.storage.delta.table_parts import give_memory_back
from pulsar_spark.storage.layout import Layout
from pulsar_spark.testing.plain_broker import PlainBroker
from tests.benchmarks.bench import resident_memory, seconds
from tests.benchmarks.past_client import TIMEOUT_MS, TOPIC, largest_memory

DELIVERIES, LOOKS = 20, 3
SHARED = pulsar.ConsumerType.Shared


def load(root: Path, commits: int) -> dict[str, list[float]]:
    """What a broker loads as it begins, and the most memory that this process had meanwhile."""
    give_memory_back()
    before, states = resident_memory(), []
    took = seconds(lambda: states.append(load_bundle(Layout(root))))
    give_memory_back()
    return {"load": [took], "broker_bytes": [resident_memory() - before], "peak_bytes": [largest_memory()]}


def start(root: Path, commits: int) -> dict[str, list[float]]:
    """A broker that begins, and what comes then."""
    found = load(root, commits)
    del found["peak_bytes"]
    with PlainBroker(root):
        client = pulsar.Client(f"delta:{root}")
        producer = client.create_producer(TOPIC)
        began = time.perf_counter()
        consumer = client.subscribe(TOPIC, f"new-{time.time_ns()}", consumer_type=SHARED)

        def deliver() -> None:
            producer.send(b"x")
            consumer.acknowledge(consumer.receive(TIMEOUT_MS))

        deliver()
        found["first"] = [time.perf_counter() - began]
        found["delivery"] = [seconds(deliver) for _ in range(DELIVERIES)]
        client.close()
        admin = Admin(f"delta:{root}")
        found["stats"] = [seconds(lambda: admin.stats(TOPIC)) for _ in range(LOOKS)]
        found["read"] = [seconds(lambda: _read_first(root)) for _ in range(LOOKS)]
    return found


def _read_first(root: Path) -> None:
    """The first message, by a client of its own."""
    client = pulsar.Client(f"delta:{root}")
    client.create_reader(TOPIC, pulsar.MessageId.earliest).read_next(TIMEOUT_MS)
    client.close()


def receive(root: Path, commits: int) -> dict[str, list[float]]:
    """A broker in this process, a client in another, which receives and acknowledges all."""
    with PlainBroker(root):
        command = [sys.executable, "-m", "tests.benchmarks.past_client", str(root), str(commits)]
        return json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout)


MEASURED: dict[str, Callable[[Path, int], dict[str, list[float]]]] = {"load": load, "start": start, "receive": receive}

if __name__ == "__main__":
    print(json.dumps(MEASURED[sys.argv[1]](Path(sys.argv[2]), int(sys.argv[3]))))
