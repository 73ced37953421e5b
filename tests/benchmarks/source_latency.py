"""One message from its publish to the function of ``foreachBatch``, beside what Spark's protocol for sources in Python
takes and what a client waits for a message."""

import queue
import random
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from statistics import median

from pyspark.sql import DataFrame
from pyspark.sql.streaming import StreamingQuery

import pulsar_spark as pulsar
from pulsar_spark.frames.source.data_source import NAME
from tests.benchmarks.bench import Bench, in_turns
from tests.benchmarks.empty_source import EmptySource
from tests.benchmarks.figures import SECONDS, Budget, Figure

FAMILY = "source"
WARM_UP = 10
BUDGET = Budget(1.5, is_ratio=True)
PATIENCE_SECONDS = 120


def measure(bench: Bench, root: Path) -> Iterator[Figure]:
    bench.say("single messages through a stream")
    bench.spark.dataSource.register(EmptySource)
    with ExitStack() as ending:
        client = ending.enter_context(closing(pulsar.Client(f"delta:{root}", operation_timeout_seconds=120)))
        ours = ending.enter_context(closing(_Stream(bench, "ours", NAME, root=root, topic="one", subscription="s")))
        path = bench.folder / "grows"
        path.write_bytes(b"")
        empty = ending.enter_context(closing(_Stream(bench, "empty", EmptySource.name(), path=path)))
        producer = client.create_producer("one")
        consumer = client.subscribe("two", "s")
        to_consumer = client.create_producer("two")
        pause = random.Random(1)

        def waited(act: Callable[[], object], wait: Callable[[], object]) -> float:
            time.sleep(pause.uniform(0.2, 0.6))
            began = time.perf_counter()
            act()
            wait()
            return time.perf_counter() - began

        def grow() -> None:
            with path.open("ab") as file:
                file.write(b"x")

        def receive() -> None:
            consumer.acknowledge(consumer.receive(PATIENCE_SECONDS * 1000))

        runs = in_turns(
            bench.few(15, 40),
            lambda: waited(lambda: producer.send(b"x" * 100), ours.next),
            lambda: waited(grow, empty.next),
            lambda: waited(lambda: to_consumer.send(b"x" * 100), receive),
            warm_up=WARM_UP,
        )
        through_ours, through_empty, through_client = runs
        together = [sum(each) for each in zip(through_empty, through_client)]
        what = "publish to foreachBatch, one at a time, p50"
        other = "an empty source, and a client's receive"
        yield Figure(FAMILY, what, SECONDS, through_ours, other, together, BUDGET, ours.parts())
        yield Figure(FAMILY, "an empty source to foreachBatch, p50", SECONDS, through_empty, parts=empty.parts())
        yield Figure(FAMILY, "publish to a client's receive, p50", SECONDS, through_client)


class _Stream:
    """A stream that says when ``foreachBatch`` gets rows."""

    def __init__(self, bench: Bench, name: str, source: str, **options: object):
        given = {option: str(value) for option, value in options.items()}
        frame = bench.spark.readStream.format(source).options(**given).load()
        self._arrived: queue.Queue[int] = queue.Queue()
        writer = frame.writeStream.foreachBatch(self._call).option("checkpointLocation", f"{bench.folder}/{name}")
        self._query: StreamingQuery = writer.start()

    def _call(self, batch: DataFrame, batch_id: int) -> None:
        if batch.count():
            self._arrived.put(batch_id)

    def next(self) -> None:
        """Wait for the next row."""
        self._arrived.get(timeout=PATIENCE_SECONDS)

    def parts(self) -> dict[str, float]:
        """Medians of what Spark says of the latest micro-batches with rows."""
        spent = [Counter(each["durationMs"]) for each in self._query.recentProgress if each["numInputRows"]]
        return {name: median(each[name] for each in spent) / 1000 for name in spent[-1]} if spent else {}

    def close(self) -> None:
        self._query.stop()
