"""Time to live for a cursor with a due lane (0.26, see protocol.policies.expiry)."""

from collections.abc import Iterable

from pulsar_spark.broker.delays.deliver_times import delayed_at
from pulsar_spark.broker.delays.own_entries import WINDOW
from pulsar_spark.broker.requests.drafts import CursorDraft
from pulsar_spark.protocol.acknowledgement.cursor import ACKNOWLEDGED, REPLAY
from pulsar_spark.protocol.acknowledgement.positions import Positions, as_array, expanded, ranges_of
from pulsar_spark.protocol.delays.delays import APART_BASE, DUE_BASE, place_apart, position_of, virtual


def expire_due(changes: CursorDraft, last: int, dead_before: int) -> None:
    """Acknowledge the due lane's entries due before *dead_before*, which is a stretch of numbers, and those apart up to
    position *last*."""
    due = changes.cursor.due
    due.promotion.advance(dead_before - 1)
    end = virtual(due.promotion.first_at(dead_before))
    changes.axis_acks.add(due.mark_delete + 1, end - 1)
    changes.expired += end - due.mark_delete - 1
    for held in changes.cursor.ranges_between(DUE_BASE, end):
        if held.status == ACKNOWLEDGED:
            changes.expired -= min(held.last + 1, end) - held.first
    _expire_apart(changes, last, dead_before)


def _expire_apart(changes: CursorDraft, last: int, dead_before: int) -> None:
    """Waiting entries go by the time they wait for, others by their own deliver time."""
    due, unmoved = changes.cursor.due, []
    for held in changes.cursor.ranges_between(APART_BASE, place_apart(last) + 1):
        first, until = position_of(held.first), min(position_of(held.last), last)
        if held.status == REPLAY and held.due_time is not None:
            dead = [(first, until)] if held.due_time < dead_before else []
            _expire_at(changes, dead)
        elif held.status != ACKNOWLEDGED:
            unmoved.append((first, until))
    positions = expanded(*as_array(unmoved))
    times = delayed_at(due.topic, due.cursor.key.partition, positions)
    _expire_at(changes, ranges_of(positions[times < dead_before]))


def _expire_at(changes: CursorDraft, stretches: Iterable[tuple[int, int]]) -> None:
    for first, last in stretches:
        changes.axis_acks.add(place_apart(first), place_apart(last))
        changes.expired += last - first + 1


def expire_main(changes: CursorDraft, first: int, last: int) -> None:
    """Acknowledge first..last of the main lane; the due lane's entries are passed over."""
    cursor, due = changes.cursor, changes.cursor.due
    known = Positions((held.first, held.last) for held in cursor.ranges())
    done = Positions((held.first, held.last) for held in cursor.ranges() if held.status == ACKNOWLEDGED)
    for begin in range(first, last + 1, WINDOW):
        end = min(begin + WINDOW - 1, last)
        own = ranges_of(due.own_between(begin, end))
        for stretch in own:
            for since, until in known.gaps(*stretch):
                changes.passed.add(since, until)
        for stretch in Positions(own).gaps(begin, end):
            changes.expired += sum(until - since + 1 for since, until in done.gaps(*stretch))
            changes.axis_acks.add(*stretch)
