"""What a broker keeps in memory about the entries of a cursor: their map, the read position, delays and chunks."""

from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from pulsar_spark.protocol.acknowledgement.cursor import ACKNOWLEDGED, PENDING, REPLAY, Range
from pulsar_spark.protocol.entries.entry_codes import UNREAD_CODE
from pulsar_spark.protocol.entries.entry_map import EntryMap, states_in
from pulsar_spark.protocol.entries.entry_ranges import known_ranges

if TYPE_CHECKING:
    from pulsar_spark.broker.chunks.chunked import Chunked
    from pulsar_spark.broker.delays.dues import Dues


class CursorEntries:
    def __init__(self, mark_delete: int, read_position: int):
        self.entries, self.read_position = EntryMap(mark_delete), read_position
        self.unacked: Counter[str] = Counter()
        """Unacknowledged messages, by consumer."""
        self.dues: Dues | None = None
        """What comes due for it, once it has met delayed entries."""
        self.chunked: Chunked | None = None
        """What it keeps of chunked messages, on a topic partition that has any."""
        self.map_version = 0
        """Counts up with each change of its map."""

    @property
    def mark_delete(self) -> int:
        """The last position up to which all entries are acknowledged."""
        return self.entries.mark_delete

    def ranges(self, first: int = 0, last: int | None = None) -> Iterator[Range]:
        """What is known of the entries *first*..*last*, by default of all, by position."""
        return iter(known_ranges(self.entries, first, last))

    def find(self, position: int) -> Range | None:
        """The range with *position*; None up to mark-delete, and if nothing is known of it."""
        return next(self.ranges(position, position), None)

    def acknowledged(self) -> Iterator[tuple[int, int]]:
        """Acknowledged stretches after mark-delete, in order."""
        found = ((range_.first, range_.last) for range_ in self.ranges() if range_.status == ACKNOWLEDGED)
        return found if self.chunked is None else self.chunked.with_parts(found)

    def backlog(self, first: int, last: int) -> Iterator[tuple[int, int]]:
        """Unacknowledged stretches in *first*..*last*."""
        at = max(first, self.mark_delete + 1)
        for begin, end in self.acknowledged():
            if begin > last or at > last:
                break
            if at < begin:
                yield at, begin - 1
            at = max(at, end + 1)
        if at <= last:
            yield at, last

    def is_part(self, position: int) -> bool:
        return self.chunked is not None and bool(self.chunked.groups.are_parts(np.array([position]))[0])

    def load_entries(self, entries: EntryMap) -> None:
        entries.pack_unchanged(with_fresh=True)
        self.entries = entries
        self._count_unacked()

    def follow_map(self) -> None:
        """Update what follows from its map of entries, after a change of the map."""
        self.map_version += 1
        self.read_position = max(self.read_position, self.mark_delete + 1)
        self._count_unacked()

    def _count_unacked(self) -> None:
        self.unacked = Counter()
        for _, state, count in states_in(self.entries):
            if state.status == PENDING:
                assert state.consumer_id is not None  # as always of pending entries
                self.unacked[state.consumer_id] += count * state.weight

    @property
    def first_untouched(self) -> int:
        """The position after everything that was delivered or acknowledged."""
        return max(self.read_position, self.entries.last_known + 1)

    def is_done(self, position: int) -> bool:
        range_ = self.find(position)
        return position <= self.mark_delete or (range_ is not None and range_.status == ACKNOWLEDGED)

    def clear(self, mark_delete: int) -> None:
        """Forget everything about its entries: those up to *mark_delete* are acknowledged, all others unread."""
        self.map_version += 1
        self.entries, self.dues, self.unacked = EntryMap(mark_delete), None, Counter()

    def returns_at(self) -> Iterator[int]:
        """When pending entries that were given back with a delay come again."""
        return (
            state.due_time
            for _, state, _ in states_in(self.entries)
            if state.status == PENDING and state.due_time is not None
        )

    def replays_at(self) -> Iterator[int]:
        """When entries may be delivered again, 0 for now."""
        return (state.due_time or 0 for _, state, _ in states_in(self.entries) if state.status == REPLAY)

    def next_replay(self, wall: int) -> int | None:
        """When, after *wall*, something may be delivered again."""
        return min((due for due in self.replays_at() if due > wall), default=None)

    def advance_read_position(self) -> None:
        """Move the read position to the first unread entry."""
        at = max(self.read_position, self.mark_delete + 1)
        unread = self.entries.first_of([UNREAD_CODE], at, max(at, self.entries.end))
        self.read_position = at if unread is None else unread
