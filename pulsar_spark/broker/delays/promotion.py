"""Promotion numbers delayed entries that have come due, in their topic partition, once for all subscriptions, in order
of (deliver time, position).

A run numbered later has no entries due before what is promoted (see protocol.topics.numbering.Run), so numbers keep
their meaning. A *checkpoint* maps numbers to the entries due between two instants, which the delay index returns.
Unneeded checkpoints are dropped, except the last; small promotions extend it.

Nothing is promoted before its deliver time, or while no consumer can take it. Rule: design 10; semantics 5 with 0.21
and 0.24.
"""

import errno
import logging
from collections.abc import Iterator

import numpy as np

from pulsar_spark.broker.delays.delay_index import DelayIndex
from pulsar_spark.errors import DelayIndexNotReady
from pulsar_spark.protocol.delays.delays import Checkpoint, cut, promoted
from pulsar_spark.storage.delay_index.delayed import NONE_DUE, CheckpointEntries, Due

JOINED_NUMBERS = 1 << 14
"""Numbers up to which a checkpoint is extended."""

MOST_NUMBERS = 1 << 16
"""Most numbers of a checkpoint, except for entries due at one instant."""

MOST_CHECKPOINTS = 32
"""Checkpoints of a topic partition whose entries are kept in memory."""

log = logging.getLogger(__name__)


class Promotion:
    """How far a topic partition's delayed entries are promoted."""

    def __init__(self, topic: str, topic_id: str, partition: int, index: DelayIndex):
        self.topic, self.topic_id, self.partition = topic, topic_id, partition
        self._index = index
        self.checkpoints: list[Checkpoint] = []
        self.advanced_at: int | None = None
        """When anything came due last, by the machine's clock."""
        self._changed: set[int] = set()
        self._gone: set[int] = set()
        self._needed_from = 0
        self._dropped: int | None = None
        self._is_checked = False
        self._entries = CheckpointEntries(self._read, MOST_CHECKPOINTS)

    @property
    def until(self) -> int:
        """The instant up to which everything is promoted."""
        return promoted(self.checkpoints)[0]

    @property
    def count(self) -> int:
        """How many numbers were given."""
        return promoted(self.checkpoints)[1]

    @property
    def is_ready(self) -> bool:
        """Can everything promoted be read? While a lost delay index is rebuilt, due lanes of the partition wait (see
        due_requests)."""
        return self._ready_until() >= self.until

    @property
    def has_waiting(self) -> bool:
        return self._next_due() is not None

    @property
    def is_changed(self) -> bool:
        """Are there rows to write, or numbers to release?"""
        return bool(self._changed or self._gone or len(self.checkpoints) > 1 or self.count > self._needed_from)

    def next_due(self, after: int) -> int | None:
        """When, after *after*, the next unpromoted entry comes due; None without one."""
        due = self._next_due()
        return None if due is None else max(due, after + 1)

    def is_due(self, wall: int) -> bool:
        """Would :meth:`advance` promote anything?"""
        due = self._next_due()
        return due is not None and due <= min(wall, self._ready_until())

    def next_look(self, wall: int, tick: int) -> int | None:
        """When to promote next; None while nothing waits. At least a *tick* after the last time, so that many deliver
        times make few rounds (5.5)."""
        due = self._next_due()
        if due is None:
            return None
        advanced_at = None if self.advanced_at is None else min(self.advanced_at, wall)
        return due if advanced_at is None else max(due, advanced_at + tick)

    def advance(self, wall: int) -> None:
        """Promote what has come due."""
        if self.is_due(wall):
            self.advanced_at = wall
            for after, until, numbers in self._parts(self.until, min(wall, self._ready_until())):
                self._append(Checkpoint(self.count, self.count + numbers - 1, after, until))

    def at(self, numbers: np.ndarray) -> Due:
        """The entries with ascending *numbers*; position -1 for a number without one."""
        found = [
            (places, self._entries.of(each).part(numbers[places] - each.first))
            for each, places in cut(self.checkpoints, numbers)
        ]
        if len(found) == 1 and len(found[0][-1]) == len(numbers):
            return found[0][-1]
        entries = Due(*(np.full(len(numbers), nothing, held.dtype) for nothing, held in zip((-1, 0, 0), NONE_DUE)))
        for places, part in found:
            for column, held in zip(entries, part):
                column[places] = held
        return Due(entries.positions, np.maximum.accumulate(entries.times), entries.hashes)

    def key_of(self, number: int) -> tuple[int, int]:
        """Deliver time and position of that number's entry, or the next; unpromoted entries sort last."""
        for each in self.checkpoints:
            if each.last >= number and each.numbers:
                entries = self._entries.of(each).part(slice(max(number - each.first, 0), None))
                return int(entries.times[0]), int(entries.positions[0])
        return self.until, np.iinfo(np.int64).max

    def unlike_index(self) -> list[tuple[Checkpoint, int]]:
        """Needed checkpoints of which a rebuilt index has another number of entries, with that number. Checked once the
        index is ready."""
        if self._is_checked or self._ready_until() < self.until:
            return []
        self._is_checked = True
        needed = [each for each in self.checkpoints if each.last >= self._needed_from]
        counted = [(each, self._index.count(self.topic_id, self.partition, each.after, each.until)) for each in needed]
        return [(each, entries) for each, entries in counted if entries != each.numbers]

    def shrink(self, checkpoint: Checkpoint, entries: int) -> None:
        """Map a checkpoint's first numbers to the *entries* left, and others to nothing."""
        at = self.checkpoints.index(checkpoint)
        self.checkpoints[at] = checkpoint._replace(last=checkpoint.first + entries - 1)
        if at == len(self.checkpoints) - 1:  # numbers are never given again
            until = checkpoint.until
            self.checkpoints.append(Checkpoint(checkpoint.last + 1, checkpoint.last, until, until))
        self._changed |= {checkpoint.first, checkpoint.last + 1}
        self._entries.forget(checkpoint)

    def first_at(self, instant: int) -> int:
        """The first number due at or after *instant*, or the next new one. Unneeded numbers count as earlier."""
        needed = (each for each in self.checkpoints if each.last >= self._needed_from)
        found = next((each for each in needed if each.until >= instant), None)
        if found is None:
            return self.count
        return found.first + int(np.searchsorted(self._entries.of(found).times, instant))

    def drop_before(self, needed_from: int) -> None:
        """Release numbers below *needed_from*."""
        self._needed_from = needed_from
        while len(self.checkpoints) > 1 and self.checkpoints[0].last < needed_from:
            first = self.checkpoints.pop(0).first
            self._changed.discard(first)
            self._gone.add(first)
        self._entries.forget_before(needed_from)

    def drop_from_index(self) -> None:
        """Drop released entries from the index. Call it after their round's commit, as a crash must not bring them
        back."""
        lowest = self.checkpoints[0] if self.checkpoints else None
        done = lowest and (lowest.until if lowest.last < self._needed_from else lowest.after)
        if done != self._dropped:
            self._index.drop(self.topic_id, self.partition, done)
            self._dropped = done

    def take_changes(self) -> tuple[list[Checkpoint], list[int]]:
        """Checkpoints changed since the last call, and first numbers of removed ones."""
        changed = [each for each in self.checkpoints if each.first in self._changed]
        gone = sorted(self._gone - {each.first for each in self.checkpoints})
        self._changed, self._gone = set(), set()
        return changed, gone

    def _append(self, new: Checkpoint) -> None:
        last = self.checkpoints[-1] if self.checkpoints else None
        # The index may have dropped the entries of an unneeded checkpoint.
        if last and last.last >= self._needed_from and last.numbers + new.numbers <= JOINED_NUMBERS:
            self._entries.forget(last)
            new = self.checkpoints.pop()._replace(last=new.last, until=new.until)
        self.checkpoints.append(new)
        self._changed.add(new.first)

    def _parts(self, after: int, until: int) -> Iterator[tuple[int, int, int]]:
        """Entries due after *after* up to *until*, cut by time to fit checkpoints: after, until and size."""
        numbers = self._index.count(self.topic_id, self.partition, after, until)
        if numbers <= MOST_NUMBERS or until - after <= 1:
            if numbers:
                yield after, until, numbers
            return
        first = self._index.next_due(self.topic_id, self.partition, after)
        if first - 1 > after:  # nothing is due before
            yield from self._parts(first - 1, until)
            return
        middle = (after + until) // 2
        yield from self._parts(after, middle)
        yield from self._parts(middle, until)

    def _read(self, checkpoint: Checkpoint) -> Due:
        found = self._index.due(self.topic_id, self.partition, checkpoint.after, checkpoint.until)
        if len(found) != checkpoint.numbers:
            self._is_checked = False
            raise DelayIndexNotReady(
                f"topic {self.topic!r}: the delay index has {len(found)} of the {checkpoint.numbers} entries that "
                f"came due with the numbers from {checkpoint.first} on; the next round looks after that"
            ) from OSError(errno.EAGAIN, "made anew")
        return found

    def _next_due(self) -> int | None:
        return self._index.next_due(self.topic_id, self.partition, self.until)

    def _ready_until(self) -> int:
        return self._index.ready_until(self.topic_id, self.partition)
