"""Acknowledgement timeouts: finds entries that have waited too long.

Rule: UnAckedMessageTracker, UnAckedMessageRedeliveryTracker (semantics 4.10-4.12).
"""

import threading
from collections import OrderedDict
from collections.abc import Callable

from pulsar_spark.protocol.redelivery.redelivery import MultiplierRedeliveryBackoff
from pulsar_spark.storage.clock import monotonic

UNACKED_TICK = 1.0
"""Seconds between checks."""


class UnackedTracker:
    """Entries by (subscription, position); *timeout* and *clock* in seconds. Thread-safe."""

    def __init__(
        self, timeout: float, clock: Callable[[], float] = monotonic, backoff: MultiplierRedeliveryBackoff | None = None
    ):
        self._timeout = timeout
        self._clock = clock
        self._backoff = backoff
        self._handed_out: dict[float, OrderedDict[tuple, float]] = {}
        self._timeouts: dict[tuple, float] = {}
        self._lock = threading.Lock()

    def add(self, subscription, position: int, redelivery_count: int = 0) -> None:
        """An entry was handed out; a batch counts from its last message."""
        key = subscription, position
        timeout = (
            self._timeout if self._backoff is None else self._timeout + self._backoff.delay_ms(redelivery_count) / 1000
        )
        with self._lock:
            self._remove(key)
            self._timeouts[key] = timeout
            self._handed_out.setdefault(timeout, OrderedDict())[key] = self._clock()

    def remove(self, subscription, position: int) -> None:
        with self._lock:
            self._remove((subscription, position))

    def remove_up_to(self, subscription, position: int) -> None:
        with self._lock:
            for key in [key for key in self._timeouts if key[0] is subscription and key[1] <= position]:
                self._remove(key)

    def forget(self, subscription) -> None:
        with self._lock:
            for key in [key for key in self._timeouts if key[0] is subscription]:
                self._remove(key)

    def _remove(self, key: tuple) -> None:
        timeout = self._timeouts.pop(key, None)
        if timeout is not None:
            del self._handed_out[timeout][key]

    def take_expired(self) -> dict:
        """Take the positions past their timeout, by subscription."""
        expired: dict = {}
        with self._lock:
            for timeout, handed_out in self._handed_out.items():
                while handed_out:
                    (subscription, position), since = next(iter(handed_out.items()))
                    if since + timeout > self._clock():
                        break
                    self._remove((subscription, position))
                    expired.setdefault(subscription, set()).add(position)
        return expired
