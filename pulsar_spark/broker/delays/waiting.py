"""Let a cursor wait for deliver times or no longer, and find and reschedule the entries that wait (0.33).

Deliver times do not count on Exclusive and Failover (2.6), and with delayed delivery off. An entry that was never
delivered waits with WAITING_CODE, and the delay index says when it is due (see dues). One that came back or was
rescheduled waits as a REPLAY with a due time."""

from collections.abc import Iterator

import numpy as np

from pulsar_spark.broker.bundle.bundle import Bundle
from pulsar_spark.broker.cursors.state import Cursor
from pulsar_spark.broker.delays.deliver_times import delayed_at, honours_delays
from pulsar_spark.broker.delays.dues import Dues
from pulsar_spark.broker.requests.drafts import CursorChanges
from pulsar_spark.protocol.acknowledgement.cursor import PENDING, REPLAY
from pulsar_spark.protocol.acknowledgement.positions import distinct, inside, ranges_of
from pulsar_spark.protocol.entries.entry_codes import UNREAD_CODE, WAITING_CODE, EntryState

WINDOW = 1 << 20
"""Positions whose deliver times are read in one go."""


def waits_since(bundle: Bundle, cursor: Cursor, wall: int) -> int:
    """An entry waits if its deliver time is after this instant, in microseconds."""
    if cursor.dues is not None:
        return cursor.dues.watermark
    return bundle.delayed_after(wall, cursor.key.topic_id, cursor.key.partition)


def _begin_to_wait(bundle: Bundle, cursor: Cursor, wall: int) -> Dues:
    """What comes due for the cursor, which waits for it from now on, if it did not before."""
    if cursor.dues is None:
        key = cursor.key
        cursor.dues = Dues(bundle.delay_index, key.topic_id, key.partition, waits_since(bundle, cursor, wall))
    return cursor.dues


def to_wait(bundle: Bundle, cursor: Cursor, positions: np.ndarray, wall: int) -> np.ndarray:
    """Which of the unread entries at ascending *positions* wait for their deliver time, so that a read passes over
    them. If any does, the cursor begins to wait."""
    times = delayed_at(bundle.topics[cursor.topic], cursor.key.partition, positions)
    waits = times > waits_since(bundle, cursor, wall)
    if waits.any():
        _begin_to_wait(bundle, cursor, wall)
    return waits


def pass_unread(bundle: Bundle, changes: CursorChanges, last: int, wall: int) -> None:
    """Pass over the unread entries up to position *last* that wait for their deliver time, as a read does."""
    for positions in _unread(bundle, changes.cursor, changes.cursor.mark_delete + 1, last):
        for span in ranges_of(positions[to_wait(bundle, changes.cursor, positions, wall)]):
            changes.passed.add(*span)


def _unread(bundle: Bundle, cursor: Cursor, first: int, last: int) -> Iterator[np.ndarray]:
    """The positions of unread entries among *first*..*last*, window by window, up to the last that may be delayed."""
    entries = cursor.entries
    last = min(last, bundle.topics[cursor.topic].ledgers(cursor.key.partition).last_delayed_position)
    unread = entries.first_of([UNREAD_CODE], first, last)
    for since in range(last + 1 if unread is None else unread, last + 1, WINDOW):
        yield entries.where([UNREAD_CODE], since, min(since + WINDOW - 1, last))


def stop_waiting(changes: CursorChanges) -> None:
    """Let the cursor wait for no deliver time any more. Entries that wait are unread again, or may come again at
    once."""
    cursor, entries = changes.cursor, changes.cursor.entries
    untimed = [
        (code, state._replace(due_time=None))
        for code, state in entries.codes.known()
        if state.status == REPLAY and state.due_time is not None
    ]
    if cursor.dues is None and not untimed:
        return
    cursor.dues = None
    entries.replace([WAITING_CODE], 0, entries.end - 1, UNREAD_CODE)
    for code, state in untimed:
        entries.replace([code], 0, entries.end - 1, entries.codes.code(state))
    changes.rewrite()
    cursor.read_position = cursor.mark_delete + 1  # reads had passed over the entries that are unread again
    cursor.advance_read_position()


def wait_again(bundle: Bundle, changes: CursorChanges, wall: int) -> None:
    """Let deliver times count from now on, also for entries that came back, or come back now because their consumer
    left. Rescheduled entries keep their new time. Other pending entries wait once they are given back."""
    cursor, entries = changes.cursor, changes.cursor.entries
    topic, partition = bundle.topics[cursor.topic], cursor.key.partition
    if cursor.dues is not None:
        return
    came_back = [
        code
        for code, state in entries.codes.known()
        if (state.status == REPLAY and state.due_time is None)
        or (state.status == PENDING and state.consumer_id in changes.left)
    ]
    last = min(topic.ledgers(partition).last_delayed_position, entries.end - 1)
    positions = entries.where(came_back, 0, last)
    times = delayed_at(topic, partition, positions)
    is_early = times > waits_since(bundle, cursor, wall)
    if is_early.any():
        positions, times = positions[is_early], times[is_early]
        set_due_times(changes, positions, times)


def set_due_times(changes: CursorChanges, positions: np.ndarray, times: np.ndarray | int) -> None:
    """Let the entries at ascending *positions*, none of which is unread or WAITING, be delivered again at *times*."""
    entries = changes.cursor.entries
    times = np.broadcast_to(times, positions.shape)
    codes = entries.at(positions)
    pairs, which = np.unique(np.stack([codes, times]), axis=1, return_inverse=True)
    new_codes = []
    for code, due in pairs.T.tolist():
        state = entries.codes.state(code)._replace(status=REPLAY, consumer_id=None, delivery_round=None, due_time=due)
        new_codes.append(entries.codes.code(state))
    entries.set_at(positions, np.array(new_codes, np.int64)[which.reshape(-1)])
    changes.rewrite()


def waiting(bundle: Bundle, changes: CursorChanges, first: int, last: int, wall: int) -> np.ndarray:
    """The positions, ascending, of the entries among *first*..*last* that wait for their deliver time. Those that
    requests acknowledge do not."""
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


def reschedule(bundle: Bundle, changes: CursorChanges, positions: np.ndarray, due_time: int) -> None:
    """Let the entries at *positions* (see :func:`waiting`) wait until *due_time*."""
    cursor, entries = changes.cursor, changes.cursor.entries
    codes = entries.at(positions)
    is_new = (codes == WAITING_CODE) | (codes == UNREAD_CODE)  # these get a state that can have a due time
    sizes = bundle.topics[cursor.topic].ledgers(cursor.key.partition).batch_sizes(positions[is_new])
    for size in distinct(sizes).tolist():
        state = EntryState(REPLAY, redelivery_count=0, due_time=due_time, batch_size=size)
        entries.set_at(positions[is_new][sizes == size], entries.codes.code(state))
    set_due_times(changes, positions, due_time)


def are_forgotten(cursor: Cursor) -> bool:
    """Whether entries wait for nothing: the delay index does not know them, because their messages are gone."""
    return cursor.entries.counts[WAITING_CODE] > 0 and cursor.dues is not None and cursor.dues.is_over


def free_forgotten(changes: CursorChanges) -> None:
    """Let all WAITING entries be unread again, for a cursor whose entries :func:`are_forgotten`."""
    cursor, entries = changes.cursor, changes.cursor.entries
    first = entries.first_of([WAITING_CODE], 0, entries.end - 1)
    entries.replace([WAITING_CODE], 0, entries.end - 1, UNREAD_CODE)
    if first is not None:
        cursor.read_position = min(cursor.read_position, first)
    changes.rewrite()
