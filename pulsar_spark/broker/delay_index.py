"""What a bundle's broker holds of its delay index: the delayed entries of its topics, by deliver time.

For now all of them are in memory.
"""

import threading
from collections.abc import Sequence

import numpy as np

from pulsar_spark.broker.topics import TopicState
from pulsar_spark.protocol.numbering import Run
from pulsar_spark.storage.delay_index import NONE_DUE, Due, in_order, read_delayed

EVER = 1 << 62
"""An instant behind all that a clock will say."""


class DelayIndex:
    """The delayed entries of a bundle. Safe for threads."""

    def __init__(self):
        self._lock = threading.Lock()
        self._known: dict[tuple[str, int], Due] = {}
        self._ends: dict[tuple[str, int], int] = {}

    def add(self, state: TopicState, partition: int, runs: Sequence[Run]) -> None:
        """Take in runs that were numbered, in order; those that are known are passed over."""
        key = state.topic.topic_id, partition
        with self._lock:
            runs = [run for run in runs if run.first_position >= self._ends.get(key, 0)]
            if runs:
                self._known[key] = in_order([self._of(*key), read_delayed(state.topic.path, runs)])
                self._ends[key] = runs[-1].last_position + 1

    def next_due(self, topic_id: str, partition: int, after: int) -> int | None:
        """The earliest deliver time behind *after*; None where nothing waits so long."""
        with self._lock:
            times = self._of(topic_id, partition).times
        at = int(np.searchsorted(times, after, "right"))
        return int(times[at]) if at < len(times) else None

    def due(self, topic_id: str, partition: int, after: int, until: int) -> Due:
        """The entries with *after* < deliver time <= *until*, in order of (deliver time, position)."""
        with self._lock:
            known = self._of(topic_id, partition)
        return known.part(slice(*_places(known, after, until)))

    def count(self, topic_id: str, partition: int, after: int, until: int | None = None) -> int:
        """How many of those there are; of all behind *after* without *until*."""
        with self._lock:
            first, last = _places(self._of(topic_id, partition), after, until)
        return last - first

    def ready_until(self, topic_id: str, partition: int) -> int:
        """Up to this instant the index is whole: what is due later may come with a run that is not indexed yet."""
        return EVER

    def drop(self, topic_id: str, partition: int, until: int) -> None:
        """Nobody needs entries due at or before *until* any more."""
        with self._lock:
            known = self._of(topic_id, partition)
            if len(known):
                self._known[topic_id, partition] = known.part(slice(_places(known, until, None)[0], None))

    def forget(self, topic_id: str) -> None:
        """The topic is gone."""
        with self._lock:
            for key in [key for key in self._ends if key[0] == topic_id]:
                del self._ends[key], self._known[key]

    def _of(self, topic_id: str, partition: int) -> Due:
        return self._known.get((topic_id, partition), NONE_DUE)


def _places(known: Due, after: int, until: int | None) -> tuple[int, int]:
    first = int(np.searchsorted(known.times, after, "right"))
    return first, len(known) if until is None else max(first, int(np.searchsorted(known.times, until, "right")))
