"""The micro-batches of a broker's query. If the disk fails, one drops its work, to be done again. Other failures go to
the broker directly."""

import logging
import threading
import time
from collections.abc import Callable

from deltalake.exceptions import DeltaError
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from pulsar_spark.broker.bundle.journal import Journal
from pulsar_spark.broker.requests.drafts import RoundResult
from pulsar_spark.broker.requests.reading import read_request_batch
from pulsar_spark.broker.round.isolation import is_spark_gone
from pulsar_spark.broker.round.rounds import Rounds
from pulsar_spark.broker.service.backoff import Backoff, Waits
from pulsar_spark.broker.service.source import Moved, News
from pulsar_spark.errors import DelayIndexNotReady, PulsarSparkError
from pulsar_spark.storage.delta.checkpoints import checkpoint_if_due
from pulsar_spark.storage.delta.log import TableLog
from pulsar_spark.storage.layout import Layout
from pulsar_spark.storage.session import is_running
from pulsar_spark.storage.store.away import is_away
from pulsar_spark.storage.store.store import AnyPath
from pulsar_spark.table_specs import REQUESTS

MAY_PASS = (OSError, PulsarSparkError, PySparkException, Py4JJavaError, DeltaError)
"""Errors that may be a fault of the disk."""
log = logging.getLogger(__name__)


class MicroBatches:
    """The micro-batches of one broker. ``rounds`` is set once its bundle is taken over. *inputs* is the folder of
    prepared plans, *on_round* gets each committed result and its seconds, *fail* what ends the broker. *stopping* ends
    all; with *available_now*, it is set when nothing is left to do."""

    rounds: Rounds

    def __init__(
        self,
        spark: SparkSession | None,
        layout: Layout,
        now: Callable[[], int],
        inputs: AnyPath,
        on_round: Callable[[RoundResult, float], None] | None,
        stopping: threading.Event,
        disk: Backoff,
        waits: Waits,
        fail: Callable[[BaseException], None],
        *,
        available_now: bool,
    ):
        self._spark, self._layout, self._now, self._inputs, self._on_round = spark, layout, now, inputs, on_round
        self._stopping, self.disk, self._fail = stopping, disk, fail
        self._index = Backoff(stopping, waits, "a request concerns delayed messages")
        self._between, self.lock = threading.Event(), threading.Lock()
        self._between.set()
        self._requests_log = TableLog(layout.broker_table(REQUESTS.name))
        self._journal = Journal()
        self._has_more, self._next_look, self._available_now = False, float("-inf"), available_now

    def look(self) -> News | None:
        """What the next round is for; None without work, or during a round."""
        self._journal.look()
        if is_away(self._layout.root):  # Spark would make folders for the next micro-batch
            return None
        if time.monotonic() < self._next_look or not self.lock.acquire(blocking=False):
            return None
        try:
            moved = self.moved()
        except Exception:  # any error: the micro-batch meets it again, and reports it
            log.debug("the query cannot look for new work", exc_info=True)
            moved = [Moved("fault", 0, 1)]
        finally:
            self.lock.release()
        bundle = self.rounds.bundle
        if not moved:
            self._next_look = time.monotonic() + self._layout.store.look_seconds
            if self._available_now:
                self.end_or_wait()
            return None
        requests = next((each.to_version for each in moved if each.log == REQUESTS.name), bundle.requests_version)
        return News(moved, {"round": bundle.round + 1, "requests": requests, "clock": self._now() // 1000})

    def moved(self) -> list[Moved]:
        """The logs that moved, or the clock if something is due or left to do."""
        bundle, requests_log = self.rounds.bundle, self._requests_log
        if self.rounds.is_waiting:
            return []
        if self._available_now:  # unannounced publishes count too before it ends
            bundle.enqueue_all()
        moved = [Moved(name, state.version, state.log.latest(state.version)) for name, state in bundle.moved()]
        if requests_log.has(bundle.requests_version + 1):
            moved.append(Moved(REQUESTS.name, bundle.requests_version, requests_log.latest(bundle.requests_version)))
        if not moved and (self._has_more or bundle.has_new_folders() or self.rounds.is_due()):
            moved.append(Moved("clock", bundle.now.wall // 1000, self._now() // 1000))
        return moved

    def has_news(self) -> bool:
        """Are there requests or publishes that no round has read yet? Also after the end."""
        bundle = self.rounds.bundle
        bundle.enqueue_all()
        return bool(bundle.moved()) or self._requests_log.has(bundle.requests_version + 1)

    def end_or_wait(self) -> None:
        """Without work, stop if no consumer is connected, else log who is."""
        if self.rounds.has_waiting_requests:
            return
        cursors = self.rounds.bundle.cursors
        if any(cursor.consumers for cursor in cursors.values()):
            self._journal.note_waiting(
                lambda: [
                    f"{consumer.name!r} on {key.subscription!r} of {cursor.topic}"
                    for key, cursor in cursors.items()
                    for consumer in cursor.consumers.values()
                ]
            )
        else:
            self._stopping.set()

    def run(self, moved: DataFrame | None, _batch_id: int) -> None:
        with self.lock:
            self._between.clear()
            try:
                if not self._stopping.is_set():  # else the query may end at any moment
                    self._run_patiently()
                    count_rows(moved)
            except Exception as failure:
                is_there = self._spark is None or is_running(self._spark)  # a Spark that is stopping still answers
                if is_there and not is_spark_gone(failure):  # the supervisor knows if it was meant to end
                    self._fail(failure)
            finally:
                self._between.set()

    def wait(self, seconds: float) -> None:
        self._between.wait(seconds)

    def end(self) -> None:
        self._journal.end_minute()

    def _run_patiently(self) -> None:
        try:
            self.run_round()
            self.disk.end()
            self._index.end()
        except DelayIndexNotReady as not_yet:
            self._has_more = True
            self._index.wait_for_disk(not_yet)
        except MAY_PASS as fault:
            self._has_more = True
            are_inputs_there = self._inputs.exists()  # if removed, they are written again
            (self.disk.wait_for_disk if are_inputs_there else self.disk.pause)(fault)

    def run_round(self) -> None:
        started = time.perf_counter()
        requests, known = self._layout.broker_table(REQUESTS.name), self.rounds.bundle.requests_version
        result = self.rounds.run(*read_request_batch(requests, after=known))
        seconds = time.perf_counter() - started
        checkpoint_if_due(requests, known, self.rounds.bundle.requests_version)
        self._journal.note(result, seconds)
        self._has_more = result.is_committed and self.rounds.has_work()
        if self._on_round and result.is_committed:
            self._on_round(result, seconds)


def count_rows(moved: DataFrame | None) -> None:
    """Read the micro-batch's rows, so that Spark counts its input; failures do not matter."""
    try:
        if moved is not None:
            moved._jdf.queryExecution().toRdd().count()
    except Py4JJavaError as failed:
        log.info("the rows of a round's micro-batch were not counted: %s", str(failed).partition("\n")[0])
