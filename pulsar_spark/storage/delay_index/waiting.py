"""Delayed entries of a topic partition, and which of them wait for a cursor, for readers without a broker."""

from collections.abc import Iterator

import numpy as np

from pulsar_spark.protocol.delays.instants import to_micros
from pulsar_spark.protocol.entries.entry_codes import UNREAD_CODE, WAITING_CODE
from pulsar_spark.protocol.entries.entry_map import EntryMap, codes_at
from pulsar_spark.protocol.topics.message_id import MAX_LONG
from pulsar_spark.protocol.topics.numbering import Run
from pulsar_spark.storage.chunks.chunk_groups import chunks_of
from pulsar_spark.storage.cursor_ledger.cursor_ledger import CursorKey, LatestRows
from pulsar_spark.storage.delay_index.delay_index import IndexReader
from pulsar_spark.storage.delay_index.delayed import Due, has_delayed, read_delayed
from pulsar_spark.storage.ledgers.ledger_index import LedgerIndex
from pulsar_spark.storage.topics.topics import Topic, read_topic

_WINDOW = 1 << 20
"""Positions whose deliver times are read at once."""


class Delayed:
    def __init__(self, index: LedgerIndex, topic: Topic, partition: int):
        self._index, self.topic, self.partition = index, topic, partition
        self._delayed = IndexReader(index.layout, topic, partition)

    @property
    def end(self) -> int:
        return self._index.end(self.topic.topic_id, self.partition)

    def by_position(self, first: int, last: int) -> Due:
        """Delayed entries at positions *first*..*last*, by position."""
        runs = list(self._runs(first, last))
        found = read_delayed(self.topic.path, runs, chunks_of(self._index.layout, self.topic, self.partition, runs))
        return found.part(np.argsort(found.positions))

    def first_position(self) -> int | None:
        """A position before which nothing is delayed; None if nothing is."""
        runs = self._runs(0, self.end - 1) if self.end else ()
        return next((run.first_position for run in runs if has_delayed(run)), None)

    def count(self, after: int, until: int = MAX_LONG) -> int:
        """How many are due after *after*, up to *until*."""
        return self._delayed.count(after, until)

    def between(self, after: int, until: int = MAX_LONG) -> Iterator[Due]:
        """See :meth:`IndexReader.between`."""
        return self._delayed.between(after, until)

    def _runs(self, first: int, last: int) -> Iterator[Run]:
        return self._index.runs(self.topic.topic_id, self.partition, first, last)


class WaitingEntries:
    """The entries that wait for a cursor, or will once it reads them: those due after ``since``."""

    def __init__(self, entries: EntryMap, since: int, read_position: int, delayed: Delayed):
        self._entries, self.since, self._read_position, self._delayed = entries, since, read_position, delayed

    def due(self, until: int) -> Iterator[Due]:
        """Those whose deliver time has come by *until*, in that order, in parts."""
        for part in self._delayed.between(self.since, until):
            yield part.part(self._have(part.positions, UNREAD_CODE, WAITING_CODE))

    def count(self, now: int) -> int:
        end = self._delayed.end
        waiting = self._entries.count([WAITING_CODE], 0, end - 1)
        for part in self._delayed.between(self.since, now):
            waiting -= int(np.count_nonzero(self._have(part.positions, WAITING_CODE)))
        for first in range(self._read_position, end, _WINDOW):
            last = min(first + _WINDOW, end) - 1
            if self._entries.first_of([UNREAD_CODE], first, last) is not None:
                part = self._delayed.by_position(first, last)
                is_later = part.times > max(now, self.since)
                waiting += int(np.count_nonzero(self._have(part.positions[is_later], UNREAD_CODE)))
        return waiting

    def later(self, first: int, last: int, now: int) -> np.ndarray:
        """The positions *first*..*last* whose deliver time is after *now*, ascending."""
        part = self._delayed.by_position(first, last)
        return part.positions[part.times > now]

    def next_due(self, now: int) -> int | None:
        """The first deliver time after *now* of an entry of the topic partition."""
        parts = self._delayed.between(now, MAX_LONG)
        return next((int(part.times[0]) for part in parts if len(part)), None)

    def _have(self, positions: np.ndarray, *codes: int) -> np.ndarray:
        return np.isin(codes_at(self._entries, positions), codes)


def waiting_entries(latest: LatestRows, key: CursorKey, index: LedgerIndex) -> WaitingEntries | None:
    """The entries that wait for a cursor; None where it met none."""
    cursor = latest.cursors[key]
    if cursor.get("due_since") is None:
        return None
    return WaitingEntries(
        latest.entries(key),
        to_micros(cursor["due_since"]),
        cursor["read_position"],
        Delayed(index, read_topic(index.layout, cursor["topic"]), key.partition),
    )
