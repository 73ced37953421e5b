"""Runs rounds when clients have written something, instead of looking often."""

import threading
from collections.abc import Callable

from pulsar_spark.broker.service.micro_batches import LOOK_SECONDS, WATCHED_LOOK_SECONDS, MicroBatches
from pulsar_spark.storage.store.folder_events import FolderEvents
from pulsar_spark.testing.clock import Clock
from pulsar_spark.testing.plain_broker import PlainStream

SELDOM_SECONDS = 1.0
"""Between looks while the clock stands still: nothing comes due by itself."""


class EventStream(PlainStream):
    """*run_rounds* runs all that are due; *fail* gets what ends it."""

    def __init__(
        self,
        batches: MicroBatches,
        run_rounds: Callable[[], None],
        stopping: threading.Event,
        fail: Callable[[BaseException], None],
        clock: Clock,
    ):
        super().__init__(batches.run, stopping)
        self._batches, self._run_rounds, self._fail, self._clock = batches, run_rounds, fail, clock
        self._events: FolderEvents | None = None

    def _run(self) -> None:
        try:
            while not self._stopping.is_set():
                self._run_rounds()
                if self._events is None:
                    self._stopping.wait(LOOK_SECONDS)
                else:
                    self._events.wait(SELDOM_SECONDS if self._clock.is_stopped else WATCHED_LOOK_SECONDS)
        except Exception as failure:
            self._fail(failure)

    def start(self) -> None:
        self._events = self._batches._watch()
        super().start()

    def stop(self) -> None:
        if self._events is not None:
            self._events.wake()
        super().stop()
        if self._events is not None:
            self._events.close()
            self._events = None
