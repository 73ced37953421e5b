"""Acknowledgement timeouts: which handed-out entries have waited too long.

Rule: UnAckedMessageTracker (semantics 4.10, 4.11): an entry is timed from when the application got it, once per entry, and is found by the first tick after its
time. Entries are kept in the order they were handed out, so a tick looks at the expired ones only.
"""
import threading
import time
from collections import OrderedDict
from collections.abc import Callable


class UnackedTracker:
    """Entries by (subscription, position); *timeout* and *clock* in seconds. Safe for threads."""

    def __init__(self, timeout: float, clock: Callable[[], float] = time.monotonic):
        self._timeout = timeout
        self._clock = clock
        self._handed_out: OrderedDict[tuple, float] = OrderedDict()
        self._lock = threading.Lock()

    def add(self, subscription, position: int) -> None:
        """An entry was handed out (a batch counts from its last message)."""
        with self._lock:
            self._handed_out[subscription, position] = self._clock()
            self._handed_out.move_to_end((subscription, position))

    def remove(self, subscription, position: int) -> None:
        """It was acknowledged as a whole, or given back."""
        with self._lock:
            self._handed_out.pop((subscription, position), None)

    def remove_up_to(self, subscription, position: int) -> None:
        """Everything up to *position* was acknowledged."""
        with self._lock:
            for key in [key for key in self._handed_out if key[0] is subscription and key[1] <= position]:
                del self._handed_out[key]

    def forget(self, subscription) -> None:
        """The subscription started anew."""
        with self._lock:
            for key in [key for key in self._handed_out if key[0] is subscription]:
                del self._handed_out[key]

    def take_expired(self) -> dict:
        """The positions that waited longer than the timeout, by subscription; they are no longer tracked."""
        expired: dict = {}
        with self._lock:
            while self._handed_out:
                (subscription, position), since = next(iter(self._handed_out.items()))
                if since + self._timeout > self._clock():
                    break
                del self._handed_out[subscription, position]
                expired.setdefault(subscription, set()).add(position)
        return expired
