"""Chunked messages in the reference broker: which entries make up a message, and which are never delivered.

A message lies where the chunk lies that completes it, its *unit*. All other chunks are *parts*: of a message that is
complete, of one that is *open* because chunks are still to come, or of none, for good (1.10-1.13). Written once more,
entry by entry; nothing is shared with ``protocol.chunks.chunking``.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

PRODUCER = "p"


class Chunk(NamedTuple):
    """What an entry says that is one."""

    uuid: str
    chunk_id: int
    num_chunks: int
    producer_name: str = PRODUCER


Group = tuple[str, str]
"""Producer name and uuid: two producers with one uuid send two messages."""


@dataclass
class Chunks:
    """The entries of a topic partition, as chunks; None is an entry that is none."""

    entries: list[Chunk | None] = field(default_factory=list)
    open: dict[Group, list[int]] = field(default_factory=dict)
    """The chunks that messages have so far, by group."""
    messages: dict[int, tuple[int, ...]] = field(default_factory=dict)
    """The chunks of complete messages, by the position of the last."""
    parts: set[int] = field(default_factory=set)
    attempts: dict[int, int | None] = field(default_factory=dict)
    """Where each message that was begun ended, complete or thrown away, by its first chunk; None of an open one."""
    seen: int = 0

    def see(self) -> list[int]:
        """The broker sees what is new; which of it are parts."""
        new = range(self.seen, len(self.entries))
        for position in new:
            if self.entries[position] is not None and not self._is_complete_with(position):
                self.parts.add(position)
        self.seen = len(self.entries)
        return [position for position in new if position in self.parts]

    def ends_complete(self, first: int) -> bool:
        """Did the message that was begun there become complete?"""
        return self.messages.get(self.attempts[first], (None,))[0] == first

    def unit_of(self, part: int) -> int | None:
        """Where the complete message lies that the part is of."""
        return next((unit for unit, positions in self.messages.items() if part in positions), None)

    def is_of_open(self, part: int) -> bool:
        return any(part in positions for positions in self.open.values())

    def incomplete(self) -> dict[Group, tuple[int, int, int]]:
        """Of each message that is not complete: where its first chunk lies, which it needs next, and how many it
        has."""
        return {
            group: (positions[0], len(positions), self.entries[positions[0]].num_chunks)
            for group, positions in self.open.items()
        }

    def _is_complete_with(self, position: int) -> bool:
        chunk = self.entries[position]
        group = (chunk.producer_name, chunk.uuid)
        if not 0 <= chunk.chunk_id < chunk.num_chunks:
            self._end(group, position)
            return False
        if chunk.chunk_id == 0:
            self._end(group, position)
            self.open[group], self.attempts[position] = [], None
        so_far = self.open.get(group)
        if so_far is None or chunk.chunk_id < len(so_far):
            return False
        if chunk.chunk_id > len(so_far) or (so_far and chunk.num_chunks != self.entries[so_far[0]].num_chunks):
            self._end(group, position)
            return False
        so_far.append(position)
        if len(so_far) < chunk.num_chunks:
            return False
        self.messages[position] = tuple(self._end(group, position))
        return True

    def _end(self, group: Group, position: int) -> list[int]:
        so_far = self.open.pop(group, [])
        if so_far:
            self.attempts[so_far[0]] = position
        return so_far


@dataclass
class Limits:
    """How many incomplete messages a consumer keeps, whether what is one too many is acknowledged, and how long it
    waits (1.9); 0 is no limit."""

    most: int = 0
    is_acknowledged: bool = False
    expire_ms: int = 0


def limits_of(properties: dict) -> Limits:
    """What a request to subscribe asks for."""
    return Limits(
        int(properties.get("max_pending_chunked_message", 0)),
        properties.get("auto_ack_oldest_chunked_message_on_queue_full") == "true",
        int(properties.get("expire_time_of_incomplete_chunked_message_ms", 0)),
    )


@dataclass
class Units:
    """The messages of a topic partition as one subscription has them, by their first chunks. *released* ones were
    acknowledged before they were complete, *withheld* ones a consumer has dropped before; *walked* is up to where
    first chunks have been counted for those who are connected."""

    chunks: Chunks = field(default_factory=Chunks)
    released: set[int] = field(default_factory=set)
    withheld: dict[int, str] = field(default_factory=dict)
    walked: int = 0

    def is_part(self, position: int) -> bool:
        """Is the entry a chunk that is never delivered itself?"""
        return position in self.chunks.parts

    def forget(self, consumer_id: str) -> None:
        """What the consumer has dropped it, or another one, gets."""
        self.withheld = {first: holder for first, holder in self.withheld.items() if holder != consumer_id}

    def unacknowledged(self, is_done: Callable[[int], bool]) -> list[tuple[int, ...]]:
        """The chunks of each message that is not, be it complete or not."""
        complete = [positions for unit, positions in self.chunks.messages.items() if not is_done(unit)]
        several = [tuple(positions) for positions in self.chunks.open.values() if positions[0] not in self.released]
        return sorted(complete + several)

    def oldest(self, behind: int, most: int, is_settled: Callable[[int], bool]) -> set[int]:
        """At each first chunk before *behind*, in order, the oldest of the messages that are incomplete there goes, if
        they are more than *most* (1.14); which do, by their first chunks. Those whose last chunk *is_settled* do not
        count."""
        dropped: set[int] = set()
        kept_from = {
            first: end
            for first, end in self.chunks.attempts.items()
            if first not in self.released
            and first not in self.withheld
            and not (self.chunks.ends_complete(first) and is_settled(end))
        }
        for here in kept_from:
            if most > 0 and self.walked <= here < behind:
                kept = [at for at, end in kept_from.items() if at <= here and (end is None or end > here)]
                dropped |= set([at for at in kept if at not in dropped][:-most])
        return dropped

    def begun_up_to(self, position: int) -> list[int]:
        """Where the complete messages end that begin there or before: an evicting quota takes those, too."""
        return [unit for unit, positions in self.chunks.messages.items() if positions[0] <= position]

    def expire(self, limits: Limits, published_ms: list[int], now_ms: int) -> None:
        """What is incomplete for too long is acknowledged, whatever the consumer asks for else (1.15)."""
        if limits.expire_ms > 0:
            firsts = [positions[0] for positions in self.chunks.open.values()]
            self.released |= {at for at in firsts if published_ms[at] + limits.expire_ms <= now_ms}

    def release_up_to(self, position: int) -> None:
        """Incomplete messages that nothing was added to behind *position* are acknowledged, and are not delivered if
        they are completed later."""
        self.released |= {positions[0] for positions in self.chunks.open.values() if positions[-1] <= position}
