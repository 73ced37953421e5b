"""From the plan's result to the bundle's new state and the rows of the round."""

from pulsar_spark.broker.bundle import Bundle
from pulsar_spark.broker.concerned import Concerned
from pulsar_spark.broker.desk import removed_consumer_row
from pulsar_spark.broker.drafts import CursorDraft, RoundDraft
from pulsar_spark.broker.isolation import isolated, of_cursor
from pulsar_spark.broker.state import Consumer, Cursor, Page
from pulsar_spark.broker.unacked import hold_back
from pulsar_spark.broker.work import Outcome, Work
from pulsar_spark.protocol.cursor import ACKNOWLEDGED, DEAD, Range, spliced
from pulsar_spark.protocol.letters import DEAD_LETTER
from pulsar_spark.protocol.unacked_limit import BLOCKED_BY_BROKER, BrokerLimit
from pulsar_spark.storage.cursor_ledger import PageRows, uncollected


class RoundRows:
    """The rows of a round, as they come together."""

    def __init__(self, facts: list[dict]):
        self.facts = list(facts)
        self.pages: list[PageRows] = []
        self.acknowledged = 0
        """Entries that were not acknowledged before, without the dead ones."""

    def add_pages(self, cursor: Cursor, changed: list[Page], gone: list[int]) -> None:
        common = dict(kind="page", topic=cursor.topic, **cursor.key._asdict())
        self.facts += [dict(common, page=page, is_removed=True) for page in gone]
        self.facts += [
            dict(common, page=page.first, first=page.ranges[0].first, last=page.ranges[-1].last) for page in changed
        ]
        self.pages += cursor.rows(changed)


@uncollected()
def absorb(bundle: Bundle, draft: RoundDraft, work: Work, planned: list[Outcome], limit: BrokerLimit) -> RoundRows:
    """Take what the plan says of each cursor of *work* into the bundle; the rows to commit, without the round's own."""
    rows = RoundRows(draft.facts)
    for asked, concerned, outcome in zip(work.cursors, work.concerned, planned, strict=True):
        with isolated(of_cursor(asked.cursor)):
            _absorb_cursor(asked, concerned, outcome, rows)
    if limit.messages:
        _hold_back(bundle, draft, limit, rows)
    for asked in draft.cursors.values():
        cursor = asked.cursor
        if asked.dropped_pages:
            kept = {page.first for page in cursor.pages}
            rows.add_pages(cursor, [], [page for page in asked.dropped_pages if page not in kept])
        if asked.is_changed:
            rows.facts.append(cursor_row(cursor))
        rows.facts += [removed_consumer_row(cursor, removed) for removed in asked.removed]
        rows.facts += [
            consumer_row(bundle, cursor, cursor.consumers[consumer_id])
            for consumer_id in sorted(asked.changed_consumers)
            if consumer_id in cursor.consumers
        ]
    return rows


def _hold_back(bundle: Bundle, draft: RoundDraft, limit: BrokerLimit, rows: RoundRows) -> None:
    changed, facts = hold_back(bundle, limit)
    rows.facts += facts
    for cursor in changed:
        draft.of(cursor).is_changed = True


def _absorb_cursor(asked: CursorDraft, concerned: Concerned, outcome: Outcome, rows: RoundRows) -> None:
    cursor = asked.cursor
    rows.facts += [letter_row(cursor, held) for held in outcome.ranges if held.status == DEAD]
    rows.acknowledged += _acknowledged(outcome.ranges) - _acknowledged(concerned.planned)
    ranges = [Range(held.first, held.last, ACKNOWLEDGED) if held.status == DEAD else held for held in outcome.ranges]
    ranges = spliced(concerned.ranges, concerned.numbers, ranges)
    if ranges != concerned.ranges:
        asked.is_changed = True
        rows.add_pages(cursor, *cursor.replace(concerned.pages, ranges))
        cursor.advance_read_position()
    _store(asked, outcome)


def _acknowledged(ranges: list[Range]) -> int:
    return sum(held.last - held.first + 1 for held in ranges if held.status == ACKNOWLEDGED)


def _store(asked: CursorDraft, outcome: Outcome) -> None:
    """Keep what the plan says of the cursor and its consumers."""
    cursor = asked.cursor
    for said in outcome.consumers:
        consumer = cursor.consumers[said.consumer_id]
        if said.delivered or said.is_blocked != consumer.is_blocked:
            asked.changed_consumers.add(said.consumer_id)
        consumer.permits, consumer.is_blocked = said.permits, said.is_blocked
        consumer.msg_out_counter += said.delivered
        consumer.msg_redeliver_counter += said.redelivered
    cursor.msg_out_counter += outcome.delivered
    cursor.msg_redeliver_counter += outcome.redelivered
    if cursor.consumers:
        asked.is_changed |= outcome.is_blocked != cursor.is_blocked
        cursor.is_blocked = outcome.is_blocked


def letter_row(cursor: Cursor, held: Range) -> dict:
    """The row that says entries are dead: from it the dead letters are written."""
    return dict(
        kind="letter",
        status=DEAD_LETTER,
        topic=cursor.topic,
        **cursor.key._asdict(),
        first=held.first,
        last=held.last,
        consumer_id=held.consumer_id,
        redelivery_count=held.redelivery_count,
        ack_set=held.ack_set,
        batch_size=held.batch_size,
        properties=list(cursor.dead_letters.items()),
    )


def cursor_row(cursor: Cursor) -> dict:
    """The cursor's own row."""
    return dict(
        kind="cursor",
        topic=cursor.topic,
        **cursor.key._asdict(),
        mark_delete_position=cursor.mark_delete,
        read_position=cursor.read_position,
        subscription_type=cursor.subscription_type,
        is_blocked=cursor.is_blocked,
        status=BLOCKED_BY_BROKER if cursor.is_blocked_by_broker else None,
        properties=list(cursor.dead_letters.items()),
        join_order=cursor.joined,
        due_time=cursor.reads_after or None,
        round_time=cursor.last_active,
        msg_out_counter=cursor.msg_out_counter,
        msg_redeliver_counter=cursor.msg_redeliver_counter,
    )


def consumer_row(bundle: Bundle, cursor: Cursor, consumer: Consumer) -> dict:
    """A connected consumer's row."""
    return dict(
        kind="consumer",
        topic=cursor.topic,
        **cursor.key._asdict(),
        consumer_id=consumer.consumer_id,
        consumer_name=consumer.name,
        client_id=consumer.client_id,
        priority_level=consumer.priority_level,
        permits=consumer.permits,
        is_blocked=consumer.is_blocked,
        is_active=consumer.consumer_id == cursor.active_id if cursor.is_single_active else None,
        lease_time=bundle.lease_time(consumer.client_id),
        join_order=consumer.join_order,
        msg_out_counter=consumer.msg_out_counter,
        msg_redeliver_counter=consumer.msg_redeliver_counter,
        properties=list(consumer.properties.items()),
    )
