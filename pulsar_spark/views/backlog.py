"""The size of a subscription's backlog on a topic partition, and how much of it is delayed.

It counts unacknowledged entries (3.28), delayed ones too (5.20); a chunked message counts once, an incomplete one not
at all."""

from typing import NamedTuple

import numpy as np

from pulsar_spark.protocol.acknowledgement.cursor import ACKNOWLEDGED, REPLAY
from pulsar_spark.protocol.acknowledgement.positions import as_array, expanded, inside
from pulsar_spark.protocol.entries.entry_codes import PART
from pulsar_spark.storage.chunks.chunk_groups import ChunkGroups
from pulsar_spark.storage.cursor_ledger.cursor_ledger import CursorKey, LatestRows
from pulsar_spark.storage.delay_index.waiting import waiting_entries
from pulsar_spark.storage.ledgers.ledger_index import LedgerIndex


class Backlog(NamedTuple):
    """Unacknowledged entries, and those among them that wait for a future time."""

    entries: int
    delayed: int


def read_backlog(
    latest: LatestRows, key: CursorKey, index: LedgerIndex, end: int, now: int, chunks: ChunkGroups | None = None
) -> Backlog:
    """The backlog of a cursor before position *end* at *now* (microseconds); *chunks* are those of its topic
    partition."""
    backlog = _entries(latest, key, index, end, now)
    parts = 0 if chunks is None else _parts_ahead(latest, key, chunks, end)
    return backlog._replace(entries=backlog.entries - parts)


def _parts_ahead(latest: LatestRows, key: CursorKey, chunks: ChunkGroups, end: int) -> int:
    firsts, lasts = as_array(chunks.parts(latest.cursors[key]["read_position"], end - 1))
    done = ((range_.first, range_.last) for range_ in latest.ranges(key) if range_.status in (ACKNOWLEDGED, PART))
    return int(np.count_nonzero(~inside(expanded(firsts, lasts), done)))


def _entries(latest: LatestRows, key: CursorKey, index: LedgerIndex, end: int, now: int) -> Backlog:
    cursor, ranges = latest.cursors[key], latest.ranges(key)
    delayed = sum(range_.size for range_ in ranges if range_.status == REPLAY and (range_.due_time or 0) > now)
    waiting = waiting_entries(latest, key, index)
    delayed += waiting.count(now) if waiting else 0
    done = sum(range_.size for range_ in ranges if range_.status in (ACKNOWLEDGED, PART))
    return Backlog(end - cursor["mark_delete_position"] - 1 - done, delayed)
