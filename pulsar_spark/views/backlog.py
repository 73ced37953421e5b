"""The size of a subscription's backlog on a topic partition, how much of it is delayed, and what is out at consumers.

The backlog counts unacknowledged entries (3.28), delayed ones too (5.20); a chunked message counts once, an incomplete
one not at all."""

from typing import NamedTuple

from pulsar_spark.protocol.acknowledgement.cursor import PENDING
from pulsar_spark.protocol.entries.backlog import Backlog, count_backlog
from pulsar_spark.storage.chunks.chunk_groups import ChunkGroups, parts_ahead
from pulsar_spark.storage.cursor_ledger.cursor_ledger import CursorKey, LatestRows
from pulsar_spark.storage.delay_index.waiting import waiting_entries
from pulsar_spark.storage.ledgers.ledger_index import LedgerIndex


def read_backlog(
    latest: LatestRows, key: CursorKey, index: LedgerIndex, end: int, now: int, chunks: ChunkGroups | None = None
) -> Backlog:
    """The backlog of a cursor before position *end* at *now* (microseconds); *chunks* are those of its topic
    partition."""
    entries, waiting = latest.entries(key), waiting_entries(latest, key, index)
    counted = count_backlog(entries, end, now)
    parts = 0 if chunks is None else parts_ahead(entries, latest.cursors[key]["read_position"], chunks, end)
    return Backlog(counted.entries - parts, counted.delayed + (waiting.count(now) if waiting else 0))


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
