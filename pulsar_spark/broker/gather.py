"""From drafts to the rows a round is planned from, and to which pages it rewrites.

A cursor takes part when something was asked of its ranges, an entry of it falls due, or a consumer has permits and
there is something to give. Which of its ranges are planned is said in ``affected``.
"""

from collections import Counter
from typing import NamedTuple

from pulsar_spark.broker import keyed
from pulsar_spark.broker.affected import (
    Affected,
    affected_ranges,
    effective_returns,
    has_replays,
    is_due,
    offered_ranges,
)
from pulsar_spark.broker.bundle import Bundle
from pulsar_spark.broker.clock import Instant
from pulsar_spark.broker.drafts import CursorDraft, RoundDraft
from pulsar_spark.broker.isolation import isolated, of_cursor
from pulsar_spark.broker.keyed import Keyed
from pulsar_spark.broker.state import Consumer, Cursor
from pulsar_spark.broker.unread_slices import delayed_unread
from pulsar_spark.broker.work import Rows, Work
from pulsar_spark.protocol.cursor import PENDING, Range, skip_unacked
from pulsar_spark.protocol.draining import caught_up
from pulsar_spark.protocol.policies import UNACKED_LIMITS
from pulsar_spark.protocol.shared import turns
from pulsar_spark.storage.python_rows import uncollected
from pulsar_spark.transforms.round_inputs import STATE

MAX_ROUND_ENTRIES = 20_000_000
"""Most entries one cursor hands out in a round."""


class UnreadRun(NamedTuple):
    """Entries first..last of one batch size that were never delivered; ``due_time`` (microseconds) where they have a
    deliver time."""

    first: int
    last: int
    batch_size: int
    due_time: int | None


@uncollected()
def gather_work(bundle: Bundle, draft: RoundDraft) -> Work:
    """The work of a round, for all cursors that have any."""
    gathering = _Gathering(bundle, draft)
    for cursor in bundle.cursors.values():
        if not bundle.is_set_aside(cursor):
            with isolated(of_cursor(cursor)):
                gathering.look_at(cursor)
    return Work(gathering.rows.table(), gathering.cursors, gathering.affected)


def has_work(bundle: Bundle, draft: RoundDraft) -> bool:
    """Would :func:`gather_work` find any?"""
    return any(
        _takes_part(bundle, draft, cursor, _takers(cursor, draft.now))
        for cursor in bundle.cursors.values()
        if not bundle.is_set_aside(cursor)
    )


class _Gathering:
    """The rows of a round, cursor by cursor."""

    def __init__(self, bundle: Bundle, draft: RoundDraft):
        self.bundle, self.draft = bundle, draft
        self.rows, self.cursors, self.affected = Rows(), [], []

    def look_at(self, cursor: Cursor) -> None:
        """Add the rows of *cursor* if it has work."""
        for consumer_id in caught_up(cursor.recently_joined, cursor.mark_delete):
            del cursor.recently_joined[consumer_id]
            self.draft.of(cursor).changed_consumers.add(consumer_id)
        takers = _takers(cursor, self.draft.now)
        if _takes_part(self.bundle, self.draft, cursor, takers):
            self._add(self.draft.of(cursor), takers)

    def _add(self, asked: CursorDraft, takers: list[Consumer]) -> None:
        if asked.cursor.is_key_shared:
            self._add_keyed(asked, takers, Keyed(self.bundle, self.draft, asked, takers))
            return
        cursor = asked.cursor
        permits = sum(consumer.permits for consumer in takers)
        most = 0 if cursor.is_blocked_by_broker else min(permits, MAX_ROUND_ENTRIES)
        unread = _unread_runs(self.bundle, asked, most)
        affected = affected_ranges(
            asked,
            now=self.draft.now,
            offered=offered_ranges(cursor, self.draft.wall, permits),
            unread=[(unread[0].first, unread[-1].last)] if unread else [],
        )
        planned = affected.planned
        number = self._begin(asked, takers, affected)
        self.rows.extend("range", number, planned)
        self._add_requests(number, asked, planned)
        self.rows.extend("unread", number, unread)

    def _add_keyed(self, asked: CursorDraft, takers: list[Consumer], by_key: Keyed) -> None:
        """The same for a Key_Shared cursor, each row in its owner's line."""
        offered, unread = by_key.replays(), by_key.unread()
        if not offered and (not unread or asked.cursor.is_blocked):
            keyed.note_in_vain(self.bundle, asked.cursor, takers, self.draft.wall)
        affected = affected_ranges(
            asked, now=self.draft.now, offered=offered, unread=[(run.first, run.last) for run in unread]
        )
        affected, places = by_key.cut(affected)
        number = self._begin(asked, takers, affected)
        self.rows.extend(
            "range", number, [(*held[: len(STATE)], *place) for held, place in zip(affected.planned, places)]
        )
        self._add_requests(number, asked, affected.planned, by_key)
        self.rows.extend("unread", number, unread)

    def _begin(self, asked: CursorDraft, takers: list[Consumer], affected: Affected) -> int:
        """Add a cursor and its consumers; the cursor's number."""
        planned, number = affected.planned, len(self.cursors)
        elsewhere = _unacked_elsewhere(asked.cursor, planned)
        self._add_limits(number, asked, sum(consumer.permits for consumer in takers), elsewhere)
        self._add_turns(number, asked, takers, planned, elsewhere)
        self.cursors.append(asked)
        self.affected.append(affected)
        return number

    def _limit(self, cursor: Cursor, name: str) -> int:
        return self.bundle.policy(cursor.topic, name) if cursor.has_unacked_limits else 0

    def _add_limits(self, number: int, asked: CursorDraft, permits: int, elsewhere: Counter) -> None:
        cursor = asked.cursor
        self.rows.add(
            "cursor",
            number,
            first=0,
            last=0,
            is_single_active=cursor.is_single_active,
            limit=self._limit(cursor, UNACKED_LIMITS[1]),
            unacked_elsewhere=elsewhere.total(),
            is_blocked=cursor.is_blocked,
            permits=permits,
            max_redeliver_count=cursor.max_redeliver_count,
            left=sorted(asked.left),
            redelivered=sorted(asked.redelivered),
            read_position=cursor.read_position,
            round=self.draft.number,
            now=self.draft.now,
            wall=self.draft.wall,
        )

    def _add_requests(self, number: int, asked: CursorDraft, planned: list[Range], by_key: Keyed | None = None) -> None:
        cursor, passed = asked.cursor, asked.cursor.mark_delete
        acks = [(max(first, passed + 1), last) for first, last in asked.acks if last > passed]
        self.rows.extend("ack", number, acks)
        ack_sets = [(position, position, left) for position, left in asked.ack_sets.items() if position > passed]
        self.rows.extend("ack_set", number, ack_sets)
        never_delivered = sorted(position for position, _, _ in ack_sets if cursor.find(position) is None)
        places = by_key.places(never_delivered) if by_key else [()] * len(never_delivered)
        for position, place in zip(never_delivered, places):
            size, due = self.bundle.batch_size(cursor, position), _deliver_time(self.bundle, cursor, position)
            self.rows.extend("unread", number, [(position, position, size, due, *place)])
        self.rows.extend("return", number, effective_returns(asked, planned))

    def _add_turns(
        self, number: int, asked: CursorDraft, takers: list[Consumer], planned: list[Range], elsewhere: Counter
    ) -> None:
        """Everybody's turns, in line; behind them who may be given nothing. A consumer that asks for its messages again
        is unblocked by that (4.4)."""
        cursor, now = asked.cursor, self.draft.now
        asks = asked.redelivered | {consumer_id for _, _, consumer_id, due in asked.returns if due <= now}
        asks |= {held.consumer_id for held in planned if held.status == PENDING and is_due(held, now)}
        in_line = {consumer.consumer_id for consumer in takers}
        others = [(each, 0, None) for each in cursor.consumers.values() if each.consumer_id not in in_line]
        limit = self._limit(cursor, UNACKED_LIMITS[0])
        # On Key_Shared each one stands alone in a line of its own.
        lines = [[taker] for taker in takers] if cursor.is_key_shared else [takers]
        served = [turn for line in lines for turn in turns(line, start=self.draft.number)]
        for place, (consumer, lap, peers) in enumerate([*served, *others]):
            self.rows.add(
                "consumer",
                number,
                first=place,
                last=place,
                consumer_id=consumer.consumer_id,
                lap=lap,
                peers=peers,
                permits=consumer.permits,
                limit=limit,
                unacked_elsewhere=elsewhere[consumer.consumer_id],
                is_blocked=consumer.is_blocked and consumer.consumer_id not in asks,
                line=consumer.consumer_id if cursor.is_key_shared else None,
            )


def next_due(bundle: Bundle, now: int) -> int | None:
    """The earliest instant after *now* at which a round has something to do without being asked; None when nothing
    waits. For clocks that agree."""
    return min((due for due in next_dues(bundle, Instant(now, now)) if due is not None), default=None)


def next_dues(bundle: Bundle, now: Instant) -> tuple[int | None, int | None]:
    """The same by each of the two clocks: what waits by the broker's own, and by the machine's."""
    served = [cursor for cursor in bundle.cursors.values() if not bundle.is_set_aside(cursor)]
    own = [
        page.returns_at
        for cursor in served
        for page in cursor.pages
        if page.returns_at is not None and page.returns_at > now.own
    ]
    own += [cursor.reads_after for cursor in served if cursor.reads_after > now.own]
    own += bundle.leases.values()
    own += [instant for instant in [bundle.waiting_letters.next_due()] if instant is not None]
    own += [] if bundle.maintenance_due is None else [bundle.maintenance_due]
    wall = [
        page.replays_at
        for cursor in served
        for page in cursor.pages
        if page.replays_at is not None and page.replays_at > now.wall
    ]
    return min(own, default=None), min(wall, default=None)


def _takers(cursor: Cursor, now: int) -> list[Consumer]:
    """Consumers that may be given entries, as far as permits tell."""
    if cursor.reads_after > now:
        return []
    if cursor.is_single_active:
        active = cursor.consumers.get(cursor.active_id)
        return [active] if active and active.permits > 0 else []
    return [consumer for consumer in cursor.consumers.values() if consumer.permits > 0]


def _takes_part(bundle: Bundle, draft: RoundDraft, cursor: Cursor, takers: list[Consumer]) -> bool:
    asked = draft.cursors.get(cursor.key)
    return (
        (asked is not None and asked.has_work)
        or any(page.has_returns(draft.now) for page in cursor.pages)
        or (bool(takers) and _has_candidates(bundle, cursor, takers, draft.wall))
    )


def _has_candidates(bundle: Bundle, cursor: Cursor, takers: list[Consumer], wall: int) -> bool:
    topic = bundle.topics.get(cursor.topic)
    if topic is None:
        return False
    if cursor.consumers and not cursor.is_single_active and not _may_take(cursor):
        return False
    if cursor.is_key_shared:
        return keyed.has_candidates(bundle, cursor, takers, wall)
    replays = any(has_replays(cursor, page, wall) for page in cursor.pages)
    return replays or (
        cursor.read_position < topic.end_position(cursor.key.partition)
        and not (cursor.is_blocked or cursor.is_blocked_by_broker)
    )


def _may_take(cursor: Cursor) -> bool:
    """Is any consumer with permits not held back by its unacknowledged messages?"""
    return any(consumer.permits > 0 and not consumer.is_blocked for consumer in cursor.consumers.values())


def _unacked_elsewhere(cursor: Cursor, planned: list[Range]) -> Counter:
    """What each consumer has unacknowledged in ranges that are not planned."""
    elsewhere = cursor.unacked.copy()
    for held in planned:
        if held.status == PENDING:
            elsewhere[held.consumer_id] -= held.unacked_messages
    return elsewhere


def _unread_runs(bundle: Bundle, asked: CursorDraft, most: int) -> list[UnreadRun]:
    """Runs that hold the next *most* entries never delivered (and what is acknowledged between them); those that adjoin
    and agree are one."""
    cursor = asked.cursor
    topic = bundle.topics.get(cursor.topic)
    cursor.advance_read_position()
    if topic is None or most <= 0:
        return []
    ledgers = topic.ledgers(cursor.key.partition)
    ahead = [
        (held.first, held.last)
        for page in cursor.pages[max(cursor.page_index(cursor.read_position), 0) :]
        for held in page.ranges
    ]
    ahead += [*asked.acks, *((position, position) for position in asked.ack_sets)]
    last = skip_unacked(cursor.read_position - 1, ledgers.end_position, sorted(ahead), most)
    if last < cursor.read_position:
        return []
    unread = delayed_unread(bundle, cursor, ledgers.parts(cursor.read_position, last))
    return [UnreadRun(*row) for row in zip(*(column.to_pylist() for column in unread.columns))]


def _deliver_time(bundle: Bundle, cursor: Cursor, position: int) -> int | None:
    ledgers = bundle.topics[cursor.topic].ledgers(cursor.key.partition)
    return delayed_unread(bundle, cursor, ledgers.parts(position, position))["due_time"][0].as_py()
