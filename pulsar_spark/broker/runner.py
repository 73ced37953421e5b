"""The broker: one streaming query per bundle, whose micro-batches run rounds.

The query's source is the clock (Spark's ``rate`` source). A micro-batch watches the logs of ``requests`` and of the topics, which takes microseconds, and runs
a round as soon as something is asked, published or falls due; it ends after :data:`WATCH_SECONDS`. So neither a request nor a message waits for a trigger: with
the change feed of ``requests`` as a second source, a round began 430 ms after what it was for (planning, offsets, a job to collect a few rows), now it is
10 ms, against 60 ms for the round itself (``python -m tests.benchmarks --only latency``).

Where the checkpoint was does not matter: requests are read behind the version that the latest round names as consumed. A broker that finds the lease taken
stands by and takes over when it ends; one that was taken over stops at its next commit.
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

from py4j.protocol import Py4JError
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import StreamingQuery

from pulsar_spark.broker.bundle import load_bundle
from pulsar_spark.broker.drafts import RoundResult, requests_of
from pulsar_spark.broker.gather import next_due
from pulsar_spark.broker.journal import Journal
from pulsar_spark.broker.planner import Planner
from pulsar_spark.broker.rounds import Rounds
from pulsar_spark.broker.same_process import replace_former
from pulsar_spark.errors import BrokerFenced, InvalidConfiguration, PulsarSparkError
from pulsar_spark.storage.layout import Layout
from pulsar_spark.storage.lease import LEASE_SECONDS, BundleLease
from pulsar_spark.storage.log import TableLog
from pulsar_spark.storage.requests import read_requests
from pulsar_spark.storage.topics import prepare_root

WATCH_SECONDS = 10.0
LOOK_SECONDS = 0.01
LOOK_SHARE = 9
"""How many times longer than a look at all logs the pause between two of them is at least: a tenth of a core for a broker of thousands of topics."""

STOP_SECONDS = 60.0
log = logging.getLogger(__name__)


def now_micros() -> int:
    """The system's clock, in microseconds since 1970."""
    return time.time_ns() // 1000


class Broker:
    """Serves a root's bundle on a Spark session until it is stopped. ``start`` does not block; ``run`` does.

    At *max_unacked_messages_per_broker* on all Shared subscriptions together those that hold most of them get nothing new; 0 = no limit.
    """

    def __init__(self, spark: SparkSession, root: str | os.PathLike, *, now: Callable[[], int] = now_micros,
                 on_round: Callable[[RoundResult, float], None] | None = None, max_unacked_messages_per_broker: int = 0):
        if max_unacked_messages_per_broker < 0:
            raise InvalidConfiguration(f"max_unacked_messages_per_broker {max_unacked_messages_per_broker!r}: give a number, 0 for no limit")
        self.max_unacked_messages_per_broker = max_unacked_messages_per_broker
        self.spark, self.layout, self.now, self.on_round = spark, Layout(root), now, on_round
        self.broker_id = f"{socket.gethostname()}-{os.getpid()}-{uuid.uuid4().hex[:8]}"
        self.failure: BaseException | None = None
        self._stopping, self._between_batches = threading.Event(), threading.Event()
        self._query = None
        self._journal = Journal()
        self._lease: BundleLease | None = None

    def start(self, standby_seconds: float | None = None) -> bool:
        """Take the bundle over and start the query; waits as standby while another broker serves it. False if stopped
        or out of time meanwhile.

        A broker of this process that serves the same root is replaced, unless *standby_seconds* says how long to stand
        by: so a notebook's cell may be run again.
        """
        prepare_root(self.layout)
        if standby_seconds is None:
            replace_former(self)
        self._lease = BundleLease(self.layout, self.broker_id)
        inputs = Path(self.layout.bundle_folder()) / "inputs"
        planner = Planner(self.spark, inputs / self.broker_id)
        planner.warm_up()
        waited_since = time.monotonic()
        while not self._lease.take():
            if standby_seconds is not None and time.monotonic() - waited_since > standby_seconds:
                return False
            if self._stopping.wait(0.2):
                return False
        threading.Thread(target=self._renew_lease, name="lease", daemon=True).start()
        for folder in inputs.iterdir():
            if folder.name != self.broker_id:
                shutil.rmtree(folder, ignore_errors=True)  # a standby's are made again when it needs them
        self.rounds = Rounds(load_bundle(self.layout), planner.run, self.now, self.broker_id,
                             max_unacked_messages_per_broker=self.max_unacked_messages_per_broker)
        self._requests_log = TableLog(self.layout.broker_table("requests"))
        self.rounds.take_over()
        self._query = self._start_query()
        log.info("broker %s serves %s", self.broker_id, self.layout.root)
        return True

    @property
    def is_stopping(self) -> bool:
        """Whether it was told to stop, or has failed."""
        return self._stopping.is_set()

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
        except (Py4JError, ConnectionError):
            log.info("Spark was stopped before the broker")  # a service manager ends all processes of a service at once
        self._lease.let_go()
        self._journal.end_minute()
        if failure is not None:
            raise failure

    def _renew_lease(self) -> None:
        while not self._stopping.wait(LEASE_SECONDS / 4):
            if not self._lease.take():
                self.failure = BrokerFenced(f"another broker holds the lease of {str(self.layout.root)!r}")
                self._stopping.set()

    def _start_query(self) -> StreamingQuery:
        checkpoint = self.layout.checkpoint()
        shutil.rmtree(checkpoint, ignore_errors=True)
        ticks = self.spark.readStream.format("rate").option("rowsPerSecond", 10).load()
        return (ticks.writeStream.foreachBatch(self._run_batch).option("checkpointLocation", str(checkpoint))
                .queryName(f"broker-{self.broker_id}").trigger(processingTime="0 seconds").start())

    def _run_batch(self, _ticks: DataFrame, _batch_id: int) -> None:
        """One micro-batch: rounds for what is asked, published or falls due while it watches."""
        self._between_batches.clear()
        try:
            self._run_rounds(time.monotonic() + WATCH_SECONDS)
        except PulsarSparkError as failure:
            self.failure = failure
            raise
        finally:
            self._between_batches.set()

    def _run_rounds(self, watch_until: float) -> None:
        is_settled = False
        while not self._stopping.is_set():
            looked = time.monotonic()
            self._journal.look()
            if not is_settled or self._has_news():
                is_settled = not self._run_round()
            elif looked > watch_until:
                return
            else:
                time.sleep(max(LOOK_SECONDS, LOOK_SHARE * (time.monotonic() - looked)))

    def _has_news(self) -> bool:
        bundle = self.rounds.bundle
        due = next_due(bundle, bundle.clock)
        return self._requests_log.has(bundle.requests_version + 1) or bundle.has_news() or (due is not None and due <= self.now())

    def _run_round(self) -> bool:
        """One round; False when there was nothing to do, and nothing is left to do."""
        started = time.perf_counter()
        rows, version = read_requests(self.layout.broker_table("requests"), after=self.rounds.bundle.requests_version)
        result = self.rounds.run(requests_of(rows), version)
        seconds = time.perf_counter() - started
        self._journal.note(result, seconds)
        if self.on_round and result.is_committed:
            self.on_round(result, seconds)
        return result.is_committed


def run_broker(root: str | os.PathLike, *, spark: SparkSession | None = None, on_round: Callable[[RoundResult, float], None] | None = None,
               max_unacked_messages_per_broker: int = 0) -> None:
    """Serve *root* until SIGTERM or SIGINT; blocks. :class:`BrokerFenced` when another broker took over. For the rest see :class:`Broker`."""
    from pulsar_spark.storage.session import spark_session  # here: it finds Java, which a caller with a session of its own has

    broker = Broker(spark or spark_session("pulsar-spark broker", for_rounds=True), root, on_round=on_round,
                    max_unacked_messages_per_broker=max_unacked_messages_per_broker)
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
