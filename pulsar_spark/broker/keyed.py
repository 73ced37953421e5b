"""Key_Shared: whose each entry is, and which entries wait, for one cursor in one round.

An entry belongs to the owner of its hash (protocol.selectors); its row in the plan stands in that consumer's line. What
waits is held: because its hash drains or an earlier entry of it is to come back (protocol.draining), or because nobody
owns it (semantics 2.31). Held entries that were never delivered are simply not read yet, so they cost no state: reading
passes over them and over those whose owners take nothing, and deals what lies behind them to the others, until so many
were passed over that the look-ahead limit is reached (keySharedLookAheadMsgInReplayThreshold...; a subscription whose
consumers have no limits of unacknowledged messages has none of this either).

What comes back is dealt in the round in which it comes back: ranges are cut where their entries' owners change.
"""

from collections.abc import Collection, Iterable, Sequence
from functools import lru_cache
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from pulsar_spark.broker.affected import Affected, effective_returns, is_due
from pulsar_spark.broker.bundle import Bundle
from pulsar_spark.broker.drafts import CursorDraft, RoundDraft
from pulsar_spark.broker.entry_hashes import EntryHashes
from pulsar_spark.broker.state import Consumer, Cursor, Page
from pulsar_spark.broker.unread_slices import delayed_unread
from pulsar_spark.protocol import ack_set
from pulsar_spark.protocol.cursor import PENDING, REPLAY, Range
from pulsar_spark.protocol.draining import DrainingHashes, NothingWaits, Out, RecentlyJoined, Waits, look_ahead_limit
from pulsar_spark.protocol.hash_ranges import NOBODY, Owners
from pulsar_spark.protocol.positions import expanded
from pulsar_spark.protocol.selectors import Selector

WINDOW_ENTRIES = 1 << 16, 1 << 22
"""Entries looked at in one go, at least and at most."""

MOST_RUNS = 200_000
"""Runs of entries never delivered that one round hands out, at most: where keys lie at random each is an entry or two,
where a publish was sorted by hash thousands."""

LOOK_AHEAD = (
    "key_shared_look_ahead_msg_in_replay_threshold_per_consumer",
    "key_shared_look_ahead_msg_in_replay_threshold_per_subscription",
)
_NO_POSITIONS = np.empty(0, np.int64)


class Placed(NamedTuple):
    """Where an entry, or a range, stands: in whose line, and whether it is held."""

    line: str | None
    is_held: bool


ELSEWHERE = Placed(None, True)
"""Not offered in this round, whosever it is."""


class Unread(NamedTuple):
    """Entries first..last of one batch size and deliver time (microseconds), never delivered, in one line."""

    first: int
    last: int
    batch_size: int
    due_time: int | None
    line: str


class Keyed:
    """A Key_Shared cursor in a round: its owners, what waits, and what the consumers that take part may be given."""

    def __init__(self, bundle: Bundle, draft: RoundDraft, asked: CursorDraft, takers: Sequence[Consumer]):
        self._bundle, self._draft, self._asked, self._cursor = bundle, draft, asked, asked.cursor
        self._owners = owners_of(self._cursor.selector)
        self._hashes = _hashes_of(bundle, self._cursor)
        # Who is held back by unacknowledged messages may be let go by what is asked in this round: the plan says.
        may_be_let_go = asked.has_work or any(page.has_returns(draft.now) for page in self._cursor.pages)
        self._permits = {
            self._owners.number(taker.consumer_id): taker.permits
            for taker in takers
            if may_be_let_go or not taker.is_blocked
        }
        self._permits.pop(NOBODY, None)
        self._waits = self._what_waits()

    def replays(self) -> list[tuple[int, int]]:
        """(page, range) of what is to be delivered again now to a consumer that takes part, as many entries as its
        permits allow: what came back first, by position, then what has come due (0.21)."""
        pages = [(number, page) for number, page in enumerate(self._cursor.pages) if page.replays_at is not None]
        if not pages or not self._permits:
            return []
        found = [np.concatenate(columns) for columns in zip(*(_replays(*page) for page in pages))]
        is_ripe = (found[1] <= self._draft.wall) & ~self._is_acknowledged(found[0])
        positions, dues, numbers, indexes = (column[is_ripe] for column in found)
        in_order = np.argsort(positions, kind="stable")
        positions, dues, numbers, indexes = (column[in_order] for column in (positions, dues, numbers, indexes))
        owners, held = self._placed(positions)
        in_line = np.lexsort((positions, dues))
        chosen = in_line[self._within_permits(owners[in_line], ~held[in_line])]
        return sorted(set(zip(numbers[chosen].tolist(), indexes[chosen].tolist())))

    def unread(self) -> list[Unread]:
        """What was never delivered and may be given to the consumers that take part, as many entries as their permits
        allow."""
        cursor, topic = self._cursor, self._bundle.topics.get(self._cursor.topic)
        cursor.advance_read_position()
        if topic is None or not self._permits or cursor.is_blocked_by_broker:
            return []
        end, at = topic.end_position(cursor.key.partition), cursor.read_position
        most, passed_over, found = self._look_ahead(), 0, []
        left = dict(self._permits)
        runs = MOST_RUNS
        while at < end and runs > 0 and any(left.values()):
            last = min(at + int(np.clip(2 * sum(left.values()), *WINDOW_ENTRIES)), end) - 1
            unknown = self._unknown(at, last)
            owners, held = self._placed(unknown)
            takes = self._within_permits(owners, ~held, left)
            if most:
                passed = passed_over + np.cumsum(~takes)
                takes &= passed < most
                passed_over = int(passed[-1]) if len(passed) else passed_over
            begun = np.cumsum(_begins(unknown, owners, takes))
            takes &= begun <= runs
            runs -= int(begun[-1]) if len(begun) else 0
            for owner, count in zip(*np.unique(owners[takes], return_counts=True)):
                left[int(owner)] -= int(count)
            found.append((unknown[takes], owners[takes]))
            if most and passed_over >= most:
                break
            at = last + 1
        positions, owners = (np.concatenate(parts) for parts in zip(*found)) if found else (_NO_POSITIONS,) * 2
        return self._runs(positions, owners)

    def cut(self, affected: Affected) -> tuple[Affected, list[Placed]]:
        """The ranges that are planned, cut where the line of what comes again, in this round or before, changes, and
        where each of them stands. What is given back is offered in the same round, for later entries of its hashes
        are."""
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

    def places(self, positions: Sequence[int]) -> list[Placed]:
        """Where single entries stand, at *positions* that ascend, when they are offered (again)."""
        owners, held = self._placed(np.asarray(positions, np.int64))
        names = [*self._owners.consumers, None]
        return [Placed(names[owner], is_held) for owner, is_held in zip(owners.tolist(), held.tolist())]

    def _may_be_offered(self, planned: Sequence[Range]) -> set[int]:
        """Where those ranges begin that wait to be delivered again, or of which entries may be given back in this
        round."""
        asked, now = self._asked, self._draft.now
        firsts, lasts = _array((first, last) for first, last, _, due in asked.returns if due <= now)
        begun = np.searchsorted(np.sort(firsts), [held.last for held in planned], "right")
        ended = np.searchsorted(np.sort(lasts), [held.first for held in planned], "left")
        leaving = asked.left | asked.redelivered
        return {
            held.first
            for held, is_named in zip(planned, (begun > ended).tolist())
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

    def _placed(self, positions: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The number of the owner of each entry, and whether it is held."""
        hashes = self._hashes.at(positions)
        owners = self._owners.of(hashes)
        return owners, (owners == NOBODY) | self._waits.held(positions, hashes, owners)

    def _is_acknowledged(self, positions: np.ndarray) -> np.ndarray:
        """Which entries this round acknowledges as a whole."""
        done = [position for position, left in self._asked.ack_sets.items() if ack_set.is_empty(left)]
        return _inside(positions, self._asked.acks) | np.isin(positions, done)

    def _within_permits(
        self, owners: np.ndarray, may_go: np.ndarray, permits: dict[int, int] | None = None
    ) -> np.ndarray:
        """Which entries, in the order given, their owners have permits for."""
        takes = np.zeros(len(owners), bool)
        for owner, count in (self._permits if permits is None else permits).items():
            places = np.flatnonzero(may_go & (owners == owner))[:count]
            takes[places] = True
        return takes

    def _what_waits(self) -> Waits:
        rules, joined = self._cursor.key_shared, self._cursor.recently_joined
        if rules is None or rules.allows_out_of_order:
            return NothingWaits()
        if rules.is_classic:
            return RecentlyJoined({self._owners.number(consumer_id): limit for consumer_id, limit in joined.items()})
        return DrainingHashes(self._out())

    def _out(self) -> Out:
        """The entries that keep their hashes, after what this round acknowledges and brings back."""
        asked, now = self._asked, self._draft.now
        found = [_out_of(page, self._cursor.selector, self._hashes) for page in self._cursor.pages if page.unacked]
        positions, hashes, elsewhere, dues, holders = (
            (np.concatenate(columns) for columns in zip(*found)) if found else _NOTHING_OUT
        )
        gone = self._is_acknowledged(positions) | (dues <= now)
        gone |= np.isin(holders, [*asked.left, *asked.redelivered])
        returns = self._returns()
        gone |= _inside(positions, ((first, last) for first, last, _, due in returns if due <= now))
        back = expanded(*_array((first, last) for first, last, _, due in returns if due > now))
        back = back[~self._is_acknowledged(back)]
        return Out(
            np.concatenate((hashes[~gone], self._hashes.at(back))),
            np.concatenate((positions[~gone], back)),
            np.concatenate((elsewhere[~gone], np.zeros(len(back), bool))),
        )

    def _returns(self) -> list[tuple[int, int, str, int]]:
        """What of the returns that are asked for names entries their holders have: of several, the last one counts."""
        if not self._asked.returns:
            return []
        pages = (page for page in self._cursor.pages if page.unacked)
        return effective_returns(self._asked, [held for page in pages for held in page.ranges])

    def _look_ahead(self) -> int:
        cursor = self._cursor
        if not cursor.has_unacked_limits:
            return 0
        per_consumer, per_subscription = (self._bundle.policy(cursor.topic, name) for name in LOOK_AHEAD)
        return look_ahead_limit(
            per_consumer=per_consumer, per_subscription=per_subscription, consumers=cursor.consumers
        )

    def _unknown(self, first: int, last: int) -> np.ndarray:
        """The positions first..last that no range names and no request of this round acknowledges."""
        changes = np.zeros(last - first + 2, np.int64)
        pages = self._cursor.pages[max(self._cursor.page_index(first), 0) :]
        spans = [page.spans for page in pages if page.first <= last]
        spans.append(_array(self._asked.acks))
        spans.append(_array((position, position) for position in self._asked.ack_sets))
        for firsts, lasts in spans:
            is_in = (firsts <= last) & (lasts >= first)
            np.add.at(changes, np.maximum(firsts[is_in], first) - first, 1)
            np.add.at(changes, np.minimum(lasts[is_in], last) - first + 1, -1)
        return first + np.flatnonzero(np.cumsum(changes[:-1]) == 0)

    def _runs(self, positions: np.ndarray, owners: np.ndarray) -> list[Unread]:
        """The entries as runs that agree."""
        if not len(positions):
            return []
        cursor = self._cursor
        ledgers = self._bundle.topics[cursor.topic].ledgers(cursor.key.partition)
        in_order = np.argsort(positions, kind="stable")
        positions, owners = positions[in_order], owners[in_order]
        known = delayed_unread(self._bundle, cursor, ledgers.parts(int(positions[0]), int(positions[-1])))
        stretches = np.searchsorted(known["first"].to_numpy(), positions, "right") - 1
        is_new = (np.diff(positions, prepend=-2) != 1) | (np.diff(owners, prepend=-2) != 0)
        starts = np.flatnonzero(is_new | (np.diff(stretches, prepend=-1) != 0))
        lasts = positions[np.append(starts[1:], len(positions)) - 1]
        of_run = known.take(stretches[starts])
        names = [self._owners.consumers[owner] for owner in owners[starts].tolist()]
        sizes, dues = (of_run[name].to_pylist() for name in ("batch_size", "due_time"))
        return [Unread(*row) for row in zip(positions[starts].tolist(), lasts.tolist(), sizes, dues, names)]


@lru_cache(maxsize=4096)
def owners_of(selector: Selector) -> Owners:
    """The owners of all hashes; selectors are values, so they are made once for each."""
    return Owners(selector.owned(), selector.axis)


def has_candidates(bundle: Bundle, cursor: Cursor, takers: Collection[Consumer], wall: int) -> bool:
    """May there be anything for the consumers that take part? Once a round has looked in vain, not before something
    changed."""
    known = cursor.looked_in_vain
    if known is None or known[0] != _state(bundle, cursor, takers) or (known[1] is not None and known[1] <= wall):
        topic = bundle.topics[cursor.topic]
        return any(page.replays_at is not None and page.replays_at <= wall for page in cursor.pages) or (
            cursor.read_position < topic.end_position(cursor.key.partition)
            and not (cursor.is_blocked or cursor.is_blocked_by_broker)
        )
    return False


def note_in_vain(bundle: Bundle, cursor: Cursor, takers: Collection[Consumer], wall: int) -> None:
    """Nothing was found for these consumers, as things stand."""
    ripe_at = [due for page in cursor.pages for due, _ in page.replays if due > wall]
    cursor.looked_in_vain = _state(bundle, cursor, takers), min(ripe_at, default=None)


def _state(bundle: Bundle, cursor: Cursor, takers: Collection[Consumer]) -> tuple:
    """What decides whether there is anything to hand out, and is cheap to compare."""
    return (
        bundle.topics[cursor.topic].end_position(cursor.key.partition),
        cursor.mark_delete,
        cursor.changes,
        cursor.selector,
        cursor.is_blocked,
        cursor.is_blocked_by_broker,
        tuple(cursor.recently_joined.items()),
        cursor.key_shared,
        frozenset(taker.consumer_id for taker in takers if not taker.is_blocked),
        *(bundle.policy(cursor.topic, name) for name in LOOK_AHEAD),
    )


def _begins(positions: np.ndarray, owners: np.ndarray, takes: np.ndarray) -> np.ndarray:
    """Where a run of adjoining entries that one owner *takes* begins."""
    goes_on = np.zeros(len(positions), bool)
    goes_on[1:] = takes[:-1] & (owners[1:] == owners[:-1]) & (np.diff(positions) == 1)
    return takes & ~goes_on


def _hashes_of(bundle: Bundle, cursor: Cursor) -> EntryHashes:
    return bundle.topics[cursor.topic].hashes(cursor.key.partition)


def _replays(number: int, page: Page) -> tuple[np.ndarray, ...]:
    """Position, deliver time, page and range of each entry of *page* that is to be delivered again."""
    found = [
        (held.first, held.last, held.due_time or 0, index)
        for index, held in enumerate(page.ranges)
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


_NEVER = np.iinfo(np.int64).max
_NOTHING_OUT = (_NO_POSITIONS, np.empty(0, np.int32), np.empty(0, bool), _NO_POSITIONS, np.empty(0, object))


def _out_of(page: Page, selector: Selector, hashes: EntryHashes) -> tuple[np.ndarray, ...]:
    """Position, hash, whether it is at another than the owner, when it is to come back, and the holder of each pending
    entry of *page* that is at another than its owner or is to come back; worked out once for each set of owners."""
    if page.out is not None and page.out[0] is selector:
        return page.out[1]
    pending = [held for held in page.ranges if held.status == PENDING]
    spans = np.array([(held.first, held.last) for held in pending], np.int64).reshape(-1, 2)
    places = np.repeat(np.arange(len(pending)), spans[:, 1] - spans[:, 0] + 1)
    positions = expanded(*spans.T)
    owners = owners_of(selector)
    hashed = hashes.at(positions)
    holders = np.array([owners.number(held.consumer_id) for held in pending], np.int64)
    dues = np.array([_NEVER if held.due_time is None else held.due_time for held in pending], np.int64)[places]
    elsewhere = owners.of(hashed) != holders[places]
    keeps = elsewhere | (dues != _NEVER)
    names = np.array([held.consumer_id for held in pending], object)[places]
    found = positions[keeps], hashed[keeps], elsewhere[keeps], dues[keeps], names[keeps]
    page.out = selector, found
    return found


def _inside(positions: np.ndarray, spans: Iterable[tuple[int, int]]) -> np.ndarray:
    """Which of *positions* lie in any of *spans*."""
    firsts, lasts = _array(spans)
    begun = np.searchsorted(np.sort(firsts), positions, "right")
    return begun > np.searchsorted(np.sort(lasts), positions, "left")


def _array(spans: Iterable[tuple[int, int]]) -> np.ndarray:
    return np.array([*spans], np.int64).reshape(-1, 2).T
