"""Chunked messages in the reference broker: which entries make up a message, and which are never delivered.

A message lies where the chunk lies that completes it, its *unit*. All other chunks are *parts*: of a message that is
complete, of one that is *open* because chunks are still to come, or of none, for good (1.10-1.13). Written once more,
entry by entry; nothing is shared with ``protocol.chunking``.
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
    seen: int = 0

    def see(self) -> list[int]:
        """The broker sees what is new; which of it are parts."""
        new = range(self.seen, len(self.entries))
        for position in new:
            if self.entries[position] is not None and not self._is_complete_with(position):
                self.parts.add(position)
        self.seen = len(self.entries)
        return [position for position in new if position in self.parts]

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
            self.open.pop(group, None)
            return False
        if chunk.chunk_id == 0:
            self.open[group] = []
        so_far = self.open.get(group)
        if so_far is None or chunk.chunk_id < len(so_far):
            return False
        if chunk.chunk_id > len(so_far) or (so_far and chunk.num_chunks != self.entries[so_far[0]].num_chunks):
            del self.open[group]
            return False
        so_far.append(position)
        if len(so_far) < chunk.num_chunks:
            return False
        self.messages[position] = tuple(self.open.pop(group))
        return True


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
    acknowledged before they were delivered, *withheld* ones the consumer has dropped; *walked* is up to where it has
    counted first chunks."""

    chunks: Chunks = field(default_factory=Chunks)
    limits: Limits = field(default_factory=Limits)
    released: set[int] = field(default_factory=set)
    withheld: set[int] = field(default_factory=set)
    walked: int = -1

    def is_part(self, position: int) -> bool:
        """Is the entry a chunk that is never delivered itself? The last one of a message is, unless the message was
        acknowledged before."""
        return position in self.chunks.parts or self._first_of(position) in self.released

    def is_withheld(self, position: int) -> bool:
        return self._first_of(position) in self.withheld

    def _first_of(self, unit: int) -> int | None:
        return self.chunks.messages[unit][0] if unit in self.chunks.messages else None

    def unacknowledged(self, is_done: Callable[[int], bool]) -> list[tuple[int, ...]]:
        """The chunks of each message that is not, be it complete or not."""
        complete = [positions for unit, positions in self.chunks.messages.items() if not is_done(unit)]
        several = [*complete, *map(tuple, self.chunks.open.values())]
        return sorted(positions for positions in several if positions[0] not in self.released)

    def walk_anew(self, limits: Limits | None = None) -> None:
        """The consumer is sent all that is unacknowledged once more."""
        self.walked, self.withheld, self.limits = -1, set(), limits or self.limits

    def drop_oldest(self, behind: int, is_done: Callable[[int], bool]) -> bool:
        """At each first chunk before *behind*, in order, the oldest of the messages that are incomplete there goes, if
        they are too many (1.14). Did any?"""
        dropped: set[int] = set()
        messages = {positions[0]: positions[-1] for positions in self.unacknowledged(is_done)}
        last = {first: unit if unit in self.chunks.messages else None for first, unit in messages.items()}
        for here in last:
            if self.limits.most > 0 and self.walked < here < behind:
                kept = [at for at in last if at <= here and (last[at] is None or last[at] > here)]
                kept = [at for at in kept if at not in self.withheld | dropped]
                dropped |= set(kept[: -self.limits.most])
        self.walked = max(self.walked, behind - 1)
        (self.released if self.limits.is_acknowledged else self.withheld).update(dropped)
        return bool(dropped)

    def expire(self, published_ms: list[int], now_ms: int) -> None:
        """What is incomplete for too long is acknowledged, whatever the consumers ask for else (1.15)."""
        if self.limits.expire_ms > 0:
            firsts = [positions[0] for positions in self.chunks.open.values()]
            self.released |= {at for at in firsts if published_ms[at] + self.limits.expire_ms <= now_ms}

    def release_up_to(self, position: int) -> None:
        """Incomplete messages that nothing was added to behind *position* are acknowledged, and are not delivered if
        they are completed later."""
        self.released |= {positions[0] for positions in self.chunks.open.values() if positions[-1] <= position}
