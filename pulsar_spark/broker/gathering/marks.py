"""What a round's requests do to the entries of one cursor: acknowledge them, give them back, or acknowledge a part."""

from collections.abc import Iterable
from functools import cached_property
from typing import NamedTuple

import numpy as np

from pulsar_spark.broker.requests.drafts import CursorChanges
from pulsar_spark.protocol.acknowledgement.ack_set import is_empty
from pulsar_spark.protocol.acknowledgement.cursor import PENDING
from pulsar_spark.protocol.acknowledgement.positions import Positions, as_array, distinct, expanded, inside, ranges_of
from pulsar_spark.protocol.entries.entry_codes import ACKNOWLEDGED_CODE, PART_CODE, UNREAD_CODE, EntryState
from pulsar_spark.protocol.entries.entry_map import states_in

NO_POSITIONS = np.empty(0, np.int64)


class Returned(NamedTuple):
    """Entries that consumers give back: ascending positions, when each comes again, and whether it was unseen."""

    positions: np.ndarray
    dues: np.ndarray
    unseen: np.ndarray

    def at(self, positions: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Which of the entries at *positions* are among them, when each of these comes again, and whether it was
        unseen."""
        at = np.searchsorted(self.positions, positions)
        are_returned = np.append(self.positions, -1)[at] == positions
        return are_returned, np.append(self.dues, 0)[at], np.append(self.unseen, False)[at]

    def where(self, chosen: np.ndarray) -> "Returned":
        return Returned(*(column[chosen] for column in self))


class Marks:
    """The requests of a cursor in a round at *now*, by the broker's clock."""

    def __init__(self, changes: CursorChanges, now: int):
        self._changes, self._cursor, self._entries = changes, changes.cursor, changes.cursor.entries
        self._now = now

    def look_again(self) -> None:
        """Forget what followed from requests and map before a read, which may have changed both."""
        for name in ("acked", "known", "pending"):
            self.__dict__.pop(name, None)

    @cached_property
    def acked(self) -> list[tuple[int, int]]:
        """The stretches above mark-delete that requests acknowledge as a whole."""
        passed = self._entries.mark_delete
        stretches = Positions(sorted(self._changes.acknowledged_whole))
        spans = [(max(first, passed + 1), last) for first, last in stretches if last > passed]
        parts = self.parts_among(spans)
        return [gap for span in spans for gap in parts.gaps(*span)] if parts else spans

    def parts_among(self, spans: Iterable[tuple[int, int]]) -> Positions:
        """The parts of chunked messages in *spans* that were never delivered: requests do not acknowledge them."""
        chunked, found = self._cursor.chunked, Positions()
        if chunked is None:
            return found
        parts = as_array(part for span in spans for part in chunked.groups.parts(*span))
        positions = distinct(expanded(*parts))
        codes = self._entries.at(positions)
        for span in ranges_of(positions[np.isin(codes, (UNREAD_CODE, PART_CODE))]):
            found.add(*span)
        return found

    @cached_property
    def delivered_acks(self) -> dict[int, list[tuple[int, int]]]:
        """The requests to acknowledge what a round delivered: stretches, by the code of that delivery."""
        found: dict[int, list[tuple[int, int]]] = {}
        for first, last, consumer_id, number in self._changes.delivered_acks:
            for code, state in self.pending.items():
                if (state.consumer_id, state.delivery_round) == (consumer_id, number):
                    found.setdefault(code, []).append((first, min(last, self._entries.end - 1)))
        return {code: list(Positions(sorted(spans))) for code, spans in found.items()}

    def are_acked(self, positions: np.ndarray, codes: np.ndarray) -> np.ndarray:
        """Which entries at ascending *positions* are acknowledged, before or by requests; *codes* are theirs."""
        if not len(positions):
            return np.zeros(0, bool)
        found = inside(positions, self.acked) | (positions <= self._entries.mark_delete)
        for code, spans in self.delivered_acks.items():
            found |= (codes == code) & inside(positions, spans)
        return found

    def stay_away(self, positions: np.ndarray) -> np.ndarray:
        """Which entries at *positions* no consumer can get in this round: acknowledged ones, and pending ones that do
        not come back."""
        order = np.argsort(positions)
        at = positions[order]
        codes = self._entries.at(at)
        stays = [code for code in self.pending if code not in self.leaving]
        back = self.returned.positions[self.returned.dues <= self._now]
        are_acked = self.are_acked(at, codes) | np.isin(codes, self._entries.codes.acknowledged)
        found = np.empty(len(at), bool)
        found[order] = are_acked | np.isin(codes, stays) & ~np.isin(at, back)
        return found

    @cached_property
    def known(self) -> dict[int, EntryState]:
        """The states that entries have, by code, but for unread and acknowledged ones."""
        return {code: state for code, state, _ in states_in(self._entries) if code > ACKNOWLEDGED_CODE}

    @cached_property
    def pending(self) -> dict[int, EntryState]:
        return {code: state for code, state in self.known.items() if state.status == PENDING}

    @cached_property
    def returned(self) -> Returned:
        """The entries that requests of their consumers give back; the last request for an entry counts (4.16, 4.21)."""
        returns, tails = self._changes.returns, list(self._tails())
        if not returns and not tails:
            return Returned(NO_POSITIONS, NO_POSITIONS, np.empty(0, bool))
        firsts, lasts = as_array(each[:2] for each in returns)
        positions = np.concatenate([expanded(firsts, lasts), *(positions for positions, _ in tails)])
        counts = [*(lasts - firsts + 1).tolist(), *(len(positions) for positions, _ in tails)]
        requests = [each[2:] for each in returns] + [(consumer_id, self._now, True) for _, consumer_id in tails]
        numbers = np.repeat(np.arange(len(requests)), counts)
        order = np.lexsort((numbers, positions))
        positions, numbers = positions[order], numbers[order]
        codes = self._entries.at(positions)
        consumers: dict[str | None, int] = {}
        whose = np.array([consumers.setdefault(each[0], len(consumers)) for each in requests])[numbers]
        holders = np.full(len(self._entries.codes), -1)
        for code, state in self.pending.items():
            holders[code] = consumers.get(state.consumer_id, -1)
        is_its = (holders[codes] == whose) & ~self.are_acked(positions, codes)
        positions, numbers = positions[is_its], numbers[is_its]
        is_last = np.append(positions[1:] != positions[:-1], True)[: len(positions)]
        positions, numbers = positions[is_last], numbers[is_last]
        dues, unseen = (np.array([each[at] for each in requests])[numbers] for at in (1, 2))
        return Returned(positions, dues, unseen)

    def _tails(self) -> Iterable[tuple[np.ndarray, str]]:
        """The entries that ``tails`` of the draft give back, and their consumers."""
        for consumer_id, number, first in self._changes.tails:
            for code, state in self.pending.items():
                if state.consumer_id == consumer_id and (state.delivery_round or 0) >= number:
                    since = first if state.delivery_round == number else 0
                    yield self._entries.where([code], since, self._entries.end - 1), consumer_id

    @cached_property
    def leaving(self) -> list[int]:
        """The codes of pending entries that come back as a whole: their consumer left, it asks for all of them, or
        their time has come. On Exclusive and Failover all do if anything comes back (2.12)."""
        changes, now = self._changes, self._now
        gone = changes.left | changes.redelivered
        found = [
            code
            for code, state in self.pending.items()
            if state.consumer_id in gone or (state.due_time is not None and state.due_time <= now)
        ]
        is_rewound = self._cursor.is_single_active and (found or len(self.returned.positions))
        return list(self.pending) if is_rewound else found

    @cached_property
    def left_of_batches(self) -> np.ndarray:
        """The ascending positions of entries that requests acknowledge in part."""
        named = sorted(position for position, left in self._changes.ack_sets.items() if not is_empty(left))
        if not named:
            return NO_POSITIONS
        positions = np.array(named, np.int64)
        return positions[~self.are_acked(positions, self._entries.at(positions))]

    def unread(self, first: int, last: int) -> np.ndarray:
        """The positions in *first*..*last* of entries that were never delivered and that no request names."""
        positions = self._entries.where([UNREAD_CODE], first, last)
        if self.acked or len(self.left_of_batches):
            is_apart = inside(positions, self.acked) | np.isin(positions, self.left_of_batches)
            positions = positions[~is_apart]
        return positions

    def has_requests(self, first: int, last: int) -> bool:
        """Does a request acknowledge an entry in *first*..*last*, or a part of one?"""
        if any(begin <= last and end >= first for begin, end in self.acked):
            return True
        apart = self.left_of_batches
        return len(apart) > 0 and bool(((apart >= first) & (apart <= last)).any())
