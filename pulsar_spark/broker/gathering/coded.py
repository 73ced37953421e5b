"""A round of a cursor whose entries are kept as a map of codes; coded_by_key adds what Key_Shared asks.

What requests say of entries, what comes back and what may go out are found in the map and brought in dealing order:
first what cannot be dealt in this round, whatever the positions, then what may come again and what was never delivered,
by position. Neighbours that agree are one row of the plan.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from pulsar_spark.broker.bundle.bundle import Bundle
from pulsar_spark.broker.cursors.consumer import Consumer
from pulsar_spark.broker.delays.waiting import to_wait
from pulsar_spark.broker.gathering.coded_read import New, Read
from pulsar_spark.broker.gathering.coded_work import CodedWork, Labelled, Listed, Stretch
from pulsar_spark.broker.gathering.marks import NO_POSITIONS, Marks, Returned
from pulsar_spark.broker.gathering.unread_slices import deliver_time
from pulsar_spark.broker.requests.drafts import CursorDraft, RoundDraft
from pulsar_spark.protocol.acknowledgement.cursor import REPLAY, UNREAD, Range
from pulsar_spark.protocol.acknowledgement.positions import as_array, expanded, inside
from pulsar_spark.protocol.entries.entry_codes import (
    ACKNOWLEDGED_CODE,
    FIXED,
    PART_CODE,
    UNREAD_CODE,
    WAITING_CODE,
    EntryState,
)
from pulsar_spark.storage.delay_index.delayed import NONE_DUE, Due, in_order

ONE_BY_ONE = 1 << 18
"""Acknowledged entries up to which they are looked at one by one; of more, whole stretches are counted."""


class Requested(NamedTuple):
    """What requests do to the entries of a row: columns of a range of the plan."""

    is_acked: bool | None = None
    left_of_batch: tuple[int, ...] | None = None
    return_time: int | None = None
    is_unseen: bool | None = None


class Coded:
    """The rows of one cursor in one round, once it is planned; places are those of :class:`CodedWork`."""

    def __init__(self, bundle: Bundle, draft: RoundDraft, changes: CursorDraft, takers: Sequence[Consumer]):
        self._bundle, self._draft, self._changes, self._cursor = bundle, draft, changes, changes.cursor
        self._entries = changes.cursor.entries
        self._permits = sum(consumer.permits for consumer in takers)
        self._parts: list[Stretch | Listed | Labelled] = []
        self._places = 0
        self.planned: list[Range] = []
        self.rows: list[tuple] = []
        """The ranges of the plan, by their columns: those of :attr:`planned`, and entries that were never delivered."""
        self.first_new = 0
        self._due = NONE_DUE
        """Entries whose deliver time has come and that may be dealt, by it."""
        self.marks = Marks(changes, draft.now)
        self.read = Read(bundle, draft, changes, self.marks)
        self._line: tuple[str | None, bool | None] = None, None
        """The line of the entries that are added now, and whether they are held; neither but on Key_Shared."""

    def plan(self) -> CodedWork:
        """Work out the rows."""
        new = self._read_new() if self._draft.reads(self._changes) else None
        if self._cursor.chunked is not None:  # the read may have acknowledged or kept back messages
            self.marks.look_again()
        self._add_acknowledged()
        self._add_what_may_go(self._add_what_stays(), new)
        self._pass_named()
        settle = self._cursor.chunked and self._cursor.chunked.settle
        return CodedWork(self._entries, self.planned, self._parts, self.read.passed, settle)

    def _read_new(self) -> list[New]:
        """What may be dealt the first time."""
        return self.read.new(self._permits)

    def _pass_named(self) -> None:
        """Pass over unread entries that requests name without acknowledging them: those that wait, and parts."""
        for span in self._changes.passed:
            self.read.passed.append((self._entries.where([UNREAD_CODE], *span), WAITING_CODE))
        for span in self.marks.parts_among(self._changes.acknowledged_whole) if self._cursor.chunked else ():
            self.read.passed.append((self._entries.where([UNREAD_CODE], *span), PART_CODE))

    def _add_what_may_go(self, known: np.ndarray, new: list[New] | None) -> None:
        """Add the entries at *known* that may be dealt again, and the *new* ones that may be dealt the first time."""
        self.first_new = self._places + int(np.searchsorted(known, self._cursor.read_position))
        for part in self._in_dealing_order(known, new or []):
            if isinstance(part, New):
                self._add_new(part)
            elif part is self._due:
                self._add_known(*part[:2])
            else:
                self._add_known(part)

    # What is acknowledged

    def _add_acknowledged(self) -> None:
        entries = sum(last - first + 1 for first, last in self.marks.acked)
        if 0 < entries <= ONE_BY_ONE:
            self._add_by_code(expanded(*as_array(self.marks.acked)), is_acked=True)
        else:
            for span in self.marks.acked:
                for code in (UNREAD_CODE, *self.marks.known):
                    self._add_stretch(code, *span, is_acked=True)
        for code, spans in self.marks.answered.items():
            for span in spans:
                if any(first <= span[1] and last >= span[0] for first, last in self.marks.acked):
                    positions = self._entries.where([code], *span)
                    self._add_by_code(positions[~inside(positions, self.marks.acked)], is_acked=True)
                else:
                    self._add_stretch(code, *span, is_acked=True)

    # What is known, and comes back or not

    def _add_what_stays(self) -> np.ndarray:
        """Add what comes back and cannot be dealt in this round; the positions, ascending, of what may be."""
        returned, deals = self.marks.returned, self._permits > 0
        if not deals and not len(returned.positions):
            self._add_leaving()
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
        self._add_by_code(leaving[~np.isin(leaving, may_go) & ~np.isin(leaving, returned.positions)])
        self._add_returned(returned.where(~np.isin(returned.positions, may_go)))
        return may_go

    def _may_be_dealt(self, comes: np.ndarray) -> np.ndarray:
        """Those of the entries that come back now which may be dealt in this round."""
        return comes

    def _add_leaving(self) -> None:
        """Add the codes all of whose entries come back, to be dealt to nobody in this round."""
        apart = [(position, position) for position in self.marks.left_of_batches.tolist()]
        for code in self.marks.leaving:
            if self.marks.acked or self.marks.answered or apart:
                positions = self._entries.where([code], 0, self._entries.end - 1)
                is_apart = self.marks.are_acked(positions, np.full(len(positions), code)) | inside(positions, apart)
                self._add_by_code(positions[~is_apart])
            else:
                self._add_stretch(code, self._entries.mark_delete + 1, self._entries.end - 1)

    def _add_returned(self, returned: Returned) -> None:
        """Add what is given back and not dealt in this round, those that agree together."""
        if not len(returned.positions):
            return
        codes = self._entries.at(returned.positions)
        order = np.lexsort((returned.positions, returned.unseen, returned.dues, codes))
        columns = [column[order] for column in (codes, returned.dues, returned.unseen.astype(np.int64))]
        starts = _starts(*columns)
        for begin, end in zip(starts, [*starts[1:], len(order)]):
            positions = returned.positions[order[begin:end]]
            code, due, is_unseen = (int(column[begin]) for column in columns)
            self._add_range(code, len(positions), Requested(return_time=due, is_unseen=bool(is_unseen)))
            self._add_part(Listed(positions))

    def _offered(self) -> np.ndarray:
        """Where the entries lie that may be delivered again now and wait for no time, as many as permits allow; sets
        those whose deliver time has come."""
        ripe = self._ripe()
        positions = self._where_left(ripe.pop(0, ()))[: self._permits]
        left = self._permits - len(positions)
        self._due = self._came_due(ripe, left).part(slice(max(left, 0)))
        return positions

    def _came_due(self, ripe: dict[int, list[int]], most: int) -> Due:
        """At least the first *most* entries whose deliver time has come, by it: those of *ripe* codes, and those that
        were never delivered."""
        found, dues = [], self._cursor.dues
        for due in sorted(ripe):
            positions = self._where_left(ripe[due])
            found.append(Due(positions, np.full(len(positions), due), np.zeros(len(positions), np.int32)))
        if dues is not None and most > 0:
            named = sum(last - first + 1 for first, last in self.marks.acked)  # so many of them may be acknowledged
            found.append(dues.come_due(self._entries, self._draft.wall, most + named))
        due = in_order(found)
        return due.part(~inside(due.positions, self.marks.acked)) if self.marks.acked else due

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
        """Add the entries that may be dealt, of which something is known, or whose deliver *times* have come, in
        dealing order."""
        if not len(positions):
            return
        first = self._places
        self._add_part(Listed(positions))
        codes = self._codes_at(positions)
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
        starts = _starts(codes, dues, unseen.astype(np.int64), runs, sizes)
        for begin, end in zip(starts, [*starts[1:], len(positions)]):
            code, places = int(codes[begin]), (first + begin, first + end - 1)
            left = self._changes.ack_sets[int(positions[begin])] if is_apart[begin] else None
            requested = Requested(left_of_batch=left)
            if is_back[begin]:
                requested = requested._replace(return_time=int(dues[begin]), is_unseen=bool(unseen[begin]))
            if code not in (UNREAD_CODE, WAITING_CODE):
                self._add_row(code, *places, requested)
            elif times is not None:
                self._add_unread_row(*places, int(sizes[begin]), int(times[begin]), requested)
            else:
                self._add_unread_row(*places, *self._never_delivered(int(positions[begin])), requested)

    def _codes_at(self, positions: np.ndarray) -> np.ndarray:
        """The codes of the entries at *positions*, in any order."""
        order = np.argsort(positions, kind="stable")
        codes = np.empty(len(positions), np.int32)
        codes[order] = self._entries.at(positions[order])
        return codes

    def _never_delivered(self, position: int) -> tuple[int, int | None]:
        """The batch size and deliver time of an entry that is acknowledged in part before it was delivered. A deliver
        time that has come is none, unless the entry waited."""
        due, waits = deliver_time(self._bundle, self._cursor, position), False
        if due is not None and self._cursor.dues is not None:
            waits = bool(to_wait(self._bundle, self._cursor, np.array([position]), self._draft.wall)[0])
        due = None if (due or 0) <= self._draft.wall and not waits else due
        return self._bundle.batch_size(self._cursor, position), due

    def _in_dealing_order(self, may_go: np.ndarray, new: list[New]) -> Iterable[np.ndarray | Due | New]:
        """What may come again, what has come due, and what was never delivered: on Exclusive and Failover by
        position."""
        if not self._cursor.is_single_active:
            yield may_go
            yield self._due
            yield from new
            return
        begin = 0
        for part, *says in new:
            for first, last in part.spans:
                end = int(np.searchsorted(may_go, first))
                yield may_go[begin:end]
                begin = end
                yield New(Stretch(last + 1 - first, first, last, UNREAD_CODE), *says)
        yield may_go[begin:]

    # Places

    def _add_by_code(self, positions: np.ndarray, *, is_acked: bool = False) -> None:
        """Add entries at *positions*, which ascend, that are not acknowledged yet, code by code."""
        codes = self._entries.at(positions)
        positions, codes = positions[codes != ACKNOWLEDGED_CODE], codes[codes != ACKNOWLEDGED_CODE]
        if len(codes) and (codes == codes[0]).all():
            self._add_range(int(codes[0]), len(codes), Requested(is_acked))
            self._add_part(Listed(positions))
            return
        order = np.argsort(codes, kind="stable")
        starts = _starts(codes[order])
        for begin, end in zip(starts, [*starts[1:], len(order)]):
            self._add_range(int(codes[order[begin]]), end - begin, Requested(is_acked))
            self._add_part(Listed(positions[order[begin:end]]))

    def _add_stretch(self, code: int, first: int, last: int, *, is_acked: bool = False) -> None:
        """Add the entries *first*..*last* that have a code."""
        places = self._entries.count([code], first, last)
        if places:
            self._add_range(code, places, Requested(is_acked))
            self._add_part(Stretch(places, first, last, code))

    def _add_range(self, code: int, places: int, requested: "Requested") -> None:
        self._add_row(code, self._places, self._places + places - 1, requested)

    def _add_row(self, code: int, first: int, last: int, requested: "Requested") -> None:
        if code >= len(FIXED):
            state = self._entries.codes.state(code)
            self.planned.append(Range(first, last, *state))
            self.rows.append((first, last, *state, *self._line, *requested))
        elif requested.is_acked:
            self._add_unread_row(first, last, None, None, requested)

    def _add_unread_row(self, first: int, last: int, size: int | None, due: int | None, requested: "Requested") -> None:
        state = EntryState(UNREAD, due_time=due, batch_size=size)
        self.rows.append((first, last, *state, *self._line, *requested))

    def _add_new(self, new: New) -> None:
        self._add_unread_row(
            self._places, self._places + new.part.places - 1, new.batch_size, new.due_time, Requested()
        )
        self._add_part(new.part)

    def _add_part(self, part: Stretch | Listed | Labelled) -> None:
        self._parts.append(part)
        self._places += part.places


def _union(parts: Iterable[np.ndarray]) -> np.ndarray:
    """All positions in *parts*, once each, ascending."""
    parts = [part for part in parts if len(part)]
    if len(parts) < 2:
        return np.sort(parts[0]) if parts else NO_POSITIONS
    return np.unique(np.concatenate(parts))


def _starts(*columns: np.ndarray) -> list[int]:
    """Where rows begin that differ from the one before in any of *columns*."""
    if not len(columns[0]):
        return []
    is_first = np.zeros(len(columns[0]), bool)
    is_first[0] = True
    for column in columns:
        is_first[1:] |= column[1:] != column[:-1]
    return np.flatnonzero(is_first).tolist()
