"""A round of a Key_Shared cursor whose ranges are exact positions in pages. Entries that come back are dealt in the
same round."""

from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise

import numpy as np

from pulsar_spark.broker.bundle.bundle import Bundle
from pulsar_spark.broker.chunks.chunk_walk import ChunkWalk
from pulsar_spark.broker.cursors.consumer import Consumer
from pulsar_spark.broker.cursors.pages import NEVER, Page
from pulsar_spark.broker.gathering.affected import Affected, effective_returns, is_due
from pulsar_spark.broker.gathering.unread_run import UnreadRun
from pulsar_spark.broker.gathering.unread_runs import MOST_RUNS, last_passed, note_passed, pass_over, unknown_between
from pulsar_spark.broker.key_shared.keyed import NO_HASHES, NO_POSITIONS, Keyed, Placed, owners_of
from pulsar_spark.broker.requests.drafts import CursorDraft, Return, RoundDraft
from pulsar_spark.protocol.acknowledgement.cursor import PENDING, REPLAY, Range
from pulsar_spark.protocol.acknowledgement.positions import as_array, expanded, inside, overlap
from pulsar_spark.protocol.delays.delays import number_at, virtual
from pulsar_spark.protocol.keys.draining import Out
from pulsar_spark.protocol.keys.hash_ranges import NOBODY
from pulsar_spark.protocol.keys.selectors import Selector

ELSEWHERE = Placed(None, True)
"""Not offered in this round, whoever owns it."""


class KeyedByPage(Keyed):
    """A :class:`~pulsar_spark.broker.key_shared.keyed.Keyed` on the axis of positions; *most* limits the runs of new
    entries."""

    def __init__(
        self, bundle: Bundle, draft: RoundDraft, changes: CursorDraft, takers: Sequence[Consumer], most: int = MOST_RUNS
    ):
        super().__init__(bundle, draft, changes, takers, changes.cursor.selector)
        self._most = most
        self._met: list[tuple[np.ndarray, np.ndarray, np.ndarray]] = []
        """Of the windows looked at for new entries: the positions, which are passed over, and which may be read."""
        self._walk = ChunkWalk(bundle, changes) if self._cursor.chunked else None

    def replays(self) -> list[tuple[int, int]]:
        """(page, range) to deliver again now, within permits: returned entries first, by position, then due ones
        (0.21)."""
        pages = [(number, page) for number, page in enumerate(self._cursor.pages) if page.replays_at is not None]
        if not pages or not self._permits:
            return []
        found = [np.concatenate(columns) for columns in zip(*(_replays(*page) for page in pages))]
        is_ripe = (found[1] <= self._draft.wall) & ~self._is_acknowledged(found[0])
        positions, dues, numbers, indexes = (column[is_ripe] for column in found)
        in_order = np.argsort(positions, kind="stable")
        positions, dues, numbers, indexes = (column[in_order] for column in (positions, dues, numbers, indexes))
        chosen, _, _ = self._offered(positions, dues)
        return sorted(set(zip(numbers[chosen].tolist(), indexes[chosen].tolist())))

    def unread(self) -> list[UnreadRun]:
        """Never delivered entries, within permits."""
        return [*self._unread(), *self._came_due()]

    def _came_due(self) -> list[UnreadRun]:
        """Due entries never looked at, within permits. They have no look-ahead limit, since for Pulsar they are
        redeliveries."""
        due, wall = self._cursor.due, self._draft.wall
        if due is None:
            return []

        def unknown(first: int, last: int) -> np.ndarray:
            return virtual(due.unknown(self._changes, number_at(first), number_at(last), wall)[0])

        places, owners = _taken(self._looked_at(virtual(due.read), virtual(due.promotion.count), unknown, 0))
        lines = np.array(self._owners.consumers, object)[owners] if len(owners) else None
        return due.runs(number_at(places), by_time=True, lines=lines)

    def _unread(self) -> list[UnreadRun]:
        if self._walk and self._permits and self._draft.reads(self._changes):
            self._cursor.advance_read_position()
            self._walk.pass_by(self._cursor.read_position - 1)
        positions, owners = _taken(self._new_entries())
        self._note_passed(positions)
        if not len(positions):
            return []
        stretches, known = self._stretches(positions)
        is_new = (np.diff(positions, prepend=-2) != 1) | (np.diff(owners, prepend=-2) != 0)
        starts = np.flatnonzero(is_new | (np.diff(stretches, prepend=-1) != 0))
        lasts = positions[np.append(starts[1:], len(positions)) - 1]
        names = [self._owners.consumers[owner] for owner in owners[starts].tolist()]
        of_run = known.take(stretches[starts])
        sizes, dues = (of_run[name].to_pylist() for name in ("batch_size", "due_time"))
        return [UnreadRun(*row) for row in zip(positions[starts].tolist(), lasts.tolist(), sizes, dues, names)]

    def cut(self, affected: Affected) -> tuple[Affected, list[Placed]]:
        """The planned ranges, cut where the line of entries to deliver again changes, and the place of each piece."""
        ranges: list[Range] = []
        numbers: list[int] = []
        places: list[Placed] = []
        planned = set(affected.numbers)
        singles = [
            held.first for held in affected.planned if held.first == held.last and held.status in (PENDING, REPLAY)
        ]
        place_of = dict(zip(singles, self.places(singles)))
        offered = self._may_be_offered([held for held in affected.planned if held.first < held.last])
        for number, held in enumerate(affected.ranges):
            if number not in planned:
                ranges.append(held)
                continue
            pieces = [(held, place_of.get(held.first, ELSEWHERE))]
            if held.first in offered:
                pieces = self._pieces(held)
            for piece, place in pieces:
                numbers.append(len(ranges))
                ranges.append(piece)
                places.append(place)
        return Affected(affected.pages, ranges, numbers), places

    def _may_be_offered(self, planned: Sequence[Range]) -> set[int]:
        """First positions of *planned* ranges that may be delivered again in this round."""
        changes, now = self._changes, self._draft.now
        firsts, lasts = as_array((held.first, held.last) for held in planned)
        back = ((each.first, each.last) for each in changes.returns if each.due_time <= now)
        are_named = overlap(firsts, lasts, back)
        leaving = changes.left | changes.redelivered
        return {
            held.first
            for held, is_named in zip(planned, are_named.tolist())
            if held.status == REPLAY
            or (held.status == PENDING and (is_named or is_due(held, now) or held.consumer_id in leaving))
        }

    def _pieces(self, held: Range) -> list[tuple[Range, Placed]]:
        owners, is_held = self._placed(np.arange(held.first, held.last + 1))
        changes = (np.diff(owners) != 0) | (np.diff(is_held) != 0)
        starts, names = [0, *(np.flatnonzero(changes) + 1).tolist()], [*self._owners.consumers, None]
        return [
            (
                held._replace(first=held.first + start, last=held.first + until - 1),
                Placed(names[owners[start]], bool(is_held[start])),
            )
            for start, until in pairwise([*starts, len(owners)])
        ]

    def _is_passed_over(self, takes: np.ndarray, held: np.ndarray) -> np.ndarray:
        return ~takes

    def _counts(self, positions: np.ndarray, owners: np.ndarray, takes: np.ndarray) -> np.ndarray:
        """Each run of adjacent entries that one owner *takes*, at its first."""
        goes_on = np.zeros(len(positions), bool)
        goes_on[1:] = takes[:-1] & (owners[1:] == owners[:-1]) & (np.diff(positions) == 1)
        return takes & ~goes_on

    def _out(self) -> Out:
        changes, now = self._changes, self._draft.now
        pages = [page for page in self._cursor.pages if page.unacked]
        found = [_out_of(page, self._selector, self._hashes_at) for page in pages]
        positions, hashes, elsewhere, dues, holders = (
            (np.concatenate(columns) for columns in zip(*found)) if found else _NOTHING_OUT
        )
        gone = self._is_acknowledged(positions) | (dues <= now)
        gone |= np.isin(holders, [*changes.left, *changes.redelivered])
        returns = self._returns()
        gone |= inside(positions, ((each.first, each.last) for each in returns if each.due_time <= now))
        back = expanded(*as_array((each.first, each.last) for each in returns if each.due_time > now))
        back = np.sort(back[~self._is_acknowledged(back)])  # requests come in any order
        return Out(
            np.concatenate((hashes[~gone], self._hashes_at(back))),
            np.concatenate((positions[~gone], back)),
            np.concatenate((elsewhere[~gone], np.zeros(len(back), bool))),
        )

    def _returns(self) -> list[Return]:
        """Returns by an entry's own consumer; the last one counts."""
        if not self._changes.returns:
            return []
        pages = (page for page in self._cursor.pages if page.unacked)
        return effective_returns(self._changes, [held for page in pages for held in page.held])

    def _look_ahead(self) -> int:
        return self._look_ahead_limit() if self._cursor.has_unacked_limits else 0

    def _unknown(self, first: int, last: int) -> np.ndarray:
        unknown = unknown_between(self._changes, first, last)
        if first > last_passed(self._bundle, self._cursor):
            return unknown
        is_own = pass_over(self._bundle, self._changes, unknown, self._draft.wall)
        is_left = ~is_own
        if self._walk:
            is_left &= ~np.isin(unknown, self._walk.evicted(last))
        self._met.append((unknown, is_own, is_left))
        return unknown[is_left]

    def _note_passed(self, taken: np.ndarray) -> None:
        """Note what the main lane passes over up to the last *taken* entry, or with permits left up to the first to be
        read again. Beyond, it would cut ranges."""
        end = int(taken[-1]) if len(taken) else -1
        if len(taken) < sum(self._permits.values()):
            again = (unknown[is_left & ~np.isin(unknown, taken)] for unknown, _, is_left in self._met)
            end = max(end, next((int(found[0]) for found in again if len(found)), NEVER))
        for unknown, is_own, _ in self._met:
            note_passed(self._changes, unknown[is_own & (unknown < end)])
            if self._walk and len(unknown):
                self._walk.pass_by(min(int(unknown[-1]), end))
        self._met = []


def _taken(looked_at: Iterable[tuple[np.ndarray, np.ndarray]]) -> tuple[np.ndarray, np.ndarray]:
    """Ascending positions of the entries that are for somebody, and their owners' numbers."""
    found = [(positions[owners != NOBODY], owners[owners != NOBODY]) for positions, owners in looked_at]
    positions, owners = (np.concatenate(parts) for parts in zip(*found)) if found else (NO_POSITIONS,) * 2
    in_order = np.argsort(positions, kind="stable")
    return positions[in_order], owners[in_order]


def _replays(number: int, page: Page) -> tuple[np.ndarray, ...]:
    """Position, deliver time, page and range of each entry of *page* to deliver again."""
    found = [
        (held.first, held.last, held.due_time or 0, index)
        for index, held in enumerate(page.held)
        if held.status == REPLAY
    ]
    firsts, lasts, dues, indexes = np.array(found, np.int64).reshape(-1, 4).T
    entries = lasts - firsts + 1
    return (
        expanded(firsts, lasts),
        np.repeat(dues, entries),
        np.full(int(entries.sum()), number),
        np.repeat(indexes, entries),
    )


_NOTHING_OUT = (NO_POSITIONS, NO_HASHES, np.empty(0, bool), NO_POSITIONS, np.empty(0, object))


def _out_of(page: Page, selector: Selector, hashes_at: Callable[[np.ndarray], np.ndarray]) -> tuple[np.ndarray, ...]:
    """Position, hash, whether elsewhere, due time and consumer of *page*'s pending entries not with their owner or to
    come back; cached."""
    if page.out is not None and page.out[0] is selector:
        return page.out[1]
    owners = owners_of(selector)
    # Entries that a sole owner has without a due time are neither elsewhere nor to come back.
    sole = None if owners.sole is None else owners.consumers[owners.sole]
    pending = [
        held
        for held in page.held
        if held.status == PENDING and (sole is None or held.consumer_id != sole or held.due_time is not None)
    ]
    spans = np.array([(held.first, held.last) for held in pending], np.int64).reshape(-1, 2)
    places = np.repeat(np.arange(len(pending)), spans[:, 1] - spans[:, 0] + 1)
    positions = expanded(*spans.T)
    holders = np.array([owners.number(held.consumer_id) for held in pending], np.int64)
    dues = np.array([NEVER if held.due_time is None else held.due_time for held in pending], np.int64)[places]
    hashed = hashes_at(positions) if owners.sole is None else None
    elsewhere = (owners.sole if hashed is None else owners.of(hashed)) != holders[places]
    keeps = elsewhere | (dues != NEVER)
    hashed = hashes_at(positions[keeps]) if hashed is None else hashed[keeps]
    names = np.array([held.consumer_id for held in pending], object)[places[keeps]]
    found = positions[keeps], hashed, elsewhere[keeps], dues[keeps], names
    page.out = selector, found
    return found
