"""A cursor's ranges as exact positions, for readers of its rows.

Those of the due lane (see protocol.delays) are numbers, which storage.delay_index.scheduled turns into positions.
"""

from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from pulsar_spark.protocol.acknowledgement.cursor import ACKNOWLEDGED, Range
from pulsar_spark.protocol.acknowledgement.positions import Positions, as_array, expanded, ranges_of
from pulsar_spark.protocol.delays.delays import APART_BASE, DUE_BASE, number_at, position_of
from pulsar_spark.protocol.entries.entry_codes import UNREAD_CODE
from pulsar_spark.protocol.entries.entry_map import EntryMap
from pulsar_spark.storage.cursor_ledger.cursor_ledger import CursorKey, LatestRows
from pulsar_spark.storage.delay_index.scheduled import DONE, OTHER, DueEntries, due_entries
from pulsar_spark.storage.entries.key_hashes import hashes_of
from pulsar_spark.storage.ledgers.ledger_index import LedgerIndex

WINDOW = 1 << 20
"""Positions of a cursor with a due lane that are read at once."""


class HeldEntries(NamedTuple):
    """Ascending positions that ranges mean, with hashes and range indexes."""

    positions: np.ndarray
    hashes: np.ndarray
    places: np.ndarray


def exact_ranges(latest: LatestRows, key: CursorKey, index: LedgerIndex) -> Iterator[Range]:
    """A cursor's ranges above mark-delete, by position."""
    ranges = sorted(latest.ranges(key))
    due = due_entries(latest, key, index)
    if due is not None:
        yield from _with_due_lane(latest, key, due, [held for held in ranges if held.first < DUE_BASE])
        return
    visible, passed = (latest.cursors[key][name] for name in ("mark_delete_position", "main_mark_delete_position"))
    if passed is not None and passed > visible:
        # Up to there everything is acknowledged, except chunks of messages that end after it.
        yield Range(visible + 1, passed, ACKNOWLEDGED)
    yield from ranges


def count_deleted_ranges(latest: LatestRows, key: CursorKey, index: LedgerIndex) -> int | None:
    """The number of fully acknowledged stretches after mark-delete, Pulsar's ``nonContiguousDeletedMessagesRanges``.
    None with a due lane, which would need every entry."""
    if due_entries(latest, key, index) is not None:
        return None
    visible, passed = (latest.cursors[key][name] for name in ("mark_delete_position", "main_mark_delete_position"))
    spans = [(held.first, held.last) for held in latest.ranges(key) if held.status == ACKNOWLEDGED]
    if passed is not None:
        spans = [(visible + 1, passed), *spans]
    return len(list(Positions(sorted(spans))))


def _with_due_lane(latest: LatestRows, key: CursorKey, due: DueEntries, main: list[Range]) -> Iterator[Range]:
    """Ranges of delayed entries, and *main* ranges of all others, in parts."""
    cursor, end = latest.cursors[key], due.delayed.end
    passed, at = cursor["main_mark_delete_position"], cursor["mark_delete_position"] + 1
    states = [Range(at, passed, ACKNOWLEDGED)] if passed >= at else []
    states += main
    bounds = np.array([held[:2] for held in states], np.int64).reshape(-1, 2).T
    ranges = [*states, *due.ranges, Range(0, 0, ACKNOWLEDGED)]
    while at < end:
        last = min(at + WINDOW, end) - 1
        positions = np.arange(at, last + 1)
        places = np.searchsorted(bounds[0], positions, "right") - 1
        places[(places < 0) | (positions > np.append(bounds[1], -1)[places])] = -1
        delayed = due.delayed.by_position(at, last)
        found = due.look(delayed)
        found[found >= 0] += len(states)
        found[found == DONE] = len(ranges) - 1
        own = found != OTHER
        places[delayed.positions[own] - at] = found[own]
        is_held = places >= 0
        yield from exact(ranges, HeldEntries(positions[is_held], positions[is_held], places[is_held]))
        at = last + 1


def exact(ranges: Sequence[Range], found: HeldEntries) -> Iterator[Range]:
    """*ranges* cut to the entries *found* in them, by position, as few as possible."""
    numbers: dict[tuple, int] = {}
    states = np.array([numbers.setdefault(_state(held), len(numbers)) for held in ranges], np.int64)[found.places]
    is_first = np.ones(len(states), bool)
    is_first[1:] = (np.diff(found.positions) != 1) | (np.diff(states) != 0)
    starts = np.flatnonzero(is_first)
    lengths = np.diff(np.append(starts, len(states)))
    attributes = list(numbers)
    for first, length, state in zip(found.positions[starts].tolist(), lengths.tolist(), states[starts].tolist()):
        yield Range(first, first + length - 1, *attributes[state])


def _state(held: Range) -> tuple:
    """All attributes of a range except its entries."""
    return held._replace(entries=None)[2:]


def read_held(
    latest: LatestRows, key: CursorKey, index: LedgerIndex, table, is_wanted: Callable[[Range], bool]
) -> tuple[list[Range], HeldEntries]:
    """What a cursor's ranges say of entries, as far as *is_wanted*, and the entries; *table* is the topic's."""
    kept = latest.pages[key].get(None)
    if kept is not None:
        states, positions, places = _of_map(kept.entries, is_wanted)
        hashes = hashes_of(index, table, key.topic_id, key.partition, ranges_of(positions))
        return states, HeldEntries(positions, hashes, places)
    ranges = [held for held in sorted(latest.ranges(key)) if is_wanted(held)]
    if ranges and ranges[-1].first >= DUE_BASE:
        return ranges, _read_with_due_lane(latest, key, index, table, ranges)
    return ranges, _read_plain(key, index, table, ranges)


def _of_map(entries: EntryMap, is_wanted: Callable[[Range], bool]) -> tuple[list[Range], np.ndarray, np.ndarray]:
    """The states that are wanted, the positions of their entries, ascending, and the state of each."""
    found = {code: Range(0, 0, *state) for code, state in entries.codes.known() if code != UNREAD_CODE}
    found = {code: state for code, state in found.items() if is_wanted(state)}
    positions = entries.where(list(found), 0, entries.end - 1)
    place_of = np.zeros(len(entries.codes), np.int64)
    place_of[list(found)] = np.arange(len(found))
    return list(found.values()), positions, place_of[entries.at(positions)]


def _read_plain(key: CursorKey, index: LedgerIndex, table, ranges: Sequence[Range]) -> HeldEntries:
    """The entries of ranges of positions."""
    firsts, lasts = as_array((held.first, held.last) for held in ranges)
    hashes = hashes_of(index, table, key.topic_id, key.partition, list(zip(firsts.tolist(), lasts.tolist())))
    return HeldEntries(expanded(firsts, lasts), hashes, np.repeat(np.arange(len(ranges)), lasts - firsts + 1))


def _read_with_due_lane(
    latest: LatestRows, key: CursorKey, index: LedgerIndex, table, held: Sequence[Range]
) -> HeldEntries:
    """The entries of ranges the last of which are of virtual positions."""
    due = due_entries(latest, key, index)
    numbered, apart = (bisect_left(held, base, key=lambda each: each.first) for base in (DUE_BASE, APART_BASE))
    firsts, lasts = np.array([each[:2] for each in held[numbered:]], np.int64).reshape(-1, 2).T
    axis, places = expanded(firsts, lasts), np.repeat(np.arange(numbered, len(held)), lasts - firsts + 1)
    of_numbers = due.at_numbers(number_at(axis[axis < APART_BASE]))
    spans = [(position_of(each.first), position_of(each.last)) for each in held[apart:]]
    main = _read_plain(key, index, table, held[:numbered])
    positions = np.concatenate([main.positions, of_numbers.positions, position_of(axis[axis >= APART_BASE])])
    hashes = hashes_of(index, table, key.topic_id, key.partition, spans)
    order = np.argsort(positions, kind="stable")
    hashes = np.concatenate([main.hashes, of_numbers.hashes, hashes])
    return HeldEntries(positions[order], hashes[order], np.concatenate([main.places, places])[order])
