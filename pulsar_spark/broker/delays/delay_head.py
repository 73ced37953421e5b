"""The head of the delay index: delayed entries of small publishes, in memory, in sorted arrays of falling length."""

import time
from collections.abc import Iterable, Iterator

import numpy as np

from pulsar_spark.protocol.topics.numbering import Run
from pulsar_spark.storage.delay_index.delay_segments import Entries, together
from pulsar_spark.storage.delay_index.delayed import NONE_DUE, Due, in_order, places_between

MOST_ENTRIES, MOST_RUNS = 1 << 17, 2_000
"""Entries, or publishes, from which a head becomes a bucket; both are read again at a start."""
MOST_SECONDS = 3600.0
"""Age from which a head becomes a bucket. VACUUM later deletes files removed from a topic; numbers of entries in a
bucket no longer depend on them."""
LEAST = -(1 << 63)
"""An instant before the deliver time of any delayed entry."""


class Head:
    """Entries by place, and the stretches of positions they came from."""

    def __init__(self):
        self._sorted: dict[int, list[Due]] = {}
        self.stretches: dict[int, list[tuple[int, int]]] = {}
        self.entries = self.runs = 0
        self._since: float | None = None

    def __bool__(self) -> bool:
        return self.runs > 0

    @property
    def is_full(self) -> bool:
        is_old = self._since is not None and time.monotonic() - self._since > MOST_SECONDS
        return self.entries >= MOST_ENTRIES or self.runs >= MOST_RUNS or is_old

    def add(self, place: int, first: int, last: int, due: Due) -> None:
        self.stretches.setdefault(place, []).append((first, last))
        self.runs += 1
        self._since = self._since or time.monotonic()
        self._add(place, due)

    def add_runs(self, place: int, runs: Iterable[Run], due: Due) -> None:
        for run in runs:
            self.add(place, run.first_position, run.last_position, NONE_DUE)
        self._add(place, due)

    def _add(self, place: int, due: Due) -> None:
        if len(due):
            self.entries += len(due)
            parts = self._sorted.setdefault(place, [])
            parts.append(due)
            while len(parts) > 1 and 2 * len(parts[-1]) > len(parts[-2]):
                parts[-2:] = [in_order(parts[-2:])]

    def next_due(self, place: int, after: int) -> int | None:
        found = []
        for part in self._sorted.get(place, ()):
            at = int(np.searchsorted(part.times, after, "right"))
            if at < len(part):
                found.append(int(part.times[at]))
        return min(found, default=None)

    def due(self, place: int, after: int, until: int) -> list[Due]:
        return [part.between(after, until) for part in self._sorted.get(place, ())]

    def count(self, place: int, after: int, until: int | None) -> int:
        bounds = (places_between(part.times, after, until) for part in self._sorted.get(place, ()))
        return sum(end - begin for begin, end in bounds)

    def drop(self, place: int, until: int) -> None:
        if place in self._sorted:
            self.entries -= self.count(place, LEAST, until)
            self._sorted[place] = [part.between(until, None) for part in self._sorted[place]]

    def forget(self, place: int) -> None:
        self.entries -= sum(map(len, self._sorted.pop(place, ())))
        self.runs -= len(self.stretches.pop(place, ()))

    def take(self, other: "Head") -> None:
        for place, stretches in other.stretches.items():
            for first, last in stretches:
                self.add(place, first, last, NONE_DUE)
            for part in other._sorted.get(place, ()):
                self._add(place, part)

    def everything(self, ranks: np.ndarray) -> Entries:
        return together(self._parts(), ranks)

    def _parts(self) -> Iterator[Entries]:
        for place, parts in self._sorted.items():
            for part in parts:
                yield Entries(part, np.full(len(part), place, np.int32))
