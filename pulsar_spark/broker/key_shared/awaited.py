"""Pending entries that keep later entries of their hashes waiting (protocol.keys.draining): those at a consumer that
does not own their hash, and those given back with a delay."""

from collections.abc import Callable

import numpy as np

from pulsar_spark.broker.cursors.state import Cursor
from pulsar_spark.broker.gathering.marks import NO_POSITIONS, Marks
from pulsar_spark.broker.requests.drafts import CursorChanges
from pulsar_spark.protocol.acknowledgement.positions import distinct
from pulsar_spark.protocol.keys.draining import Awaited
from pulsar_spark.protocol.keys.hash_ranges import NOBODY, Owners

HashesAt = Callable[[np.ndarray], np.ndarray]


def awaited_entries(
    changes: CursorChanges, marks: Marks, now: int, owners: Owners, hashes_at: HashesAt, times_of: HashesAt
) -> Awaited:
    """These entries, after the acknowledgements and returns of the round at *now*; *times_of* returns deliver times."""
    cursor, returned, entries = changes.cursor, marks.returned, changes.cursor.entries
    pending = {code: state for code, state in marks.pending.items() if code not in marks.leaving}
    later = [code for code, state in pending.items() if state.due_time is not None]
    parts = [_at_others(cursor, marks, owners, hashes_at), returned.positions[returned.dues > now]]
    parts += [entries.where(later, 0, entries.end - 1)] if later else []
    positions = distinct(np.concatenate(parts))
    if not len(positions):
        return Awaited(np.empty(0, np.int32), NO_POSITIONS, np.empty(0, bool))
    codes = entries.at(positions)
    dues, holders = np.zeros(len(entries.codes), np.int64), np.full(len(entries.codes), NOBODY)
    is_pending = np.zeros(len(entries.codes), bool)
    for code, state in pending.items():
        dues[code], is_pending[code] = state.due_time or 0, True
        holders[code] = owners.number(state.consumer_id)
    is_named, returns, _ = returned.at(positions)
    comes = np.where(is_named, returns, dues[codes])
    stays = is_pending[codes] & ~marks.are_acked(positions, codes) & (~is_named | (comes > now))
    positions, holders, comes = positions[stays], holders[codes[stays]], comes[stays]
    hashes = hashes_at(positions)
    is_at_other = owners.of(hashes) != holders
    counts = is_at_other | (comes > 0)
    return Awaited(hashes[counts], positions[counts], is_at_other[counts], times_of(positions[counts]))


def _at_others(cursor: Cursor, marks: Marks, owners: Owners, hashes_at: HashesAt) -> np.ndarray:
    """Pending entries at other consumers than their *owners*. Only a change of owners makes some, so all entries are
    looked at only then."""
    entries, known = cursor.entries, cursor.at_others
    holders = np.full(len(entries.codes), NOBODY - 1)
    for code, state in marks.pending.items():
        holders[code] = owners.number(state.consumer_id)
    if known is not None and known[0] is cursor.selector:
        positions = known[1]
    else:
        of_others = [code for code in marks.pending if owners.sole is None or holders[code] != owners.sole]
        positions = entries.where(of_others, 0, entries.end - 1) if of_others else NO_POSITIONS
    if len(positions):
        found = holders[entries.at(positions)]
        positions, found = positions[found >= NOBODY], found[found >= NOBODY]
        positions = positions[owners.of(hashes_at(positions)) != found]
    cursor.at_others = cursor.selector, positions
    return positions
