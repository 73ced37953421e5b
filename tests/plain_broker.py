"""A broker as it runs, but for Spark: the query is a thread that calls one batch after the other, the plan is made
without it."""

import contextlib
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

from pulsar_spark.broker import runner
from tests.plain_planner import PlainPlanner

BATCH_THREAD = "plain batches"


class PlainPlans(PlainPlanner):
    def __init__(self, folder: Path):
        self.folder = folder

    def warm_up(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)

    def compile_soon(self) -> None:
        """There is nothing to compile."""

    def end(self) -> None:
        """Nor to wait for."""


class PlainStream:
    def __init__(self, look: Callable, run_batch: Callable, stopping: threading.Event):
        self._look, self._run_batch, self._stopping = look, run_batch, stopping
        self._thread = threading.Thread(target=self._run, name=BATCH_THREAD, daemon=True)

    def _run(self) -> None:
        while not self._stopping.is_set():
            if self._look() is None:
                self._stopping.wait(0.005)
            else:
                self._run_batch(None, 0)

    def start(self) -> None:
        self._thread.start()

    def supervise(self) -> None:
        self._stopping.wait()

    def stop(self) -> None:
        if self._thread.is_alive():
            self._thread.join(30)


class PlainBroker(runner.Broker):
    """``with PlainBroker(root) as broker``; the end of the block raises what ended it."""

    def __init__(self, root, **options):
        super().__init__(None, root, **options)
        self._planner = PlainPlans(self._planner.folder)
        self._stream = PlainStream(self._look, self._run_batch, self._stopping)
        self._pause = threading.Lock()

    @contextlib.contextmanager
    def paused(self) -> Iterator[None]:
        """No round runs in the block."""
        with self._pause:
            yield

    def _run_round(self) -> None:
        with self._pause:
            super()._run_round()
