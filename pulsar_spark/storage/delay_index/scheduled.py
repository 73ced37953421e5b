"""Delayed entries as a reader of the root finds them, without the broker, in parts.

The delay index and files show deliver times. A subscription's rows show states: due entries by number, those apart by
position; others wait (protocol.delays).
"""

from collections.abc import Iterator

import numpy as np

from pulsar_spark.errors import DOCTOR, CorruptState
from pulsar_spark.protocol.acknowledgement.cursor import ACKNOWLEDGED, Range
from pulsar_spark.protocol.delays.delays import (
    APART_BASE,
    DUE_BASE,
    Checkpoint,
    cut,
    place_apart,
    position_of,
    promoted,
    virtual,
)
from pulsar_spark.protocol.delays.instants import to_micros
from pulsar_spark.protocol.topics.message_id import MAX_LONG
from pulsar_spark.protocol.topics.numbering import Run
from pulsar_spark.storage.chunks.chunk_groups import chunks_of
from pulsar_spark.storage.cursor_ledger.cursor_ledger import CursorKey, LatestRows
from pulsar_spark.storage.delay_index.delay_index import IndexReader
from pulsar_spark.storage.delay_index.delayed import (
    NONE_DUE,
    CheckpointEntries,
    Due,
    has_delayed,
    in_order,
    read_delayed,
)
from pulsar_spark.storage.ledgers.ledger_index import LedgerIndex
from pulsar_spark.storage.topics.topics import Topic, read_topic

WAITS, DONE, OTHER = -1, -2, -3
"""States of an entry in no range: to be delivered, acknowledged, or not one of the cursor's delayed entries."""
_MOST_CHECKPOINTS = 16


class Delayed:
    """The numbered delayed entries of one topic partition."""

    def __init__(self, index: LedgerIndex, topic: Topic, partition: int):
        self._index, self.topic, self.partition = index, topic, partition
        self._delayed = IndexReader(index.layout, topic, partition)

    @property
    def end(self) -> int:
        """The position the next entry gets."""
        return self._index.end(self.topic.topic_id, self.partition)

    def by_position(self, first: int, last: int) -> Due:
        """Delayed entries at positions *first*..*last*, by position."""
        runs = list(self._runs(first, last))
        found = read_delayed(self.topic.path, runs, chunks_of(self._index.layout, self.topic, self.partition, runs))
        return found.part(np.argsort(found.positions))

    def first_position(self) -> int | None:
        """Nothing before it is delayed; None if nothing is."""
        runs = self._runs(0, self.end - 1) if self.end else ()
        return next((run.first_position for run in runs if has_delayed(run)), None)

    def count(self, after: int, until: int = MAX_LONG) -> int:
        """How many are due after *after*, up to *until*."""
        return self._delayed.count(after, until)

    def between(self, after: int, until: int = MAX_LONG) -> Iterator[Due]:
        """Delayed entries in due order, in parts: see storage.delay_index."""
        return self._delayed.between(after, until)

    def _runs(self, first: int, last: int) -> Iterator[Run]:
        return self._index.runs(self.topic.topic_id, self.partition, first, last)


class DueEntries:
    """States of the delayed entries of a cursor with a due lane (:func:`has_due_lane`), by the latest rows."""

    def __init__(self, latest: LatestRows, key: CursorKey, delayed: Delayed):
        cursor, place = latest.cursors[key], (key.topic_id, key.partition)
        self.delayed = delayed
        self.since, self.floor = to_micros(cursor["due_since"]), cursor["due_floor"]
        self.done_until = cursor["due_mark_delete"]
        rows = sorted((at, row) for (*where, at), row in latest.promotions.items() if (*where,) == place)
        self.checkpoints = [
            Checkpoint(first, row["last"], to_micros(row["due_since"]), to_micros(row["due_time"]))
            for first, row in rows
        ]
        self.promoted_until, self.promoted = promoted(self.checkpoints)
        """Everything due until then has a number; so many have one."""
        self.ranges = sorted(
            (held for held in latest.ranges(key) if held.first >= DUE_BASE), key=lambda held: held.first
        )
        self._bounds = np.array([held[:2] for held in self.ranges], np.int64).reshape(-1, 2).T
        self._is_done = np.array([held.status == ACKNOWLEDGED for held in self.ranges], bool)
        self._first_apart = int(np.searchsorted(self._bounds[0], APART_BASE))
        self._entries = CheckpointEntries(self._read, _MOST_CHECKPOINTS)

    @property
    def apart(self) -> list[Range]:
        """The ranges of entries apart, by position."""
        kept = (held for held in self.ranges if held.first >= APART_BASE)
        return [held._replace(first=position_of(held.first), last=position_of(held.last)) for held in kept]

    def look(self, entries: Due) -> np.ndarray:
        """For each entry, its range's index in ``ranges``, or :data:`WAITS`, :data:`DONE` or :data:`OTHER`."""
        numbers = self._numbers_of(entries)
        found = np.where(numbers < 0, numbers, self._places(virtual(numbers)))
        found[(numbers >= 0) & (numbers <= self.done_until)] = DONE
        apart = self._places(place_apart(entries.positions))
        found = np.where(apart != WAITS, apart, found)
        held = found >= 0
        found[held] = np.where(self._is_done[found[held]], DONE, found[held])
        found[(entries.times <= self.since) | (entries.positions < self.floor)] = OTHER
        return found

    def unfinished(self, after: int = 0, until: int = MAX_LONG) -> Iterator[tuple[Due, np.ndarray]]:
        """Entries with *after* < deliver time <= *until* that are neither acknowledged nor apart, in due order, with
        states (see :meth:`look`).
        """
        lowest = next((each.after for each in self.checkpoints if each.last > self.done_until), self.promoted_until)
        for part in self.delayed.between(max(after, self.since, lowest), until):
            found = self.look(part)
            is_left = (found >= WAITS) & (found < self._first_apart)
            if is_left.any():
                yield part.part(is_left), found[is_left]

    def at_numbers(self, numbers: np.ndarray) -> Due:
        """The entries of these ascending numbers, in order."""
        found = [NONE_DUE]
        for each, places in cut(self.checkpoints, numbers):
            entries = self._entries.of(each)
            if len(entries) < each.numbers:
                raise CorruptState(
                    f"topic {str(self.delayed.topic.name)!r}: of the entries with the numbers {each.first} to "
                    f"{each.last} there are {len(entries)}; {DOCTOR}"
                )
            found.append(entries.part(numbers[places] - each.first))
        return Due(*map(np.concatenate, zip(*found)))

    def _numbers_of(self, entries: Due) -> np.ndarray:
        """Each entry's number, WAITS before it has one, DONE afterwards."""
        numbers = np.where(entries.times > self.promoted_until, WAITS, DONE)
        for each in self.checkpoints:
            here = np.flatnonzero((entries.times > each.after) & (entries.times <= each.until))
            if each.last > self.done_until and len(here):
                known = self._entries.of(each)
                order = np.argsort(known.positions)
                at = np.searchsorted(known.positions[order], entries.positions[here])
                numbers[here] = each.first + np.append(order, 0)[at]
        return numbers

    def _places(self, axis: np.ndarray) -> np.ndarray:
        """The range index of each virtual position, else WAITS."""
        firsts, lasts = self._bounds
        at = np.searchsorted(firsts, axis, "right") - 1
        return np.where((at >= 0) & (axis <= np.append(lasts, -1)[at]), at, WAITS)

    def _read(self, checkpoint: Checkpoint) -> Due:
        return in_order(self.delayed.between(checkpoint.after, checkpoint.until))


def has_due_lane(latest: LatestRows, key: CursorKey) -> bool:
    """Does the cursor keep due entries by number?"""
    return latest.cursors[key].get("due_mark_delete") is not None


def due_entries(latest: LatestRows, key: CursorKey, index: LedgerIndex) -> DueEntries | None:
    """The delayed entries of a cursor; None without a due lane."""
    if not has_due_lane(latest, key):
        return None
    topic = read_topic(index.layout, latest.cursors[key]["topic"])
    return DueEntries(latest, key, Delayed(index, topic, key.partition))
