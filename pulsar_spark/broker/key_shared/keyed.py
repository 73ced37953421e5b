"""Key_Shared: the owner of each entry and the entries that wait, for one cursor in one round.

The owner of its hash owns an entry (protocol.keys.selectors), whose row is in that consumer's line. An entry is held
while its hash drains, an earlier entry of the hash is to come back (protocol.keys.draining), or nobody owns it
(semantics 2.31). Reading passes over held entries, and those whose owners take nothing, up to the look-ahead limit
(keySharedLookAheadMsgInReplayThreshold...).
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from pulsar_spark.broker.bundle.bundle import Bundle
from pulsar_spark.broker.cursors.consumer import Consumer
from pulsar_spark.broker.cursors.state import Cursor
from pulsar_spark.broker.gathering.entry_hashes import EntryHashes
from pulsar_spark.broker.gathering.unread_slices import delayed_unread
from pulsar_spark.broker.requests.drafts import CursorDraft, RoundDraft
from pulsar_spark.protocol.acknowledgement.positions import inside
from pulsar_spark.protocol.keys.draining import (
    DrainingHashes,
    NothingWaits,
    Out,
    RecentlyJoined,
    Waits,
    look_ahead_limit,
)
from pulsar_spark.protocol.keys.hash_ranges import NOBODY, Owners
from pulsar_spark.protocol.keys.selectors import Selector

WINDOW_ENTRIES = 1 << 12, 1 << 22
"""Least and most entries looked at in one go; each step takes four times as many, since a round may fill up early."""

LOOK_AHEAD = (
    "key_shared_look_ahead_msg_in_replay_threshold_per_consumer",
    "key_shared_look_ahead_msg_in_replay_threshold_per_subscription",
)
NO_POSITIONS, NO_HASHES = np.empty(0, np.int64), np.empty(0, np.int32)


class Placed(NamedTuple):
    """An entry's line, and whether it is held."""

    line: str | None
    is_held: bool


class Keyed(ABC):
    """A Key_Shared cursor in a round."""

    _most: int
    """The most that one round delivers, in what :meth:`_counts` counts."""

    def __init__(
        self, bundle: Bundle, draft: RoundDraft, changes: CursorDraft, takers: Sequence[Consumer], selector: Selector
    ):
        self._bundle, self._draft, self._changes, self._cursor = bundle, draft, changes, changes.cursor
        self._selector, self._owners = selector, owners_of(selector)
        self._hashes = _hashes_of(bundle, self._cursor)
        permits = permits_of(draft, changes, takers)
        self._permits = {self._owners.number(consumer_id): count for consumer_id, count in permits.items()}
        self._permits.pop(NOBODY, None)
        self._waits = self._what_waits()
        self.is_full = False
        """Was there so much that the round stopped to look for more?"""

    @abstractmethod
    def _out(self) -> Out:
        """Entries that keep their hashes after this round's acknowledgements and returns."""

    @abstractmethod
    def _unknown(self, first: int, last: int) -> np.ndarray:
        """Positions in first..last without a state or an acknowledgement."""

    @abstractmethod
    def _look_ahead(self) -> int:
        """How many entries may be passed over; 0 for no limit."""

    @abstractmethod
    def _is_passed_over(self, takes: np.ndarray, held: np.ndarray) -> np.ndarray:
        """Which entries not taken count for the look-ahead limit."""

    @abstractmethod
    def _counts(self, positions: np.ndarray, owners: np.ndarray, takes: np.ndarray) -> np.ndarray:
        """Which taken entries count for :attr:`_most`."""

    def _offered(self, positions: np.ndarray, dues: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Which entries at ascending *positions* are offered again, their owners' numbers, and which are held. Returned
        entries come first, by position, then due ones."""
        owners, held = self._placed(positions)
        in_line, takes = np.lexsort((positions, self._times_of(positions), dues)), np.empty(len(positions), bool)
        takes[in_line] = self._within_permits(owners[in_line], ~held[in_line])
        return takes, owners, held

    def _times_of(self, positions: np.ndarray) -> np.ndarray:
        """When entries at ascending *positions* come due, for their order in line; 0 for those without a time."""
        return np.zeros(len(positions), np.int64)

    def _stretches(self, positions: np.ndarray) -> tuple[np.ndarray, pa.Table]:
        """For each new entry at ascending *positions* the index of its row; and these rows (unread_slices.UNREAD)."""
        first, last = int(positions[0]), int(positions[-1])
        known = delayed_unread(self._bundle, self._cursor, first, last, self._draft.wall)
        return np.searchsorted(known["first"].to_numpy(), positions, "right") - 1, known

    def _new_entries(self) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Entries never delivered, window by window: ascending positions, and the number of the owner each is for, or
        NOBODY."""
        cursor, topic = self._cursor, self._bundle.topics.get(self._cursor.topic)
        cursor.advance_read_position()
        if topic is None or not self._draft.reads(self._changes):
            return iter(())
        end = topic.end_position(cursor.key.partition)
        return self._looked_at(cursor.read_position, end, self._unknown, self._look_ahead())

    def _looked_at(
        self, at: int, end: int, unknown_between: Callable[[int, int], np.ndarray], most: int
    ) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Like :meth:`_new_entries`, from place *at* to *end*, of those that *unknown_between* returns, until *most*
        were passed over; 0 for no limit."""
        passed_over = 0
        left, (least, widest) = dict(self._permits), WINDOW_ENTRIES
        room, width = self._most, least
        while at < end and room > 0 and any(left.values()):
            last = min(at + int(np.clip(2 * sum(left.values()), least, width)), end) - 1
            width = min(4 * width, widest)
            unknown = unknown_between(at, last)
            owners, held = self._placed(unknown)
            takes = self._within_permits(owners, ~held, left)
            if most:
                passed = passed_over + np.cumsum(self._is_passed_over(takes, held))
                takes &= passed < most
                passed_over = int(passed[-1]) if len(passed) else passed_over
            counts = self._counts(unknown, owners, takes)
            counted = int(np.count_nonzero(counts))
            if counted > room:
                takes &= np.cumsum(counts) <= room
            room -= counted
            owners = np.where(takes, owners, owners.dtype.type(NOBODY))
            for owner, count in enumerate(np.bincount(owners + 1)[1:].tolist()):
                if count:
                    left[owner] -= count
            yield unknown, owners
            if most and passed_over >= most:
                break
            at = last + 1
        self.is_full |= room <= 0

    def places(self, positions: Sequence[int]) -> list[Placed]:
        """The line of each entry at ascending *positions*, and whether it is held."""
        owners, held = self._placed(np.asarray(positions, np.int64))
        names = [*self._owners.consumers, None]
        return [Placed(names[owner], is_held) for owner, is_held in zip(owners.tolist(), held.tolist())]

    def _placed(self, positions: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The number of each entry's owner, and whether it is held. Looks hashes up only if needed."""
        if self._owners.sole is not None and not self._waits.depends_on_hashes:
            owners = np.full(len(positions), self._owners.sole)
            return owners, self._held(positions, NO_HASHES, owners)
        hashes = self._hashes_at(positions)
        owners = self._owners.of(hashes)
        return owners, (owners == NOBODY) | self._held(positions, hashes, owners)

    def _held(self, positions: np.ndarray, hashes: np.ndarray, owners: np.ndarray) -> np.ndarray:
        """Which entries wait: by place in line for draining hashes, by position for the rule of 3.2.3."""
        return self._waits.are_waiting(positions, hashes, owners)

    def _hashes_at(self, positions: np.ndarray) -> np.ndarray:
        return self._hashes.at(positions)

    def _is_acknowledged(self, positions: np.ndarray) -> np.ndarray:
        return inside(positions, self._changes.acknowledged_whole)

    def _within_permits(
        self, owners: np.ndarray, may_go: np.ndarray, permits: dict[int, int] | None = None
    ) -> np.ndarray:
        """Which entries, in the given order, their owners have permits for."""
        permits = self._permits if permits is None else permits
        most = np.zeros(len(self._owners.consumers) + 1, np.int64)  # the last is for entries without an owner
        most[[*permits]] = [*permits.values()]
        takes = may_go & (most > 0)[owners]
        for owner in np.flatnonzero(np.bincount(owners[takes], minlength=len(most)) > most).tolist():
            takes[np.flatnonzero(takes & (owners == owner))[most[owner] :]] = False
        return takes

    def _what_waits(self) -> Waits:
        rules, joined = self._cursor.key_shared, self._cursor.recently_joined
        if rules is None or rules.allows_out_of_order:
            return NothingWaits()
        if rules.is_classic:
            return RecentlyJoined({self._owners.number(consumer_id): limit for consumer_id, limit in joined.items()})
        return DrainingHashes(self._out())

    def _look_ahead_limit(self) -> int:
        cursor = self._cursor
        per_consumer, per_subscription = (self._bundle.policy(cursor.topic, name) for name in LOOK_AHEAD)
        return look_ahead_limit(
            per_consumer=per_consumer, per_subscription=per_subscription, consumers=cursor.consumers
        )


def permits_of(draft: RoundDraft, changes: CursorDraft, takers: Sequence[Consumer]) -> dict[str, int]:
    """Permits of each consumer that may receive, or may be unblocked by this round."""
    may_unblock = draft.may_unblock(changes)
    return {taker.consumer_id: taker.permits for taker in takers if may_unblock or not taker.is_blocked}


@lru_cache(maxsize=4096)
def owners_of(selector: Selector) -> Owners:
    """The owners of all hashes, cached by selector."""
    return Owners(selector.owned(), selector.axis)


def _hashes_of(bundle: Bundle, cursor: Cursor) -> EntryHashes:
    return bundle.topics[cursor.topic].hashes(cursor.key.partition)
