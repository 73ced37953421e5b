"""A cursor's never delivered entries, from its read position on. The main lane passes over delayed entries of the due
lane, which begins with the first of them, and over parts of chunked messages."""

import numpy as np

from pulsar_spark.broker.bundle.bundle import Bundle
from pulsar_spark.broker.bundle.topic_state import TopicState
from pulsar_spark.broker.chunks.chunk_walk import ChunkWalk
from pulsar_spark.broker.cursors.state import Cursor
from pulsar_spark.broker.delays.deliver_times import delayed_at
from pulsar_spark.broker.delays.due_moves import begin
from pulsar_spark.broker.delays.due_requests import map_to_axes
from pulsar_spark.broker.gathering.unread_run import UnreadRun
from pulsar_spark.broker.gathering.unread_slices import delayed_unread, honours_delays
from pulsar_spark.broker.requests.drafts import CursorDraft
from pulsar_spark.protocol.acknowledgement.ack_set import is_empty
from pulsar_spark.protocol.acknowledgement.cursor import skip_unacked
from pulsar_spark.protocol.acknowledgement.positions import as_array, ranges_of

MAX_ROUND_ENTRIES = 20_000_000
"""Most new entries that one cursor delivers in a round."""

WINDOW_ENTRIES = 1 << 12, 1 << 20
"""First and largest number of positions looked at in one go."""

MOST_RUNS = 200_000
"""Most runs of new entries that one cursor delivers in a round when others lie between them; each is a row of the
plan."""

MOST_LOOKED_AT = 1 << 21
"""Most positions looked at in a round if all are passed over."""


def unread_runs(bundle: Bundle, changes: CursorDraft, most: int, wall: int) -> list[UnreadRun]:
    """Runs with the next *most* new entries, and acknowledged ones in between; equal neighbours are joined."""
    cursor = changes.cursor
    topic = bundle.topics.get(cursor.topic)
    cursor.advance_read_position()
    if topic is None or most <= 0:
        return []
    first = cursor.read_position
    if cursor.chunked:
        ChunkWalk(bundle, changes).pass_by(first - 1)
    if first <= last_passed(bundle, cursor):
        last = _pass_over(bundle, changes, topic, most, wall)
    else:
        last = _last_of(topic, changes, first, most)
    if last < first:
        return []
    unread = delayed_unread(bundle, cursor, first, last, wall)
    return [UnreadRun(*row) for row in zip(*(column.to_pylist() for column in unread.columns))]


def last_passed(bundle: Bundle, cursor: Cursor) -> int:
    """The last position that the main lane may pass over."""
    ledgers = bundle.topics[cursor.topic].ledgers(cursor.key.partition)
    last_delayed = ledgers.last_delayed_position if honours_delays(bundle, cursor) else -1
    return max(last_delayed, ledgers.last_chunk_position)


def pass_over(bundle: Bundle, changes: CursorDraft, positions: np.ndarray, wall: int) -> np.ndarray:
    """Which entries without a state, at ascending *positions*, the main lane passes over."""
    are_parts = np.zeros(len(positions), bool)
    if changes.cursor.chunked:
        are_parts = changes.cursor.chunked.groups.are_parts(positions)
    if not honours_delays(bundle, changes.cursor):
        return are_parts
    return are_parts | _are_own(bundle, changes, positions, wall)


def _are_own(bundle: Bundle, changes: CursorDraft, positions: np.ndarray, wall: int) -> np.ndarray:
    """Which are of the due lane; it begins here with the first delayed entry."""
    cursor = changes.cursor
    topic = bundle.topics[cursor.topic]
    times = delayed_at(topic, cursor.key.partition, positions)
    if cursor.due is None and times.any():
        partly = [position for position, left in changes.ack_sets.items() if not is_empty(left)]
        begin(bundle, changes, wall)
        map_to_axes(changes)
        # The rest of these is kept apart: *positions* left them out as known.
        note_passed(
            changes, np.array(sorted(position for position in partly if position not in changes.ack_sets), np.int64)
        )
    return np.zeros(len(positions), bool) if cursor.due is None else cursor.due.is_own(positions, times)


def note_passed(changes: CursorDraft, positions: np.ndarray) -> None:
    """Note ascending positions that the main lane passes over."""
    for first, last in ranges_of(positions):
        changes.passed.add(first, last)


def unknown_between(changes: CursorDraft, first: int, last: int) -> np.ndarray:
    """Positions in first..last without a range or an acknowledgement."""
    steps = np.zeros(last - first + 2, np.int64)
    cursor = changes.cursor
    pages = cursor.pages[max(cursor.page_index(first), 0) :]
    spans = [page.spans for page in pages if page.first <= last]
    spans += [as_array(changes.acks), as_array(changes.passed)]
    spans.append(as_array((position, position) for position in changes.ack_sets))
    for firsts, lasts in spans:
        is_in = (firsts <= last) & (lasts >= first)
        np.add.at(steps, np.maximum(firsts[is_in], first) - first, 1)
        np.add.at(steps, np.minimum(lasts[is_in], last) - first + 1, -1)
    return first + np.flatnonzero(np.cumsum(steps[:-1]) == 0)


def _last_of(topic: TopicState, changes: CursorDraft, first: int, most: int) -> int:
    """Where the last of the next *most* entries without a state is."""
    cursor = changes.cursor
    ahead = [(held.first, held.last) for page in cursor.pages[max(cursor.page_index(first), 0) :] for held in page.held]
    ahead += [*changes.acks, *((position, position) for position in changes.ack_sets)]
    return skip_unacked(first - 1, topic.end_position(cursor.key.partition), sorted(ahead), most)


def _pass_over(bundle: Bundle, changes: CursorDraft, topic: TopicState, most: int, wall: int) -> int:
    """Where the last of *most* new entries is; passed ones do not count, and are noted."""
    cursor, (width, widest) = changes.cursor, WINDOW_ENTRIES
    first = at = cursor.read_position
    end, last_to_look, runs = topic.end_position(cursor.key.partition), last_passed(bundle, cursor), 0
    walk = ChunkWalk(bundle, changes) if cursor.chunked else None
    while at <= last_to_look and at - first < MOST_LOOKED_AT:
        last = min(at + max(width, min(most, widest)), end) - 1
        unknown = unknown_between(changes, at, last)
        is_own = pass_over(bundle, changes, unknown, wall)
        is_offered = ~(is_own | np.isin(unknown, walk.evicted(last))) if walk else ~is_own
        others, begun = np.flatnonzero(is_offered), np.flatnonzero(np.diff(is_offered, prepend=False) & is_offered)
        stops = [int(others[most - 1]) + 1] if len(others) >= most else []
        stops += [int(begun[MOST_RUNS - runs])] if len(begun) > MOST_RUNS - runs else []
        if stops:
            stop = min(stops)
            last = int(unknown[stop - 1]) if stop else at - 1
            unknown, is_own = unknown[:stop], is_own[:stop]
        note_passed(changes, unknown[is_own])
        if walk:
            walk.pass_by(last)
        if stops:
            return last
        most, runs = most - len(others), runs + len(begun)
        at, width = last + 1, min(4 * width, widest)
    return at - 1 if at <= last_to_look or at >= end else _last_of(topic, changes, at, most)
