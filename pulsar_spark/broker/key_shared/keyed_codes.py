"""The owner of each entry, and the entries that wait, of a Key_Shared cursor whose entries are kept as a map."""

from collections.abc import Sequence

import numpy as np

from pulsar_spark.broker.bundle.bundle import Bundle
from pulsar_spark.broker.cursors.consumer import Consumer
from pulsar_spark.broker.delays.deliver_times import delayed_at
from pulsar_spark.broker.gathering.coded import Coded
from pulsar_spark.broker.gathering.coded_read import MAX_ROUND_ENTRIES
from pulsar_spark.broker.gathering.coded_work import Labels
from pulsar_spark.broker.key_shared.keyed import NO_HASHES, NO_POSITIONS, Keyed
from pulsar_spark.broker.requests.drafts import CursorDraft, RoundDraft
from pulsar_spark.protocol.keys.draining import Out
from pulsar_spark.protocol.keys.hash_ranges import NOBODY
from pulsar_spark.protocol.topics.message_id import MAX_LONG


class KeyedCodes(Keyed):
    """A :class:`~pulsar_spark.broker.key_shared.keyed.Keyed` on a map; *coded* knows what requests say of entries."""

    _most = MAX_ROUND_ENTRIES

    def __init__(
        self, bundle: Bundle, draft: RoundDraft, changes: CursorDraft, takers: Sequence[Consumer], coded: Coded
    ):
        self._coded = coded
        self._met: list[np.ndarray] = []
        """Where the entries lie that the read looked at, and did not pass over."""
        super().__init__(bundle, draft, changes, takers, changes.cursor.selector)

    @property
    def names(self) -> list[str]:
        """The owners, by number."""
        return self._owners.consumers

    def new(self) -> Labels:
        """The entries to deliver the first time, labelled with their owners' numbers."""
        if self._permits:
            self._cursor.advance_read_position()
            self._coded.read.begin()
        first, end, parts = 0, 0, []
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
        if self._coded.read.is_with_passed:
            self._coded.read.cut(self._end_of_read(found))
        return found

    def _end_of_read(self, new: Labels) -> int:
        """Where the read ends that takes *new* entries: before the first one that it leaves, unless it takes a later
        one."""
        taken = new.all_positions()
        ends = taken[-1:]
        if len(taken) < sum(self._permits.values()):
            met = np.concatenate([NO_POSITIONS, *self._met])
            left = met[~np.isin(met, taken)]
            if not len(left):
                return MAX_LONG
            ends = np.append(ends, left[0])
        return int(ends.max()) if len(ends) else -1

    def in_line(self, positions: np.ndarray) -> np.ndarray:
        """Ascending *positions* in the order in which their entries stand in line."""
        return positions[np.argsort(self._times_of(positions), kind="stable")]

    def _times_of(self, positions: np.ndarray) -> np.ndarray:
        if self._cursor.dues is None:
            return np.zeros(len(positions), np.int64)
        return delayed_at(self._bundle.topics[self._cursor.topic], self._cursor.key.partition, positions)

    def _held(self, positions: np.ndarray, hashes: np.ndarray, owners: np.ndarray) -> np.ndarray:
        times = self._times_of(positions) if self._waits.depends_on_hashes else 0
        return self._waits.are_waiting(positions, hashes, owners, times)

    def again(self, positions: np.ndarray, dues: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Which of the entries at ascending *positions*, which waited until *dues*, to deliver; and the first one of
        each owner that waited for no time (0) and is left for lack of permits."""
        takes, owners, held = self._offered(positions, dues)
        beyond = np.full(len(self.names) + 1, np.iinfo(np.int64).max)  # the last is for entries without an owner
        left = ~takes & ~held & (dues == 0)
        np.minimum.at(beyond, owners[left], positions[left])
        return takes, beyond

    def owners_of(self, positions: np.ndarray) -> np.ndarray:
        """The number of the owner that each entry may go to; NOBODY where it is held, or the owner takes nothing."""
        owners, held = self._placed(positions)
        takes = np.zeros(len(self.names) + 1, bool)
        takes[[*self._permits]] = True
        return np.where(held | ~takes[owners], NOBODY, owners)

    def _out(self) -> Out:
        now, leaves = self._draft.now, self._changes.left | self._changes.redelivered
        coded, pending = (
            self._coded,
            {code: state for code, state in self._coded.pending.items() if state.consumer_id not in leaves},
        )
        entries, returned = self._cursor.entries, coded.returned
        later = [code for code, state in pending.items() if state.due_time is not None]
        positions = np.unique(
            np.concatenate(
                [
                    self._elsewhere(),
                    entries.where(later, 0, entries.end - 1) if later else NO_POSITIONS,
                    returned.positions[returned.dues > now],
                ]
            )
        )
        if not len(positions):
            return Out(NO_HASHES, NO_POSITIONS, np.empty(0, bool))
        codes = entries.at(positions)
        dues, holders = np.zeros(len(entries.codes), np.int64), np.full(len(entries.codes), NOBODY)
        is_pending = np.zeros(len(entries.codes), bool)
        for code, state in pending.items():
            dues[code], is_pending[code] = state.due_time or 0, True
            holders[code] = self._owners.number(state.consumer_id)
        comes = dues[codes]
        at = np.searchsorted(returned.positions, positions)
        is_named = np.append(returned.positions, -1)[at] == positions
        comes = np.where(is_named, np.append(returned.dues, 0)[at], comes)
        stays = is_pending[codes] & ~coded.are_acked(positions, codes) & ((comes == 0) & ~is_named | (comes > now))
        positions, holders, comes = positions[stays], holders[codes[stays]], comes[stays]
        hashes = self._hashes_at(positions)
        is_elsewhere = self._owners.of(hashes) != holders
        counts = is_elsewhere | (comes > 0)
        positions = positions[counts]
        return Out(hashes[counts], positions, is_elsewhere[counts], self._times_of(positions))

    def _elsewhere(self) -> np.ndarray:
        """Where pending entries lie that others than their owners have, and perhaps some more. No entry gets there
        before owners change, so all are looked at only then."""
        cursor, entries, last = self._cursor, self._cursor.entries, self._cursor.entries.end - 1
        known = cursor.elsewhere
        holders = np.full(len(entries.codes), NOBODY - 1)
        for code, state in self._coded.pending.items():
            holders[code] = self._owners.number(state.consumer_id)
        if known is not None and known[0] is self._selector:
            positions = known[1]
        else:
            sole = self._owners.sole
            of_others = [code for code in self._coded.pending if sole is None or holders[code] != sole]
            positions = entries.where(of_others, 0, last) if of_others else NO_POSITIONS
        if len(positions):
            found = holders[entries.at(positions)]
            positions, found = positions[found >= NOBODY], found[found >= NOBODY]
            positions = positions[self._owners.of(self._hashes_at(positions)) != found]
        cursor.elsewhere = self._selector, positions
        return positions

    def _unknown(self, first: int, last: int) -> np.ndarray:
        positions = self._coded.read.pass_over(self._coded.unread(first, last), last)
        if self._coded.read.is_with_passed:
            self._met.append(positions)
        return positions

    def _look_ahead(self) -> int:
        return self._look_ahead_limit() if self._cursor.has_unacked_limits else 0

    def _is_passed_over(self, takes: np.ndarray, held: np.ndarray) -> np.ndarray:
        return ~takes

    def _counts(self, positions: np.ndarray, owners: np.ndarray, takes: np.ndarray) -> np.ndarray:
        return takes
