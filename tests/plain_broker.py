"""A broker in a thread of the test's process, without Spark: the real rounds over the real requests, planned by
:class:`PlainPlanner`."""

import contextlib
import threading
import time
from collections.abc import Iterator

from pulsar_spark.broker.bundle import load_bundle
from pulsar_spark.broker.drafts import requests_of
from pulsar_spark.broker.rounds import Rounds
from pulsar_spark.storage.layout import Layout
from pulsar_spark.storage.requests import read_requests
from pulsar_spark.storage.topics import prepare_root
from tests.plain_planner import PlainPlanner


class PlainBroker:
    """``with PlainBroker(root) as broker``; rounds run until the end of the block, whose end raises what ended them."""

    def __init__(self, root):
        self.layout = Layout(root)
        prepare_root(self.layout)
        self.rounds = Rounds(load_bundle(self.layout), PlainPlanner().run, lambda: time.time_ns() // 1000, "plain")
        self.rounds.take_over()
        self._stop, self._pause = threading.Event(), threading.Lock()
        self._failed: BaseException | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> "PlainBroker":
        self._thread.start()
        return self

    def __exit__(self, *failure) -> None:
        self._stop.set()
        self._thread.join()
        if self._failed is not None:
            raise self._failed

    @contextlib.contextmanager
    def paused(self) -> Iterator[None]:
        """No round runs in the block."""
        with self._pause:
            yield

    def _run(self) -> None:
        try:
            while not self._stop.wait(0.005):
                with self._pause:
                    self._round()
        except BaseException as failed:
            self._failed = failed
            raise

    def _round(self) -> None:
        rows, version = read_requests(self.layout.broker_table("requests"), after=self.rounds.bundle.requests_version)
        self.rounds.run(requests_of(rows), version)
