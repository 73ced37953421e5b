"""A round of a Key_Shared cursor whose ranges are kept by lane (see lane_form).

The plan counts adjacent positions, but entries of a lane are not adjacent. So it gets *places*: requested and returning
entries, lane by lane, from 0, then new ones, owner by owner. Entries that cannot be offered come first, grouped by
state, so they need few rows. The result is mapped back to entry states, then to ranges of lanes.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from typing import NamedTuple

import numpy as np

from pulsar_spark.broker.bundle.bundle import Bundle
from pulsar_spark.broker.cursors.consumer import Consumer
from pulsar_spark.broker.gathering.unread_run import UnreadRun
from pulsar_spark.broker.gathering.unread_runs import MAX_ROUND_ENTRIES
from pulsar_spark.broker.key_shared.keyed import NO_HASHES, NO_POSITIONS, Keyed
from pulsar_spark.broker.key_shared.lane_form import LaneForm
from pulsar_spark.broker.key_shared.lane_work import LaneWork
from pulsar_spark.broker.requests.drafts import CursorDraft, Return, RoundDraft
from pulsar_spark.broker.round.entry_states import NEVER, UNREAD, by_number
from pulsar_spark.protocol.acknowledgement import ack_set
from pulsar_spark.protocol.acknowledgement.cursor import PENDING, REPLAY, Range
from pulsar_spark.protocol.acknowledgement.positions import as_array, expanded, ranges_of
from pulsar_spark.protocol.keys.draining import Out
from pulsar_spark.protocol.keys.hash_ranges import SLOTS
from pulsar_spark.protocol.keys.selectors import Sticky

_MOST_ROWS = 10_000
"""Of a cursor, as far as look-ahead creates them."""
_LEAST_LOOK_AHEAD = 1000
"""Entries that may always be passed over, whatever the number of rows, so that a stuck consumer blocks no other's keys.
"""


class _Wanted(NamedTuple):
    """Requests by entry: is it acknowledged, when does it come back, was it unseen."""

    acked: np.ndarray
    back: np.ndarray
    unseen: np.ndarray


class KeyedByLane(Keyed):
    """A :class:`Keyed` for a cursor kept by lane, on the axis of places."""

    _most = MAX_ROUND_ENTRIES

    def __init__(
        self, bundle: Bundle, draft: RoundDraft, changes: CursorDraft, takers: Sequence[Consumer], form: LaneForm
    ):
        self._form = form
        skipped = next((last + 1 for first, last in changes.acks if first <= form.base <= last), form.base)
        if skipped <= form.end:
            skipped = form.base
        self._base = skipped
        """All before it is acknowledged: but for what was before, only where this round acknowledges all there is."""
        end = max([*(last for _, last in changes.acks), *changes.ack_sets], default=-1) + 1
        self._codes = _padded(form.codes[skipped - form.base :], end - skipped, UNREAD)
        """Entries of which anything is known or asked."""
        states = form.states
        self._is_pending, self._is_replay = states.are(PENDING), states.are(REPLAY)
        self._holders, self._dues, self._rounds = states.consumers(), states.due(), states.rounds()
        # Without consumers, nobody owns anything.
        super().__init__(
            bundle, draft, changes, takers, changes.cursor.selector or Sticky(axis=form.parts.axis or SLOTS)
        )

    def plan(self) -> LaneWork:
        """Work out the rows to plan, for :meth:`requests` and :attr:`new`."""
        changes, now = self._changes, self._draft.now
        offered, beyond = self._offered_again()
        positions, owners = self._new_entries()
        self.found_nothing = not len(offered) and not len(positions)
        self._extend(int(positions[-1]) + 1 - self._base if len(positions) else 0)
        codes, wanted = self._codes, self._wanted
        parts = self._form.parts.of_entries(self._base, len(codes), self._selector)
        is_named = wanted.acked | (wanted.back != NEVER)
        is_named[[position - self._base for position in self._left_of_batches()]] = True
        is_named[offered - self._base] = True
        returns = np.isin(self._holders, [*changes.left, *changes.redelivered]) | (self._dues <= now)
        is_out = self._is_pending | self._is_replay
        planned = is_out[codes] & (is_named | (self._is_pending & returns)[codes])
        self._at = known = self._in_order(np.flatnonzero(is_named | planned), parts, returns, beyond)
        self._place[known] = np.arange(len(known))
        new = by_number(owners)
        self.new = self._new_rows(positions, new, owners)
        self.known = [*self._known_rows(known[planned[known]], parts)]
        return LaneWork(
            [held for held, _, _ in self.known],
            self._form,
            self._base,
            codes,
            parts,
            np.concatenate((known, positions[new] - self._base)),
        )

    def _in_order(self, entries: np.ndarray, parts: np.ndarray, returns: np.ndarray, beyond: np.ndarray) -> np.ndarray:
        """The ascending *entries* in order of places.

        Entries that cannot be offered, or all without permits, come first, by state. *returns* says which states come
        back by themselves; what comes back from *beyond* on waits for earlier entries of its owner.
        """
        codes, wanted = self._codes[entries], self._wanted
        comes_later = (wanted.back[entries] > self._draft.now) & (wanted.back[entries] != NEVER) & ~returns[codes]
        too_late = self._is_pending[codes] & (self._base + entries > beyond[self._owner_of_part[parts[entries]]])
        comes_later |= too_late | (not self._permits)
        comes_later &= ~np.isin(entries, np.array(self._left_of_batches(), np.int64) - self._base)
        is_acked = wanted.acked[entries]
        stays = is_acked | comes_later
        self._stays = np.zeros(len(self._codes), bool)
        self._stays[entries] = stays | too_late
        kind = np.where(is_acked, 0, np.where(comes_later, 1, 2))
        return entries[np.lexsort((entries, np.where(stays, codes, 0), parts[entries], kind))]

    @property
    def unacked(self) -> Counter:
        """Unacknowledged messages by consumer; none if this round acknowledges everything."""
        return self._cursor.unacked if self._base == self._form.base else Counter()

    @property
    def first_new(self) -> int:
        return len(self._at)

    def acks(self) -> list[tuple[int, int]]:
        return ranges_of(np.sort(self._place[np.flatnonzero(self._wanted.acked)]))

    def ack_sets(self) -> Iterator[tuple[int, int, tuple[int, ...]]]:
        """Place (twice) and open bits of batches acknowledged in part."""
        for position in self._left_of_batches():
            place = int(self._place[position - self._base])
            yield place, place, self._changes.ack_sets[position]

    def never_delivered(self) -> Iterator[tuple[int, int]]:
        """Position and place of undelivered entries acknowledged in part."""
        for position in self._left_of_batches():
            if self._codes[position - self._base] == UNREAD:
                yield position, int(self._place[position - self._base])

    def returns(self) -> list[Return]:
        back = self._wanted.back
        places = np.sort(self._place[np.flatnonzero(back != NEVER)])
        entries = self._at[places]
        holders, dues, unseen = self._holders[self._codes[entries]], back[entries], self._wanted.unseen[entries]
        starts = np.flatnonzero(
            (np.diff(places, prepend=-2) != 1)
            | (np.diff(dues, prepend=-1) != 0)
            | (np.diff(unseen.astype(np.int8), prepend=-1) != 0)
            | np.append(True, holders[1:] != holders[:-1])[: len(places)]
        )
        stops = np.append(starts[1:], len(places))[: len(starts)]
        return [
            Return(int(places[start]), int(places[stop - 1]), holders[start], int(dues[start]), bool(unseen[start]))
            for start, stop in zip(starts, stops)
        ]

    def _left_of_batches(self) -> list[int]:
        return sorted(position for position in self._changes.ack_sets if position >= self._base)

    def _extend(self, entries: int) -> None:
        """Cover at least *entries* entries; added ones are unread."""
        wanted = self._wanted
        acked, unseen = (_padded(flags, entries, False) for flags in (wanted.acked, wanted.unseen))
        self._wanted = _Wanted(acked, _padded(wanted.back, entries, NEVER), unseen)
        self._codes = _padded(self._codes, entries, UNREAD)
        self._place = np.empty(len(self._codes), np.int64)

    def _hash_of(self) -> np.ndarray:
        return self._hashes.between(self._base, self._base + len(self._codes) - 1)

    @cached_property
    def _wanted(self) -> _Wanted:
        """The requests by entry; the last one counts (4.16, 4.21)."""
        codes, changes = self._codes, self._changes
        acked, back, unseen = np.zeros(len(codes), bool), np.full(len(codes), NEVER), np.zeros(len(codes), bool)
        for position in self._left_of_batches():
            if position < self._base + len(codes) and ack_set.is_empty(changes.ack_sets[position]):
                acked[position - self._base] = True
        acked[self._places(changes.acks)[0]] = True
        for first, last, consumer_id, round_number in changes.delivered_acks:
            of_delivery = self._is_pending & (self._holders == consumer_id) & (self._rounds == round_number)
            acked[self._slice(first, last)] |= of_delivery[codes[self._slice(first, last)]]
        for consumer_id, round_number, first in changes.tails:
            are_its = self._is_pending & (self._holders == consumer_id)
            is_back = (are_its & (self._rounds > round_number))[codes]
            at = max(first - self._base, 0)
            is_back[at:] |= (are_its & (self._rounds == round_number))[codes[at:]]
            back[is_back], unseen[is_back] = self._draft.now, True
        by_consumer: dict[str, list[Return]] = {}
        for each in changes.returns:
            by_consumer.setdefault(each.consumer_id, []).append(each)
        for consumer_id, returns in by_consumer.items():
            places, numbers = self._places((each.first, each.last) for each in returns)
            is_its = (self._is_pending & (self._holders == consumer_id))[codes[places]]
            places, numbers = places[is_its], numbers[is_its]  # for a place listed twice the last number counts
            back[places] = np.array([each.due_time for each in returns], np.int64)[numbers]
            unseen[places] = np.array([each.is_unseen for each in returns], bool)[numbers]
        return _Wanted(acked, back, unseen)

    def _places(self, spans: Iterable[tuple[int, int]]) -> tuple[np.ndarray, np.ndarray]:
        """The places inside *spans*, span by span, and each one's span."""
        firsts, lasts = as_array(spans) - self._base
        firsts, lasts = np.maximum(firsts, 0), np.minimum(lasts, len(self._codes) - 1)
        numbers = np.flatnonzero(firsts <= lasts)
        firsts, lasts = firsts[numbers], lasts[numbers]
        return expanded(firsts, lasts), np.repeat(numbers, lasts + 1 - firsts)

    def _slice(self, first: int, last: int) -> slice:
        return slice(max(first - self._base, 0), max(last + 1 - self._base, 0))

    def _known_rows(self, entries: np.ndarray, parts: np.ndarray) -> Iterator[tuple[Range, str | None, bool]]:
        """Ranges by place of the planned *entries*, with line and whether held; *parts* are lanes by entry."""
        places, codes = self._place[entries], self._codes[entries]
        owners = self._owner_of_part[parts[entries]]
        hashes = self._hash_of()[entries] if self._waits.depends_on_hashes else NO_HASHES
        held = (owners < 0) | self._stays[entries] | self._waits.are_waiting(self._base + entries, hashes, owners)
        is_first = np.diff(places, prepend=-2) != 1
        for column in (codes, owners, held.astype(np.int8)):
            is_first |= np.diff(column, prepend=-2) != 0
        starts = np.flatnonzero(is_first)
        stops = np.append(starts[1:], len(entries))[: len(starts)]
        names = [*self._owners.consumers, None]
        for start, stop in zip(starts.tolist(), stops.tolist()):
            found = self._form.states.range(int(codes[start]), int(places[start]), int(places[stop - 1]))
            yield found, names[owners[start]], bool(held[start])

    def _new_rows(self, positions: np.ndarray, order: np.ndarray, owners: np.ndarray) -> list[UnreadRun]:
        """New entries as runs of one batch size, due time and owner."""
        if not len(positions):
            return []
        stretches, known = self._stretches(positions)
        sizes = known["batch_size"].to_numpy()[stretches[order]]
        dues = known["due_time"].fill_null(-1).to_numpy()[stretches[order]]
        of_owner = owners[order]
        is_first = np.zeros(len(order), bool)
        for column in (sizes, dues, of_owner):
            is_first |= np.diff(column, prepend=-2) != 0
        starts = np.flatnonzero(is_first)
        lasts = np.append(starts[1:], len(order)) - 1
        first = self.first_new
        return [
            UnreadRun(first + start, first + last, size, None if due < 0 else due, self._owners.consumers[owner])
            for start, last, size, due, owner in zip(
                *(column.tolist() for column in (starts, lasts, sizes[starts], dues[starts], of_owner[starts]))
            )
        ]

    @property
    def _owner_of_part(self) -> np.ndarray:
        return np.array([self._owners.number(owner) for owner in self._form.parts.owners], np.int64)

    def _offered_again(self) -> tuple[np.ndarray, np.ndarray]:
        """Positions to deliver again now, and for each owner the first one beyond its permits."""
        beyond = np.full(len(self._owners.consumers) + 1, NEVER)  # the last is for entries without an owner
        dues = np.where(self._dues == NEVER, 0, self._dues)
        is_ripe = self._is_replay & (dues <= self._draft.wall)
        places = np.flatnonzero(is_ripe[self._codes] & ~self._wanted.acked)
        if not len(places) or not self._permits:
            return places[:0], beyond
        positions = self._base + places
        takes, owners, held = self._offered(positions, dues[self._codes[places]])
        left = ~takes & ~held
        np.minimum.at(beyond, owners[left], positions[left])
        return positions[takes], beyond

    def _out(self) -> Out:
        changes, now = self._changes, self._draft.now
        if not (changes.returns or changes.tails) and self._form.is_with_owners(self._selector):
            return Out(NO_HASHES, NO_POSITIONS, np.empty(0, bool))
        codes, hashes = self._codes, self._hash_of()
        acked, back, _ = self._wanted
        numbers = np.array([self._owners.number(consumer_id) for consumer_id in self._holders], np.int64)
        elsewhere = numbers[codes] != self._owners.of(hashes)
        dues = np.where(back == NEVER, self._dues[codes], back)
        is_gone = np.isin(self._holders, [*changes.left, *changes.redelivered])[codes] | acked | (dues <= now)
        places = np.flatnonzero(self._is_pending[codes] & ~is_gone & (elsewhere | (dues != NEVER)))
        return Out(hashes[places], self._base + places, elsewhere[places])

    def _unknown(self, first: int, last: int) -> np.ndarray:
        unknown = np.ones(last + 1 - first, bool)
        known = max(self._base + len(self._codes) - first, 0)
        at = first - self._base
        if at >= 0:
            unknown[:known] = self._codes[at : at + len(unknown)] == UNREAD
        else:
            unknown[:-at] = False
            unknown[-at:known] = self._codes[: len(unknown) + at] == UNREAD
        for begin, end in self._changes.acks:
            unknown[max(begin - first, 0) : max(end + 1 - first, 0)] = False
        for position in self._changes.ack_sets:
            if first <= position <= last:
                unknown[position - first] = False
        return first + np.flatnonzero(unknown)

    def _is_passed_over(self, takes: np.ndarray, held: np.ndarray) -> np.ndarray:
        """Without limits of unacknowledged messages only held entries: others lie in other lanes and cut no range."""
        return ~takes if self._cursor.has_unacked_limits else held

    def _counts(self, positions: np.ndarray, owners: np.ndarray, takes: np.ndarray) -> np.ndarray:
        return takes

    def _look_ahead(self) -> int:
        """The look-ahead limit, lower with more rows, since an entry delivered later cuts a range into three."""
        limit, rows = self._look_ahead_limit(), self._form.rows
        return min(limit, max((_MOST_ROWS - rows) // 2, _LEAST_LOOK_AHEAD))


def _padded(values: np.ndarray, entries: int, value: int) -> np.ndarray:
    missing = entries - len(values)
    return np.pad(values, (0, missing), constant_values=value) if missing > 0 else values
