"""Which entries wait for a cursor, by the latest rows and the delay index, for readers without a broker."""

from collections.abc import Iterator

import numpy as np

from pulsar_spark.protocol.delays.instants import to_micros
from pulsar_spark.protocol.entries.entry_codes import UNREAD_CODE, WAITING_CODE
from pulsar_spark.protocol.entries.entry_map import EntryMap
from pulsar_spark.storage.cursor_ledger.cursor_ledger import CursorKey, LatestRows
from pulsar_spark.storage.delay_index.delayed import Due
from pulsar_spark.storage.delay_index.scheduled import Delayed
from pulsar_spark.storage.ledgers.ledger_index import LedgerIndex
from pulsar_spark.storage.topics.topics import read_topic

_WINDOW = 1 << 20
"""Positions whose deliver times are read at once."""


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

    def _have(self, positions: np.ndarray, *codes: int) -> np.ndarray:
        order = np.argsort(positions, kind="stable")
        found = np.empty(len(positions), bool)
        found[order] = np.isin(self._entries.at(positions[order]), codes)
        return found


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
