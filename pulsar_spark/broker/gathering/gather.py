"""From drafts to the rows a round is planned from, and the pages it rewrites.

``candidates`` says which cursors take part, ``affected`` which of their ranges are planned.
"""

from collections import Counter, defaultdict
from collections.abc import Sequence

from pulsar_spark.broker.bundle.bundle import Bundle
from pulsar_spark.broker.bundle.clock import Instant
from pulsar_spark.broker.cursors.consumer import Consumer
from pulsar_spark.broker.cursors.state import Cursor
from pulsar_spark.broker.delays.due_moves import stop_waiting
from pulsar_spark.broker.delays.due_requests import acknowledge_delivered, catch_up, map_to_axes
from pulsar_spark.broker.gathering.affected import Affected, affected_ranges, effective_returns, is_due, offered_ranges
from pulsar_spark.broker.gathering.candidates import let_rest, note_nothing_found, takers_of, takes_part
from pulsar_spark.broker.gathering.coded import Coded
from pulsar_spark.broker.gathering.coded_work import CodedWork
from pulsar_spark.broker.gathering.unread_run import UnreadRun
from pulsar_spark.broker.gathering.unread_runs import MAX_ROUND_ENTRIES, unread_runs
from pulsar_spark.broker.gathering.unread_slices import deliver_time, honours_delays
from pulsar_spark.broker.key_shared.coded_by_key import CodedByKey
from pulsar_spark.broker.key_shared.keyed import Keyed
from pulsar_spark.broker.key_shared.keyed_pages import KeyedByPage
from pulsar_spark.broker.planning.work import Rows, Work
from pulsar_spark.broker.requests.drafts import CursorDraft, Return, RoundDraft
from pulsar_spark.broker.round.isolation import isolated, of_cursor
from pulsar_spark.protocol.acknowledgement.cursor import PENDING, Range
from pulsar_spark.protocol.delays.delays import position_of, virtual
from pulsar_spark.protocol.keys.draining import caught_up
from pulsar_spark.protocol.policies.policies import UNACKED_LIMITS
from pulsar_spark.protocol.subscriptions.shared import turns
from pulsar_spark.storage.delta.python_rows import uncollected
from pulsar_spark.transforms.round_inputs import STATE


@uncollected()
def gather_work(bundle: Bundle, draft: RoundDraft) -> Work:
    """The work of a round, for all cursors that have any."""
    gathering = _Gathering(bundle, draft)
    bundle.cursors.wake(draft.cursors)
    for cursor in bundle.cursors.awake():
        if not bundle.is_set_aside(cursor):
            with isolated(of_cursor(cursor)):
                gathering.look_at(cursor)
    return Work(gathering.rows.table(), gathering.cursors, gathering.affected)


class _Gathering:
    """The rows of a round, cursor by cursor."""

    def __init__(self, bundle: Bundle, draft: RoundDraft):
        self.bundle, self.draft = bundle, draft
        self.rows, self.cursors, self.affected = Rows(), [], []

    def look_at(self, cursor: Cursor) -> None:
        for consumer_id in caught_up(cursor.recently_joined, cursor.visible_mark_delete):
            del cursor.recently_joined[consumer_id]
            self.draft.of(cursor).changed_consumers.add(consumer_id)
        if cursor.entries is not None and not self._may_be_by_code(cursor):
            changes = self.draft.of(cursor)
            changes.dropped_pages += cursor.keep_exact()
            changes.is_rewritten = changes.is_changed = True
        takers = takers_of(cursor, self.draft.now)
        if _is_ready(cursor):
            self._look_at_due_lane(cursor, takers)
        else:
            takers = []
        if takes_part(self.bundle, self.draft, cursor, takers):
            self._add(self.draft.of(cursor), takers)
        elif cursor.key not in self.draft.cursors:
            let_rest(self.bundle, Instant(self.draft.now, self.draft.wall), cursor, takers)

    def _look_at_due_lane(self, cursor: Cursor, takers: list[Consumer]) -> None:
        if cursor.due and cursor.due.is_behind:
            catch_up(self.draft.of(cursor))
        if cursor.due and cursor.consumers and not honours_delays(self.bundle, cursor):
            stop_waiting(self.draft.of(cursor))
        if cursor.due and takers:
            cursor.due.promotion.advance(self.draft.wall)

    def _add(self, changes: CursorDraft, takers: list[Consumer]) -> None:
        cursor = changes.cursor
        if cursor.entries is None and self._may_be_by_code(cursor):
            changes.dropped_pages += cursor.keep_by_code()
            changes.is_rewritten |= cursor.entries.end > 0
        if cursor.entries is not None:
            self._add_by_code(changes, takers)
            return
        if cursor.due:
            map_to_axes(changes)
        _find_delivered(changes)
        _find_tails(changes, self.draft.now)
        if cursor.is_key_shared and _is_ready(cursor):
            self._add_keyed(changes, takers)
            return
        permits = sum(consumer.permits for consumer in takers)
        most = min(permits, MAX_ROUND_ENTRIES) if self.draft.reads(changes) else 0
        unread = unread_runs(self.bundle, changes, most, self.draft.wall)
        spans = [(unread[0].first, unread[-1].last)] if unread else []
        came_due = self._came_due(changes, permits)
        spans += [(run.first, run.last) for run in came_due]
        affected = affected_ranges(
            changes, now=self._now(cursor), offered=offered_ranges(changes, self.draft.wall, permits), unread=spans
        )
        planned = affected.planned
        elsewhere = _unacked_elsewhere(cursor.unacked, planned)
        number = self._begin(changes, takers, affected, elsewhere, cursor.read_position)
        self.rows.extend("range", number, planned)
        self._add_requests(number, changes, planned)
        self.rows.extend("unread", number, [*unread, *came_due])

    def _came_due(self, changes: CursorDraft, permits: int) -> list[UnreadRun]:
        """Due entries never looked at, within permits."""
        cursor, wall = changes.cursor, self.draft.wall
        if cursor.due is None:
            return []
        others = any(page.replays_at is not None and page.replays[-1][0] > 0 for page in cursor.pages)
        return cursor.due.unread(changes, permits, wall, by_time=others)

    def _add_keyed(self, changes: CursorDraft, takers: list[Consumer]) -> None:
        """Add a Key_Shared cursor."""
        cursor = changes.cursor
        by_key = KeyedByPage(self.bundle, self.draft, changes, takers)
        unread = by_key.unread()
        offered = by_key.replays()
        if not offered and (not unread or cursor.is_blocked):
            note_nothing_found(self.bundle, cursor, takers, self.draft.wall)
        affected = affected_ranges(
            changes, now=self.draft.now, offered=offered, unread=[(run.first, run.last) for run in unread]
        )
        affected, places = by_key.cut(affected)
        elsewhere = _unacked_elsewhere(cursor.unacked, affected.planned)
        number = self._begin(changes, takers, affected, elsewhere, cursor.read_position)
        self.rows.extend(
            "range", number, [(*held[: len(STATE)], *place) for held, place in zip(affected.planned, places)]
        )
        self._add_requests(number, changes, affected.planned, by_key)
        self.rows.extend("unread", number, unread)

    def _may_be_by_code(self, cursor: Cursor) -> bool:
        """Not with delayed entries or chunks, nor where any may come."""
        topic = self.bundle.topics.get(cursor.topic)
        if cursor.due is not None or cursor.chunked is not None or topic is None:
            return False
        ledgers = topic.ledgers(cursor.key.partition)
        return max(ledgers.last_delayed_position, ledgers.last_chunk_position) < cursor.read_position

    def _add_by_code(self, changes: CursorDraft, takers: list[Consumer]) -> None:
        """Add the rows of a cursor whose entries are kept as a map; they count places in dealing order."""
        cursor = changes.cursor
        coded = (CodedByKey if cursor.is_key_shared else Coded)(self.bundle, self.draft, changes, takers)
        work = coded.plan()
        if isinstance(coded, CodedByKey) and (coded.found_nothing or cursor.is_blocked):
            note_nothing_found(self.bundle, cursor, takers, self.draft.wall)
        elsewhere = _unacked_elsewhere(cursor.unacked, work.planned)
        number = self._begin(changes, takers, work, elsewhere, coded.first_new)
        self.rows.extend("range", number, coded.rows)
        self.rows.extend("ack", number, coded.acks)
        self.rows.extend("ack_set", number, coded.ack_sets)
        self.rows.extend("return", number, coded.returns)
        self.rows.extend("unread", number, coded.new)

    def _begin(
        self,
        changes: CursorDraft,
        takers: list[Consumer],
        affected: Affected | CodedWork,
        elsewhere: Counter,
        read_position: int,
    ) -> int:
        """Add a cursor and its consumers; returns its number. Entries before *read_position* are not new."""
        planned, number = affected.planned, len(self.cursors)
        permits = sum(consumer.permits for consumer in takers)
        self._add_limits(number, changes, permits, elsewhere, read_position)
        self._add_turns(number, changes, takers, planned, elsewhere)
        self.cursors.append(changes)
        self.affected.append(affected)
        return number

    def _now(self, cursor: Cursor) -> int:
        """Until when entries come back by themselves; 0 while the delay index is rebuilt."""
        return self.draft.now if _is_ready(cursor) else 0

    def _limit(self, cursor: Cursor, name: str) -> int:
        return self.bundle.policy(cursor.topic, name) if cursor.has_unacked_limits else 0

    def _add_limits(
        self, number: int, changes: CursorDraft, permits: int, elsewhere: Counter, read_position: int
    ) -> None:
        cursor = changes.cursor
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
            left=sorted(changes.left),
            redelivered=sorted(changes.redelivered),
            read_position=read_position,
            round=self.draft.number,
            now=self._now(cursor),
            wall=self.draft.wall,
            due_read=cursor.due and virtual(cursor.due.read),
        )

    def _add_requests(
        self, number: int, changes: CursorDraft, planned: list[Range], by_key: Keyed | None = None
    ) -> None:
        cursor, passed = changes.cursor, changes.cursor.mark_delete
        acks = [(max(first, passed + 1), last) for first, last in changes.acks if last > passed]
        self.rows.extend("ack", number, [*acks, *changes.passed])
        ack_sets = [(position, position, left) for position, left in changes.ack_sets.items() if position > passed]
        self.rows.extend("ack_set", number, ack_sets)
        never_delivered = sorted(position for position, _, _ in ack_sets if cursor.find(position) is None)
        places = by_key.places(never_delivered) if by_key else [()] * len(never_delivered)
        for position, place in zip(never_delivered, places):
            self._add_never_delivered(number, cursor, position_of(position), position, place)
        self.rows.extend("return", number, effective_returns(changes, planned))

    def _add_never_delivered(self, number: int, cursor: Cursor, position: int, place: int, line: Sequence) -> None:
        """Add the entry at *position*, acknowledged in part, at *place* and in *line*, if any. A past deliver time
        counts only in the due lane."""
        size, due = self.bundle.batch_size(cursor, position), deliver_time(self.bundle, cursor, position)
        if place == position and (due or 0) <= self.draft.wall:
            due = None
        self.rows.extend("unread", number, [(place, place, size, due, *line)])

    def _add_turns(
        self, number: int, changes: CursorDraft, takers: list[Consumer], planned: list[Range], elsewhere: Counter
    ) -> None:
        """Add consumers in turn, then those that get nothing. One that asks for its messages again is unblocked
        (4.4)."""
        cursor, now = changes.cursor, self.draft.now
        asks = changes.redelivered | {each.consumer_id for each in changes.returns if each.due_time <= now}
        asks |= {consumer_id for consumer_id, _, _ in changes.tails}
        asks |= {held.consumer_id for held in planned if held.status == PENDING and is_due(held, now)}
        in_line = {consumer.consumer_id for consumer in takers}
        others = [(each, 0, None) for each in cursor.consumers.values() if each.consumer_id not in in_line]
        limit = self._limit(cursor, UNACKED_LIMITS[0])
        # On Key_Shared each consumer has a line of its own.
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


def _is_ready(cursor: Cursor) -> bool:
    """Can its state be read? Not with a due lane while the delay index is rebuilt: then only acknowledgements count."""
    return cursor.due is None or cursor.due.promotion.is_ready


def _find_delivered(changes: CursorDraft) -> None:
    if not changes.delivered_acks:
        return
    of_delivery = defaultdict(list)
    for first, last, consumer_id, round_number in changes.delivered_acks:
        of_delivery[consumer_id, round_number].append((first, last))
    if changes.cursor.due:
        acknowledge_delivered(changes, of_delivery)
    for held in changes.cursor.ranges():
        if held.status == PENDING:
            for first, last in of_delivery.get((held.consumer_id, held.delivery_round), ()):
                changes.acks.add(max(first, held.first), min(last, held.last))
    changes.delivered_acks = []


def _find_tails(changes: CursorDraft, now: int) -> None:
    for consumer_id, round_number, first in changes.tails:
        for page in changes.cursor.pages:
            for held in page.held if consumer_id in page.unacked else ():
                if held.status != PENDING or held.consumer_id != consumer_id or held.delivery_round < round_number:
                    continue
                begin = max(held.first, first) if held.delivery_round == round_number else held.first
                if begin <= held.last:
                    changes.returns.append(Return(begin, held.last, consumer_id, now, is_unseen=True))
    changes.tails = []


def _unacked_elsewhere(unacked: Counter, planned: list[Range]) -> Counter:
    """Unacknowledged messages by consumer outside the planned ranges."""
    elsewhere = unacked.copy()
    for held in planned:
        if held.status == PENDING:
            elsewhere[held.consumer_id] -= held.unacked_messages
    return elsewhere
