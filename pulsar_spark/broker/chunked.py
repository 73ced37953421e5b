"""What a cursor keeps of chunked messages.

A chunked message lies where its last chunk lies: that entry, its *unit*, is delivered, acknowledged and given back for
all of them, and the plan knows of no other. The chunks before it, and those that complete no message, are *parts*: the
main lane passes over them, as it does over entries of the due lane, and nothing else is kept of them here. So what a
cursor has of chunked messages is its ranges, and up to where people see its mark-delete: below the first chunk of what
is not acknowledged as a whole, and of what is not complete, for these are still needed.

A message that is not complete may be **released**: it is acknowledged, whatever comes, because its time is over or
there were too many; or **kept back** from a consumer, whose limits it exceeds (see chunk_walk). Both are kept as
stretches of positions, in which no other such message begins. One that is complete then is acknowledged, or pending at
that consumer, as it is where a consumer has its chunks and drops them. Rules: semantics 1.10-1.16 with 0.10, 0.25;
which chunks make up a message is a fact of the topic (storage.chunk_groups).
"""

from collections.abc import Iterable, Iterator
from heapq import merge

import numpy as np

from pulsar_spark.broker.state import Consumer, Cursor
from pulsar_spark.protocol.chunk_limits import ChunkLimits
from pulsar_spark.protocol.chunking import mark_delete_below
from pulsar_spark.protocol.packing import packed_pairs
from pulsar_spark.protocol.positions import Positions, inside
from pulsar_spark.storage.chunk_groups import ChunkGroups


class Chunked:
    """Of one cursor. ``visible`` is the mark-delete that people see. ``released`` and, by consumer, ``kept_back`` are
    stretches of first positions. All that was complete before ``seen`` is acknowledged or pending if it was to be;
    before ``walked`` the limits of those who are connected were looked at."""

    def __init__(self, cursor: Cursor, groups: ChunkGroups, visible: int):
        self.cursor, self.groups, self.visible, self.seen = cursor, groups, visible, 0
        self._rewritten = groups.rewritten
        self.released = Positions()
        self.kept_back: dict[str, Positions] = {}
        self.walked = visible + 1
        self._needed: tuple[tuple, int | None] | None = None
        self._expiry: tuple[tuple, int | None] | None = None

    @property
    def numbered(self) -> int:
        """Behind the last chunk that is numbered."""
        return self.groups.last_position + 1

    @property
    def has_news(self) -> bool:
        """Were chunks numbered, or was what is numbered rewritten?"""
        return self.seen < self.numbered or self._rewritten != self.groups.rewritten

    def take_news(self) -> None:
        """All of it was looked at."""
        self.seen, self._rewritten = self.numbered, self.groups.rewritten

    # Whose limits hold

    @property
    def limiter(self) -> Consumer | None:
        """The consumer whose limits hold: who receives, or of several the one that came last."""
        cursor = self.cursor
        if cursor.is_single_active:
            return cursor.consumers.get(cursor.active_id)
        return max(cursor.consumers.values(), key=lambda consumer: consumer.join_order, default=None)

    @property
    def limits(self) -> ChunkLimits:
        limiter = self.limiter
        return ChunkLimits() if limiter is None else ChunkLimits.of(limiter.properties)

    def begin_anew(self, consumer_id: str | None = None) -> None:
        """Consumers came or went, or this one is sent everything again: what is not acknowledged is read again."""
        self.kept_back.pop(consumer_id, None)
        self.walked = min(self.walked, self.visible + 1)

    def move(self, target: int) -> None:
        """The cursor was moved to a position: all that ends there or behind it is to be delivered."""
        self.released, self.kept_back, self.walked = Positions(), {}, target
        self.settle()

    def next_expiry(self) -> int | None:
        """When the time of the next message that is not complete is over."""
        expire_ms = self.limits.expire_ms
        if not expire_ms:
            return None
        key = self.groups.changes, tuple(self.released)
        if self._expiry is None or self._expiry[0] != key:
            opened = self.groups.open()
            left = opened.since[~self.are_released(opened.firsts)]
            self._expiry = key, int(left.min()) if len(left) else None
        since = self._expiry[1]
        return None if since is None else since + 1000 * expire_ms

    # What is released

    def are_released(self, firsts: np.ndarray) -> np.ndarray:
        """Which of the messages that begin there are released, if they are not complete."""
        return inside(firsts, self.released) if self.released else np.zeros(len(firsts), bool)

    def release(self, firsts: np.ndarray) -> None:
        """Let messages that begin there and are not complete be acknowledged."""
        opened = self.groups.open().firsts
        self.released = _stretches(opened, self.are_released(opened) | np.isin(opened, firsts))

    def keep_back(self, consumer_id: str, firsts: np.ndarray) -> None:
        """Keep messages that begin there and are not complete back from a consumer."""
        opened = self.groups.open().firsts
        known = inside(opened, self.kept_back.get(consumer_id, ()))
        self.kept_back[consumer_id] = _stretches(opened, known | np.isin(opened, firsts))

    def _prune(self) -> None:
        """Forget of stretches what is open no more."""
        opened = self.groups.open().firsts
        if self.released:
            self.released = _stretches(opened, inside(opened, self.released))
        for consumer_id, kept in list(self.kept_back.items()):
            self.kept_back[consumer_id] = _stretches(opened, inside(opened, kept))
            if not self.kept_back[consumer_id] or consumer_id not in self.cursor.consumers:
                del self.kept_back[consumer_id]

    # Behind a round

    def settle(self) -> None:
        """Find the mark-delete that people see, behind a round that changed something."""
        if self.released or self.kept_back:
            self._prune()
        due = self.cursor.due
        if due is not None and due.promotion.is_ready:
            due.settle()  # a broker that starts knows it no further than people see it
        passed = self.cursor.passed_mark_delete
        found = [self._first_open(), self._first_unacknowledged(passed)]
        self.visible = mark_delete_below(passed, min((first for first in found if first is not None), default=None))
        self.walked = max(self.walked, self.visible + 1)

    def _first_open(self) -> int | None:
        key = self.groups.changes, tuple(self.released)
        if self._needed is None or self._needed[0] != key:
            firsts = self.groups.open().firsts
            firsts = firsts[~self.are_released(firsts)]
            self._needed = (self.groups.changes, tuple(self.released)), int(firsts[0]) if len(firsts) else None
        return self._needed[1]

    def _first_unacknowledged(self, passed: int) -> int | None:
        """Where the first message begins that ends behind *passed* and is not acknowledged."""
        firsts, lasts = self.groups.units(passed + 1, self.groups.end - 1)
        is_ahead = firsts <= passed
        firsts, lasts = firsts[is_ahead], lasts[is_ahead]
        return next((int(firsts[at]) for at in np.argsort(firsts) if not self._is_done(int(lasts[at]))), None)

    def _is_done(self, unit: int) -> bool:
        cursor = self.cursor
        if cursor.due is not None and len(cursor.due.own_between(unit, unit)):
            return not len(cursor.due.unfinished_between(unit, unit))
        return cursor.is_done(unit)

    def with_parts(self, acknowledged: Iterable[tuple[int, int]]) -> Iterator[tuple[int, int]]:
        """The stretches *acknowledged* behind the mark-delete that is passed, in order, with all parts behind the one
        that people see."""
        passed, end = self.cursor.passed_mark_delete, self.groups.end
        found = Positions([(self.visible + 1, passed)])
        for first, last in merge(acknowledged, self.groups.parts(passed + 1, end - 1)):
            found.add(first, last)
        return iter(found)

    # What a delivery says

    def packed_between(self, first: int, last: int) -> bytes | None:
        """Of the messages that end at *first*..*last* the positions where each begins and ends, packed; None where
        there are none."""
        return packed_pairs(*self.groups.units(first, last))

    def packed_at(self, positions: np.ndarray) -> bytes | None:
        """Likewise of those that end at *positions*."""
        if not len(positions):
            return None
        firsts, lasts = self.groups.units(int(positions.min()), int(positions.max()))
        is_there = np.isin(lasts, positions)
        return packed_pairs(firsts[is_there], lasts[is_there])


def _stretches(firsts: np.ndarray, which: np.ndarray) -> Positions:
    """*which* of messages that begin at *firsts*, as stretches in which none of the others begins."""
    edges = np.flatnonzero(np.diff(np.concatenate(([False], which, [False])).astype(np.int8)))
    found = Positions()
    for begin, end in edges.reshape(-1, 2).tolist():
        found.add(int(firsts[begin]), int(firsts[end - 1]))
    return found
