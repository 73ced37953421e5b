"""How a cursor gets and loses its due lane. It begins with the first entries that wait, and ends when deliver times no
longer count: on Exclusive and Failover (2.6), and with delayed delivery off."""

import logging
from collections.abc import Iterable, Iterator

import numpy as np

from pulsar_spark.broker.bundle.bundle import Bundle
from pulsar_spark.broker.bundle.topic_state import TopicState
from pulsar_spark.broker.cursors.state import Cursor
from pulsar_spark.broker.delays.deliver_times import delayed_at
from pulsar_spark.broker.delays.due_lane import DueLane
from pulsar_spark.broker.delays.due_requests import catch_up
from pulsar_spark.broker.requests.drafts import CursorDraft, RoundDraft
from pulsar_spark.broker.round.isolation import isolated, of_topic
from pulsar_spark.errors import DOCTOR, CorruptState
from pulsar_spark.protocol.acknowledgement.cursor import ACKNOWLEDGED, PENDING, REPLAY, Range, spliced
from pulsar_spark.protocol.acknowledgement.positions import Positions, as_array, expanded, inside, ranges_of
from pulsar_spark.protocol.delays.delays import AXES_END, DUE_BASE, Checkpoint, certain_states, place_apart, virtual

log = logging.getLogger(__name__)


def begin(bundle: Bundle, changes: CursorDraft, wall: int) -> None:
    """Give the cursor a due lane from its read position on; later entries that wait and have a state are kept apart."""
    cursor = changes.cursor
    topic = bundle.topics[cursor.topic]
    promotion = bundle.promotion(topic, cursor.key.partition)
    promotion.advance(wall)
    cursor.due = due = DueLane(
        cursor,
        topic,
        promotion,
        since=promotion.until,
        floor=cursor.read_position,
        mark_delete=virtual(promotion.count) - 1,
        visible=cursor.mark_delete,
    )
    changes.is_changed = True
    ahead = list(cursor.ranges_between(cursor.read_position, DUE_BASE))
    if ahead:
        kept = [held for held in cursor.ranges() if held.first < cursor.read_position]
        rewrite(changes, [*kept, *_set_apart(due, ahead)])


def _set_apart(due: DueLane, ahead: list[Range]) -> list[Range]:
    """The ranges *ahead*, with the lane's own entries moved apart."""
    acknowledged = [held for held in ahead if held.status == ACKNOWLEDGED]
    found = [*acknowledged]
    found += [held._replace(first=place_apart(held.first), last=place_apart(held.last)) for held in acknowledged]
    others = [held for held in ahead if held.status != ACKNOWLEDGED]
    for held, positions, times in _with_times(due.topic, due.cursor.key.partition, others):
        is_own = due.is_own(positions, times)
        for first, last in ranges_of(positions[~is_own]):
            found.append(held._replace(first=first, last=last))
        for first, last in ranges_of(positions[is_own]):
            found.append(Range(first, last, ACKNOWLEDGED))
            found.append(held._replace(first=place_apart(first), last=place_apart(last)))
    return found


def _with_times(
    topic: TopicState, partition: int, ranges: list[Range]
) -> Iterator[tuple[Range, np.ndarray, np.ndarray]]:
    """Each of *ranges*, by position, with its positions and deliver times (0 if not delayed)."""
    positions = expanded(*as_array((held.first, held.last) for held in ranges))
    times = delayed_at(topic, partition, positions)
    begin = 0
    for held in ranges:
        end = begin + held.last - held.first + 1
        yield held, positions[begin:end], times[begin:end]
        begin = end


def fold(changes: CursorDraft) -> None:
    """Replace the due lane by exact positions."""
    cursor, due = changes.cursor, changes.cursor.due
    catch_up(changes)
    changes.acks = Positions(sorted([*changes.acks, *_named(due, changes.axis_acks)]))
    changes.axis_acks, changes.passed = Positions(), Positions()
    states = [
        _waiting_no_more(held)._replace(first=first, last=last)
        for held in cursor.ranges_between(DUE_BASE, AXES_END)
        if held.status != ACKNOWLEDGED
        for first, last in ranges_of(np.sort(due.positions_of(held)))
    ]
    states += [_waiting_no_more(held) for held in cursor.ranges() if held.status != ACKNOWLEDGED]
    acknowledged = list(due.done_stretches())
    mark_delete, cursor.due = due.visible, None
    known = Positions(sorted((held.first, held.last) for held in states))
    done = [Range(first, last, ACKNOWLEDGED) for span in acknowledged for first, last in known.gaps(*span)]
    cursor.mark_delete = mark_delete
    rewrite(changes, [*states, *done])
    cursor.read_position = cursor.first_unknown(cursor.mark_delete + 1)


def stop_waiting(changes: CursorDraft) -> None:
    """Let entries go out without their deliver times. While the delay index is rebuilt, a due lane stays."""
    cursor = changes.cursor
    if cursor.due:
        if cursor.due.promotion.is_ready:
            fold(changes)
    elif any(page.replays_at is not None and page.replays[-1][0] for page in cursor.pages):
        rewrite(changes, [_waiting_no_more(held) for held in cursor.ranges()])


def _waiting_no_more(held: Range) -> Range:
    return held._replace(due_time=None) if held.status == REPLAY else held


def _named(due: DueLane, places: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    axis = expanded(*as_array(places))
    return ranges_of(np.unique(due.real(axis)))


def wait_again(bundle: Bundle, changes: CursorDraft, wall: int) -> None:
    """Let deliver times count from now on. Entries that came back too early wait again; rescheduled ones keep their new
    time, and pending ones wait once given back."""
    cursor = changes.cursor
    topic, partition = bundle.topics[cursor.topic], cursor.key.partition
    if bundle.delay_index.next_due(topic.topic.topic_id, partition, wall) is None:
        return
    last_delayed = topic.ledgers(partition).last_delayed_position
    came_back, others = [], []
    for held in cursor.ranges_between(0, AXES_END):
        is_back = held.due_time is None if held.status == REPLAY else held.consumer_id in changes.left
        is_back &= held.status in (REPLAY, PENDING) and held.first <= last_delayed
        (came_back if is_back else others).append(held)
    found, is_changed = [], False
    for held, _, times in _with_times(topic, partition, came_back):
        times = np.where(times > wall, times, 0)
        starts = np.flatnonzero(np.append(True, times[1:] != times[:-1]))
        for start, end in zip(starts.tolist(), [*starts[1:].tolist(), len(times)]):
            part = held._replace(first=held.first + start, last=held.first + end - 1)
            if times[start]:
                part = part._replace(status=REPLAY, consumer_id=None, delivery_round=None, due_time=int(times[start]))
            found.append(part)
        is_changed |= bool(times.any())
    if is_changed:
        rewrite(changes, [*others, *found])


def mend_numbers(bundle: Bundle, draft: RoundDraft) -> None:
    """Correct numbers after the delay index was rebuilt from a topic that lost entries.

    Which entries are gone is unknown, so a state is kept only if it is the same for all possibilities
    (protocol.delays.certain_states). With g entries gone, at most g are delivered again at each border of states;
    nothing is lost.
    """
    for state, promotion in bundle.promoted():
        for checkpoint, entries in promotion.unlike_index():
            if entries > checkpoint.numbers:
                with isolated(of_topic(state)):
                    raise CorruptState(
                        f"topic {promotion.topic!r}: the delay index has {entries} entries where {checkpoint.numbers} "
                        f"came due: {DOCTOR}"
                    )
            log.warning(
                "topic %s: the delay index has lost %d due entries: some of the %d entries due with them may "
                "be delivered again to subscriptions that have acknowledged only a part of these",
                promotion.topic,
                checkpoint.numbers - entries,
                entries,
            )
            for cursor in bundle.cursors.values():
                if cursor.due and cursor.due.promotion is promotion:
                    _keep_what_agrees(draft.of(cursor), checkpoint, entries)
            promotion.shrink(checkpoint, entries)


def _keep_what_agrees(changes: CursorDraft, checkpoint: Checkpoint, entries: int) -> None:
    """Map a checkpoint's first numbers to the *entries* left, and drop uncertain states."""
    cursor = changes.cursor
    first, last = virtual(checkpoint.first), virtual(checkpoint.last)
    held = list(cursor.ranges_between(first, last + 1))
    if cursor.due.mark_delete >= last or not (held or cursor.due.mark_delete >= first):
        return
    if cursor.due.mark_delete >= first:
        held.insert(0, Range(first, cursor.due.mark_delete, ACKNOWLEDGED))
        cursor.due.mark_delete = first - 1
    said = list(dict.fromkeys(each[2:] for each in held))
    states = np.full(checkpoint.numbers, -1)
    for each in held:
        states[max(each.first - first, 0) : each.last - first + 1] = said.index(each[2:])
    left = certain_states(states, entries)
    kept = [
        Range(first + begin, first + end, *said[state])
        for state in range(len(said))
        for begin, end in ranges_of(np.flatnonzero(left == state))
    ]
    others = [
        each._replace(first=begin, last=end)
        for each in cursor.ranges_between(0, AXES_END)
        for begin, end in Positions([(first, last)]).gaps(each.first, each.last)
    ]
    rewrite(changes, [*others, *kept])


def rewrite(changes: CursorDraft, ranges: list[Range]) -> None:
    cursor = changes.cursor
    changes.dropped_pages += cursor.clear()
    cursor.replace(set(), spliced((), (), ranges))
    changes.is_rewritten = changes.is_changed = True


def meet(bundle: Bundle, changes: CursorDraft, first: int, last: int, wall: int) -> None:
    """Begin a due lane if an unknown, unacknowledged entry in *first*..*last* waits."""
    waiting = _waiting_unread(bundle, changes.cursor, first, last, wall)
    known = [(held.first, held.last) for held in changes.cursor.ranges_between(first, last + 1)]
    if not (inside(waiting, known) | inside(waiting, changes.acks)).all():
        begin(bundle, changes, wall)


def _waiting_unread(bundle: Bundle, cursor: Cursor, first: int, last: int, wall: int) -> np.ndarray:
    topic = bundle.topics[cursor.topic]
    first, last = max(first, cursor.read_position), min(last, topic.ledgers(cursor.key.partition).last_delayed_position)
    positions = np.arange(first, last + 1)
    return positions[delayed_at(topic, cursor.key.partition, positions) > wall]
