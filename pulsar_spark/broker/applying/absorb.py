"""From the plan's result to the bundle's new state and the rows of the round."""

from collections.abc import Iterable, Iterator

import numpy as np

from pulsar_spark.broker.bundle.bundle import Bundle
from pulsar_spark.broker.committing.facts import cursor_row, dead_letter_rows, removed_consumer_row
from pulsar_spark.broker.committing.round_rows import RoundRows
from pulsar_spark.broker.cursors.pages import Page
from pulsar_spark.broker.cursors.state import Cursor
from pulsar_spark.broker.cursors.unacked import hold_back
from pulsar_spark.broker.gathering.affected import Affected
from pulsar_spark.broker.gathering.coded_work import CodedWork
from pulsar_spark.broker.key_shared.key_shared import with_other_ranges
from pulsar_spark.broker.planning.work import Outcome, Work
from pulsar_spark.broker.requests.drafts import CursorDraft, RoundDraft
from pulsar_spark.broker.round.isolation import isolated, of_cursor
from pulsar_spark.protocol.acknowledgement.cursor import ACKNOWLEDGED, DEAD, Range
from pulsar_spark.protocol.acknowledgement.positions import ranges_of
from pulsar_spark.protocol.delays.delays import is_virtual


def absorb(bundle: Bundle, draft: RoundDraft, work: Work, outcomes: list[Outcome], limit: int) -> RoundRows:
    """Store the plan's *outcomes* in the bundle; returns the rows to commit, except the round's own. *limit* is the
    broker's limit of unacknowledged messages, 0 for none."""
    rows = RoundRows(draft.facts, draft.number)
    for changes, affected, outcome in zip(work.cursors, work.affected, outcomes, strict=True):
        with isolated(of_cursor(changes.cursor)):
            _absorb_cursor(changes, affected, outcome, rows)
    if limit:
        _hold_back(bundle, draft, limit, rows)
    for changes in draft.cursors.values():
        cursor = changes.cursor
        if changes.is_rewritten:
            written = {page.page for page in rows.pages if page.key == cursor.key}
            rows.add_pages(cursor, [page for page in cursor.pages if page.held and page.first not in written], [])
            if cursor.entries is not None:
                rows.add_map(cursor)
        if changes.dropped_pages:
            kept = {page.first for page in cursor.pages}
            rows.add_pages(cursor, [], [page for page in changes.dropped_pages if page not in kept])
        if changes.is_changed:
            if cursor.chunked:
                cursor.chunked.settle()
            rows.facts.append(cursor_row(cursor))
        rows.facts += [removed_consumer_row(cursor, *removed) for removed in changes.removed]
        rows.facts += [
            bundle.consumer_row(cursor, cursor.consumers[consumer_id], with_ranges=changes.ranges_before is not None)
            for consumer_id in sorted(changes.changed_consumers | with_other_ranges(changes))
            if consumer_id in cursor.consumers
        ]
    bundle.cursors.wake(draft.cursors)
    rows.facts += bundle.promotion_facts()
    return rows


def _hold_back(bundle: Bundle, draft: RoundDraft, limit: int, rows: RoundRows) -> None:
    changed, facts = hold_back(bundle, limit)
    rows.facts += facts
    for cursor in changed:
        draft.of(cursor).is_changed = True


def _absorb_cursor(changes: CursorDraft, affected: Affected | CodedWork, outcome: Outcome, rows: RoundRows) -> None:
    cursor = changes.cursor
    if isinstance(affected, CodedWork):
        _absorb_coded(changes, affected, outcome, rows)
        return
    rows.facts += dead_letter_rows(
        cursor, _at_positions(cursor, (held for held in outcome.ranges if held.status == DEAD))
    )
    rows.delivered += outcome.delivered
    rows.acknowledged += _acknowledged(outcome.ranges) - _acknowledged(affected.planned)
    rows.acknowledged -= sum(last - first + 1 for first, last in changes.passed)
    ranges = [Range(held.first, held.last, ACKNOWLEDGED) if held.status == DEAD else held for held in outcome.ranges]
    ranges = affected.with_outcome(ranges)
    if ranges != affected.ranges:
        changes.is_changed = True
        changed, gone = cursor.replace(affected.pages, ranges)
        cursor.advance_read_position()
        if cursor.due:
            changed, gone = _settle_due_lane(cursor, changed, gone)
        rows.add_pages(cursor, changed, gone)
    _store(changes, outcome)


def _settle_due_lane(cursor: Cursor, changed: list[Page], gone: list[int]) -> tuple[list[Page], list[int]]:
    """Advance the visible mark-delete and drop what is before it; returns all changed pages and the keys of removed
    ones. Does nothing while the delay index is rebuilt."""
    if not cursor.due.promotion.is_ready:
        return changed, gone
    cursor.due.settle()
    is_over = cursor.due.is_over
    of_apart, gone_apart = cursor.drop_apart(cursor.first_untouched if is_over else cursor.due.visible)
    pages = {page.first: page for page in [*changed, *of_apart]}
    there = {page.first for page in cursor.pages}
    if is_over:
        cursor.due = None
    return [pages[first] for first in pages if first in there], sorted({*gone, *gone_apart} - there)


def _at_positions(cursor: Cursor, ranges: Iterable[Range]) -> Iterator[Range]:
    """*ranges* by position; one of the due lane becomes several."""
    for held in ranges:
        if is_virtual(held.first):
            for first, last in ranges_of(np.sort(cursor.due.positions_of(held))):
                yield held._replace(first=first, last=last)
        else:
            yield held


def _absorb_coded(changes: CursorDraft, work: CodedWork, outcome: Outcome, rows: RoundRows) -> None:
    """Store the result of a cursor whose entries are kept as a map."""
    cursor, before = changes.cursor, changes.cursor.mark_delete
    rows.facts += dead_letter_rows(cursor, work.dead(outcome.ranges))
    rows.delivered += outcome.delivered
    rows.acknowledged += work.acknowledged(outcome.ranges)
    changed = work.store(outcome.ranges)
    if changed.ranges or cursor.entries.mark_delete != before:
        cursor.coded()
        changes.is_changed = True
    cursor.advance_read_position()
    if not changes.is_rewritten:
        rows.add_entries(cursor, changed)
    _store(changes, outcome)


def _acknowledged(ranges: list[Range]) -> int:
    return sum(held.last - held.first + 1 for held in ranges if held.status == ACKNOWLEDGED)


def _store(changes: CursorDraft, outcome: Outcome) -> None:
    cursor = changes.cursor
    for said in outcome.consumers:
        consumer = cursor.consumers[said.consumer_id]
        if said.delivered or said.is_blocked != consumer.is_blocked:
            changes.changed_consumers.add(said.consumer_id)
        consumer.permits, consumer.is_blocked = said.permits, said.is_blocked
        consumer.msg_out_counter += said.delivered
        consumer.msg_redeliver_counter += said.redelivered
    cursor.msg_out_counter += outcome.delivered
    cursor.msg_redeliver_counter += outcome.redelivered
    if cursor.consumers:
        changes.is_changed |= outcome.is_blocked != cursor.is_blocked
        cursor.is_blocked = outcome.is_blocked
