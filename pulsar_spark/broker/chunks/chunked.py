"""What a cursor keeps of chunked messages.

The entry of a message's last chunk, its *unit*, stands for all chunks in the plan. Earlier chunks, and those of
incomplete messages, are *parts*, which the main lane passes over. The visible mark-delete stays before the first chunk
of a message that is incomplete or unacknowledged.

An incomplete message is **released** (acknowledged whatever follows) if it expired or there were too many. It is **kept
back** from a consumer whose limits it exceeds (see chunk_walk), and pending there once complete. Rules: semantics
1.10-1.16 with 0.10, 0.25.
"""

from collections.abc import Iterable, Iterator
from heapq import merge
from typing import Protocol

import numpy as np

from pulsar_spark.broker.cursors.consumer import Consumer
from pulsar_spark.broker.delays.due_lane import DueLane
from pulsar_spark.protocol.acknowledgement.packing import packed_pairs
from pulsar_spark.protocol.acknowledgement.positions import Positions, inside
from pulsar_spark.protocol.chunks.chunk_limits import ChunkLimits
from pulsar_spark.protocol.chunks.chunking import mark_delete_below
from pulsar_spark.storage.chunks.chunk_groups import ChunkGroups


class ChunkedCursor(Protocol):
    """What is asked of the cursor."""

    active_id: str | None
    consumers: dict[str, Consumer]
    due: DueLane | None

    @property
    def is_single_active(self) -> bool: ...

    @property
    def passed_mark_delete(self) -> int: ...

    def is_done(self, place: int) -> bool: ...


class Chunked:
    """The chunked messages of one cursor.

    ``released`` and, by consumer, ``kept_back`` are stretches of first positions, in which no other incomplete message
    begins. Messages completed before ``seen`` have their state; before ``walked``, limits were applied.
    """

    def __init__(self, cursor: ChunkedCursor, groups: ChunkGroups, visible: int):
        self.cursor, self.groups, self.visible, self.seen = cursor, groups, visible, 0
        self._rewritten = groups.rewritten
        self.released = Positions()
        self.kept_back: dict[str, Positions] = {}
        self.walked = visible + 1
        self._needed: tuple[tuple, int | None] | None = None
        self._expiry: tuple[tuple, int | None] | None = None

    @property
    def numbered(self) -> int:
        """The position after the last numbered chunk."""
        return self.groups.last_position + 1

    @property
    def has_news(self) -> bool:
        """Were chunks numbered or rewritten since the last look?"""
        return self.seen < self.numbered or self._rewritten != self.groups.rewritten

    def take_news(self) -> None:
        self.seen, self._rewritten = self.numbered, self.groups.rewritten

    # Limits

    @property
    def limiter(self) -> Consumer | None:
        """The consumer whose limits apply: the active, or the latest to join."""
        cursor = self.cursor
        if cursor.is_single_active:
            return cursor.consumers.get(cursor.active_id)
        return max(cursor.consumers.values(), key=lambda consumer: consumer.join_order, default=None)

    @property
    def limits(self) -> ChunkLimits:
        limiter = self.limiter
        return ChunkLimits() if limiter is None else ChunkLimits.of(limiter.properties)

    def begin_anew(self, consumer_id: str | None = None) -> None:
        """Read unacknowledged messages again: consumers changed, or this one gets everything again."""
        self.kept_back.pop(consumer_id, None)
        self.walked = min(self.walked, self.visible + 1)

    def move(self, target: int) -> None:
        """Follow the cursor to *target*; whatever ends there or later is delivered."""
        self.released, self.kept_back, self.walked = Positions(), {}, target
        self.settle()

    def next_expiry(self) -> int | None:
        """When the next incomplete message expires."""
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

    # Released and kept back

    def are_released(self, firsts: np.ndarray) -> np.ndarray:
        """Which incomplete messages that begin at *firsts* are released."""
        return inside(firsts, self.released) if self.released else np.zeros(len(firsts), bool)

    def release(self, firsts: np.ndarray) -> None:
        """Release incomplete messages that begin at *firsts*."""
        opened = self.groups.open().firsts
        self.released = _stretches(opened, self.are_released(opened) | np.isin(opened, firsts))

    def keep_back(self, consumer_id: str, firsts: np.ndarray) -> None:
        """Keep incomplete messages that begin at *firsts* from a consumer."""
        opened = self.groups.open().firsts
        known = inside(opened, self.kept_back.get(consumer_id, ()))
        self.kept_back[consumer_id] = _stretches(opened, known | np.isin(opened, firsts))

    def _prune(self) -> None:
        opened = self.groups.open().firsts
        if self.released:
            self.released = _stretches(opened, inside(opened, self.released))
        for consumer_id, kept in list(self.kept_back.items()):
            self.kept_back[consumer_id] = _stretches(opened, inside(opened, kept))
            if not self.kept_back[consumer_id] or consumer_id not in self.cursor.consumers:
                del self.kept_back[consumer_id]

    # After a round

    def settle(self) -> None:
        """Compute the visible mark-delete after a round."""
        if self.released or self.kept_back:
            self._prune()
        due = self.cursor.due
        if due is not None and due.promotion.is_ready:
            due.settle()  # after a start it is known only up to the visible one
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
        """Where the first unacknowledged message begins that ends after *passed*."""
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
        """The ordered stretches *acknowledged*, joined with parts after the visible mark-delete."""
        passed, end = self.cursor.passed_mark_delete, self.groups.end
        found = Positions([(self.visible + 1, passed)])
        for first, last in merge(acknowledged, self.groups.parts(passed + 1, end - 1)):
            found.add(first, last)
        return iter(found)

    # For deliveries

    def packed_between(self, first: int, last: int) -> bytes | None:
        """Packed first and last positions of messages that end at *first*..*last*; None without any."""
        return packed_pairs(*self.groups.units(first, last))

    def packed_at(self, positions: np.ndarray) -> bytes | None:
        """Packed first and last positions of messages that end at *positions*; None without any."""
        if not len(positions):
            return None
        firsts, lasts = self.groups.units(int(positions.min()), int(positions.max()))
        is_there = np.isin(lasts, positions)
        return packed_pairs(firsts[is_there], lasts[is_there])


def _stretches(firsts: np.ndarray, which: np.ndarray) -> Positions:
    """The messages *which* of *firsts*, as stretches without first positions of others."""
    edges = np.flatnonzero(np.diff(np.concatenate(([False], which, [False])).astype(np.int8)))
    found = Positions()
    for begin, end in edges.reshape(-1, 2).tolist():
        found.add(int(firsts[begin]), int(firsts[end - 1]))
    return found
