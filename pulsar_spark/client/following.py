"""What a client looks at now and then: topics that a pattern fits, partitions added to a topic; and, apart from these,
which may wait for a broker, its claims on topics.

One thread for each of the two, begun when there is something to look at. A look that fails is told to the log and made
again at its next time.
"""

import threading
import time
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from typing import TypeVar

from deltalake.exceptions import DeltaError

from pulsar_spark.errors import PulsarSparkError
from pulsar_spark.link.worker import Worker

_T = TypeVar("_T")
PARTITIONS_SECONDS = 2.0
"""How often a topic's partitions are looked at, for a stat each."""


def for_each(things: Iterable[_T], function: Callable[[_T], object]) -> None:
    """Call *function* with each of the *things*, whichever of them it refuses; a refusal is raised at the end."""
    with ExitStack() as calls:
        for thing in reversed(list(things)):
            calls.callback(function, thing)


class Following(Worker):
    """The looks of one client's thread of that *name*; ``logger`` is told of those that fail."""

    def __init__(self, name: str, logger):
        super().__init__(f"following-{name}", threading.Condition())
        self._logger = logger
        self._looks: dict[Callable[[], None], tuple[float, float]] = {}
        self._is_running = False

    def add(self, look: Callable[[], None], seconds: float) -> None:
        """Call *look* every so many *seconds* from now on, in the client's thread for it."""
        with self._condition:
            self._looks[look] = time.monotonic() + seconds, seconds
            self._condition.notify_all()
            if not self._is_running and not self._is_stopping:
                self._is_running = True
                self._start()

    def remove(self, look: Callable[[], None]) -> None:
        """Call it no more."""
        with self._condition:
            self._looks.pop(look, None)

    def end(self, seconds: float) -> None:
        """Look at nothing more; a look under way is waited for so many *seconds*."""
        with self._condition:
            self._is_stopping = True
        if self._is_running:
            self.stop(seconds)

    def _run(self) -> None:
        while (look := self._wait()) is not None:
            try:
                look()
            except (PulsarSparkError, OSError, DeltaError) as error:
                self._logger.warning("new topics could not be listed; the client tries again: %s", error)

    def _wait(self) -> Callable[[], None] | None:
        """The look whose time has come; None when it is over."""
        with self._condition:
            while not self._is_stopping:
                now = time.monotonic()
                for look, (due, seconds) in self._looks.items():
                    if due <= now:
                        self._looks[look] = now + seconds, seconds
                        return look
                due = min((due for due, _ in self._looks.values()), default=None)
                self._condition.wait(None if due is None else due - now)
            return None
