"""The micro-batches of a broker's query, each of which stays open for a while and runs a round whenever there is work.

So a round need not wait until Spark has prepared a micro-batch. If the disk fails, a round drops its work, to be done
again. Other failures go to the broker directly.
"""

import contextlib
import logging
import math
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
from pulsar_spark.storage.store.folder_events import FolderEvents
from pulsar_spark.storage.store.store import AnyPath
from pulsar_spark.storage.topics.announcements import announcements_folder
from pulsar_spark.table_specs import REQUESTS

OPEN_SECONDS = 10.0
"""How long a micro-batch runs rounds, from the first one on; without any it stays open."""
LOOK_SECONDS, WATCHED_LOOK_SECONDS = 0.005, 0.02
"""The pause after a look that finds nothing; with a watch, which ends it when requests or announcements arrive."""
LOOK_SHARE = 9
"""The pause after a look is at least this many times its duration, so looks take at most a tenth of a core."""
CLOCK = "clock"
"""Stands for a log where the next round is for what came due."""
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
        self._moved: dict[str, Moved] = {}
        """By log: what the rounds since the last micro-batch's beginning were for."""

    def take_news(self) -> News | None:
        """What the latest rounds were for, and the next micro-batch's offset; None while the root is away, as Spark
        makes folders for a micro-batch."""
        if is_away(self._layout.root):
            return None
        bundle, clock = self.rounds.bundle, self._now() // 1000
        moved, self._moved = list(self._moved.values()) or [Moved(CLOCK, bundle.now.wall // 1000, clock)], {}
        return News(moved, {"round": bundle.round, "requests": bundle.requests_version, "clock": clock})

    def look(self) -> list[Moved]:
        """The logs that the next round is for; empty without work."""
        self._journal.look()
        if time.monotonic() < self._next_look or is_away(self._layout.root):
            return []
        try:
            moved = self.moved()
        except Exception:  # any error: the round meets it again, and reports it
            log.debug("the query cannot look for new work", exc_info=True)
            return [Moved("fault", 0, 1)]
        if not moved:
            self._next_look = time.monotonic() + self._layout.store.look_seconds
            if self._available_now:
                self.end_or_wait()
        return moved

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
            moved.append(Moved(CLOCK, bundle.now.wall // 1000, self._now() // 1000))
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

    def run(self, rows: DataFrame | None, _batch_id: int) -> None:
        """One micro-batch, with *rows* about earlier rounds; raises nothing into Spark."""
        self._between.clear()
        try:
            self._run_open()
            if not self._stopping.is_set():  # else the query may end at any moment
                count_rows(rows)
        except Exception as failure:
            is_there = self._spark is None or is_running(self._spark)  # a Spark that is stopping still answers
            if is_there and not is_spark_gone(failure):  # the supervisor knows if it was meant to end
                self._fail(failure)
        finally:
            self._between.set()

    def _run_open(self) -> None:
        """Run rounds as there is work, until the micro-batch was open for long enough or the broker stops."""
        ends_at = math.inf
        with contextlib.ExitStack() as stack:
            events = self._watch()
            if events is not None:
                stack.callback(events.close)
            while not self._stopping.is_set() and time.monotonic() < ends_at:
                looked = time.monotonic()
                if self._run_if_due():
                    ends_at = min(ends_at, time.monotonic() + OPEN_SECONDS)
                    continue
                pause = LOOK_SHARE * (time.monotonic() - looked)
                if events is None:
                    self._stopping.wait(max(LOOK_SECONDS, pause))
                else:
                    events.wait(max(WATCHED_LOOK_SECONDS, pause))

    def _watch(self) -> FolderEvents | None:
        """Reports of requests and announcements, if the system has them and the folders exist."""
        if self._layout.store.is_local:
            with contextlib.suppress(OSError):
                return FolderEvents(self._requests_log.folder, announcements_folder(self._layout))
        return None

    def _run_if_due(self) -> bool:
        """Run a round if there is work; returns whether there was."""
        with self.lock:
            moved = self.look()
            if not moved or self._stopping.is_set():
                return False
            for each in moved:
                earlier = self._moved.get(each.log, each)
                self._moved[each.log] = each._replace(from_version=earlier.from_version)
            self._run_patiently()
            return True

    def wait(self, seconds: float) -> None:
        """Wait for the end of the micro-batch, for at most *seconds*."""
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


def count_rows(rows: DataFrame | None) -> None:
    """Read a micro-batch's *rows*, so that Spark counts its input; failures do not matter."""
    try:
        if rows is not None:
            rows._jdf.queryExecution().toRdd().count()
    except Py4JJavaError as failed:
        log.info("the rows of a micro-batch were not counted: %s", str(failed).partition("\n")[0])
