"""Unread entries with their deliver times, as Arrow columns read without Spark (semantics 5.1)."""

import numpy as np
import pyarrow as pa

from pulsar_spark.broker.bundle.bundle import Bundle
from pulsar_spark.broker.bundle.topic_state import TopicState
from pulsar_spark.broker.cursors.state import Cursor
from pulsar_spark.protocol.acknowledgement.positions import expanded
from pulsar_spark.protocol.delays.delays import are_delayed
from pulsar_spark.protocol.policies.policies import DELAYED_DELIVERY_ACTIVE
from pulsar_spark.storage.delay_index.delayed import NO_TIME
from pulsar_spark.storage.ledgers.partition_ledgers import Stretches

UNREAD = pa.schema([("first", pa.int64()), ("last", pa.int64()), ("batch_size", pa.int64()), ("due_time", pa.int64())])
"""Entries first..last of one batch size and one deliver time, in microseconds, null without."""


def honours_delays(bundle: Bundle, cursor: Cursor) -> bool:
    """Does the subscription wait for deliver times? Not on Exclusive and Failover (2.6), or with delayed delivery
    off."""
    return not cursor.is_single_active and bool(bundle.policy(cursor.topic, DELAYED_DELIVERY_ACTIVE))


def delayed_unread(bundle: Bundle, cursor: Cursor, first: int, last: int, wall: int) -> pa.Table:
    """The entries *first*..*last* as rows of :data:`UNREAD`, by position, equal neighbours joined. Deliver times up to
    *wall*, and of entries that a read passes over, are null."""
    topic = bundle.topics[cursor.topic]
    runs = topic.ledgers(cursor.key.partition).stretches(first, last)
    if not honours_delays(bundle, cursor) or not runs.has_delayed.any():
        return _joined(_rows(runs.firsts, runs.lasts, runs.batch_sizes, np.full(len(runs.firsts), NO_TIME)))
    positions, of_run, times = _due_of(topic, cursor, runs)
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
    return _joined(_rows(*(column[in_order] for column in columns)))


def due_stretches(topic: TopicState, cursor: Cursor, first: int, last: int) -> pa.Table:
    """The entries in *first*..*last* with a deliver time, as rows of :data:`UNREAD`, without lost ones."""
    runs = topic.ledgers(cursor.key.partition).stretches(first, last)
    positions, of_run, times = _due_of(topic, cursor, runs)
    is_due = times != NO_TIME
    positions, sizes = positions[is_due], runs.batch_sizes[of_run[is_due]]
    return _joined(_rows(positions, positions, sizes, times[is_due]))


def _due_of(topic: TopicState, cursor: Cursor, runs: Stretches) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """For entries of *runs* that may have deliver times: positions, run indexes, and times."""
    positions = expanded(runs.firsts[runs.has_delayed], runs.lasts[runs.has_delayed])
    of_run, times = runs.of(positions), topic.deliver_times(cursor.key.partition).at(positions)
    return positions, of_run, times


def _rows(firsts: np.ndarray, lasts: np.ndarray, sizes: np.ndarray, times: np.ndarray) -> pa.Table:
    columns = [pa.array(firsts), pa.array(lasts), pa.array(sizes), pa.array(times, mask=times == NO_TIME)]
    return pa.Table.from_arrays(columns, schema=UNREAD)


def _joined(stretches: pa.Table) -> pa.Table:
    if stretches.num_rows < 2:
        return stretches
    due = stretches["due_time"].combine_chunks()
    facts = [
        stretches["batch_size"].to_numpy(),
        due.is_valid().to_numpy(zero_copy_only=False),
        due.fill_null(0).to_numpy(),
    ]
    firsts, lasts = stretches["first"].to_numpy(), stretches["last"].to_numpy()
    is_other = np.any([firsts[1:] != lasts[:-1] + 1, *(fact[1:] != fact[:-1] for fact in facts)], axis=0)
    is_first = np.append(True, is_other)
    starts = is_first.nonzero()[0]
    ends = np.append(starts[1:] - 1, stretches.num_rows - 1)
    joined = stretches.take(pa.array(starts))
    return joined.set_column(1, UNREAD.field("last"), stretches["last"].take(pa.array(ends)))


def deliver_time(bundle: Bundle, cursor: Cursor, position: int) -> int | None:
    """The deliver time to wait for of the entry at *position*, or None."""
    topic = bundle.topics[cursor.topic]
    if not honours_delays(bundle, cursor):
        return None
    found = int(topic.deliver_times(cursor.key.partition).at(np.array([position]))[0])
    return None if found == NO_TIME else found
