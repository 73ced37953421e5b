"""From the plan's result to the bundle's new state and the rows of the round."""

from collections import Counter
from heapq import merge

from pulsar_spark.broker.bundle import Bundle
from pulsar_spark.broker.concerned import Concerned
from pulsar_spark.broker.drafts import CursorDraft, RoundDraft
from pulsar_spark.broker.facts import (
    PageRows,
    cursor_row,
    dead_letter_row,
    page_row,
    removed_consumer_row,
    removed_page_row,
)
from pulsar_spark.broker.gather import Work
from pulsar_spark.broker.isolation import isolated, of_cursor
from pulsar_spark.broker.state import Consumer, Cursor, Page
from pulsar_spark.broker.unacked import hold_back
from pulsar_spark.protocol.cursor import ACKNOWLEDGED, DEAD, PENDING, Range, united
from pulsar_spark.protocol.policies import UNACKED_LIMITS


class RoundRows:
    """The rows of a round, as they come together."""

    def __init__(self, facts: list[dict]):
        self.facts = list(facts)
        self.pages: list[PageRows] = []
        self.acknowledged = 0
        """Entries that were not acknowledged before, without the dead ones."""

    def add_pages(self, cursor: Cursor, changed: list[Page], gone: list[int]) -> None:
        self.facts += [removed_page_row(cursor, first) for first in gone]
        self.facts += [page_row(cursor, page) for page in changed]
        self.pages += [PageRows(cursor.key, cursor.topic, page.first, page.ranges) for page in changed]


def absorb(bundle: Bundle, draft: RoundDraft, work: Work, planned: list[list[Range]], limit: int) -> RoundRows:
    """Take the new ranges of each cursor of *work* into the bundle; the rows to commit, without the round's own.
    *limit* is the broker's own of unacknowledged messages, 0 for none."""
    rows = RoundRows(draft.facts)
    for asked, concerned, ranges in zip(work.cursors, work.concerned, planned, strict=True):
        with isolated(of_cursor(asked.cursor)):
            _absorb_cursor(bundle, draft, asked, concerned, ranges, rows)
    if limit:
        _hold_back(bundle, draft, limit, rows)
    for asked in draft.cursors.values():
        cursor = asked.cursor
        if asked.dropped_pages:
            kept = {page.first for page in cursor.pages}
            rows.add_pages(cursor, [], [page for page in asked.dropped_pages if page not in kept])
        if asked.is_changed:
            rows.facts.append(cursor_row(cursor))
        rows.facts += [removed_consumer_row(cursor, *removed) for removed in asked.removed]
        rows.facts += [
            bundle.consumer_row(cursor, cursor.consumers[consumer_id])
            for consumer_id in sorted(asked.changed_consumers)
            if consumer_id in cursor.consumers
        ]
    return rows


def _hold_back(bundle: Bundle, draft: RoundDraft, limit: int, rows: RoundRows) -> None:
    changed, facts = hold_back(bundle, limit)
    rows.facts += facts
    for cursor in changed:
        draft.of(cursor).is_changed = True


def _absorb_cursor(
    bundle: Bundle, draft: RoundDraft, asked: CursorDraft, concerned: Concerned, ranges: list[Range], rows: RoundRows
) -> None:
    cursor = asked.cursor
    rows.facts += [dead_letter_row(cursor, held) for held in ranges if held.status == DEAD]
    rows.acknowledged += _acknowledged(ranges) - _acknowledged(concerned.planned)
    ranges = [Range(held.first, held.last, ACKNOWLEDGED) if held.status == DEAD else held for held in ranges]
    read_before = cursor.read_position
    if ranges != concerned.planned:
        asked.is_changed = True
        rows.add_pages(cursor, *cursor.replace(concerned.pages, united(merge(concerned.kept, ranges))))
        cursor.advance_read_position()
    delivered, redelivered = Counter(), Counter()
    for held in ranges:
        if held.status == PENDING and held.delivery_round == draft.number:
            delivered[held.consumer_id] += held.unacked_messages
            redelivered[held.consumer_id] += (
                held._replace(last=min(held.last, read_before - 1)).unacked_messages if held.first < read_before else 0
            )
    _count(bundle, cursor, asked, delivered, redelivered)


def _acknowledged(ranges: list[Range]) -> int:
    return sum(held.last - held.first + 1 for held in ranges if held.status == ACKNOWLEDGED)


def _count(bundle: Bundle, cursor: Cursor, asked: CursorDraft, delivered: Counter, redelivered: Counter) -> None:
    """Take permits, raise counters, and say who is held back by unacknowledged messages (4.4, 4.5)."""
    for consumer_id, messages in delivered.items():
        consumer = cursor.consumers[consumer_id]
        consumer.permits -= messages
        consumer.msg_out_counter += messages
        consumer.msg_redeliver_counter += redelivered[consumer_id]
        asked.changed_consumers.add(consumer_id)
    cursor.msg_out_counter += delivered.total()
    cursor.msg_redeliver_counter += redelivered.total()
    if not cursor.consumers:
        return
    limit, subscription_limit = (
        bundle.policy(cursor.topic, name) if cursor.has_unacked_limits else 0 for name in UNACKED_LIMITS
    )
    for consumer in cursor.consumers.values():
        is_blocked = _is_blocked(
            consumer,
            cursor.unacked[consumer.consumer_id],
            delivered[consumer.consumer_id],
            limit,
            consumer.consumer_id in asked.asked_back,
        )
        if is_blocked != consumer.is_blocked:
            consumer.is_blocked = is_blocked
            asked.changed_consumers.add(consumer.consumer_id)
    total, given = cursor.unacked.total(), delivered.total()
    is_blocked = subscription_limit > 0 and (
        total >= subscription_limit or (cursor.is_blocked and total - given >= subscription_limit // 2)
    )
    asked.is_changed |= is_blocked != cursor.is_blocked
    cursor.is_blocked = is_blocked


def _is_blocked(consumer: Consumer, unacked: int, delivered: int, limit: int, is_unblocked: bool) -> bool:
    if limit <= 0:
        return False
    was_blocked = consumer.is_blocked and not is_unblocked and unacked - delivered > limit // 2
    return was_blocked or unacked >= limit
