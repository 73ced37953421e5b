"""Which entries wait for their deliver time, to cancel or reschedule them (0.33)."""

import numpy as np

from pulsar_spark.broker.bundle.bundle import Bundle
from pulsar_spark.broker.cursors.state import Cursor
from pulsar_spark.broker.delays.due_moves import meet, rewrite
from pulsar_spark.broker.delays.own_entries import WINDOW
from pulsar_spark.broker.gathering.unread_slices import honours_delays
from pulsar_spark.broker.requests.drafts import CursorDraft
from pulsar_spark.protocol.acknowledgement.cursor import REPLAY, Range
from pulsar_spark.protocol.acknowledgement.positions import Positions, ranges_of
from pulsar_spark.protocol.delays.delays import AXES_END, place_apart, position_of


def waiting(bundle: Bundle, changes: CursorDraft, first: int, last: int, wall: int) -> list[int]:
    """Places of the entries at *first*..*last* that wait for their deliver time: apart if the due lane has not looked
    at them, else their own."""
    cursor = changes.cursor
    topic = bundle.topics[cursor.topic]
    if not honours_delays(bundle, cursor):
        return []
    if cursor.due is None:
        meet(bundle, changes, first, last, wall)
    places: list[int] = []
    if cursor.due is not None:
        for begins in range(first, min(last, topic.ledgers(cursor.key.partition).last_delayed_position) + 1, WINDOW):
            found = cursor.due.waiting_between(begins, min(begins + WINDOW - 1, last))
            places += place_apart(found).tolist()
        places += _waiting_replays(cursor, place_apart(first), place_apart(last), wall)
    places += _waiting_replays(cursor, first, last, wall)
    return [place for place in places if place not in changes.axis_acks and position_of(place) not in changes.acks]


def _waiting_replays(cursor: Cursor, first: int, last: int, wall: int) -> list[int]:
    return [
        place
        for held in cursor.ranges_between(first, last + 1)
        if held.status == REPLAY and (held.due_time or 0) > wall
        for place in range(max(first, held.first), min(last, held.last) + 1)
    ]


def reschedule(bundle: Bundle, changes: CursorDraft, places: list[int], due_time: int) -> None:
    """Let the entries at *places* (see :func:`waiting`) wait until *due_time*."""
    cursor = changes.cursor
    moved = Positions(ranges_of(np.array(sorted(places), np.int64)))
    kept: list[Range] = []
    known: list[Range] = []
    for held in cursor.ranges_between(0, AXES_END):
        gaps = list(moved.gaps(held.first, held.last))
        kept += [held._replace(first=first, last=last) for first, last in gaps]
        for first, last in Positions(gaps).gaps(held.first, held.last):
            known.append(held._replace(first=first, last=last, due_time=due_time))
    fresh = Positions(sorted((held.first, held.last) for held in known))
    for span in moved:
        for first, last in fresh.gaps(*span):
            for place in range(first, last + 1):
                size = bundle.batch_size(cursor, position_of(place))
                known.append(Range(place, place, REPLAY, redelivery_count=0, due_time=due_time, batch_size=size))
    rewrite(changes, [*kept, *known])
