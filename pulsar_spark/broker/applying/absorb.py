"""From the plan's result to the bundle's new state and the rows of the round."""

from pulsar_spark.broker.applying.counts import AcknowledgedMessages
from pulsar_spark.broker.bundle.bundle import Bundle
from pulsar_spark.broker.committing.facts import cursor_row, dead_letter_rows, removed_consumer_row, reset_row
from pulsar_spark.broker.committing.round_rows import RoundRows
from pulsar_spark.broker.cursors.state import Cursor
from pulsar_spark.broker.cursors.unacked import limit_unacked
from pulsar_spark.broker.gathering.candidates import let_rest
from pulsar_spark.broker.gathering.planned_entries import PlannedEntries
from pulsar_spark.broker.key_shared.key_shared import with_other_hash_ranges
from pulsar_spark.broker.planning.work import Outcome, Work
from pulsar_spark.broker.requests.drafts import CursorChanges, RoundDraft
from pulsar_spark.broker.round.isolation import isolated, of_cursor
from pulsar_spark.storage.ledgers.partition_ledgers import PartitionLedgers


def absorb(bundle: Bundle, draft: RoundDraft, work: Work, outcomes: list[Outcome], limit: int) -> RoundRows:
    """Take the plan's *outcomes* into the bundle; returns the rows to commit, except the round's own. *limit* is the
    broker's limit of unacknowledged messages, 0 for none.

    A cursor's row has its new mark-delete. Rows of kind ``range`` have the entries above it that changed.
    """
    rows = RoundRows(draft.facts, draft.number)
    for cursor, found in work.fruitless:
        cursor.nothing_found_at = found
    for cursor, takers in work.resting:  # first, because the rest of the round may wake them again
        with isolated(of_cursor(cursor)):
            let_rest(bundle, bundle.now, cursor, takers)
    for changes, entries, outcome in zip(work.cursors, work.entries, outcomes, strict=True):
        with isolated(of_cursor(changes.cursor)):
            _absorb_cursor(changes, entries, outcome, rows, _ledgers_of(bundle, changes.cursor))
    if limit:
        blocked, facts = limit_unacked(bundle, limit)
        rows.facts += facts
        for cursor in blocked:
            draft.changes_of(cursor).is_changed = True
    for changes in draft.cursors.values():
        cursor = changes.cursor
        if cursor.chunked is not None and changes.is_changed:
            cursor.chunked.acknowledge_parts()
            if cursor.entries.has_changes:
                changes.rewrite()
        if changes.is_rewritten:
            rows.facts.append(reset_row(cursor))
            rows.add_map(cursor)
        begins_to_wait = cursor.dues is not None and not cursor.dues.is_stored
        if changes.is_changed or begins_to_wait:
            rows.facts.append(cursor_row(cursor))
            if cursor.dues is not None:
                cursor.dues.is_stored = True
        rows.facts += [removed_consumer_row(cursor, *removed) for removed in changes.removed]
        may_own_others = changes.hash_ranges_before is not None
        rows.facts += [
            bundle.consumer_row(cursor, cursor.consumers[consumer_id], with_hash_ranges=may_own_others)
            for consumer_id in sorted(changes.changed_consumers | with_other_hash_ranges(changes))
            if consumer_id in cursor.consumers
        ]
    bundle.cursors.wake(draft.cursors)
    return rows


def _ledgers_of(bundle: Bundle, cursor: Cursor) -> PartitionLedgers:
    return bundle.topics[cursor.topic].ledgers(cursor.key.partition)


def _absorb_cursor(
    changes: CursorChanges, work: PlannedEntries, outcome: Outcome, rows: RoundRows, ledgers: PartitionLedgers
) -> None:
    cursor, before = changes.cursor, changes.cursor.mark_delete
    dead, counts = list(work.dead(outcome.ranges)), rows.counts
    rows.facts += dead_letter_rows(cursor, dead)
    rows.acknowledged += work.count_acknowledged(outcome.ranges)
    acknowledged = AcknowledgedMessages(cursor.entries, ledgers, changes.ack_sets)
    done = acknowledged.of_whole(work, outcome.ranges)
    changed = work.put(outcome.ranges)
    done += acknowledged.of_parts(dead) - changes.dead
    died = sum(range_.unacked_messages for range_ in dead)
    cursor.msg_ack_counter += done
    cursor.msg_dead_counter += died
    counts["delivered"] += outcome.delivered
    counts["redelivered"] += outcome.redelivered
    counts["acknowledged"] += done
    counts["dead"] += died + changes.dead
    counts["returned"] += work.count_returned(outcome.ranges, rows.number)
    if changed.ranges or cursor.entries.mark_delete != before:
        cursor.follow_map()
        changes.is_changed = True
    if cursor.dues is not None:
        cursor.dues.advance_watermark(cursor.entries)
    cursor.advance_read_position()
    if not changes.is_rewritten:
        rows.add_ranges(cursor, changed)
    _absorb_consumers(changes, outcome)


def _absorb_consumers(changes: CursorChanges, outcome: Outcome) -> None:
    cursor = changes.cursor
    for counted in outcome.consumers:
        consumer = cursor.consumers[counted.consumer_id]
        if counted.delivered or counted.is_blocked != consumer.is_blocked:
            changes.changed_consumers.add(counted.consumer_id)
        consumer.permits, consumer.is_blocked = counted.permits, counted.is_blocked
        consumer.msg_out_counter += counted.delivered
        consumer.msg_redeliver_counter += counted.redelivered
    cursor.msg_out_counter += outcome.delivered
    cursor.msg_redeliver_counter += outcome.redelivered
    if cursor.consumers:
        changes.is_changed |= outcome.is_blocked != cursor.is_blocked
        cursor.is_blocked = outcome.is_blocked
