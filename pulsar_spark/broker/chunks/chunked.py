"""What a cursor keeps of chunked messages. Rules: semantics 1.10-1.16 with 0.10, 0.25.

In the plan, the entry of a message's last chunk (its *unit*) stands for the whole message. All other chunks are
*parts*, which a read passes over. A part is acknowledged with its message.

An incomplete message is **released** if it expired or there were too many: it is acknowledged, and so is what still
comes of it. It is **kept back** from a consumer whose limits it exceeds: once complete, it is pending at that consumer,
who does not receive it.
"""

from collections.abc import Iterable, Iterator
from heapq import merge
from typing import Protocol

import numpy as np

from pulsar_spark.broker.cursors.consumer import Consumer
from pulsar_spark.protocol.acknowledgement.packing import packed_pairs
from pulsar_spark.protocol.acknowledgement.positions import Positions, inside
from pulsar_spark.protocol.chunks.chunk_limits import ChunkLimits
from pulsar_spark.protocol.entries.entry_codes import ACKNOWLEDGED_CODE, PART_CODE
from pulsar_spark.protocol.entries.entry_map import EntryMap, codes_at
from pulsar_spark.storage.chunks.chunk_groups import ChunkGroups


class ChunkedCursor(Protocol):
    """What chunked messages need of the cursor."""

    consumers: dict[str, Consumer]
    entries: EntryMap

    @property
    def mark_delete(self) -> int: ...
    @property
    def is_single_active(self) -> bool: ...
    @property
    def active(self) -> Consumer | None: ...


class Chunked:
    """The chunked messages of one cursor.

    * ``released``, and ``kept_back`` by consumer: stretches in which such incomplete messages begin.
    * ``seen``: messages that end before this position were handled if they were released or kept back.
    * ``walked``: limits were applied to messages before this position.
    """

    def __init__(self, cursor: ChunkedCursor, groups: ChunkGroups):
        self.cursor, self.groups, self.seen = cursor, groups, 0
        self._rewritten = groups.rewritten
        self.released = Positions()
        self.kept_back: dict[str, Positions] = {}
        self.walked = cursor.mark_delete + 1
        self._expiry: tuple[tuple, int | None] | None = None

    @property
    def numbered(self) -> int:
        """The position after the last chunk that has one."""
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
            return cursor.active
        return max(cursor.consumers.values(), key=lambda consumer: consumer.join_order, default=None)

    @property
    def limits(self) -> ChunkLimits:
        limiter = self.limiter
        return ChunkLimits() if limiter is None else ChunkLimits.of(limiter.properties)

    def begin_anew(self, consumer_id: str | None = None) -> None:
        """Apply limits to all unacknowledged messages again: consumers changed, or one asks for everything again."""
        if consumer_id is not None:
            self.kept_back.pop(consumer_id, None)
        self.walked = min(self.walked, self.cursor.mark_delete + 1)

    def move(self, target: int) -> None:
        """Give the cursor a new map, as if everything before *target* were acknowledged.

        Chunked messages that end at *target* or later are delivered whole. So the map begins at the first of their
        chunks.
        """
        self.released, self.kept_back = Positions(), {}
        self.cursor.entries = entries = EntryMap(target - 1)
        firsts, _ = self.groups.units(target, self.groups.last_position)
        begun = np.concatenate([firsts, self.groups.open().firsts])
        begun = begun[begun < target]
        if len(begun):
            first = int(begun.min())
            self.cursor.entries = entries = EntryMap(first - 1)
            entries.set_span(first, target - 1, ACKNOWLEDGED_CODE)
            entries.set_at(self.groups.members(begun, target), PART_CODE)
        self.walked = target

    def next_expiry(self) -> int | None:
        """When the next incomplete message expires, in microseconds by the machine's clock."""
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

    def acknowledge_parts(self) -> None:
        """Acknowledge the parts that no message needs any more, and forget released messages that are over."""
        if self.released or self.kept_back:
            self._prune()
        self.walked = max(self.walked, self.cursor.mark_delete + 1)
        self.cursor.entries.set_at(self.unneeded_parts(), ACKNOWLEDGED_CODE)

    def unneeded_parts(self) -> np.ndarray:
        """The positions of parts that a read passed, and that no incomplete or unacknowledged message needs."""
        entries = self.cursor.entries
        positions = entries.where([PART_CODE], 0, entries.end - 1)
        if not len(positions):
            return positions
        firsts, which = np.unique(self.groups.begins(positions), return_inverse=True)
        is_needed = np.isin(firsts, self.groups.open().firsts) & ~self.are_released(firsts)
        ends = self.groups.ends(firsts)  # -1 for incomplete messages
        is_done = np.isin(codes_at(entries, ends), entries.codes.acknowledged)
        return positions[~(is_needed | (ends >= 0) & ~is_done)[which]]

    def with_parts(self, acknowledged: Iterable[tuple[int, int]]) -> Iterator[tuple[int, int]]:
        """The ordered stretches *acknowledged*, and all parts after mark-delete: a backlog counts only units."""
        found = Positions()
        for first, last in merge(
            acknowledged, self.groups.parts(self.cursor.mark_delete + 1, self.groups.last_position)
        ):
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
    """The positions *which* of the ascending *firsts*, as stretches in which no other of *firsts* lies."""
    edges = np.flatnonzero(np.diff(np.concatenate(([False], which, [False])).astype(np.int8)))
    found = Positions()
    for begin, end in edges.reshape(-1, 2).tolist():
        found.add(int(firsts[begin]), int(firsts[end - 1]))
    return found
