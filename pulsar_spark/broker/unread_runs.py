"""What of a cursor's entries was never delivered and is on offer, looked for from its read position on.

Delayed entries that are of its due lane are passed over: the main lane counts them as acknowledged, and nothing else is
kept of them here. The first ones that a cursor meets make it have a due lane.
"""

import numpy as np

from pulsar_spark.broker.bundle import Bundle
from pulsar_spark.broker.deliver_times import delayed_at
from pulsar_spark.broker.drafts import CursorDraft
from pulsar_spark.broker.due_moves import begin
from pulsar_spark.broker.due_requests import bring_onto_axes
from pulsar_spark.broker.topics import TopicState
from pulsar_spark.broker.unread_slices import UnreadRun, delayed_unread, honours_delays
from pulsar_spark.protocol.cursor import skip_unacked
from pulsar_spark.protocol.positions import as_array, ranges_of

MAX_ROUND_ENTRIES = 20_000_000
"""Most entries never delivered that one cursor hands out in a round."""

WINDOW_ENTRIES = 1 << 12, 1 << 20
"""Positions looked at in one go for those that wait, at first and at most."""

MOST_RUNS = 200_000
"""Most runs of entries never delivered that one cursor hands out in a round, where others lie between them: each is
rows of the plan. Keys at random make them an entry or two long, so does every second entry with a deliver time."""

MOST_LOOKED_AT = 1 << 21
"""Positions looked at in a round where all wait; what lies behind them is for the next one."""


def unread_runs(bundle: Bundle, asked: CursorDraft, most: int, wall: int) -> list[UnreadRun]:
    """Runs that hold the next *most* entries never delivered (and what is acknowledged or passed over between them);
    those that adjoin and agree are one."""
    cursor = asked.cursor
    topic = bundle.topics.get(cursor.topic)
    cursor.advance_read_position()
    if topic is None or most <= 0:
        return []
    ledgers, first = topic.ledgers(cursor.key.partition), cursor.read_position
    if first <= ledgers.last_delayed_position and honours_delays(bundle, cursor):
        last = _pass_over(bundle, asked, topic, most, wall)
    else:
        last = _last_of(topic, asked, first, most)
    if last < first:
        return []
    unread = delayed_unread(bundle, cursor, ledgers.parts(first, last), wall)
    return [UnreadRun(*row) for row in zip(*(column.to_pylist() for column in unread.columns))]


def pass_over(bundle: Bundle, asked: CursorDraft, positions: np.ndarray, wall: int) -> np.ndarray:
    """Which of the entries at *positions* (ascending), of which nothing is known, are of the cursor's due lane. It
    begins here, where there is none and any of them waits."""
    cursor = asked.cursor
    topic = bundle.topics[cursor.topic]
    times = delayed_at(topic, cursor.key.partition, positions)
    if cursor.due is None and times.any():
        partly = list(asked.ack_sets)
        begin(bundle, asked, wall)
        bring_onto_axes(asked)
        # What is left of them is kept apart: who looked at *positions* took them for known.
        note_passed(
            asked, np.array(sorted(position for position in partly if position not in asked.ack_sets), np.int64)
        )
    return np.zeros(len(positions), bool) if cursor.due is None else cursor.due.is_own(positions, times)


def note_passed(asked: CursorDraft, positions: np.ndarray) -> None:
    """These, which ascend, are of the due lane: the main one passes over them."""
    for first, last in ranges_of(positions):
        asked.passed.add(first, last)


def unknown_between(asked: CursorDraft, first: int, last: int) -> np.ndarray:
    """The positions first..last that no range names and no request of this round acknowledges."""
    changes = np.zeros(last - first + 2, np.int64)
    cursor = asked.cursor
    pages = cursor.pages[max(cursor.page_index(first), 0) :]
    spans = [page.spans for page in pages if page.first <= last]
    spans += [as_array(asked.acks), as_array(asked.passed)]
    spans.append(as_array((position, position) for position in asked.ack_sets))
    for firsts, lasts in spans:
        is_in = (firsts <= last) & (lasts >= first)
        np.add.at(changes, np.maximum(firsts[is_in], first) - first, 1)
        np.add.at(changes, np.minimum(lasts[is_in], last) - first + 1, -1)
    return first + np.flatnonzero(np.cumsum(changes[:-1]) == 0)


def _last_of(topic: TopicState, asked: CursorDraft, first: int, most: int) -> int:
    """Up to where the next *most* entries from *first* on lie of which nothing is known."""
    cursor = asked.cursor
    ahead = [
        (held.first, held.last) for page in cursor.pages[max(cursor.page_index(first), 0) :] for held in page.ranges
    ]
    ahead += [*asked.acks, *((position, position) for position in asked.ack_sets)]
    return skip_unacked(first - 1, topic.end_position(cursor.key.partition), sorted(ahead), most)


def _pass_over(bundle: Bundle, asked: CursorDraft, topic: TopicState, most: int, wall: int) -> int:
    """The same where some of them may wait: these do not count, and are noted as passed over."""
    cursor, (width, widest) = asked.cursor, WINDOW_ENTRIES
    first = at = cursor.read_position
    end, last_delayed = (
        topic.end_position(cursor.key.partition),
        topic.ledgers(cursor.key.partition).last_delayed_position,
    )
    runs = 0
    while at <= last_delayed and at - first < MOST_LOOKED_AT:
        last = min(at + max(width, min(most, widest)), end) - 1
        unknown = unknown_between(asked, at, last)
        is_own = pass_over(bundle, asked, unknown, wall)
        others, begun = np.flatnonzero(~is_own), np.flatnonzero(np.diff(is_own, prepend=True) & ~is_own)
        stops = [others[most - 1] + 1] if len(others) >= most else []
        stops += [begun[MOST_RUNS - runs]] if len(begun) > MOST_RUNS - runs else []
        if stops:
            stop = min(stops)
            note_passed(asked, unknown[:stop][is_own[:stop]])
            return int(unknown[stop - 1]) if stop else at - 1
        note_passed(asked, unknown[is_own])
        most, runs = most - len(others), runs + len(begun)
        at, width = last + 1, min(4 * width, widest)
    return at - 1 if at <= last_delayed or at >= end else _last_of(topic, asked, at, most)
