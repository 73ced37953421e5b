"""Turn a cursor's ranges into exact positions, for readers of its rows.

A lane's range (see protocol.keys.lanes) means the entries between its ends with the lane's hashes, other ranges mean
all. Ranges of the due lane (see protocol.delays) are numbers, which storage.delay_index.scheduled turns into positions.
"""

from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from pulsar_spark.protocol.acknowledgement.cursor import ACKNOWLEDGED, Range
from pulsar_spark.protocol.acknowledgement.positions import Positions, expanded, ranges_of
from pulsar_spark.protocol.delays.delays import APART_BASE, DUE_BASE, number_at, position_of
from pulsar_spark.protocol.keys.lanes import LaneHashes, are_certain, lane_numbers
from pulsar_spark.storage.cursor_ledger.cursor_ledger import CursorKey, LatestRows
from pulsar_spark.storage.delay_index.scheduled import DONE, OTHER, DueEntries, due_entries
from pulsar_spark.storage.entries.entries import are_missing
from pulsar_spark.storage.entries.key_hashes import hashes_of
from pulsar_spark.storage.ledgers.ledger_index import LedgerIndex

WINDOW = 1 << 20
"""Positions of a cursor with a due lane that are read at once."""


class PageRange(NamedTuple):
    """A range and its page, which may be a lane's."""

    page: int
    held: Range


class HeldEntries(NamedTuple):
    """Ascending positions that ranges mean, with hashes and range indexes."""

    positions: np.ndarray
    hashes: np.ndarray
    places: np.ndarray


def page_ranges(latest: LatestRows, key: CursorKey) -> list[PageRange]:
    """All ranges of a cursor, by first position."""
    found = (PageRange(page, held) for page, ranges in latest.pages[key].items() for held in ranges)
    return sorted(found, key=lambda one: one.held.first)


def exact_ranges(latest: LatestRows, key: CursorKey, index: LedgerIndex, table) -> Iterator[Range]:
    """A cursor's ranges above mark-delete, each of all entries between its ends, by position; *table* is the
    topic's.
    """
    ranges = page_ranges(latest, key)
    due = due_entries(latest, key, index)
    if due is not None:
        yield from _with_due_lane(latest, key, due, [held for _, held in ranges if held.first < DUE_BASE])
        return
    visible, passed = (latest.cursors[key][name] for name in ("mark_delete_position", "main_mark_delete_position"))
    if passed is not None and passed > visible:
        # Up to there everything is acknowledged, except chunks of messages that end after it.
        yield Range(visible + 1, passed, ACKNOWLEDGED)
    if not latest.lanes[key]:
        yield from (held for _, held in ranges)
        return
    found = read_held(latest, key, index, table, ranges)
    above = found.positions > (visible if passed is None else passed)
    yield from exact([held for _, held in ranges], HeldEntries(*(column[above] for column in found)))


def count_deleted_ranges(latest: LatestRows, key: CursorKey, index: LedgerIndex, table) -> int | None:
    """The number of fully acknowledged stretches after mark-delete, Pulsar's ``nonContiguousDeletedMessagesRanges``;
    *table* is the topic's. None with a due lane, which would need every entry.
    """
    if due_entries(latest, key, index) is not None:
        return None
    visible, passed = (latest.cursors[key][name] for name in ("mark_delete_position", "main_mark_delete_position"))
    done = [one for one in page_ranges(latest, key) if one.held.status == ACKNOWLEDGED]
    spans = [(held.first, held.last) for _, held in done]
    if latest.lanes[key]:
        positions = read_held(latest, key, index, table, done).positions
        spans = ranges_of(positions[positions > visible])
    if passed is not None:
        spans = [(visible + 1, passed), *spans]
    return len(list(Positions(spans)))


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
    latest: LatestRows, key: CursorKey, index: LedgerIndex, table, ranges: Sequence[PageRange]
) -> HeldEntries:
    """The entries that *ranges*, by first position, mean."""
    if not ranges:
        return HeldEntries(np.empty(0, np.int64), np.empty(0, np.int32), np.empty(0, np.int64))
    if ranges[-1].held.first >= DUE_BASE:
        return _read_with_due_lane(latest, key, index, table, ranges)
    spans = list(Positions((held.first, held.last) for _, held in ranges))
    positions = expanded(*np.array(spans, np.int64).T)
    hashes = hashes_of(index, table, key.topic_id, key.partition, spans)
    places = np.full(len(positions), -1)
    for entries, mine in _by_lane(latest.lanes[key], hashes, ranges):
        firsts, lasts = np.array([ranges[at].held[:2] for at in mine]).T
        at = np.searchsorted(firsts, positions[entries], "right") - 1
        is_held = (at >= 0) & (positions[entries] <= lasts[at])
        places[entries] = np.where(is_held, np.array(mine)[at], places[entries])
    places[_unknown(latest.lanes[key], ranges, places, lambda: _are_gone(index, table, key, spans))] = -1
    is_held = places >= 0
    return HeldEntries(positions[is_held], hashes[is_held], places[is_held])


def _unknown(
    lanes: Mapping[int, LaneHashes], ranges: Sequence[PageRange], places: np.ndarray, are_gone: Callable[[], np.ndarray]
) -> np.ndarray:
    """Which located entries belong to an unknown lane; *are_gone* is called only if ranges lack entries they count."""
    found = np.bincount(places[places >= 0], minlength=len(ranges))
    are_of_lanes = np.array([page in lanes and held.status != ACKNOWLEDGED for page, held in ranges])
    in_doubt = are_of_lanes & ~are_certain(found, np.array([held.size for _, held in ranges]))
    if not in_doubt.any():
        return np.zeros(len(places), bool)
    return are_gone() & np.append(in_doubt, False)[places]


def _are_gone(index: LedgerIndex, table, key: CursorKey, spans: Sequence[tuple[int, int]]) -> np.ndarray:
    runs = (run for span in spans for run in index.runs(key.topic_id, key.partition, *span))
    return are_missing(table, runs)


def _read_with_due_lane(
    latest: LatestRows, key: CursorKey, index: LedgerIndex, table, ranges: Sequence[PageRange]
) -> HeldEntries:
    """The entries of *ranges* whose last are virtual positions."""
    due, held = due_entries(latest, key, index), [one.held for one in ranges]
    numbered, apart = (bisect_left(held, base, key=lambda each: each.first) for base in (DUE_BASE, APART_BASE))
    firsts, lasts = np.array([each[:2] for each in held[numbered:]], np.int64).reshape(-1, 2).T
    axis, places = expanded(firsts, lasts), np.repeat(np.arange(numbered, len(held)), lasts - firsts + 1)
    of_numbers = due.at_numbers(number_at(axis[axis < APART_BASE]))
    spans = [(position_of(each.first), position_of(each.last)) for each in held[apart:]]
    main = read_held(latest, key, index, table, ranges[:numbered])
    positions = np.concatenate([main.positions, of_numbers.positions, position_of(axis[axis >= APART_BASE])])
    hashes = hashes_of(index, table, key.topic_id, key.partition, spans)
    order = np.argsort(positions, kind="stable")
    hashes = np.concatenate([main.hashes, of_numbers.hashes, hashes])
    return HeldEntries(positions[order], hashes[order], np.concatenate([main.places, places])[order])


def _by_lane(
    lanes: Mapping[int, LaneHashes], hashes: np.ndarray, ranges: Sequence[PageRange]
) -> Iterator[tuple[slice | np.ndarray, list[int]]]:
    """Each lane's *hashes* and *ranges*; without a lane, all hashes."""
    by_page: dict[int | None, list[int]] = {}
    for at, (page, _) in enumerate(ranges):
        by_page.setdefault(page if page in lanes else None, []).append(at)
    if None in by_page:
        yield slice(None), by_page.pop(None)
    if by_page:
        numbers = lane_numbers([lanes[page] for page in by_page]).of(hashes)
        in_order = np.argsort(numbers, kind="stable")
        borders = np.searchsorted(numbers[in_order], np.arange(len(by_page) + 1)).tolist()
        for start, stop, mine in zip(borders, borders[1:], by_page.values()):
            yield in_order[start:stop], mine
