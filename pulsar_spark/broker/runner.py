"""The broker: one streaming query per bundle, whose micro-batches are rounds.

The query reads the change feed of ``requests`` and a clock tick (the ``rate`` source). A micro-batch without requests does not end at once: it watches the logs
of the topics, a matter of microseconds, and runs a round as soon as something is published or falls due, so that a message waits for no trigger. It ends when a
request is there, because that comes with the next micro-batch, or after :data:`WATCH_SECONDS`.

Where the checkpoint was does not matter: each start begins a new one behind the requests that the latest round's row names as consumed, and rows at or below that
version are dropped. A broker that finds the lease taken stands by and takes over when it ends; one that was taken over stops at its next commit.
"""
import logging
import os
import shutil
import signal
import socket
import threading
import time
import uuid
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
from py4j.protocol import Py4JError
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession, functions as F

from pulsar_spark.broker.bundle import load_bundle
from pulsar_spark.broker.drafts import Request, requests_of
from pulsar_spark.broker.gather import next_due
from pulsar_spark.broker.planner import Planner
from pulsar_spark.broker.rounds import RoundResult, Rounds
from pulsar_spark.errors import BrokerFenced, PulsarSparkError
from pulsar_spark.schemas import REQUESTS
from pulsar_spark.storage.layout import Layout
from pulsar_spark.storage.lease import LEASE_SECONDS, BundleLease
from pulsar_spark.storage.log import TableLog
from pulsar_spark.storage.topics import prepare_root

WATCH_SECONDS = 2.0
LOOK_SECONDS = 0.01
STOP_SECONDS = 60.0
log = logging.getLogger(__name__)


def now_micros() -> int:
    """The system's clock, in microseconds since 1970."""
    return time.time_ns() // 1000


class Broker:
    """Serves a root's bundle on a Spark session until it is stopped. ``start`` does not block; ``run`` does."""

    def __init__(self, spark: SparkSession, root: str | os.PathLike, *, now: Callable[[], int] = now_micros,
                 on_round: Callable[[RoundResult, float], None] | None = None):
        self.spark, self.layout, self.now, self.on_round = spark, Layout(root), now, on_round
        self.broker_id = f"{socket.gethostname()}-{os.getpid()}-{uuid.uuid4().hex[:8]}"
        self.failure: BaseException | None = None
        self._stopping, self._between_batches = threading.Event(), threading.Event()
        self._query = None
        self._lease: BundleLease | None = None

    def start(self, standby_seconds: float | None = None) -> bool:
        """Take the bundle over and start the query; waits as standby while another broker serves it. False if stopped or out of time meanwhile."""
        prepare_root(self.layout)
        self._lease = BundleLease(self.layout, self.broker_id)
        planner = Planner(self.spark, Path(self.layout.bundle_folder()) / "inputs" / self.broker_id)
        planner.warm_up()
        waited_since = time.monotonic()
        while not self._lease.take():
            if standby_seconds is not None and time.monotonic() - waited_since > standby_seconds:
                return False
            if self._stopping.wait(0.2):
                return False
        threading.Thread(target=self._renew_lease, name="lease", daemon=True).start()
        self.rounds = Rounds(load_bundle(self.layout), planner.run, self.now, self.broker_id)
        self._requests_log = TableLog(self.layout.broker_table("requests"))
        self.rounds.take_over()
        self._query = self._start_query()
        log.info("broker %s serves %s", self.broker_id, self.layout.root)
        return True

    def stop(self) -> None:
        """Stop after the round under way. Safe to call from a signal handler, and twice."""
        self._stopping.set()

    def wait(self, timeout_seconds: float | None = None) -> None:
        """Block until the broker has stopped; raises what stopped it, if it was not asked to."""
        until = None if timeout_seconds is None else time.monotonic() + timeout_seconds
        while not self._stopping.wait(0.1) and self._query.isActive:
            if until is not None and time.monotonic() > until:
                return
        self._close()

    def _close(self) -> None:
        was_asked = self._stopping.is_set()
        self._stopping.set()
        self._between_batches.wait(STOP_SECONDS)
        failure = self.failure
        try:
            failure = failure or (None if was_asked else self._query.exception())
            self._query.stop()
        except Py4JError:
            log.info("Spark was stopped before the broker")  # a service manager ends all processes of a service at once
        self._lease.let_go()
        if failure is not None:
            raise failure

    def _renew_lease(self) -> None:
        while not self._stopping.wait(LEASE_SECONDS / 4):
            if not self._lease.take():
                self.failure = BrokerFenced(f"another broker holds the lease of {str(self.layout.root)!r}")
                self._stopping.set()

    def _start_query(self):
        checkpoint = self.layout.checkpoint()
        shutil.rmtree(checkpoint, ignore_errors=True)
        requests = (self.spark.readStream.format("delta").option("readChangeFeed", "true")
                    .option("startingVersion", self.rounds.bundle.requests_version).load(str(self.layout.broker_table("requests"))))
        columns = [*REQUESTS.schema.names, "_commit_version"]
        ticks = self.spark.readStream.format("rate").option("rowsPerSecond", 10).load()
        ticks = ticks.select(*[F.lit(None).cast(requests.schema[name].dataType).alias(name) for name in columns])
        feed = requests.where("_change_type = 'insert'").select(*columns).unionByName(ticks)
        return (feed.writeStream.foreachBatch(self._run_batch).option("checkpointLocation", str(checkpoint))
                .queryName(f"broker-{self.broker_id}").trigger(processingTime="0 seconds").start())

    def _run_batch(self, frame: DataFrame, batch_id: int) -> None:
        """One micro-batch: a round for its requests, then rounds for what is published or falls due while it watches."""
        self._between_batches.clear()
        try:
            if not self._stopping.is_set():
                self._run_rounds(frame)
        except PulsarSparkError as failure:
            self.failure = failure
            raise
        finally:
            self._between_batches.set()

    def _run_rounds(self, frame: DataFrame) -> None:
        bundle = self.rounds.bundle
        requests, version = [], bundle.requests_version
        if self._has_requests():
            requests, version = self._requests(frame)
        watch_until = time.monotonic() + WATCH_SECONDS
        is_settled = not self._run_round(requests, version)
        while not self._stopping.is_set():
            if not is_settled:
                is_settled = not self._run_round([], version)
                continue
            if self._has_requests() or time.monotonic() > watch_until:
                return
            due = next_due(bundle, bundle.clock)
            if bundle.has_news() or (due is not None and due <= self.now()):
                is_settled = False
            else:
                time.sleep(LOOK_SECONDS)

    def _has_requests(self) -> bool:
        """Is there a commit of requests not consumed yet? One without rows, such as an OPTIMIZE, is passed over."""
        bundle = self.rounds.bundle
        while self._requests_log.has(bundle.requests_version + 1):
            if self._requests_log.commit(bundle.requests_version + 1).added:
                return True
            bundle.requests_version += 1
        return False

    def _run_round(self, requests: list[Request], version: int) -> bool:
        started = time.perf_counter()
        result = self.rounds.run(requests, version)
        if self.on_round and result.is_committed:
            self.on_round(result, time.perf_counter() - started)
        return result.is_committed

    def _requests(self, frame: DataFrame) -> tuple[list[Request], int]:
        rows = frame.where(F.col("_commit_version") > self.rounds.bundle.requests_version).toArrow()
        if not rows.num_rows:
            return [], self.rounds.bundle.requests_version
        rows = rows.take(pa.compute.sort_indices(rows["_commit_version"]))
        return requests_of(rows), pa.compute.max(rows["_commit_version"]).as_py()


def run_broker(root: str | os.PathLike, *, spark: SparkSession | None = None, on_round: Callable[[RoundResult, float], None] | None = None) -> None:
    """Serve *root* until SIGTERM or SIGINT; blocks. :class:`BrokerFenced` when another broker took over."""
    from pulsar_spark.storage.session import spark_session  # here: it finds Java, which a caller with a session of its own has

    broker = Broker(spark or spark_session("pulsar-spark broker", for_rounds=True), root, on_round=on_round)
    previous = {number: signal.signal(number, lambda *_: broker.stop()) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        if broker.start():
            broker.wait()
    except StreamingQueryException:
        if broker.failure is not None:
            raise broker.failure from None
        raise
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
