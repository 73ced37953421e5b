"""What a cursor keeps of chunked messages.

A chunked message lies where its last chunk lies: that entry, its *unit*, is delivered, acknowledged and given back for
all of them, and the plan knows of no other. The chunks before it, and those that complete no message, are *parts*: the
main lane passes over them, as it does over entries of the due lane, and nothing else is kept of them here. So what a
cursor has of chunked messages is its ranges, and up to where people see its mark-delete: below the first chunk of what
is not acknowledged as a whole, and of what is not complete, for these are still needed. Rules: semantics 1.10-1.16 with
0.10, 0.25; which chunks make up a message is a fact of the topic (storage.chunk_groups).
"""

from collections.abc import Iterable, Iterator
from heapq import merge

import numpy as np

from pulsar_spark.broker.state import Cursor
from pulsar_spark.broker.topics import TopicState
from pulsar_spark.protocol.delays import packed, visible_mark_delete
from pulsar_spark.protocol.positions import Positions, inside
from pulsar_spark.storage.chunk_groups import ChunkGroups


class Chunked:
    """Of one cursor. ``visible`` is the mark-delete that people see; ``released`` are stretches of positions: messages
    that begin there and are not complete are acknowledged."""

    def __init__(self, cursor: Cursor, groups: ChunkGroups, visible: int):
        self.cursor, self.groups, self.visible = cursor, groups, visible
        self.released = Positions()

    def settle(self) -> None:
        """Find the mark-delete that people see, behind a round that changed something."""
        passed = self.cursor.passed_mark_delete
        self.visible = visible_mark_delete(passed, self._first_needed(passed))

    def _first_needed(self, passed: int) -> int | None:
        """Where the first message begins that is not complete, or ends behind *passed* and is not acknowledged."""
        opened = self.groups.open()
        if self.released:
            opened = opened[~inside(opened, self.released)]
        firsts, lasts = self.groups.units(passed + 1, self.groups.end - 1)
        is_ahead = firsts <= passed
        firsts, lasts = firsts[is_ahead], lasts[is_ahead]
        needed = (int(firsts[at]) for at in np.argsort(firsts) if not self._is_done(int(lasts[at])))
        found = [int(first) for first in opened[:1]] + [first for first in [next(needed, None)] if first is not None]
        return min(found, default=None)

    def _is_done(self, unit: int) -> bool:
        cursor = self.cursor
        if cursor.due is not None and len(cursor.due.unfinished_between(unit, unit)):
            return False
        return cursor.is_done(unit)

    def with_parts(self, acknowledged: Iterable[tuple[int, int]]) -> Iterator[tuple[int, int]]:
        """The stretches *acknowledged* behind the mark-delete that is passed, in order, with all parts behind the one
        that people see."""
        passed, end = self.cursor.passed_mark_delete, self.groups.end
        found = Positions([(self.visible + 1, passed)])
        for first, last in merge(acknowledged, self.groups.parts(passed + 1, end - 1)):
            found.add(first, last)
        return iter(found)

    def packed_between(self, first: int, last: int) -> bytes | None:
        """Of the messages that end at *first*..*last* the positions where each begins and ends, packed; None where
        there are none."""
        return _packed(*self.groups.units(first, last))

    def packed_at(self, positions: np.ndarray) -> bytes | None:
        """Likewise of those that end at *positions*."""
        if not len(positions):
            return None
        firsts, lasts = self.groups.units(int(positions.min()), int(positions.max()))
        is_there = np.isin(lasts, positions)
        return _packed(firsts[is_there], lasts[is_there])


def _packed(firsts: np.ndarray, lasts: np.ndarray) -> bytes | None:
    return packed(np.stack((firsts, lasts), axis=1).ravel()) if len(lasts) else None


def attach(cursor: Cursor, state: TopicState, visible: int | None = None) -> None:
    """Let the cursor know of chunked messages, if its topic partition has any; *visible* is the mark-delete that people
    saw before."""
    if cursor.chunked is None and state.ledgers(cursor.key.partition).last_chunk_position >= 0:
        passed = cursor.passed_mark_delete
        cursor.chunked = Chunked(cursor, state.chunks(cursor.key.partition), passed if visible is None else visible)
        if visible is None:
            cursor.chunked.settle()
