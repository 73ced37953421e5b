"""The state of a subscription on one topic partition, from the latest rows; it holds until a row or an instant changes
it."""

from collections.abc import Mapping
from datetime import datetime
from typing import NamedTuple

import numpy as np

from pulsar_spark.errors import CorruptState, TopicNotFound
from pulsar_spark.protocol.acknowledgement.cursor import REPLAY
from pulsar_spark.protocol.entries.backlog import count_backlog, first_ready, ready_codes
from pulsar_spark.protocol.entries.entry_map import EntryMap
from pulsar_spark.protocol.subscriptions.membership import KEY_SHARED
from pulsar_spark.protocol.subscriptions.unacked_limit import BLOCKED_BY_BROKER
from pulsar_spark.storage.chunks.chunk_groups import ChunkGroups, chunks_of
from pulsar_spark.storage.cursor_ledger.cursor_ledger import CursorKey, LatestRows
from pulsar_spark.storage.delay_index.waiting import WaitingEntries, waiting_entries
from pulsar_spark.storage.ledgers.ledger_index import LedgerIndex
from pulsar_spark.storage.topics.topics import read_topic
from pulsar_spark.views.backlog import Unacked, read_backlog, read_unacked
from pulsar_spark.views.key_shared import read_key_shared
from pulsar_spark.views.overview.published import Published
from pulsar_spark.views.overview.values import ALL_DELAYED, KEY_DRAINS, NO_CONSUMERS, NO_PERMITS, UNACKED_LIMIT


class CursorState(NamedTuple):
    """What the rows of a cursor say at an instant. ``until`` is when time alone changes it (microseconds); None:
    never."""

    backlog: int
    delayed: int
    oldest_publish_time: datetime | None
    unacked: Mapping[str | None, Unacked]
    consumers: list[dict]
    """Rows of the connected ones, in the order in which they joined."""
    blocked: str | None
    until: int | None
    error: str | None = None
    """Why the topic's own files cannot be read; the numbers are then of the rows alone."""


def read_cursor(latest: LatestRows, key: CursorKey, index: LedgerIndex, published: Published, now: int) -> CursorState:
    """The state of a cursor at *now* (microseconds). Only chunks, deliver times and draining keys need the topic's own
    files; without them the numbers are of the rows alone, until the next look."""
    try:
        return _state(latest, key, index, published, now)
    except (TopicNotFound, CorruptState) as error:
        found = _state(latest, key, None, published, now)
        return found._replace(error=f"{type(error).__name__}: {error}", until=now)


def _state(
    latest: LatestRows, key: CursorKey, index: LedgerIndex | None, published: Published, now: int
) -> CursorState:
    """Without *index*, from the rows alone."""
    end, chunks, waiting, oldest = _end(latest, key), None, None, None
    if index is None:
        backlog = count_backlog(latest.entries(key), end, now)
    else:
        if published.last_chunk_position > latest.cursors[key]["mark_delete_position"]:
            chunks = _chunks(latest, key, index)
        backlog, waiting = read_backlog(latest, key, index, end, now, chunks), waiting_entries(latest, key, index)
    if backlog.entries > backlog.delayed:
        oldest = oldest_ready(latest.entries(key), end, waiting, now)
    consumers = sorted(latest.consumers[key].values(), key=lambda row: row["join_order"] or 0)
    unacked = read_unacked(latest, key)
    dues = [waiting.next_due(now) if waiting and backlog.delayed else None]
    dues += [each.due_time for each in latest.states(key) if each.status == REPLAY and (each.due_time or 0) > now]
    return CursorState(
        backlog.entries,
        backlog.delayed,
        None if oldest is None else published.published_at(oldest),
        unacked,
        consumers,
        _why_blocked(latest, key, index, backlog.entries, backlog.delayed, unacked, consumers),
        min((due for due in dues if due is not None), default=None),
    )


_WINDOW = 1 << 12


def oldest_ready(entries: EntryMap, end: int, waiting: WaitingEntries | None, now: int) -> int | None:
    """The first unacknowledged position before *end* that does not wait for its deliver time."""
    found = first_ready(entries, end)
    if waiting is None:
        return found
    found, ready = end if found is None else found, ready_codes(entries)
    overdue = [int(part.positions.min()) for part in waiting.due(now) if len(part)]
    width = _WINDOW
    while found < end:
        last, width = min(found + width, end) - 1, min(2 * width, 1 << 20)
        is_ready = np.isin(entries.window(found, last), ready)
        is_ready[waiting.later(found, last, now) - found] = False
        if is_ready.any():
            return min([*overdue, found + int(is_ready.argmax())])
        found = last + 1
    return min(overdue, default=None)


def _end(latest: LatestRows, key: CursorKey) -> int:
    row = latest.topics.get(key[:2])
    return row["end_position"] if row else 0


def _chunks(latest: LatestRows, key: CursorKey, index: LedgerIndex) -> ChunkGroups:
    return chunks_of(index.layout, read_topic(index.layout, latest.cursors[key]["topic"]), key.partition)


def _why_blocked(
    latest: LatestRows,
    key: CursorKey,
    index: LedgerIndex | None,
    backlog: int,
    delayed: int,
    unacked: Mapping[str | None, Unacked],
    consumers: list[dict],
) -> str | None:
    """Why entries that wait are not delivered though a broker serves: a word of ``values.BLOCKED``; None if none waits,
    or one is about to be delivered."""
    cursor = latest.cursors[key]
    ready = backlog - delayed - unacked[None].entries
    if backlog and backlog == delayed:
        return ALL_DELAYED
    if ready <= 0:
        return None
    if not consumers:
        return NO_CONSUMERS
    receiving = [row for row in consumers if row["is_active"] is not False]
    with_permits = [row for row in receiving if (row["permits"] or 0) > 0]
    is_limited = bool(with_permits) and all(row["is_blocked"] for row in with_permits)
    if cursor["is_blocked"] or cursor["status"] == BLOCKED_BY_BROKER or is_limited:
        return UNACKED_LIMIT
    if not with_permits:
        return NO_PERMITS
    if index is not None and cursor["subscription_type"] == KEY_SHARED and _do_keys_drain(latest, key, index):
        return KEY_DRAINS
    return None


def _do_keys_drain(latest: LatestRows, key: CursorKey, index: LedgerIndex) -> bool:
    topic = read_topic(index.layout, latest.cursors[key]["topic"])
    found = read_key_shared(index.layout, topic.path, latest, key)
    return found is not None and bool(found.waiting)
