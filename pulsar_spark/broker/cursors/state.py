"""What the broker keeps in memory between rounds: a cursor of its bundle, with its consumers and the map of its entries
(protocol.entries)."""

from collections import Counter
from collections.abc import Iterator
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from pulsar_spark.broker.cursors.consumer import Consumer
from pulsar_spark.protocol.acknowledgement.cursor import ACKNOWLEDGED, PENDING, REPLAY, Range
from pulsar_spark.protocol.entries.entry_codes import UNREAD_CODE, EntryState
from pulsar_spark.protocol.entries.entry_map import EntryMap
from pulsar_spark.protocol.entries.entry_ranges import ranges_of
from pulsar_spark.protocol.keys.hash_ranges import OwnedRange
from pulsar_spark.protocol.keys.kept_owners import kept_properties
from pulsar_spark.protocol.keys.key_shared import KeySharedRules
from pulsar_spark.protocol.keys.selectors import Selector
from pulsar_spark.protocol.subscriptions.membership import KEY_SHARED, SINGLE_ACTIVE
from pulsar_spark.storage.cursor_ledger.cursor_ledger import CursorKey

if TYPE_CHECKING:
    from pulsar_spark.broker.chunks.chunked import Chunked
    from pulsar_spark.broker.delays.dues import Dues


class Cursor:
    """A subscription on one partition.

    On Key_Shared with consumers, ``key_shared`` has the rules the first one fixed, ``selector`` the owners of hashes,
    and ``recently_joined`` join positions, in order (semantics 2.32, classic only).
    """

    def __init__(
        self, key: CursorKey, topic: str, mark_delete: int, read_position: int, subscription_type: str | None = None
    ):
        self.mark_delete, self.read_position = mark_delete, read_position
        self.entries = EntryMap(mark_delete)
        self.unacked = Counter()
        """Unacknowledged messages, by consumer."""
        self.dues: Dues | None = None
        """What comes due for it, once it has met delayed entries."""
        self.chunked: Chunked | None = None
        """What it keeps of chunked messages, on a topic partition that has any."""
        self.changes = 0
        """Counts up with each change of its map."""
        self.key, self.topic, self.subscription_type = key, topic, subscription_type
        self.consumers: dict[str, Consumer] = {}
        self.active_id: str | None = None
        self.reads_after = 0
        self.last_active: int | None = None
        self.is_blocked = self.is_blocked_by_broker = False
        self.dead_letters: dict[str, str] = {}
        self.reads_compacted = False
        """Did the consumers that connected last ask for the compacted view?"""
        self.joined = 0
        self.key_shared: KeySharedRules | None = None
        self.recently_joined: dict[str, int] = {}
        self.selector: Selector | None = None
        self.elsewhere: tuple[Selector, np.ndarray] | None = None
        """Where entries lay, by a selector, that others than their owners have; see key_shared.out."""
        self.msg_out_counter = self.msg_redeliver_counter = 0
        self.nothing_found_at: tuple | None = None
        """How things stood when a Key_Shared round found nothing to hand out (see candidates)."""

    @property
    def is_single_active(self) -> bool:
        return self.subscription_type in SINGLE_ACTIVE

    @property
    def is_key_shared(self) -> bool:
        return self.subscription_type == KEY_SHARED

    @property
    def key_shared_mode(self) -> str | None:
        """AUTO_SPLIT or STICKY; None unless Key_Shared with consumers."""
        return self.key_shared.mode if self.key_shared else None

    @property
    def allows_out_of_order(self) -> bool:
        """May entries of one key overtake each other? If a Key_Shared subscription's first consumer allowed it."""
        return self.key_shared is not None and self.key_shared.allows_out_of_order

    @property
    def selector(self) -> Selector | None:
        """The owners of hashes; None unless Key_Shared with consumers."""
        return self._selector

    @selector.setter
    def selector(self, selector: Selector | None) -> None:
        self._selector = selector
        self.__dict__.pop("owned", None)
        self.__dict__.pop("hash_ranges", None)
        self.__dict__.pop("kept_properties", None)

    @cached_property
    def owned(self) -> list[OwnedRange]:
        """Hash ranges and their owners, by start; empty without a selector."""
        return self.selector.owned() if self.selector else []

    @cached_property
    def hash_ranges(self) -> dict[str, list[tuple[int, int]]]:
        """Hash ranges (start, end) by consumer; shared ones are listed for each."""
        ranges: dict[str, list[tuple[int, int]]] = {}
        for owned in self.owned:
            ranges.setdefault(owned.consumer_id, []).append((owned.start, owned.end))
        return ranges

    @cached_property
    def kept_properties(self) -> dict[str, dict[str, str]]:
        """What rows store of each consumer's hashes beside ranges."""
        return {each: kept_properties(self.selector, each) for each in self.consumers} if self.selector else {}

    @property
    def has_unacked_limits(self) -> bool:
        """Do limits of unacknowledged messages apply? On Shared and Key_Shared, without DataFrame consumers, whose
        deliveries are larger."""
        return not self.is_single_active and all(consumer.has_unacked_limits for consumer in self.consumers.values())

    @property
    def max_redeliver_count(self) -> int:
        """How often an entry may come back; 0 without a dead letter policy."""
        return int(self.dead_letters.get("max_redeliver_count", 0))

    def ranges(self, first: int = 0, last: int | None = None) -> Iterator[Range]:
        """What is known of the entries *first*..*last*, by default of all, by position."""
        return iter(ranges_of(self.entries, first, last))

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
        """Take over a map of entries read from the table."""
        entries.rest(with_fresh=True)
        self.entries = entries
        self._take_from_entries()

    def coded(self) -> None:
        """Update mark-delete and counts after a change of its map of entries."""
        self.changes += 1
        self.mark_delete = self.entries.mark_delete
        self.read_position = max(self.read_position, self.mark_delete + 1)
        self._take_from_entries()

    def _take_from_entries(self) -> None:
        self.unacked = Counter()
        for count, state in self._counted_states(PENDING):
            self.unacked[state.consumer_id] += count * state.weight

    def _counted_states(self, status: str) -> Iterator[tuple[int, EntryState]]:
        """The states with a status that entries of its map have, each with how many have it."""
        counts = self.entries.counts
        for code, state in self.entries.codes.known():
            if state.status == status and code < len(counts) and counts[code]:
                yield int(counts[code]), state

    @property
    def first_untouched(self) -> int:
        """The position after everything that was delivered or acknowledged."""
        return max(self.read_position, self.entries.last_known + 1)

    def is_done(self, position: int) -> bool:
        """Is the entry at *position* acknowledged?"""
        range_ = self.find(position)
        return position <= self.mark_delete or (range_ is not None and range_.status == ACKNOWLEDGED)

    def clear(self) -> None:
        """Forget all entries."""
        self.changes += 1
        self.entries, self.dues, self.unacked = EntryMap(self.mark_delete), None, Counter()

    def returns_at(self) -> Iterator[int]:
        """When pending entries come back."""
        return (state.due_time for _, state in self._counted_states(PENDING) if state.due_time is not None)

    def replays_at(self) -> Iterator[int]:
        """When entries may be delivered again, 0 for now."""
        return (state.due_time or 0 for _, state in self._counted_states(REPLAY))

    def next_replay(self, wall: int) -> int | None:
        """When, after *wall*, something may be delivered again."""
        return min((due for due in self.replays_at() if due > wall), default=None)

    def advance_read_position(self) -> None:
        """Move the read position to the first unread entry."""
        at = max(self.read_position, self.mark_delete + 1)
        self.read_position = self.entries.first_of([UNREAD_CODE], at, max(at, self.entries.end))
