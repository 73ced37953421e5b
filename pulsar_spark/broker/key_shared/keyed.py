"""Key_Shared: the owner of each entry and the entries that wait, for one cursor in one round.

An entry waits while its hash drains, an earlier entry of the hash is to come back, or nobody owns it (semantics 2.31).
Reading passes over these, and over entries whose owners take nothing, up to the look-ahead limit.
"""

from collections.abc import Iterator, Sequence
from functools import lru_cache

import numpy as np

from pulsar_spark.broker.bundle.bundle import Bundle
from pulsar_spark.broker.cursors.consumer import Consumer
from pulsar_spark.broker.delays.deliver_times import delayed_at
from pulsar_spark.broker.gathering.marks import NO_POSITIONS, Marks
from pulsar_spark.broker.gathering.planned_entries import Labels
from pulsar_spark.broker.gathering.read import MAX_ROUND_ENTRIES, Read
from pulsar_spark.broker.key_shared.awaited import awaited_entries
from pulsar_spark.broker.requests.drafts import CursorChanges, RoundDraft
from pulsar_spark.protocol.keys.draining import DrainingHashes, NothingWaits, RecentlyJoined, Waits, look_ahead_limit
from pulsar_spark.protocol.keys.hash_ranges import NOBODY, Owners
from pulsar_spark.protocol.keys.selectors import Selector
from pulsar_spark.protocol.topics.message_id import MAX_LONG

WINDOW_ENTRIES = 1 << 12, 1 << 22
"""Least and most entries looked at in one go; each step takes four times as many, since a round may fill up early."""

LOOK_AHEAD = (
    "key_shared_look_ahead_msg_in_replay_threshold_per_consumer",
    "key_shared_look_ahead_msg_in_replay_threshold_per_subscription",
)
NO_HASHES = np.empty(0, np.int32)


class Keyed:
    """A Key_Shared cursor in a round; *marks* are what requests say of its entries, *read* is its read."""

    def __init__(
        self,
        bundle: Bundle,
        draft: RoundDraft,
        changes: CursorChanges,
        takers: Sequence[Consumer],
        marks: Marks,
        read: Read,
    ):
        self._bundle, self._draft, self._changes, self._cursor = bundle, draft, changes, changes.cursor
        self._marks, self._read = marks, read
        self._owners = owners_of(self._cursor.selector)
        self._hashes = bundle.topics[self._cursor.topic].hashes(self._cursor.key.partition)
        may_unblock = draft.may_unblock(changes)
        may_take = [each for each in takers if may_unblock or not each.is_blocked]
        self._permits = {self._owners.number(each.consumer_id): each.permits for each in may_take}
        self._permits.pop(NOBODY, None)
        self._met: list[np.ndarray] = []
        """Positions of the entries that the read looked at and did not pass over."""
        self._waits = self._what_waits()

    @property
    def names(self) -> list[str]:
        return self._owners.consumers

    def new(self) -> Labels:
        """The entries to deliver the first time, labelled with their owners' numbers."""
        self._cursor.advance_read_position()
        if self._permits:
            self._read.begin()
        first, end = 0, 0
        parts: list[np.ndarray] = []
        for positions, owners in self._new_entries():
            if not len(positions):
                continue
            if not parts:
                first = end = int(positions[0])
            here = owners
            if int(positions[-1]) - end + 1 > len(positions):
                here = np.full(int(positions[-1]) - end + 1, NOBODY, owners.dtype)
                here[positions - end] = owners
            parts.append(here)
            end += len(here)
        found = Labels(first, np.concatenate(parts) if parts else np.empty(0, np.int16))
        if self._read.is_with_passed:
            self._read.cut(self._end_of_read(found))
        return found

    def _end_of_read(self, new: Labels) -> int:
        """The last position of the read that takes *new* entries: that of the last one. With permits for more, the read
        goes on to the first entry that it leaves, or without end if it leaves none."""
        taken = new.all_positions()
        ends = taken[-1:]
        if len(taken) < sum(self._permits.values()):
            met = np.concatenate([NO_POSITIONS, *self._met])
            left = met[~np.isin(met, taken)]
            if not len(left):
                return MAX_LONG
            ends = np.append(ends, left[0])
        return int(ends.max()) if len(ends) else -1

    def by_deliver_time(self, positions: np.ndarray) -> np.ndarray:
        """Ascending *positions* in dealing order: by deliver time, then by position."""
        return positions[np.argsort(self._times_of(positions), kind="stable")]

    def _times_of(self, positions: np.ndarray) -> np.ndarray:
        if self._cursor.dues is None:
            return np.zeros(len(positions), np.int64)
        return delayed_at(self._bundle.topics[self._cursor.topic], self._cursor.key.partition, positions)

    def _are_waiting(self, positions: np.ndarray, hashes: np.ndarray, owners: np.ndarray) -> np.ndarray:
        times = self._times_of(positions) if self._waits.depends_on_hashes else 0
        return self._waits.are_waiting(positions, hashes, owners, times)

    def again(self, positions: np.ndarray, dues: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Which entries at ascending *positions* to deliver; they waited until *dues* (0: did not wait). Also, for each
        owner, the position of the first entry that did not wait and for which it has no permits."""
        owners, waiting = self._placed(positions)
        order, takes = np.lexsort((positions, self._times_of(positions), dues)), np.empty(len(positions), bool)
        takes[order] = self._within_permits(owners[order], ~waiting[order], self._permits)
        beyond = np.full(len(self.names) + 1, np.iinfo(np.int64).max)  # the last is for entries without an owner
        left = ~takes & ~waiting & (dues == 0)
        np.minimum.at(beyond, owners[left], positions[left])
        return takes, beyond

    def owners_of(self, positions: np.ndarray) -> np.ndarray:
        """The number of the owner that each entry may go to; NOBODY if it waits, or the owner takes nothing."""
        owners, waiting = self._placed(positions)
        takes = np.zeros(len(self.names) + 1, bool)
        takes[[*self._permits]] = True
        return np.where(waiting | ~takes[owners], NOBODY, owners)

    def _new_entries(self) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Entries never delivered, window by window: ascending positions, and their owners; NOBODY for an entry that is
        not taken."""
        cursor, topic = self._cursor, self._bundle.topics.get(self._cursor.topic)
        if topic is None or not self._draft.may_read(self._changes):
            return iter(())
        end = topic.end_position(cursor.key.partition)
        return self._looked_at(cursor.read_position, end, self._look_ahead_limit() if cursor.has_unacked_limits else 0)

    def _looked_at(self, at: int, end: int, most: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Like :meth:`_new_entries`, from position *at* to *end*, until *most* were passed over; 0 for no limit."""
        passed_over = 0
        left, (least, widest) = dict(self._permits), WINDOW_ENTRIES
        room, width = MAX_ROUND_ENTRIES, least
        while at < end and room > 0 and any(left.values()):
            last = min(at + int(np.clip(2 * sum(left.values()), least, width)), end) - 1
            width = min(4 * width, widest)
            unknown = self._unknown(at, last)
            owners, waiting = self._placed(unknown)
            takes = self._within_permits(owners, ~waiting, left)
            if most:
                passed = passed_over + np.cumsum(~takes)
                takes &= passed < most
                passed_over = int(passed[-1]) if len(passed) else passed_over
            taken = int(np.count_nonzero(takes))
            if taken > room:
                takes &= np.cumsum(takes) <= room
            room -= taken
            owners = np.where(takes, owners, owners.dtype.type(NOBODY))
            for owner, count in enumerate(np.bincount(owners + 1)[1:].tolist()):
                if count:
                    left[owner] -= count
            yield unknown, owners
            if most and passed_over >= most:
                break
            at = last + 1

    def _unknown(self, first: int, last: int) -> np.ndarray:
        """The positions in *first*..*last* of unread entries that the read does not pass over."""
        positions = self._read.pass_over(self._marks.unread(first, last), last)
        if self._read.is_with_passed:
            self._met.append(positions)
        return positions

    def _placed(self, positions: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The number of each entry's owner, and whether it waits. Looks hashes up only if needed."""
        if self._owners.sole is not None and not self._waits.depends_on_hashes:
            owners = np.full(len(positions), self._owners.sole)
            return owners, self._are_waiting(positions, NO_HASHES, owners)
        hashes = self._hashes.at(positions)
        owners = self._owners.of(hashes)
        return owners, (owners == NOBODY) | self._are_waiting(positions, hashes, owners)

    def _within_permits(self, owners: np.ndarray, may_go: np.ndarray, permits: dict[int, int]) -> np.ndarray:
        """Which entries, in the given order, their owners have *permits* for."""
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
        return DrainingHashes(
            awaited_entries(self._changes, self._marks, self._draft.now, self._owners, self._hashes.at, self._times_of)
        )

    def _look_ahead_limit(self) -> int:
        cursor = self._cursor
        per_consumer, per_subscription = (self._bundle.policy(cursor.topic, name) for name in LOOK_AHEAD)
        return look_ahead_limit(
            per_consumer=per_consumer, per_subscription=per_subscription, consumers=cursor.consumers
        )


@lru_cache(maxsize=4096)
def owners_of(selector: Selector) -> Owners:
    """The owners of all hashes, cached by selector."""
    return Owners(selector.owned(), selector.axis)
