"""The cursors of a bundle, and which of them rest, so that they cost a round nothing.

A cursor rests until an instant by either clock, or new entries. Requests, policies and a clock set back wake it. One
that met delayed entries or chunks, or has recently joined consumers, never rests.
"""

import heapq
from collections.abc import Iterable
from typing import NamedTuple

from pulsar_spark.broker.bundle.clock import Instant
from pulsar_spark.broker.cursors.state import Cursor
from pulsar_spark.protocol.topics.message_id import MAX_LONG
from pulsar_spark.storage.cursor_ledger.cursor_ledger import CursorKey

FEW = 1000
NEVER = MAX_LONG


class _Rest(NamedTuple):
    """Until when a cursor rests, by each clock."""

    own: int
    wall: int


class Cursors(dict[CursorKey, Cursor]):
    """Cursors by key, in order of creation; a new one is awake."""

    def __init__(self):
        super().__init__()
        self._numbers: dict[CursorKey, int] = {}
        self._came = 0
        self._by_topic: dict[str, dict[CursorKey, Cursor]] = {}
        self._awake: dict[CursorKey, Cursor] = {}
        self._at_rest: dict[CursorKey, _Rest] = {}
        self._waiting: dict[str, set[CursorKey]] = {}
        """Cursors at rest that could take new entries, by topic id."""
        self._dues: tuple[list, list] = [], []
        """Heaps of (instant, key), one for each clock; entries that are no longer true are skipped."""

    def __setitem__(self, key: CursorKey, cursor: Cursor) -> None:
        super().__setitem__(key, cursor)
        if key not in self._numbers:
            self._came += 1
            self._numbers[key] = self._came
        self._by_topic.setdefault(key.topic_id, {})[key] = cursor
        self._at_rest.pop(key, None)
        self._awake[key] = cursor

    def __delitem__(self, key: CursorKey) -> None:
        super().__delitem__(key)
        for kept in (self._numbers, self._by_topic[key.topic_id], self._awake, self._at_rest):
            kept.pop(key, None)
        self._waiting.get(key.topic_id, set()).discard(key)

    def of_topic(self, topic_id: str) -> list[Cursor]:
        return list(self._by_topic.get(topic_id, {}).values())

    def awake(self) -> list[Cursor]:
        return [self._awake[key] for key in sorted(self._awake, key=self._numbers.__getitem__)]

    def rest(self, cursor: Cursor, own: int | None, wall: int | None, *, waits_for_entries: bool) -> None:
        """Let the cursor rest until one of these instants, or until it is woken."""
        key, rest = cursor.key, _Rest(NEVER if own is None else own, NEVER if wall is None else wall)
        del self._awake[key]
        self._at_rest[key] = rest
        for clock, instant in enumerate(rest):
            if instant != NEVER:
                heapq.heappush(self._heap(clock), (instant, key))
        if waits_for_entries:
            self._waiting.setdefault(key.topic_id, set()).add(key)

    def wake(self, keys: Iterable[CursorKey | None]) -> None:
        """Wake the cursors among *keys* that exist."""
        for key in keys:
            if key is not None and self._at_rest.pop(key, None) is not None:
                self._awake[key] = self[key]

    def wake_all(self) -> None:
        self.wake(list(self._at_rest))

    def wake_for_entries(self, topic_id: str) -> None:
        self.wake(self._waiting.pop(topic_id, ()))

    def wake_due(self, now: Instant) -> None:
        for clock, (heap, instant) in enumerate(zip(self._dues, now)):
            while heap and heap[0][0] <= instant:
                due, key = heapq.heappop(heap)
                if self._until(key, clock) == due:
                    self.wake([key])

    def next_due(self) -> tuple[int | None, int | None]:
        """When a cursor at rest has something due, by each clock."""
        found = []
        for clock, heap in enumerate(self._dues):
            while heap and self._until(heap[0][1], clock) != heap[0][0]:
                heapq.heappop(heap)
            found.append(heap[0][0] if heap else None)
        return found[0], found[1]

    def _heap(self, clock: int) -> list:
        heap = self._dues[clock]
        if len(heap) > 2 * len(self._at_rest) + FEW:
            heap[:] = [(rest[clock], key) for key, rest in self._at_rest.items() if rest[clock] != NEVER]
            heapq.heapify(heap)
        return heap

    def _until(self, key: CursorKey, clock: int) -> int | None:
        rest = self._at_rest.get(key)
        return None if rest is None else rest[clock]
