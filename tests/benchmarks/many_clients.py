"""What many consumers and many clients cost a broker: a hundred consumers of one Shared subscription, a thousand that
are idle, two hundred clients of one root that send a message a second each."""

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pulsar_spark as pulsar
from pulsar_spark.demo.broker_process import BrokerProcess
from pulsar_spark.storage.delta.log import TableLog
from pulsar_spark.storage.layout import Layout
from tests.benchmarks.bench import Bench, resident_memory
from tests.benchmarks.figures import BYTES, COUNT, SECONDS, Budget, Figure

FAMILY = "many_clients"
TIMEOUT_MS = 120_000
ONE_AT_A_TIME = 30
FLAT = Budget(1.3, is_ratio=True)
PROCESSES = 4


def measure(bench: Bench) -> Iterator[Figure]:
    root = bench.new_folder(FAMILY) / "root"
    with BrokerProcess(root, bench.folder / f"{FAMILY}.log") as broker:
        client = pulsar.Client(f"delta:{root}", operation_timeout_seconds=TIMEOUT_MS // 1000)
        alone = _Deliveries(client, "alone", 1)
        alone.measure()  # the broker is warm afterwards
        few = alone.measure()
        yield from _on_one_subscription(bench, client, few)
        yield from _idle(bench, client, alone, broker._process.pid)
        client.close()
    yield from _clients(bench)


class _Deliveries:
    """A producer and so many Shared consumers of one subscription, whose listeners acknowledge."""

    def __init__(self, client: pulsar.Client, topic: str, consumers: int):
        self._came: list[float] = []
        self._producer = client.create_producer(topic)
        self.consumers = [
            client.subscribe(topic, "s", pulsar.ConsumerType.Shared, message_listener=self._listen)
            for _ in range(consumers)
        ]

    def _listen(self, consumer, message) -> None:
        consumer.acknowledge(message)
        self._came.append(time.perf_counter())

    def measure(self) -> list[float]:
        """Seconds from publishing to receiving, one at a time."""
        return [self._one() for _ in range(ONE_AT_A_TIME)]

    def _one(self) -> float:
        self._came.clear()
        began = time.perf_counter()
        self._producer.send(b"x")
        while not self._came:
            time.sleep(0.001)
        return self._came[0] - began


def _on_one_subscription(bench: Bench, client: pulsar.Client, few: list[float]) -> Iterator[Figure]:
    consumers = bench.few(20, 100)
    bench.say(f"{consumers} consumers of one Shared subscription")
    began = time.perf_counter()
    many = _Deliveries(client, "many", consumers)
    joined = time.perf_counter() - began
    yield Figure(FAMILY, f"{consumers} consumers join one Shared subscription, one after the other", SECONDS, [joined])
    what = f"publish to receive, one at a time, one of {consumers} consumers, p50"
    yield Figure(FAMILY, what, SECONDS, many.measure(), "one consumer", few, FLAT)
    for consumer in many.consumers:
        consumer.close()


def _idle(bench: Bench, client: pulsar.Client, alone: _Deliveries, broker: int) -> Iterator[Figure]:
    consumers, topics = bench.few(100, 1000), 10
    before, few = resident_memory(broker), alone.measure()
    bench.say(f"{consumers} consumers join, each a subscription of its own")
    idle = [
        client.subscribe(f"idle-{number % topics}", f"s{number}", pulsar.ConsumerType.Shared)
        for number in range(consumers)
    ]
    yield Figure(
        FAMILY, f"memory of the broker for {consumers} idle consumers", BYTES, [resident_memory(broker) - before]
    )
    what = f"publish to receive, one at a time, beside {consumers} idle consumers, p50"
    yield Figure(FAMILY, what, SECONDS, alone.measure(), "without them", few, FLAT)
    bench.say(f"{consumers} idle consumers for a minute")
    files, commits = _files(client._layout), _commits(client._layout)
    time.sleep(bench.few(10, 60))
    rested = _commits(client._layout)
    yield Figure(
        FAMILY, f"files that {consumers} idle consumers leave in a minute", COUNT, [_files(client._layout) - files]
    )
    yield Figure(FAMILY, "requests committed meanwhile", COUNT, [rested - commits])
    for consumer in idle:
        consumer.close()


def _clients(bench: Bench) -> Iterator[Figure]:
    clients, messages = bench.few(40, 200), bench.few(8, 20)
    bench.say(f"{clients} clients connect")
    root, each = bench.new_folder("clients") / "root", clients // PROCESSES
    with ExitStack() as ending:
        broker = ending.enter_context(BrokerProcess(root, bench.folder / "clients.log"))
        processes = [
            ending.enter_context(
                subprocess.Popen(
                    [
                        sys.executable,
                        "-m",
                        "tests.benchmarks.many_process",
                        root,
                        f"{n * each}",
                        f"{each}",
                        f"{messages}",
                    ],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    text=True,
                )
            )
            for n in range(PROCESSES)
        ]
        _next_line(processes)
        bench.say(f"{clients} clients send a message a second")
        layout, began = Layout(Path(root)), time.monotonic()
        requests, rounds = _commits(layout), _rounds(layout)
        _tell(processes)
        _next_line(processes)
        elapsed = time.monotonic() - began
        requests, rounds = _commits(layout) - requests, _rounds(layout) - rounds
        _tell(processes)
        waited = [one for line in _next_line(processes) for one in json.loads(line)]
        broker.check()
    if len(waited) != clients * messages:
        raise AssertionError(f"{len(waited):,} of {clients * messages:,} messages were received")
    what = f"{clients} clients, a message a second each: publish to receive"
    yield Figure(FAMILY, f"{what}, p50", SECONDS, waited)
    yield Figure(FAMILY, f"{what}, p99", SECONDS, waited, share=0.99)
    yield Figure(FAMILY, f"{clients} clients: requests committed a second", COUNT, [requests / elapsed])
    yield Figure(FAMILY, f"{clients} clients: rounds a second", COUNT, [rounds / elapsed])


def _tell(processes: list[subprocess.Popen]) -> None:
    for process in processes:
        process.stdin.write("go\n")
        process.stdin.flush()


def _next_line(processes: list[subprocess.Popen]) -> list[str]:
    return [process.stdout.readline() for process in processes]


def _commits(layout: Layout) -> int:
    return TableLog(layout.broker_table("requests")).latest()


def _rounds(layout: Layout) -> int:
    return TableLog(layout.broker_table("cursor_ledger")).latest()


def _files(layout: Layout) -> int:
    return sum(path.is_file() for path in layout.root.rglob("*"))
