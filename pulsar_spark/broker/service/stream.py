"""The streaming query of a broker's micro-batches, replaced if Spark ends it. Each has its own checkpoint folder."""

import logging
import shutil
import threading
import time
import uuid
from collections.abc import Callable
from pathlib import Path

from py4j.protocol import Py4JError, Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import StreamingQuery

from pulsar_spark.broker.round.isolation import is_spark_gone
from pulsar_spark.broker.service.backoff import Backoff, Waits
from pulsar_spark.broker.service.micro_batches import MicroBatches
from pulsar_spark.broker.service.source import Feed, register_source
from pulsar_spark.errors import UnknownError

LOOK_SECONDS = 0.3
STEADY_BATCHES, STEADY_SECONDS = 2, 15.0
"""Micro-batches, or seconds of waiting, after which a new query has proved itself: Spark writes the checkpoint with the
first micro-batch."""
SIGNAL_SECONDS = 2.0
"""How long after Spark's end a signal that ended both may take to be handled here."""
_ASYNC_PROGRESS = {"asyncProgressTrackingEnabled": "true", "_asyncProgressTrackingOverrideSinkSupportCheck": "true"}
"""Spark writes the checkpoint in the background instead of around each micro-batch, which is quicker. It must be forced
to, because it cannot know that this sink may get a batch twice: a round's row records what was consumed."""
log = logging.getLogger(__name__)


class Stream:
    """Run one query at a time until *stopping*; its micro-batches are *batches*. *fail* gets the error if Spark ended;
    *starts_again* gets True when a query is replaced, False once the new one runs."""

    def __init__(
        self,
        spark: SparkSession,
        checkpoints: Path,
        broker_id: str,
        batches: MicroBatches,
        stopping: threading.Event,
        waits: Waits,
        fail: Callable[[Exception], None],
        starts_again: Callable[[bool], None] = lambda is_so: None,
    ):
        self._spark, self._checkpoints, self._broker_id, self._micro = spark, checkpoints, broker_id, batches
        self._stopping, self._waits, self._fail = stopping, waits, fail
        self._starts_again = starts_again
        self._batches = 0
        self._changing = threading.Lock()
        self._query: StreamingQuery | None = None
        self._feed: Feed | None = None
        self._format = ""
        self._started = 0.0

    def start(self) -> None:
        with self._changing:
            if self._stopping.is_set():
                return
            if self._feed is None:
                self._format = register_source(self._spark)
                self._feed = Feed(self._micro.take_news, self._stopping)
            checkpoint = self._checkpoints / f"{self._broker_id}-{uuid.uuid4().hex[:8]}"
            moved = self._spark.readStream.format(self._format).option("path", self._feed.path).load()
            self._query = (
                moved.writeStream.foreachBatch(self._run_batch)
                .option("checkpointLocation", str(checkpoint))
                .options(**_ASYNC_PROGRESS)
                .queryName(f"broker-{checkpoint.name}")
                .trigger(processingTime="0 seconds")
                .start()
            )
            self._started, self._batches = time.monotonic(), 0

    def _run_batch(self, moved: DataFrame, batch_id: int) -> None:
        self._batches += 1
        self._micro.run(moved, batch_id)

    def stop(self) -> None:
        """End the query; none follows once the broker is stopping."""
        with self._changing:
            query, self._query = self._query, None
            try:
                if query is not None:
                    query.stop()
            except (Py4JError, ConnectionError, PySparkException) as failed:
                log.info(
                    "Spark has ended before broker %s"
                    if is_spark_gone(failed)
                    else "the query of broker %s did not end by itself",
                    self._broker_id,
                )
            if query is not None:
                shutil.rmtree(self._checkpoints, ignore_errors=True)
            if self._feed is not None:
                self._feed.close()

    def supervise(self) -> None:
        """Replace a query that Spark ended, until the broker stops; one that a user stopped stops the broker."""
        backoff = Backoff(self._stopping, self._waits, "Spark has ended its query; the broker starts a new one")
        try:
            while not self._stopping.wait(LOOK_SECONDS):
                query = self._query
                if query is not None and query.isActive:
                    if self._batches >= STEADY_BATCHES or time.monotonic() - self._started > STEADY_SECONDS:
                        if backoff.is_waiting:
                            self._starts_again(False)
                        backoff.end()
                    continue
                why = None if query is None else query.exception()
                if query is not None and why is None:
                    log.warning("the query of broker %s was stopped, so the broker stops", self._broker_id)
                    self._stopping.set()
                    return
                self._replace(backoff, why)
        except (Py4JError, ConnectionError) as failure:
            if not is_spark_gone(failure):
                self._fail(failure)
            elif not self._stopping.wait(SIGNAL_SECONDS):
                self._fail(
                    UnknownError(
                        f"Spark ended while broker {self._broker_id} served: see Spark's log and start the broker again"
                    )
                )

    def _replace(self, backoff: Backoff, why: PySparkException | None) -> None:
        self._starts_again(True)
        backoff.pause(UnknownError(str(why).strip().partition("\n")[0]))
        try:
            self.start()
        except (PySparkException, Py4JJavaError) as failed:  # the latter includes errors of the disk
            log.info(
                "broker %s could not start a new query so far: %s",
                self._broker_id,
                str(failed).strip().partition("\n")[0],
            )
