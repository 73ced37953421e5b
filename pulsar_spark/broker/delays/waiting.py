"""How cursors begin and end to wait for deliver times, and which entries wait (0.33). Deliver times do not count on
Exclusive and Failover (2.6), and with delayed delivery off."""

from collections.abc import Iterator

import numpy as np

from pulsar_spark.broker.bundle.bundle import Bundle
from pulsar_spark.broker.cursors.state import Cursor
from pulsar_spark.broker.delays.deliver_times import delayed_at
from pulsar_spark.broker.delays.dues import Dues
from pulsar_spark.broker.gathering.unread_slices import honours_delays
from pulsar_spark.broker.requests.drafts import CursorDraft
from pulsar_spark.protocol.acknowledgement.cursor import PENDING, REPLAY
from pulsar_spark.protocol.acknowledgement.positions import inside, ranges_of
from pulsar_spark.protocol.entries.entry_codes import UNREAD_CODE, WAITING_CODE, EntryState

WINDOW = 1 << 20
"""Positions whose deliver times are read in one go."""


def waits_since(bundle: Bundle, cursor: Cursor, wall: int) -> int:
    """The instant after which delayed entries wait for the cursor."""
    if cursor.dues is not None:
        return cursor.dues.watermark
    return bundle.delayed_after(wall, cursor.key.topic_id, cursor.key.partition)


def begin(bundle: Bundle, cursor: Cursor, wall: int) -> Dues:
    if cursor.dues is None:
        key = cursor.key
        cursor.dues = Dues(bundle.delay_index, key.topic_id, key.partition, waits_since(bundle, cursor, wall))
    return cursor.dues


def to_wait(bundle: Bundle, cursor: Cursor, positions: np.ndarray, wall: int) -> np.ndarray:
    """Which unread entries at ascending *positions* a read passes over, to go out by their deliver times."""
    times = delayed_at(bundle.topics[cursor.topic], cursor.key.partition, positions)
    waits = times > waits_since(bundle, cursor, wall)
    if waits.any():
        begin(bundle, cursor, wall)
    return waits


def pass_unread(bundle: Bundle, changes: CursorDraft, last: int, wall: int) -> None:
    """Pass over unread entries up to position *last* that wait for their deliver time."""
    for positions in _unread(bundle, changes.cursor, changes.cursor.mark_delete + 1, last):
        for span in ranges_of(positions[to_wait(bundle, changes.cursor, positions, wall)]):
            changes.passed.add(*span)


def _unread(bundle: Bundle, cursor: Cursor, first: int, last: int) -> Iterator[np.ndarray]:
    """Where the unread entries among *first*..*last* lie that may have deliver times, in windows."""
    entries = cursor.entries
    last = min(last, bundle.topics[cursor.topic].ledgers(cursor.key.partition).last_delayed_position)
    unread = entries.first_of([UNREAD_CODE], first, last)
    for since in range(last + 1 if unread is None else unread, last + 1, WINDOW):
        yield entries.where([UNREAD_CODE], since, min(since + WINDOW - 1, last))


def stop_waiting(changes: CursorDraft) -> None:
    """Let entries go out without their deliver times."""
    cursor, entries = changes.cursor, changes.cursor.entries
    moved = [
        (code, state._replace(due_time=None))
        for code, state in entries.codes.known()
        if state.status == REPLAY and state.due_time is not None
    ]
    if cursor.dues is None and not moved:
        return
    cursor.dues = None
    entries.replace([WAITING_CODE], 0, entries.end - 1, UNREAD_CODE)
    for code, state in moved:
        entries.replace([code], 0, entries.end - 1, entries.codes.code(state))
    changes.rewrite()
    cursor.read_position = cursor.mark_delete + 1
    cursor.advance_read_position()


def wait_again(bundle: Bundle, changes: CursorDraft, wall: int) -> None:
    """Let deliver times count from now on. Rescheduled entries keep their new time, and pending ones wait once given
    back."""
    cursor, entries = changes.cursor, changes.cursor.entries
    topic, partition = bundle.topics[cursor.topic], cursor.key.partition
    if cursor.dues is not None:
        return
    came_back = [
        code
        for code, state in entries.codes.known()
        if (state.due_time is None if state.status == REPLAY else state.consumer_id in changes.left)
        and state.status in (REPLAY, PENDING)
    ]
    last = min(topic.ledgers(partition).last_delayed_position, entries.end - 1)
    positions = entries.where(came_back, 0, last)
    times = delayed_at(topic, partition, positions)
    is_early = times > waits_since(bundle, cursor, wall)
    if is_early.any():
        positions, times = positions[is_early], times[is_early]
        set_due_times(changes, positions, times)


def set_due_times(changes: CursorDraft, positions: np.ndarray, times: np.ndarray | int) -> None:
    """Let entries at ascending *positions*, of which something is known, be delivered again at these times."""
    entries = changes.cursor.entries
    times = np.broadcast_to(times, positions.shape)
    codes = entries.at(positions)
    pairs, which = np.unique(np.stack([codes, times]), axis=1, return_inverse=True)
    after = []
    for code, due in pairs.T.tolist():
        state = entries.codes.state(code)._replace(status=REPLAY, consumer_id=None, delivery_round=None, due_time=due)
        after.append(entries.codes.code(state))
    entries.set_at(positions, np.array(after, np.int64)[which.reshape(-1)])
    changes.rewrite()


def waiting(bundle: Bundle, changes: CursorDraft, first: int, last: int, wall: int) -> np.ndarray:
    """The positions of the entries among *first*..*last* that wait for their deliver time."""
    cursor, entries = changes.cursor, changes.cursor.entries
    if not honours_delays(bundle, cursor):
        return np.empty(0, np.int64)
    later = [code for code, state in entries.codes.known() if state.status == REPLAY and (state.due_time or 0) > wall]
    found = [entries.where([WAITING_CODE, *later], first, last)]
    for positions in _unread(bundle, cursor, first, last):
        positions = positions[~inside(positions, changes.acks)]
        found.append(positions[to_wait(bundle, cursor, positions, wall)])
    positions = np.sort(np.concatenate(found))
    return positions[~inside(positions, changes.acks)]


def reschedule(bundle: Bundle, changes: CursorDraft, positions: np.ndarray, due_time: int) -> None:
    """Let the entries at *positions* (see :func:`waiting`) wait until *due_time*."""
    cursor, entries = changes.cursor, changes.cursor.entries
    codes = entries.at(positions)
    is_new = (codes == WAITING_CODE) | (codes == UNREAD_CODE)
    sizes = bundle.topics[cursor.topic].ledgers(cursor.key.partition).batch_sizes(positions[is_new])
    for size in np.unique(sizes).tolist():
        state = EntryState(REPLAY, redelivery_count=0, due_time=due_time, batch_size=size)
        entries.set_at(positions[is_new][sizes == size], entries.codes.code(state))
    set_due_times(changes, positions, due_time)


def are_forgotten(cursor: Cursor) -> bool:
    """Do entries wait that the delay index does not know? Their messages are gone."""
    return cursor.entries.counts[WAITING_CODE] > 0 and cursor.dues is not None and cursor.dues.is_over


def free_forgotten(changes: CursorDraft) -> None:
    cursor, entries = changes.cursor, changes.cursor.entries
    first = entries.first_of([WAITING_CODE], 0, entries.end - 1)
    entries.replace([WAITING_CODE], 0, entries.end - 1, UNREAD_CODE)
    if first is not None:
        cursor.read_position = min(cursor.read_position, first)
    changes.rewrite()
