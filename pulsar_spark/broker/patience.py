"""Waiting for a disk: with growing pauses, and two lines in the log, one when it begins and one when it is over."""
import logging
import threading
import time

from pulsar_spark.storage.faults import is_fault_of_disk

FIRST_SECONDS, LONGEST_SECONDS = 0.2, 5.0
log = logging.getLogger(__name__)


class Patience:
    """For one thread. *who* and *what* begin the lines: who waits, and what it cannot do."""

    def __init__(self, stopping: threading.Event, who: str, what: str):
        self._stopping, self._who, self._what = stopping, who, what
        self._since: float | None = None
        self._pause = FIRST_SECONDS

    @property
    def is_waiting(self) -> bool:
        return self._since is not None

    def bear(self, fault: BaseException) -> None:
        """Pause before the next attempt, less where the broker stops meanwhile; *fault* itself is raised if waiting does not help against it."""
        if not is_fault_of_disk(fault):
            raise fault
        self.pause(fault)

    def pause(self, cause: object) -> None:
        """The same for whatever *cause*."""
        if self._since is None:
            self._since = time.monotonic()
            log.error("broker %s waits: %s (%s: %s); it goes on by itself", self._who, self._what, type(cause).__name__, cause)
        self._stopping.wait(self._pause)
        self._pause = min(2 * self._pause, LONGEST_SECONDS)

    def end(self) -> None:
        """The attempt succeeded."""
        if self._since is not None:
            log.warning("broker %s goes on after %.1f s", self._who, time.monotonic() - self._since)
        self._since, self._pause = None, FIRST_SECONDS
