"""The size of a subscription's backlog on a topic partition, how much of it is delayed, and what is out at consumers.

The backlog counts unacknowledged entries (3.28), delayed ones too (5.20); a chunked message counts once, an incomplete
one not at all."""

from typing import NamedTuple

import numpy as np

from pulsar_spark.protocol.acknowledgement.cursor import ACKNOWLEDGED, PENDING, REPLAY
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
    cursor, states = latest.cursors[key], list(latest.states(key))
    delayed = sum(state.size for state in states if state.status == REPLAY and (state.due_time or 0) > now)
    waiting = waiting_entries(latest, key, index)
    delayed += waiting.count(now) if waiting else 0
    done = sum(state.size for state in states if state.status in (ACKNOWLEDGED, PART))
    return Backlog(end - cursor["mark_delete_position"] - 1 - done, delayed)


class Unacked(NamedTuple):
    """Entries and messages delivered and not acknowledged, and the round of the oldest delivery among them."""

    entries: int = 0
    messages: int = 0
    oldest_round: int | None = None


def read_unacked(latest: LatestRows, key: CursorKey) -> dict[str | None, Unacked]:
    """What a cursor's consumers have, by consumer id; None: all of them together."""
    found: dict[str | None, Unacked] = {None: Unacked()}
    for state in latest.states(key):
        if state.status == PENDING:
            for consumer_id in {None, state.consumer_id}:
                before = found.get(consumer_id, Unacked())
                rounds = [each for each in (before.oldest_round, state.delivery_round) if each is not None]
                found[consumer_id] = Unacked(
                    before.entries + state.size, before.messages + state.unacked_messages, min(rounds, default=None)
                )
    return found
