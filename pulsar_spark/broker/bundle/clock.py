"""A bundle's two clocks: the machine's for instants that users give, and the broker's own for durations.

The own clock follows a steady system clock and never goes back. Without a steady clock it follows the machine's. A
machine's clock ahead of the steady one is believed after :data:`CONFIRM_SECONDS`, one set back at once.
"""

import time
from collections.abc import Callable
from typing import NamedTuple

TOLERANCE = 2_000_000
"""Microseconds by which the machine's clock may differ from the expected time without counting as wrong."""

CONFIRM_SECONDS = 10


class Instant(NamedTuple):
    """One moment in microseconds, by the broker's own clock and by the machine's (since 1970)."""

    own: int
    wall: int


def is_set_back(now: Instant, last: Instant) -> bool:
    """Was the machine's clock set back since *last*?"""
    return now.wall + TOLERANCE < last.wall


def steady_micros() -> int:
    """A clock that cannot be set, in microseconds; on Linux it runs during sleep."""
    return time.clock_gettime_ns(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)) // 1000


class BundleClock:
    """Continues from *last*, the latest round's instant; *wall* and *steady* return microseconds."""

    def __init__(self, wall: Callable[[], int], last: Instant, steady: Callable[[], int] | None = None):
        self._read_wall, self._read_steady, self.last = wall, steady, last
        self._steady: int | None = None
        self._ahead_since: int | None = None

    def look(self) -> Instant:
        wall, steady = self._read_wall(), self._read_steady() if self._read_steady else None
        if steady is None or self._steady is None:
            passed = max(wall - self.last.wall, 0)
        else:
            passed = max(steady - self._steady, 0)
            wall = self._believed(wall, self.last.wall + passed, steady)
        self._steady, self.last = steady, Instant(self.last.own + passed, wall)
        return self.last

    def _believed(self, wall: int, expected: int, steady: int) -> int:
        if wall <= expected + TOLERANCE:
            self._ahead_since = None
            return wall
        self._ahead_since = steady if self._ahead_since is None else self._ahead_since
        if steady - self._ahead_since < CONFIRM_SECONDS * 1_000_000:
            return expected
        self._ahead_since = None
        return wall
