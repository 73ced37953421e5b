"""The hashes of a Key_Shared subscription that wait, and the consumers they wait for (see protocol.keys.draining).

Only entries that will come back, or were delivered before a consumer last came or left, are read: entries delivered
later are pending at the owner of their hash."""

from bisect import bisect_right
from collections.abc import Callable
from datetime import UTC, datetime
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from pulsar_spark.protocol.acknowledgement.cursor import PENDING, Range
from pulsar_spark.protocol.acknowledgement.positions import ranges_of
from pulsar_spark.protocol.entries.entry_codes import UNREAD_CODE
from pulsar_spark.protocol.entries.entry_map import EntryMap
from pulsar_spark.protocol.keys.hash_ranges import Owners
from pulsar_spark.storage.cursor_ledger.cursor_ledger import CursorKey, LatestRows
from pulsar_spark.storage.entries.key_hashes import hashes_of
from pulsar_spark.storage.layout import Layout
from pulsar_spark.storage.ledgers.ledger_index import LedgerIndex
from pulsar_spark.storage.store.store import AnyPath
from pulsar_spark.views.activity import broker_time


class DrainingHash(NamedTuple):
    """A hash of which *consumer_id* holds *entries* that others wait for.

    *first* is their lowest position. *due_time* is when they come back by themselves (microseconds, broker's clock),
    None if they do not."""

    hash: int
    owner_id: str | None
    consumer_id: str
    first: int
    entries: int
    messages: int
    due_time: int | None

    @property
    def is_draining(self) -> bool:
        """Whether the hash drains, rather than waits for what its owner gave back."""
        return self.consumer_id != self.owner_id


def draining_hashes(
    layout: Layout, table: AnyPath, latest: LatestRows, key: CursorKey, owners: Owners, changed: datetime | None
) -> list[DrainingHash]:
    """The hashes that wait on a cursor, in order. *changed*: when a consumer last came or left, by the broker's clock;
    None if unknown."""
    last = _last_before(layout, latest, key, changed)

    def may_block(range_: Range) -> bool:
        return range_.status == PENDING and (range_.due_time is not None or (range_.delivery_round or 0) <= last)

    found, positions, places = entries_where(latest.entries(key), may_block)
    if not len(positions):
        return []
    hashes = hashes_of(LedgerIndex(layout), table, key.topic_id, key.partition, ranges_of(positions))
    owner = owners.of(hashes)
    is_due = np.array([one.due_time is not None for one in found])[places]
    waits = is_due | (owner != np.array([owners.number(one.consumer_id) for one in found])[places])
    of_range = pa.array(places[waits])
    entries = {
        "hash": hashes[waits],
        "owner": owner[waits],
        "consumer_id": pa.array([one.consumer_id for one in found], pa.string()).take(of_range),
        "position": positions[waits],
        "messages": np.array([one.unacked_messages // one.size for one in found])[places[waits]],
        "due_time": pa.array([one.due_time for one in found], pa.int64()).take(of_range),
    }
    found = (
        pa.table(entries)
        .group_by(["hash", "owner", "consumer_id"])
        .aggregate([("position", "min"), ("position", "count"), ("messages", "sum"), ("due_time", "min")])
        .sort_by([("hash", "ascending"), ("position_min", "ascending")])
    )
    names = [*owners.consumers, None]
    rows = zip(*(column.to_pylist() for column in found.columns), strict=True)
    return [DrainingHash(hash_code, names[number], *rest) for hash_code, number, *rest in rows]


def entries_where(entries: EntryMap, is_wanted: Callable[[Range], bool]) -> tuple[list[Range], np.ndarray, np.ndarray]:
    """The states that are wanted, the positions of their entries, ascending, and the state of each."""
    found = {code: Range(0, 0, *state) for code, state in entries.codes.known() if code != UNREAD_CODE}
    found = {code: state for code, state in found.items() if is_wanted(state)}
    positions = entries.where(list(found), 0, entries.end - 1)
    place_of = np.zeros(len(entries.codes), np.int64)
    place_of[list(found)] = np.arange(len(found))
    return list(found.values()), positions, place_of[entries.at(positions)]


def _last_before(layout: Layout, latest: LatestRows, key: CursorKey, changed: datetime | None) -> int:
    """The last round that delivered something still pending, before consumers *changed*."""
    rounds = sorted({state.delivery_round or 0 for state in latest.states(key) if state.status == PENDING})
    if changed is not None:
        never = datetime.min.replace(tzinfo=UTC)
        rounds = rounds[: bisect_right(rounds, changed, key=lambda each: broker_time(layout, each) or never)]
    return max(rounds, default=-1)
