"""The deliver times of a cursor's entries, and whether it waits for them (semantics 2.6, 5.1; protocol.delays)."""

from typing import NamedTuple

import numpy as np

from pulsar_spark.broker.bundle.bundle import Bundle
from pulsar_spark.broker.bundle.topic_state import TopicState
from pulsar_spark.broker.cursors.state import Cursor
from pulsar_spark.protocol.acknowledgement.positions import clusters, expanded
from pulsar_spark.protocol.delays.delays import are_delayed
from pulsar_spark.protocol.policies.policies import DELAYED_DELIVERY_ACTIVE
from pulsar_spark.storage.delay_index.delayed import NO_TIME, are_parts
from pulsar_spark.storage.ledgers.partition_ledgers import Stretches


class TimedRange(NamedTuple):
    """Entries first..last of one batch size and one deliver time, in microseconds; None without."""

    first: int
    last: int
    batch_size: int
    due_time: int | None


def honours_delays(bundle: Bundle, cursor: Cursor) -> bool:
    """Does the subscription wait for deliver times? Not on Exclusive and Failover (2.6), or with delayed delivery
    off."""
    return not cursor.is_single_active and bool(bundle.policy(cursor.topic, DELAYED_DELIVERY_ACTIVE))


def deliver_time(bundle: Bundle, cursor: Cursor, position: int) -> int | None:
    """The deliver time of the entry at *position*; None without, or if the cursor does not wait for it."""
    if not honours_delays(bundle, cursor):
        return None
    topic = bundle.topics[cursor.topic]
    found = int(topic.deliver_times(cursor.key.partition).at(np.array([position]))[0])
    return None if found == NO_TIME else found


def delayed_at(topic: TopicState, partition: int, positions: np.ndarray) -> np.ndarray:
    """The deliver times of the entries at ascending *positions*; 0 for an entry that is not delayed."""
    found = np.zeros(len(positions), np.int64)
    ledgers = topic.ledgers(partition)
    delayed = positions[: np.searchsorted(positions, ledgers.last_delayed_position, "right")]
    for start, end in clusters(delayed, delayed):
        here = delayed[start:end]
        runs = ledgers.stretches(int(here[0]), int(here[-1]))
        of_run = runs.of(here)
        places = np.flatnonzero(runs.has_delayed[of_run])
        times, of_run = topic.deliver_times(partition).at(here[places]), of_run[places]
        is_one = are_delayed(times, runs.delayed_after[of_run])
        is_one[is_one] = ~are_parts(topic.chunks(partition), here[places][is_one], runs.may_have_chunks[of_run[is_one]])
        found[start + places[is_one]] = times[is_one]
    return found


def unread_ranges(bundle: Bundle, cursor: Cursor, first: int, last: int, wall: int) -> list[TimedRange]:
    """The entries *first*..*last*, all of them unread, by position. Deliver times up to *wall*, and those of entries
    that a read passes over, are None."""
    topic = bundle.topics[cursor.topic]
    runs = topic.ledgers(cursor.key.partition).stretches(first, last)
    if not honours_delays(bundle, cursor) or not runs.has_delayed.any():
        return _joined(runs.firsts, runs.lasts, runs.batch_sizes, np.full(len(runs.firsts), NO_TIME))
    positions, of_run, times = _times_of(topic, cursor, runs)
    times[times <= wall] = NO_TIME
    if cursor.dues is not None:
        times[are_delayed(times, runs.delayed_after[of_run]) & (times > cursor.dues.watermark)] = NO_TIME
    others = ~runs.has_delayed
    firsts = np.append(runs.firsts[others], positions)
    in_order = np.argsort(firsts, kind="stable")
    columns = (
        firsts,
        np.append(runs.lasts[others], positions),
        np.append(runs.batch_sizes[others], runs.batch_sizes[of_run]),
        np.append(np.full(others.sum(), NO_TIME), times),
    )
    return _joined(*(column[in_order] for column in columns))


def delayed_ranges(topic: TopicState, cursor: Cursor, first: int, last: int) -> list[TimedRange]:
    """Those of the entries *first*..*last* that have a deliver time, by position, without lost ones."""
    runs = topic.ledgers(cursor.key.partition).stretches(first, last)
    positions, of_run, times = _times_of(topic, cursor, runs)
    is_due = times != NO_TIME
    positions, sizes = positions[is_due], runs.batch_sizes[of_run[is_due]]
    return _joined(positions, positions, sizes, times[is_due])


def _times_of(topic: TopicState, cursor: Cursor, runs: Stretches) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """For entries of *runs* that may have deliver times: positions, run indexes, and times."""
    positions = expanded(runs.firsts[runs.has_delayed], runs.lasts[runs.has_delayed])
    of_run, times = runs.of(positions), topic.deliver_times(cursor.key.partition).at(positions)
    return positions, of_run, times


def _joined(firsts: np.ndarray, lasts: np.ndarray, sizes: np.ndarray, times: np.ndarray) -> list[TimedRange]:
    """Ranges by position, given as columns; adjacent ones that agree are one."""
    if not len(firsts):
        return []
    is_other = (firsts[1:] != lasts[:-1] + 1) | (sizes[1:] != sizes[:-1]) | (times[1:] != times[:-1])
    starts = np.flatnonzero(np.append(True, is_other))
    ends = np.append(starts[1:], len(firsts)) - 1
    dues = (None if time == NO_TIME else time for time in times[starts].tolist())
    return list(map(TimedRange, firsts[starts].tolist(), lasts[ends].tolist(), sizes[starts].tolist(), dues))
