"""The two clocks of a bundle: the machine's, and the broker's own, which only ever goes forward, at the rate of real
time.

Durations run by the own clock: negative acknowledgements, ack timeouts, leases, the pause of a failover, the intervals
of maintenance. Instants that people gave (deliver times, publish times, until when a request holds) are the machine's.
So when the machine's clock was ahead for a round and is right again, what was set meanwhile ends in its own time: the
own clock goes on from where it was, and every round's row keeps both, so that a restart goes on with it too.

- The own clock moves by what a steady clock of the system measured since the last look; without one, and over the time
  no broker ran, by what the machine's clock has moved, where that is forward. A machine's clock set back moves it by
  nothing.
- A machine's clock that runs ahead of the steady one is believed only when it still does after :data:`CONFIRM_SECONDS`,
  so that one reading from the future neither delivers early nor expires anything. Set back, it is believed at once:
  being late by that much would be for good.
"""

import time
from collections.abc import Callable
from typing import NamedTuple

TOLERANCE = 2_000_000
"""Microseconds by which the machine's clock may be ahead of the steady one between two looks, or behind the last round,
without being taken for wrong."""

CONFIRM_SECONDS = 10


class Instant(NamedTuple):
    """One moment, in microseconds: by the broker's own clock, and by the machine's (since 1970)."""

    own: int
    wall: int


def steady_micros() -> int:
    """A clock that nobody sets, in microseconds; on Linux it runs on while the machine sleeps."""
    return time.clock_gettime_ns(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)) // 1000


class BundleClock:
    """Goes on from *last*, the moment of the latest round. *wall* and *steady* give microseconds."""

    def __init__(self, wall: Callable[[], int], last: Instant, steady: Callable[[], int] | None = None):
        self._read_wall, self._read_steady, self.last = wall, steady, last
        self._steady: int | None = None
        self._ahead_since: int | None = None

    def look(self) -> Instant:
        """What time it is."""
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
