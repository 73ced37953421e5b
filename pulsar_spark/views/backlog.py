"""The size of a subscription's backlog on a topic partition, and how much of it is delayed.

It counts unacknowledged entries (3.28), delayed ones too (5.20); a chunked message counts once, an incomplete one not
at all. A due lane records what is done, so waiting entries are counted in the delay index.
"""

from typing import NamedTuple

import numpy as np

from pulsar_spark.protocol.acknowledgement.cursor import ACKNOWLEDGED, REPLAY, Range
from pulsar_spark.protocol.acknowledgement.positions import as_array, expanded, inside
from pulsar_spark.protocol.delays.delays import APART_BASE, DUE_BASE
from pulsar_spark.storage.chunks.chunk_groups import ChunkGroups
from pulsar_spark.storage.cursor_ledger.cursor_ledger import CursorKey, LatestRows
from pulsar_spark.storage.delay_index.scheduled import DONE, WAITS, DueEntries, due_entries
from pulsar_spark.storage.ledgers.ledger_index import LedgerIndex

_WINDOW = 1 << 20
"""Positions whose deliver times are read at once."""


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
    """The number of parts of chunked messages that the cursor has yet to pass over."""
    firsts, lasts = as_array(chunks.parts(latest.cursors[key]["read_position"], end - 1))
    done = ((range_.first, range_.last) for range_ in latest.ranges(key) if range_.status == ACKNOWLEDGED)
    passed = [each for each in done if each[0] < DUE_BASE]
    return int(np.count_nonzero(~inside(expanded(firsts, lasts), passed)))


def _entries(latest: LatestRows, key: CursorKey, index: LedgerIndex, end: int, now: int) -> Backlog:
    cursor, ranges = latest.cursors[key], latest.ranges(key)
    delayed = sum(range_.size for range_ in ranges if range_.status == REPLAY and (range_.due_time or 0) > now)
    due = due_entries(latest, key, index)
    if due is None:
        main_mark_delete = cursor["main_mark_delete_position"]
        done_until = cursor["mark_delete_position"] if main_mark_delete is None else main_mark_delete
        return Backlog(end - done_until - 1 - _acknowledged(ranges), delayed)
    main = [range_ for range_ in ranges if range_.first < DUE_BASE]
    passed = [(0, cursor["main_mark_delete_position"])]
    passed += [(range_.first, range_.last) for range_ in main if range_.status == ACKNOWLEDGED]
    entries = end - passed[0][1] - 1 - _acknowledged(main)
    if _is_simple(due, cursor, end):
        promoted = due.promoted - 1 - due.done_until - _acknowledged(due.ranges)
        unfinished = promoted + due.delayed.count(max(due.promoted_until, due.since))
        waiting = due.delayed.count(max(now, due.promoted_until, due.since))
        return Backlog(entries + unfinished, delayed + waiting)
    left = [range_ for range_ in due.apart if range_.status != ACKNOWLEDGED]
    entries += sum(int(inside(np.arange(range_.first, range_.last + 1), passed).sum()) for range_ in left)
    for part, found in due.unfinished():
        entries += int(np.count_nonzero(inside(part.positions, passed)))
        delayed += int(np.count_nonzero((found == WAITS) & (part.times > now)))
    return Backlog(entries - _done_ahead(due, passed, cursor["read_position"], end), delayed)


def _done_ahead(due: DueEntries, passed: list[tuple[int, int]], first: int, end: int) -> int:
    """The number of entries in *first* to *end* that are done as delayed ones, but not passed over by the main lane."""
    done = 0
    for begin in range(first, end, _WINDOW):
        entries = due.delayed.by_position(begin, min(begin + _WINDOW, end) - 1)
        done += int(np.count_nonzero((due.look(entries) == DONE) & ~inside(entries.positions, passed)))
    return done


def _acknowledged(ranges: list[Range]) -> int:
    return sum(range_.size for range_ in ranges if range_.status == ACKNOWLEDGED)


def _is_simple(due: DueEntries, cursor: dict, end: int) -> bool:
    """Whether all delayed entries are the cursor's own, kept by number and passed over."""
    first = due.delayed.first_position()
    is_own = first is None or due.floor <= first
    is_apart = bool(due.ranges) and due.ranges[-1].first >= APART_BASE
    return is_own and not is_apart and cursor["read_position"] >= end
