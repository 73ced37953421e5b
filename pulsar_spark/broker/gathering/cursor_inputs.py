"""Gather the entries of one cursor that a round decides about; inputs_by_key does so for Key_Shared.

They are added in dealing order: entries that no consumer can get in this round, then by position those that may come
again, those that came due, and those never delivered. Neighbours that agree are one range of the plan.
"""

from collections.abc import Iterable, Sequence

import numpy as np

from pulsar_spark.broker.bundle.bundle import Bundle
from pulsar_spark.broker.cursors.consumer import Consumer
from pulsar_spark.broker.delays.deliver_times import deliver_time
from pulsar_spark.broker.delays.waiting import to_wait
from pulsar_spark.broker.gathering.marks import NO_POSITIONS, Marks
from pulsar_spark.broker.gathering.placed_ranges import PlacedRanges, Requested, runs_of
from pulsar_spark.broker.gathering.planned_entries import Listed, PlannedEntries, unread_span
from pulsar_spark.broker.gathering.read import New, Read
from pulsar_spark.broker.requests.drafts import CursorChanges, RoundDraft
from pulsar_spark.protocol.acknowledgement.cursor import REPLAY
from pulsar_spark.protocol.acknowledgement.positions import distinct, inside
from pulsar_spark.protocol.entries.entry_codes import PART_CODE, UNREAD_CODE, WAITING_CODE
from pulsar_spark.protocol.entries.entry_map import codes_at
from pulsar_spark.storage.delay_index.delayed import NONE_DUE, Due, in_order


class CursorInputs:
    """The ranges of one cursor in one round."""

    def __init__(self, bundle: Bundle, draft: RoundDraft, changes: CursorChanges, takers: Sequence[Consumer]):
        self._bundle, self._draft, self._changes, self._cursor = bundle, draft, changes, changes.cursor
        self._entries = changes.cursor.entries
        self._permits = sum(consumer.permits for consumer in takers)
        self.ranges = PlacedRanges(self._entries)
        self.first_new = 0
        self._due = NONE_DUE
        """Entries whose deliver time has come and that may be dealt, in this order."""
        self.marks = Marks(changes, draft.now)
        self.read = Read(bundle, draft, changes, self.marks)
        self._new: list[New] = []
        """Entries that may be delivered the first time."""

    def gather(self) -> PlannedEntries:
        if self._draft.may_read(self._changes):
            self._read_new()
        if self._cursor.chunked is not None:  # the read may have acknowledged or kept back messages
            self.marks.look_again()
        self.ranges.add_acknowledged(self.marks)
        self._add_candidates(self._add_returns())
        self._pass_named()
        acknowledge_parts = self._cursor.chunked.acknowledge_parts if self._cursor.chunked else None
        return PlannedEntries(
            self._entries, self.ranges.planned, self.ranges.parts, self.read.passed, acknowledge_parts
        )

    def _read_new(self) -> None:
        self._new = self.read.new(self._permits)

    def _pass_named(self) -> None:
        """Pass over unread entries that requests name and do not acknowledge: those that wait, and parts."""
        for span in self._changes.passed:
            self.read.passed.append((self._entries.where([UNREAD_CODE], *span), WAITING_CODE))
        for span in self.marks.parts_among(self._changes.acknowledged_whole):
            self.read.passed.append((self._entries.where([UNREAD_CODE], *span), PART_CODE))

    def _add_candidates(self, known: np.ndarray) -> None:
        """Add the entries that may be dealt: those at *known*, those that came due, and those never delivered."""
        self.first_new = self.ranges.places + int(np.searchsorted(known, self._cursor.read_position))
        for part in self._in_dealing_order(known):
            if isinstance(part, New):
                self.ranges.add_new(*part)
            elif isinstance(part, Due):
                self._add_known(*part[:2])
            else:
                self._add_known(part)

    def _add_returns(self) -> np.ndarray:
        """Add entries that come back and cannot be dealt in this round. Returns the ascending positions of others that
        may be dealt, again or because a part of them is acknowledged."""
        returned, deals = self.marks.returned, self._permits > 0
        if not deals and not len(returned.positions):
            self.ranges.add_leaving(self.marks)
            return self.marks.left_of_batches
        if not self.marks.leaving and not len(returned.positions):
            return _union((self.marks.left_of_batches, self._offered()))
        leaving = self._entries.where(self.marks.leaving, 0, self._entries.end - 1)
        if len(leaving):
            leaving = leaving[~self.marks.are_acked(leaving, self._entries.at(leaving))]
        parts = [self.marks.left_of_batches]
        if deals:
            comes = _union((leaving, returned.positions[returned.dues <= self._draft.now]))
            parts += [self._may_be_dealt(comes), self._offered()]
        may_go = _union(parts)
        may_go = may_go[~np.isin(may_go, self._due.positions)] if len(self._due) else may_go
        self.ranges.add_by_code(leaving[~np.isin(leaving, may_go) & ~np.isin(leaving, returned.positions)])
        self.ranges.add_returned(returned.where(~np.isin(returned.positions, may_go)))
        return may_go

    def _may_be_dealt(self, comes: np.ndarray) -> np.ndarray:
        """Which of the entries that come back now may be dealt in this round."""
        return comes

    def _offered(self) -> np.ndarray:
        """The entries that may be delivered again now without having waited, up to the permits. Sets ``_due`` to those
        that waited and have come due, up to the permits left."""
        ripe = self._ripe()
        positions = self._where_left(ripe.pop(0, ()))[: self._permits]
        left = self._permits - len(positions)
        self._due = self._came_due(ripe, left).part(slice(max(left, 0)))
        return positions

    def _came_due(self, ripe: dict[int, list[int]], most: int) -> Due:
        """Entries whose deliver time has come, at least the first *most*: replays of *ripe* codes, and entries never
        delivered."""
        found, dues = [], self._cursor.dues
        for due in sorted(ripe):
            positions = self._where_left(ripe[due])
            found.append(Due(positions, np.full(len(positions), due), np.zeros(len(positions), np.int32)))
        if dues is not None and most > 0:
            named = sum(last - first + 1 for first, last in self.marks.acked)  # so many of them may be acknowledged
            found.append(dues.come_due(self._entries, self._draft.wall, most + named))
        come = in_order(found)
        return come.part(~inside(come.positions, self.marks.acked)) if self.marks.acked else come

    def _ripe(self) -> dict[int, list[int]]:
        """The codes of replays that may be delivered now, by the time for which they waited; 0 for no time."""
        wall, single = self._draft.wall, self._cursor.is_single_active
        ripe: dict[int, list[int]] = {}
        for code, state in self.marks.known.items():
            due = 0 if single else state.due_time or 0
            if state.status == REPLAY and due <= wall:
                ripe.setdefault(due, []).append(code)
        return ripe

    def _where_left(self, codes: Sequence[int]) -> np.ndarray:
        """The ascending positions of entries with one of *codes* that no request acknowledges."""
        positions = self._entries.where(codes, 0, self._entries.end - 1)
        return positions[~inside(positions, self.marks.acked)] if self.marks.acked else positions

    def _add_known(self, positions: np.ndarray, times: np.ndarray | None = None) -> None:
        """Add entries that may be dealt, in the order of *positions*. *times* are the deliver times they waited for."""
        if not len(positions):
            return
        first = self.ranges.places
        self.ranges.add_part(Listed(positions))
        codes = codes_at(self._entries, positions)
        is_back, dues, unseen = self.marks.returned.at(positions)
        dues, unseen = np.where(is_back, dues, -1), is_back & unseen
        is_apart = np.isin(positions, self.marks.left_of_batches)
        runs = np.where(is_apart, np.arange(len(positions)), -1)
        sizes = np.zeros(len(positions), np.int64)
        if times is not None:
            ledgers = self._bundle.topics[self._cursor.topic].ledgers(self._cursor.key.partition)
            sizes = ledgers.batch_sizes(positions)
        for begin, end in runs_of(codes, dues, unseen.astype(np.int64), runs, sizes):
            code, places = int(codes[begin]), (first + begin, first + end - 1)
            left = self._changes.ack_sets[int(positions[begin])] if is_apart[begin] else None
            requested = Requested(left_of_batch=left)
            if is_back[begin]:
                requested = requested._replace(return_time=int(dues[begin]), is_unseen=bool(unseen[begin]))
            if code not in (UNREAD_CODE, WAITING_CODE):
                self.ranges.add_range(code, *places, requested)
            elif times is not None:
                self.ranges.add_unread(*places, int(sizes[begin]), int(times[begin]), requested)
            else:
                self.ranges.add_unread(*places, *self._never_delivered(int(positions[begin])), requested)

    def _never_delivered(self, position: int) -> tuple[int, int | None]:
        """The batch size, and the deliver time to wait for, of an entry that requests acknowledge in part before its
        first delivery."""
        due, waits = deliver_time(self._bundle, self._cursor, position), False
        if due is not None and self._cursor.dues is not None:
            waits = bool(to_wait(self._bundle, self._cursor, np.array([position]), self._draft.wall)[0])
        due = None if (due or 0) <= self._draft.wall and not waits else due
        return self._bundle.batch_size(self._cursor, position), due

    def _in_dealing_order(self, may_go: np.ndarray) -> Iterable[np.ndarray | Due | New]:
        """Entries that may come again, those that came due, and those never delivered. On Exclusive and Failover all by
        position."""
        if not self._cursor.is_single_active:
            yield may_go
            yield self._due
            yield from self._new
            return
        begin = 0
        for part, batch_size, due_time in self._new:
            for first, last in part.spans:
                end = int(np.searchsorted(may_go, first))
                yield may_go[begin:end]
                begin = end
                yield New(unread_span(first, last), batch_size, due_time)
        yield may_go[begin:]


def _union(parts: Iterable[np.ndarray]) -> np.ndarray:
    """All positions in *parts*, once each, ascending."""
    parts = [part for part in parts if len(part)]
    if len(parts) < 2:
        return np.sort(parts[0]) if parts else NO_POSITIONS
    return distinct(np.concatenate(parts))
