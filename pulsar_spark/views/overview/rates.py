"""Rates from counters that only grow: their growth between looks."""

from collections import deque
from collections.abc import Hashable, Mapping
from datetime import datetime, timedelta

Counters = Mapping[Hashable, tuple[int, ...]]


class Rates:
    """The growth of counters a second, over at least *window_seconds* if there were looks so long ago."""

    def __init__(self, window_seconds: float):
        self._window = timedelta(seconds=window_seconds)
        self._looks: deque[tuple[datetime, Counters]] = deque()

    def begin(self, then: datetime, counters: Counters) -> None:
        """Take *counters* as those of *then*, before the first look."""
        self._looks.append((then, counters))

    def look(self, now: datetime, counters: Counters) -> None:
        while len(self._looks) > 1 and self._looks[1][0] <= now - self._window:
            self._looks.popleft()
        self._looks.append((now, counters))

    def of(self, key: Hashable) -> tuple[float, ...]:
        """The rates of a key's counters; a counter that fell began again at 0, and so does a new one."""
        (then, before), (now, counters) = self._looks[0], self._looks[-1]
        found, earlier = counters[key], before.get(key)
        if found is earlier:
            return (0.0,) * len(found)
        earlier, seconds = earlier or (0,) * len(found), (now - then).total_seconds()
        if seconds <= 0:
            return (0.0,) * len(found)
        return tuple(round((count - was if count >= was else count) / seconds, 3) for count, was in zip(found, earlier))
