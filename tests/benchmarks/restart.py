"""How long a killed broker is missed: from the start of a new process to the first message it delivers, the JVM's start
included.

The message was published, and its consumer is connected, while no broker runs.
"""

import os
import time
from collections.abc import Iterator
from statistics import median

import pulsar_spark as pulsar
from pulsar_spark.demo.broker_process import BrokerProcess
from pulsar_spark.storage.delta.log import TableLog
from pulsar_spark.storage.layout import Layout
from tests.benchmarks.bench import PAYLOAD_BYTES, Bench
from tests.benchmarks.figures import SECONDS, Budget, Figure

TOPIC = "persistent://public/default/restart"
TIMEOUT_SECONDS = 120
EARLIER_MESSAGES = 200


def measure(bench: Bench) -> Iterator[Figure]:
    root = bench.new_folder("restart") / "root"
    client = pulsar.Client(f"delta:{root}", operation_timeout_seconds=TIMEOUT_SECONDS)
    producer = client.create_producer(TOPIC)
    log = bench.folder / "restart.log"
    with BrokerProcess(root, log):
        bench.say("starting a broker")
        consumer = client.subscribe(
            TOPIC, "s", consumer_type=pulsar.ConsumerType.Shared, initial_position=pulsar.InitialPosition.Earliest
        )
        for _ in range(EARLIER_MESSAGES):
            producer.send_async(b"x" * PAYLOAD_BYTES, None)
        producer.flush()
        for _ in range(EARLIER_MESSAGES):
            consumer.acknowledge(consumer.receive(TIMEOUT_SECONDS * 1000))
    runs, parts = [], []
    for turn in range(bench.few(1, 5)):
        bench.say(f"restart {turn + 1}")
        producer.send(str(turn).encode())
        rounds = TableLog(Layout(root).broker_table("cursor_ledger"))
        killed_at = rounds.latest()
        began = time.time()
        with BrokerProcess(root, log):
            while (message := consumer.receive(TIMEOUT_SECONDS * 1000)).data() != str(turn).encode():
                consumer.acknowledge(message)
            ended = time.time()
            consumer.acknowledge(message)
            _await_round(rounds, rounds.latest())
        taken_over = os.stat(rounds.folder / f"{killed_at + 1:020d}.json").st_mtime
        runs.append(ended - began)
        parts.append((taken_over - began, ended - taken_over))
    client.shutdown()
    yield Figure(
        "restart",
        "first dispatch after kill -9, with the JVM's start",
        SECONDS,
        runs,
        budget=Budget(15.0),
        parts=dict(zip(("process to take-over", "take-over to receive"), map(median, zip(*parts)))),
    )


def _await_round(rounds: TableLog, after: int) -> None:
    """Wait until the acknowledgement is in a round, so that the next broker starts from a settled state."""
    until = time.monotonic() + TIMEOUT_SECONDS
    while rounds.latest(after) == after and time.monotonic() < until:
        time.sleep(0.05)
