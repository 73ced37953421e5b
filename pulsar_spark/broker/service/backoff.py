"""Waiting for a disk with growing pauses. A broker logs when its first thread begins to wait and its last one ends."""

import logging
import threading
import time

from pulsar_spark.protocol.redelivery.redelivery import MultiplierRedeliveryBackoff
from pulsar_spark.storage.store.faults import is_fault_of_disk

PAUSES = MultiplierRedeliveryBackoff(min_delay_ms=200, max_delay_ms=5_000)
log = logging.getLogger(__name__)


class Waits:
    def __init__(self, broker_id: str):
        self._broker_id, self._lock = broker_id, threading.Lock()
        self._waiting: set[int] = set()
        self._since = 0.0

    def begin(self, backoff: "Backoff", what: str, cause: object) -> None:
        with self._lock:
            if not self._waiting:
                self._since = time.monotonic()
                log.error(
                    "broker %s waits: %s (%s: %s); it tries again by itself",
                    self._broker_id,
                    what,
                    type(cause).__name__,
                    cause,
                )
            self._waiting.add(id(backoff))

    def end(self, backoff: "Backoff") -> None:
        with self._lock:
            self._waiting.discard(id(backoff))
            if not self._waiting:
                log.warning("broker %s goes on after %.1f s", self._broker_id, time.monotonic() - self._since)


class Backoff:
    """The waiting of one thread; *what* says what it cannot do."""

    def __init__(self, stopping: threading.Event, waits: Waits, what: str):
        self._stopping, self._waits, self._what = stopping, waits, what
        self._failures = 0

    @property
    def is_waiting(self) -> bool:
        return self._failures > 0

    def wait_for_disk(self, fault: BaseException) -> None:
        """Pause, less if the broker stops; raises *fault* if it is not the disk's."""
        if not is_fault_of_disk(fault):
            raise fault
        self.pause(fault)

    def pause(self, cause: object) -> None:
        if not self.is_waiting:
            self._waits.begin(self, self._what, cause)
        self._failures += 1
        self._stopping.wait(PAUSES.delay_ms(self._failures - 1) / 1000)

    def end(self) -> None:
        if self.is_waiting:
            self._failures = 0
            self._waits.end(self)
