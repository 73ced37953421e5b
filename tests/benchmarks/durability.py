"""``python -m tests.benchmarks.durability``: what a write costs with and without waiting for the disk, and what several
producer processes on one topic cost each other."""

import multiprocessing
import tempfile
import time
from pathlib import Path

import pulsar_spark as pulsar
from pulsar_spark.storage.delta.tables import AppendTable
from pulsar_spark.storage.layout import Layout
from pulsar_spark.storage.store.durability import DURABILITIES, write_durability
from pulsar_spark.storage.topics.topics import create_topic
from pulsar_spark.table_specs import REQUESTS

APPENDS, SENDS, PRODUCERS = 300, 200, 8


def milliseconds(call, count: int) -> list[float]:
    found = []
    for _ in range(count):
        before = time.perf_counter()
        call()
        found.append(1000 * (time.perf_counter() - before))
    return found


def summary(times: list[float]) -> str:
    times = sorted(times)
    return f"p50 {times[len(times) // 2]:.1f}, p99 {times[len(times) * 99 // 100]:.1f}, max {times[-1]:.1f} ms"


def produce(root: str, barrier, results) -> None:
    client = pulsar.Client(f"delta:{root}")
    producer = client.create_producer("t")
    barrier.wait()
    results.put(milliseconds(lambda: producer.send(b"x" * 100), SENDS))
    client.close()


def sends(root: Path, producers: int) -> list[float]:
    spawn = multiprocessing.get_context("spawn")
    barrier, results = spawn.Barrier(producers), spawn.Queue()
    processes = [spawn.Process(target=produce, args=(str(root), barrier, results)) for _ in range(producers)]
    for process in processes:
        process.start()
    found = [each for _ in processes for each in results.get()]
    for process in processes:
        process.join()
    return found


def main() -> None:
    for durability in DURABILITIES:
        with tempfile.TemporaryDirectory() as folder:
            layout = Layout(Path(folder) / "root")
            create_topic(layout, "t")
            write_durability(layout.root, durability)
            table, row = AppendTable(layout.broker_table("requests")), REQUESTS.rows([dict(request_id="r")])
            print(f"{durability}: append of a request: {summary(milliseconds(lambda: table.append(row), APPENDS))}")
            for producers in (1, PRODUCERS):
                print(f"{durability}: send, {producers} processes: {summary(sends(layout.root, producers))}")


if __name__ == "__main__":
    main()
