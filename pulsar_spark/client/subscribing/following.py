"""Periodic checks of a client: topics of a pattern, new partitions, claims. A failed check is logged and repeated."""

import logging
import threading
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from typing import TypeVar

from pulsar_spark.link.worker import Worker
from pulsar_spark.storage.clock import monotonic
from pulsar_spark.storage.delta.scan import MAY_PASS

_T = TypeVar("_T")
PARTITIONS_SECONDS = 2.0
"""How often a topic's partitions are checked."""


def for_each(things: Iterable[_T], function: Callable[[_T], object]) -> None:
    """Call *function* with each of *things*, even after errors; raise one at the end."""
    with ExitStack() as calls:
        for thing in reversed(list(things)):
            calls.callback(function, thing)


class Following(Worker):
    """The checks of one client, in a thread *name*."""

    def __init__(self, name: str, logger: logging.Logger):
        super().__init__(f"following-{name}", threading.Condition())
        self._logger = logger
        self._looks: dict[Callable[[], None], tuple[float, float]] = {}
        self._is_running = False

    def add(self, look: Callable[[], None], seconds: float) -> None:
        """Call *look* every *seconds* from now on."""
        with self._condition:
            self._looks[look] = monotonic() + seconds, seconds
            self._condition.notify_all()
            if not self._is_running and not self._is_stopping:
                self._is_running = True
                self._start()

    def remove(self, look: Callable[[], None]) -> None:
        """Stop calling *look*."""
        with self._condition:
            self._looks.pop(look, None)

    def end(self, seconds: float) -> None:
        """Stop; wait at most *seconds* for a running check."""
        with self._condition:
            self._is_stopping = True
        if self._is_running:
            self.stop(seconds)

    def _run(self) -> None:
        while (look := self._wait()) is not None:
            try:
                look()
            except MAY_PASS as error:
                self._logger.warning("new topics could not be listed; the client tries again: %s", error)

    def _wait(self) -> Callable[[], None] | None:
        with self._condition:
            while not self._is_stopping:
                now = monotonic()
                for look, (due, seconds) in self._looks.items():
                    if due <= now:
                        self._looks[look] = now + seconds, seconds
                        return look
                next_due = min((due for due, _ in self._looks.values()), default=None)
                self._condition.wait(None if next_due is None else next_due - now)
            return None
