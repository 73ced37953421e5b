"""Chunked messages in the reference broker: which entries make up a message, and which are never delivered.

A message lies where the chunk lies that completes it, its *unit*. All other chunks are *parts*: of a message that is
complete, of one that is *open* because chunks are still to come, or of none, for good (1.10-1.13). Written once more,
entry by entry; nothing is shared with ``protocol.chunking``.
"""

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
