"""Snapshot rounds hold all latest rows, so readers may start there."""

from pulsar_spark.broker.bundle.bundle import Bundle
from pulsar_spark.broker.committing.facts import cursor_row, policy_row, set_aside_row, topic_rows, waiting_request_row
from pulsar_spark.broker.committing.round_rows import RoundRows
from pulsar_spark.broker.requests.request import places_of
from pulsar_spark.storage.cursor_ledger.cursor_ledger import OF_ONE_ROUND

SNAPSHOT_EVERY = 50
RANGES_A_SNAPSHOT = 100_000
"""A snapshot every so many rounds, and less often the more ranges there are, so its cost does not grow with the
state."""
AS_RANGES = 10
"""The number of ranges that a cursor or consumer counts as, by the time its row takes."""


def is_snapshot_due(bundle: Bundle, number: int) -> bool:
    """Is this round a snapshot? Rarer for large states; at once after topics were lost."""
    if bundle.has_lost_topics or number % SNAPSHOT_EVERY:
        return bundle.has_lost_topics
    cursors = bundle.cursors.values()
    ranges = AS_RANGES * sum(1 + len(cursor.consumers) for cursor in cursors)
    ranges += sum(cursor.entries.stretches for cursor in cursors)
    return number % (SNAPSHOT_EVERY * max(1, ranges // RANGES_A_SNAPSHOT)) == 0


def everything(bundle: Bundle, rows: RoundRows) -> RoundRows:
    """All latest rows: this round's replies and removals, and the whole state."""
    kept = [fact for fact in rows.facts if fact["kind"] in OF_ONE_ROUND or fact.get("is_removed")]
    whole = RoundRows([*kept, *bundle.waiting_letters.everything(bundle.cursors)], rows.number)
    whole.counts = rows.counts
    whole.facts += [
        policy_row(owner, bundle.topic_id(owner), name, value) for (owner, name), value in bundle.policies.items()
    ]
    whole.facts += [set_aside_row(entry) for entry in bundle.set_aside.values()]
    whole.facts += [waiting_request_row(*place) for place in places_of(bundle.waiting_requests)]
    bundle.note_watermarks()
    for state in bundle.topics.values():
        whole.facts += topic_rows(state, bundle.dues_dropped)
    for cursor in bundle.cursors.values():
        whole.facts.append(cursor_row(cursor))
        whole.facts += [
            bundle.consumer_row(cursor, consumer, with_hash_ranges=True) for consumer in cursor.consumers.values()
        ]
        cursor.entries.pack_unchanged()
        whole.add_map(cursor)
    return whole
