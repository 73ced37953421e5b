"""Gather what a round plans of one cursor's map of entries; coded_by_key adds what Key_Shared needs.

Entries are brought in dealing order: first what cannot be dealt in this round, then by position what may come again and
what was never delivered. Neighbours that agree are one row of the plan.
"""

from collections.abc import Iterable, Sequence

import numpy as np

from pulsar_spark.broker.bundle.bundle import Bundle
from pulsar_spark.broker.cursors.consumer import Consumer
from pulsar_spark.broker.delays.waiting import to_wait
from pulsar_spark.broker.gathering.coded_read import New, Read
from pulsar_spark.broker.gathering.coded_rows import CodedRows, Requested, starts_of
from pulsar_spark.broker.gathering.coded_stays import add_acknowledged, add_leaving, add_returned
from pulsar_spark.broker.gathering.coded_work import CodedWork, Listed, Stretch
from pulsar_spark.broker.gathering.marks import NO_POSITIONS, Marks
from pulsar_spark.broker.gathering.unread_slices import deliver_time
from pulsar_spark.broker.requests.drafts import CursorDraft, RoundDraft
from pulsar_spark.protocol.acknowledgement.cursor import REPLAY
from pulsar_spark.protocol.acknowledgement.positions import inside
from pulsar_spark.protocol.entries.entry_codes import PART_CODE, UNREAD_CODE, WAITING_CODE
from pulsar_spark.protocol.entries.entry_map import codes_at
from pulsar_spark.storage.delay_index.delayed import NONE_DUE, Due, in_order


class Coded:
    """The rows of one cursor in one round."""

    def __init__(self, bundle: Bundle, draft: RoundDraft, changes: CursorDraft, takers: Sequence[Consumer]):
        self._bundle, self._draft, self._changes, self._cursor = bundle, draft, changes, changes.cursor
        self._entries = changes.cursor.entries
        self._permits = sum(consumer.permits for consumer in takers)
        self.rows = CodedRows(self._entries)
        self.first_new = 0
        self._due = NONE_DUE
        """Entries whose deliver time has come and that may be dealt, by it."""
        self.marks = Marks(changes, draft.now)
        self.read = Read(bundle, draft, changes, self.marks)
        self._new: list[New] = []
        """What may be dealt the first time."""

    def plan(self) -> CodedWork:
        if self._draft.reads(self._changes):
            self._read_new()
        if self._cursor.chunked is not None:  # the read may have acknowledged or kept back messages
            self.marks.look_again()
        add_acknowledged(self.rows, self.marks, self._entries)
        self._add_what_may_go(self._add_what_stays())
        self._pass_named()
        settle = self._cursor.chunked.settle if self._cursor.chunked else None
        return CodedWork(self._entries, self.rows.planned, self.rows.parts, self.read.passed, settle)

    def _read_new(self) -> None:
        self._new = self.read.new(self._permits)

    def _pass_named(self) -> None:
        """Pass over unread entries that requests name and that stay unacknowledged: those that wait, and parts."""
        for span in self._changes.passed:
            self.read.passed.append((self._entries.where([UNREAD_CODE], *span), WAITING_CODE))
        for span in self.marks.parts_among(self._changes.acknowledged_whole):
            self.read.passed.append((self._entries.where([UNREAD_CODE], *span), PART_CODE))

    def _add_what_may_go(self, known: np.ndarray) -> None:
        """Add the entries at *known* that may be dealt again, and those never delivered."""
        self.first_new = self.rows.places + int(np.searchsorted(known, self._cursor.read_position))
        for part in self._in_dealing_order(known):
            if isinstance(part, New):
                self.rows.add_new(*part)
            elif isinstance(part, Due):
                self._add_known(*part[:2])
            else:
                self._add_known(part)

    def _add_what_stays(self) -> np.ndarray:
        """Add what comes back and cannot be dealt in this round; the positions, ascending, of what may be."""
        returned, deals = self.marks.returned, self._permits > 0
        if not deals and not len(returned.positions):
            add_leaving(self.rows, self.marks, self._entries)
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
        self.rows.add_by_code(leaving[~np.isin(leaving, may_go) & ~np.isin(leaving, returned.positions)])
        add_returned(self.rows, returned.where(~np.isin(returned.positions, may_go)), self._entries)
        return may_go

    def _may_be_dealt(self, comes: np.ndarray) -> np.ndarray:
        """Those of the entries that come back now which may be dealt in this round."""
        return comes

    def _offered(self) -> np.ndarray:
        """The entries that may be delivered again now and wait for no time, as permits allow; sets those whose deliver
        time has come."""
        ripe = self._ripe()
        positions = self._where_left(ripe.pop(0, ()))[: self._permits]
        left = self._permits - len(positions)
        self._due = self._came_due(ripe, left).part(slice(max(left, 0)))
        return positions

    def _came_due(self, ripe: dict[int, list[int]], most: int) -> Due:
        """At least the first *most* entries whose deliver time has come: those of *ripe* codes, and those never
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
        """The codes of entries that may be delivered again now, by the time they waited for; 0 for none."""
        wall, single = self._draft.wall, self._cursor.is_single_active
        ripe: dict[int, list[int]] = {}
        for code, state in self.marks.known.items():
            due = 0 if single else state.due_time or 0
            if state.status == REPLAY and due <= wall:
                ripe.setdefault(due, []).append(code)
        return ripe

    def _where_left(self, codes: Sequence[int]) -> np.ndarray:
        """Where the entries of some codes lie that requests do not acknowledge, ascending."""
        positions = self._entries.where(codes, 0, self._entries.end - 1)
        return positions[~inside(positions, self.marks.acked)] if self.marks.acked else positions

    def _add_known(self, positions: np.ndarray, times: np.ndarray | None = None) -> None:
        """Add entries that may be dealt, in dealing order: known ones, or those whose deliver *times* have come."""
        if not len(positions):
            return
        first = self.rows.places
        self.rows.add_part(Listed(positions))
        codes = codes_at(self._entries, positions)
        at = np.searchsorted(self.marks.returned.positions, positions)
        is_back = np.append(self.marks.returned.positions, -1)[at] == positions
        dues = np.where(is_back, np.append(self.marks.returned.dues, 0)[at], -1)
        unseen = is_back & np.append(self.marks.returned.unseen, False)[at]
        is_apart = np.isin(positions, self.marks.left_of_batches)
        runs = np.where(is_apart, np.arange(len(positions)), -1)
        sizes = np.zeros(len(positions), np.int64)
        if times is not None:
            ledgers = self._bundle.topics[self._cursor.topic].ledgers(self._cursor.key.partition)
            sizes = ledgers.batch_sizes(positions)
        starts = starts_of(codes, dues, unseen.astype(np.int64), runs, sizes)
        for begin, end in zip(starts, [*starts[1:], len(positions)]):
            code, places = int(codes[begin]), (first + begin, first + end - 1)
            left = self._changes.ack_sets[int(positions[begin])] if is_apart[begin] else None
            requested = Requested(left_of_batch=left)
            if is_back[begin]:
                requested = requested._replace(return_time=int(dues[begin]), is_unseen=bool(unseen[begin]))
            if code not in (UNREAD_CODE, WAITING_CODE):
                self.rows.add_row(code, *places, requested)
            elif times is not None:
                self.rows.add_unread(*places, int(sizes[begin]), int(times[begin]), requested)
            else:
                self.rows.add_unread(*places, *self._never_delivered(int(positions[begin])), requested)

    def _never_delivered(self, position: int) -> tuple[int, int | None]:
        """The batch size, and the deliver time to wait for, of an entry that is acknowledged in part before it was
        delivered."""
        due, waits = deliver_time(self._bundle, self._cursor, position), False
        if due is not None and self._cursor.dues is not None:
            waits = bool(to_wait(self._bundle, self._cursor, np.array([position]), self._draft.wall)[0])
        due = None if (due or 0) <= self._draft.wall and not waits else due
        return self._bundle.batch_size(self._cursor, position), due

    def _in_dealing_order(self, may_go: np.ndarray) -> Iterable[np.ndarray | Due | New]:
        """What may come again, what has come due, and what was never delivered; on Exclusive and Failover by
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
                yield New(Stretch(last + 1 - first, first, last, UNREAD_CODE), batch_size, due_time)
        yield may_go[begin:]


def _union(parts: Iterable[np.ndarray]) -> np.ndarray:
    """All positions in *parts*, once each, ascending."""
    parts = [part for part in parts if len(part)]
    if len(parts) < 2:
        return np.sort(parts[0]) if parts else NO_POSITIONS
    return np.unique(np.concatenate(parts))
