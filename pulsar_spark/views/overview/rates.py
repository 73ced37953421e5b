"""Counters that only grow, and their rates: the growth between looks."""

from collections import deque
from collections.abc import Mapping
from datetime import datetime, timedelta

from pulsar_spark.views.activity import Activity

Counts = tuple[int, ...]
Key = tuple
"""A cursor, a cursor and a consumer's id, or a topic partition."""


class Rates:
    """The growth of counters a second, over at least *window_seconds* if there were looks so long ago."""

    def __init__(self, window_seconds: float):
        self._window = timedelta(seconds=window_seconds)
        self._counters: dict[Key, Counts] = {}
        self._looks: deque[tuple[datetime, Mapping[Key, Counts]]] = deque()

    def counters(self, key: Key) -> Counts:
        return self._counters[key]

    def set(self, key: Key, counters: Counts) -> None:
        """Keep the tuple of equal counters, by which :meth:`of` knows quickly that nothing happened."""
        if self._counters.get(key) != counters:
            self._counters[key] = counters

    def drop(self, key: Key) -> None:
        self._counters.pop(key, None)

    def clear(self) -> None:
        self._counters.clear()

    def look(self, now: datetime) -> None:
        """Take the counters as those of *now*."""
        while len(self._looks) > 1 and self._looks[1][0] <= now - self._window:
            self._looks.popleft()
        self._looks.append((now, dict(self._counters)))

    def begin(self, then: datetime, recent: Activity, published: Mapping[Key, Counts]) -> None:
        """Before the first look: the counters of *then*, as far as the *recent* deliveries and what was *published*
        since tell."""
        found = dict(self._counters)
        for (key, consumer_id), count in recent.delivered.items():
            for each in (key, (key, consumer_id)):
                _subtract(found, each, (count, recent.redelivered[key, consumer_id], 0, 0))
        for place, counts in published.items():
            _subtract(found, place, counts)
        self._looks.append((then, found))

    def of(self, key: Key) -> tuple[float, ...]:
        """The rates of a key's counters; a counter that fell began again at 0, and so does a new one."""
        (then, before), (now, counters) = self._looks[0], self._looks[-1]
        found, earlier = counters[key], before.get(key)
        if found is earlier:
            return (0.0,) * len(found)
        earlier, seconds = earlier or (0,) * len(found), (now - then).total_seconds()
        if seconds <= 0:
            return (0.0,) * len(found)
        return tuple(round((count - was if count >= was else count) / seconds, 3) for count, was in zip(found, earlier))


def _subtract(counters: dict[Key, Counts], key: Key, counts: Counts) -> None:
    if key in counters:
        counters[key] = tuple(total - count for total, count in zip(counters[key], counts))
