"""Maps requests about a due lane from positions to the axes of its states.

An entry that was looked at is named by its number; one acknowledged earlier is kept apart. While the delay index is
rebuilt the two cannot be told apart, so all acknowledged entries are kept apart until :func:`catch_up`.
"""

from collections.abc import Iterable, Mapping

import numpy as np

from pulsar_spark.broker.delays.deliver_times import delayed_at
from pulsar_spark.broker.delays.due_lane import DueLane
from pulsar_spark.broker.requests.drafts import CursorDraft, Return
from pulsar_spark.protocol.acknowledgement.ack_set import is_empty
from pulsar_spark.protocol.acknowledgement.cursor import ACKNOWLEDGED
from pulsar_spark.protocol.acknowledgement.positions import Positions, as_array, expanded, inside, ranges_of
from pulsar_spark.protocol.delays.delays import APART_BASE, AXES_END, DUE_BASE, place_apart, position_of, virtual

ONE_BY_ONE = 1 << 22
"""Acknowledged positions up to which each is checked for waiting. Beyond, whole stretches are kept apart, which has no
effect on other entries in them."""


def map_to_axes(changes: CursorDraft) -> None:
    """Replace requests about positions by requests about places. Once a round."""
    due = changes.cursor.due
    if not due.promotion.is_ready:
        _keep_apart(changes)
        return
    changes.returns = _returns(due, changes.returns)
    spans = list(Positions(sorted(changes.acknowledged_whole)))
    changes.ack_sets = {due.place(position): left for position, left in changes.ack_sets.items() if not is_empty(left)}
    apart = [(place_apart(first), place_apart(last)) for first, last in _met_too_early(due, spans)]
    changes.acks = Positions(sorted([*spans, *_in_motion(due, spans), *apart, *changes.axis_acks]))
    changes.axis_acks = Positions()


def _keep_apart(changes: CursorDraft) -> None:
    due, spans = changes.cursor.due, list(changes.acks)
    due.is_behind = True
    apart = [(place_apart(first), place_apart(last)) for first, last in _clipped(due, spans)]
    changes.acks = Positions(sorted([*spans, *apart, *changes.axis_acks]))
    changes.axis_acks = Positions()


def catch_up(changes: CursorDraft) -> None:
    """Acknowledge entries in motion that were acknowledged during a rebuild."""
    due = changes.cursor.due
    if not due.is_behind:
        return
    due.is_behind = False
    held = changes.cursor.ranges_between(APART_BASE, AXES_END)
    done = [(position_of(each.first), position_of(each.last)) for each in held if each.status == ACKNOWLEDGED]
    if done:
        motion = due.motion
        for first, last in ranges_of(np.sort(motion.numbers[inside(motion.positions, done)])):
            changes.axis_acks.add(virtual(first), virtual(last))


def acknowledge_delivered(changes: CursorDraft, of_delivery: Mapping[tuple[str, int], list[tuple[int, int]]]) -> None:
    """Acknowledge the due lane's entries in these deliveries (consumer, round), at spans of positions."""
    cursor = changes.cursor
    for held in cursor.ranges_between(DUE_BASE, AXES_END):
        spans = of_delivery.get((held.consumer_id, held.delivery_round)) if held.consumer_id else None
        if spans:
            places = np.arange(held.first, held.last + 1)
            for first, last in ranges_of(places[inside(cursor.due.real(places), spans)]):
                changes.acks.add(first, last)


def _returns(due: DueLane, returns: list[Return]) -> list[Return]:
    """Each return, then its meaning on the other axes; the last one for an entry counts."""
    if not returns:
        return returns
    motion, apart, found = due.motion, _apart(due), []
    firsts, lasts = as_array(each[:2] for each in returns)
    begins, ends = np.searchsorted(motion.positions, firsts), np.searchsorted(motion.positions, lasts, "right")
    for each, begin, end in zip(returns, begins.tolist(), ends.tolist()):
        found.append(each)
        numbers = ranges_of(np.sort(motion.numbers[begin:end])) if begin < end else ()
        found += [each._replace(first=virtual(first), last=virtual(last)) for first, last in numbers]
        for first, last in apart:
            if first <= place_apart(each.last) and last >= place_apart(each.first):
                first, last = max(first, place_apart(each.first)), min(last, place_apart(each.last))
                found.append(each._replace(first=first, last=last))
    return found


def _in_motion(due: DueLane, spans: list[tuple[int, int]]) -> list[tuple[int, int]]:
    motion = due.motion
    numbers = virtual(np.sort(motion.numbers[inside(motion.positions, spans)]))
    places = expanded(*as_array(_apart(due)))
    return ranges_of(np.concatenate((numbers, places[inside(position_of(places), spans)])))


def _apart(due: DueLane) -> list[tuple[int, int]]:
    held = due.cursor.ranges_between(APART_BASE, AXES_END)
    return [(each.first, each.last) for each in held if each.status != ACKNOWLEDGED]


def _met_too_early(due: DueLane, spans: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """Stretches to keep apart: acknowledged before they were looked at."""
    clipped = _clipped(due, spans)
    if sum(last - first + 1 for first, last in clipped) > ONE_BY_ONE:
        return clipped
    positions = expanded(*as_array(clipped))
    positions = positions[~np.isin(positions, due.motion.positions)]
    if not len(positions):
        return []
    in_main = ((held.first, held.last) for held in due.cursor.ranges() if held.status != ACKNOWLEDGED)
    positions = positions[~inside(positions, in_main)]
    times = delayed_at(due.topic, due.cursor.key.partition, positions)
    return ranges_of(due.unlooked(positions, times))


def _clipped(due: DueLane, spans: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    end = due.ledgers.last_delayed_position
    clipped = [(max(first, due.floor), min(last, end)) for first, last in spans if last >= due.floor]
    return [(first, last) for first, last in clipped if first <= last]
