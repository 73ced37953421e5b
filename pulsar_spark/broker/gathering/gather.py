"""Gather the input of a round's plan: of each cursor with work its limits, its consumers in turn, and its entries."""

from collections import Counter

from pulsar_spark.broker.bundle.bundle import Bundle
from pulsar_spark.broker.cursors.consumer import Consumer
from pulsar_spark.broker.cursors.state import Cursor
from pulsar_spark.broker.gathering.candidates import nothing_found, takers_of, takes_part
from pulsar_spark.broker.gathering.cursor_inputs import CursorInputs
from pulsar_spark.broker.gathering.planned_entries import PlannedEntries
from pulsar_spark.broker.key_shared.inputs_by_key import InputsByKey
from pulsar_spark.broker.planning.work import PlanInputs, Work
from pulsar_spark.broker.requests.drafts import CursorChanges, RoundDraft
from pulsar_spark.broker.round.isolation import isolated, of_cursor
from pulsar_spark.protocol.acknowledgement.cursor import PENDING, Range
from pulsar_spark.protocol.policies.policies import UNACKED_LIMITS
from pulsar_spark.protocol.subscriptions.shared import turns
from pulsar_spark.storage.delta.python_rows import uncollected


@uncollected()
def gather_work(bundle: Bundle, draft: RoundDraft) -> Work:
    gathering = _Gathering(bundle, draft)
    for cursor in bundle.cursors_at_work():
        with isolated(of_cursor(cursor)):
            gathering.look_at(cursor)
    return Work(gathering.inputs.table(), gathering.cursors, gathering.entries, gathering.resting, gathering.fruitless)


class _Gathering:
    def __init__(self, bundle: Bundle, draft: RoundDraft):
        self.bundle, self.draft = bundle, draft
        self.inputs = PlanInputs()
        self.cursors: list[CursorChanges] = []
        self.entries: list[PlannedEntries] = []
        self.resting: list[tuple[Cursor, list[Consumer]]] = []
        self.fruitless: list[tuple[Cursor, tuple]] = []

    def look_at(self, cursor: Cursor) -> None:
        takers = takers_of(cursor, self.draft.now)
        if takes_part(self.bundle, self.draft, cursor, takers):
            self._add(self.draft.changes_of(cursor), takers)
        elif cursor.key not in self.draft.cursors:
            self.resting.append((cursor, takers))

    def _add(self, changes: CursorChanges, takers: list[Consumer]) -> None:
        cursor = changes.cursor
        inputs = (InputsByKey if cursor.is_key_shared else CursorInputs)(self.bundle, self.draft, changes, takers)
        entries = inputs.gather()
        if isinstance(inputs, InputsByKey) and (inputs.found_nothing or cursor.is_blocked):
            self.fruitless.append((cursor, nothing_found(self.bundle, cursor, takers, self.draft.wall)))
        number, elsewhere = len(self.cursors), _unacked_elsewhere(cursor.unacked, entries.planned)
        self._add_limits(number, changes, sum(consumer.permits for consumer in takers), elsewhere, inputs.first_new)
        self._add_turns(number, changes, takers, entries.planned, elsewhere)
        self.inputs.extend("range", number, inputs.ranges.rows)
        self.cursors.append(changes)
        self.entries.append(entries)

    def _limit(self, cursor: Cursor, name: str) -> int:
        return self.bundle.policy(cursor.topic, name) if cursor.has_unacked_limits else 0

    def _add_limits(
        self, number: int, changes: CursorChanges, permits: int, elsewhere: Counter, read_position: int
    ) -> None:
        cursor = changes.cursor
        self.inputs.add(
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
            now=self.draft.now,
            wall=self.draft.wall,
        )

    def _add_turns(
        self, number: int, changes: CursorChanges, takers: list[Consumer], planned: list[Range], elsewhere: Counter
    ) -> None:
        """Add the consumers in turn, then those that get nothing. A consumer that asks for its messages again is
        unblocked (4.4)."""
        cursor, now = changes.cursor, self.draft.now
        unblocked: set[str | None] = {*changes.redelivered, *(consumer_id for consumer_id, _, _ in changes.tails)}
        unblocked.update(each.consumer_id for each in changes.returns if each.due_time <= now)
        unblocked.update(
            range_.consumer_id
            for range_ in planned
            if range_.status == PENDING and range_.due_time is not None and range_.due_time <= now
        )
        served_ids = {consumer.consumer_id for consumer in takers}
        others = [(each, 0, None) for each in cursor.consumers.values() if each.consumer_id not in served_ids]
        limit = self._limit(cursor, UNACKED_LIMITS[0])
        groups = [[taker] for taker in takers] if cursor.is_key_shared else [takers]
        served = [turn for group in groups for turn in turns(group, start=self.draft.number)]
        for place, (consumer, lap, peers) in enumerate([*served, *others]):
            self.inputs.add(
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
                is_blocked=consumer.is_blocked and consumer.consumer_id not in unblocked,
                line=consumer.consumer_id if cursor.is_key_shared else None,
            )


def _unacked_elsewhere(unacked: Counter, planned: list[Range]) -> Counter:
    """Unacknowledged messages by consumer, without those in *planned* ranges."""
    elsewhere = unacked.copy()
    for range_ in planned:
        if range_.status == PENDING:
            elsewhere[range_.consumer_id] -= range_.unacked_messages
    return elsewhere
