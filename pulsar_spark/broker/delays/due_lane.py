"""The due lane of a cursor: what it keeps of delayed entries.

A delayed entry has no state until it is promoted (see promotion) and *looked at*: read by a round in which a consumer
can take it. Then its number keeps its state, on an axis of virtual positions (protocol.delays) with its own
mark-delete, so scattered positions need few ranges. The main lane counts it as acknowledged.

Entries acknowledged or rescheduled earlier are kept *apart*, by position. **Its own** entries are the delayed ones due
after ``since``, from position ``floor`` on; others are ordinary. Rules: semantics 5 with 0.21 and 0.24.
"""

from typing import Protocol

import numpy as np

from pulsar_spark.broker.delays.own_entries import WINDOW, OwnEntries
from pulsar_spark.broker.gathering.entry_hashes import EntryHashes
from pulsar_spark.broker.gathering.unread_run import UnreadRun
from pulsar_spark.protocol.acknowledgement.cursor import ACKNOWLEDGED
from pulsar_spark.protocol.acknowledgement.positions import Positions, inside, ranges_of
from pulsar_spark.protocol.delays.delays import (
    APART_BASE,
    AXES_END,
    DUE_BASE,
    number_at,
    place_apart,
    position_of,
    virtual,
    visible_mark_delete,
)

LEAST_LOOK, MOST_LOOK = 1 << 10, 1 << 20
"""Least and most numbers looked at in one go."""


class EntryChanges(Protocol):
    """What a round was asked about entries. Those that are not to be looked at again are added to ``passed``."""

    acks: Positions
    ack_sets: dict[int, tuple[int, ...]]
    passed: Positions


class DueLane(OwnEntries):
    """The due lane of one cursor. Numbers up to ``mark_delete``, a virtual position, are done. Nothing at a position up
    to ``visible`` waits, is in motion or unread."""

    _blocker: int | None = None

    def has_ripe(self, wall: int) -> bool:
        """Is there a promoted number to look at? Its time has come, unless the clock was set back."""
        return self.read < self.promotion.count and self.next_ripe(wall) is None

    def next_ripe(self, wall: int) -> int | None:
        """When the next number may be looked at, if the clock was set back; else None."""
        read = self.read
        if self.promotion.until <= wall or read >= self.promotion.count:
            return None
        due, _ = self.promotion.key_of(read)
        return due if due > wall else None

    def hashes_at(self, axis: np.ndarray, hashes: EntryHashes) -> np.ndarray:
        """Sticky-key hashes at ascending places on any axis; *hashes* are the partition's."""
        numbered, apart = np.searchsorted(axis, (DUE_BASE, APART_BASE))
        numbers = number_at(axis[numbered:apart])
        by_position = hashes.at(axis[:numbered]), hashes.at(position_of(axis[apart:]))
        return np.concatenate((by_position[0], self.promotion.at(numbers).hashes, by_position[1]))

    def positions_at(self, axis: np.ndarray) -> np.ndarray:
        """Positions at ascending places on any axis."""
        numbered, apart = np.searchsorted(axis, (DUE_BASE, APART_BASE))
        numbers = number_at(axis[numbered:apart])
        return np.concatenate((axis[:numbered], self.promotion.at(numbers).positions, position_of(axis[apart:])))

    # Due entries

    def unread(self, changes: EntryChanges, most: int, wall: int, *, by_time: bool) -> list[UnreadRun]:
        """The next *most* numbers never looked at, as runs; others are noted as passed over. Neighbours of one batch
        size join, with *by_time* only if they have one deliver time."""
        found, at = [], self.read
        while most > 0 and at < self.promotion.count:
            last = min(at + int(np.clip(most, LEAST_LOOK, MOST_LOOK)), self.promotion.count) - 1
            numbers, is_last = self.unknown(changes, at, last, wall)
            numbers = numbers[:most]
            most -= len(numbers)
            found.append(numbers)
            if is_last:
                break
            at = last + 1
        return self.runs(np.concatenate([np.empty(0, np.int64), *found]), by_time=by_time)

    def unknown(self, changes: EntryChanges, first: int, last: int, wall: int) -> tuple[np.ndarray, bool]:
        """Its own numbers in first..last that were never looked at, up to one whose time has not come, and whether
        there is such a one. Others are noted as passed over."""
        numbers = np.arange(first, last + 1)
        entries = self.promotion.at(numbers)
        ripe = int(np.searchsorted(entries.times, wall, "right"))
        positions, numbers, is_last = entries.positions[:ripe], numbers[:ripe], ripe < len(entries)
        known = list((held.first, held.last) for held in self.cursor.ranges_between(virtual(first), virtual(last + 1)))
        acked = changes.acks
        is_unknown = ~inside(virtual(numbers), known) & ~inside(virtual(numbers), acked)
        is_apart = self.is_apart(positions) | inside(place_apart(positions), acked)
        is_apart |= np.isin(place_apart(positions), [*changes.ack_sets])
        is_own = (positions >= self.floor) & (entries.times[:ripe] > self.since) & ~is_apart
        for begin, end in ranges_of(numbers[is_unknown & ~is_own]):
            changes.passed.add(virtual(begin), virtual(end))
        return numbers[is_unknown & is_own], is_last

    def runs(self, numbers: np.ndarray, *, by_time: bool, lines: np.ndarray | None = None) -> list[UnreadRun]:
        """Ascending numbers as runs of one batch size, line and, with *by_time*, deliver time."""
        if not len(numbers):
            return []
        entries = self.promotion.at(numbers)
        sizes = self.ledgers.batch_sizes(entries.positions)
        is_new = (np.diff(numbers, prepend=-2) != 1) | (np.diff(sizes, prepend=-1) != 0)
        if by_time:
            is_new |= np.diff(entries.times, prepend=-1) != 0
        if lines is not None:
            is_new |= np.append(True, lines[1:] != lines[:-1])
        starts = np.flatnonzero(is_new)
        lasts = numbers[np.append(starts[1:], len(numbers)) - 1]
        columns = [virtual(numbers[starts]), virtual(lasts), sizes[starts], entries.times[starts]]
        names = [None] * len(starts) if lines is None else lines[starts].tolist()
        return [UnreadRun(*row, name) for *row, name in zip(*(column.tolist() for column in columns), names)]

    # After a round

    def settle(self) -> None:
        """Move the visible mark-delete up to the first unfinished entry."""
        first = self._blocker
        if first is not None and len(self.unfinished_between(first, first)):
            self.visible = visible_mark_delete(self.cursor.mark_delete, first)
            return
        self._blocker, at = None, self.visible + 1
        while at <= self.cursor.mark_delete and self._blocker is None:
            apart = self.cursor.find(place_apart(at))
            if apart is not None and apart.status == ACKNOWLEDGED:
                at = position_of(apart.last) + 1
                continue
            last = min(at + WINDOW - 1, self.cursor.mark_delete)
            found = self.unfinished_between(at, last)
            self._blocker = int(found[0]) if len(found) else None
            at = last + 1
        self.visible = visible_mark_delete(self.cursor.mark_delete, self._blocker)
        self.floor = max(self.floor, self.visible + 1)

    @property
    def is_over(self) -> bool:
        """Does nothing wait, nothing move, and nothing delayed lie ahead?"""
        cursor = self.cursor
        return (
            virtual(self.promotion.count) == self.mark_delete + 1
            and self.visible == cursor.mark_delete
            and cursor.read_position > self.ledgers.last_delayed_position
            and not (self.promotion.has_waiting or self.topic.newly_delayed)
            and all(held.status == ACKNOWLEDGED for held in cursor.ranges_between(APART_BASE, AXES_END))
        )
