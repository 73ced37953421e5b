"""The clocks of this process: the machine's, unless tests set others (see :mod:`pulsar_spark.testing`)."""

import time
from collections.abc import Callable

time_ns: Callable[[], int] = time.time_ns
"""Nanoseconds since 1970. It may be replaced, so call it as ``clock.time_ns()``."""
_ahead_seconds = 0.0


def now_micros() -> int:
    """Microseconds since 1970."""
    return time_ns() // 1000


def monotonic() -> float:
    """Seconds of a clock that never goes back, and that tests move ahead."""
    return time.monotonic() + _ahead_seconds


def set_clocks(wall: Callable[[], int] = time.time_ns, ahead_seconds: float = 0.0) -> None:
    """Replace :func:`time_ns`, and move :func:`monotonic` ahead; without arguments, use the machine's again."""
    global time_ns, _ahead_seconds
    time_ns, _ahead_seconds = wall, ahead_seconds
