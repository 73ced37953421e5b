"""Deliver times of entries, read from their topic: which of them are delayed (protocol.delays), and until when."""

import numpy as np
import pyarrow as pa

from pulsar_spark.broker.topics import TopicState
from pulsar_spark.protocol.numbering import Run
from pulsar_spark.storage.entries import read_slice

_GAP = 1024
"""So many entries between two that are asked for are read along, rather than two stretches one by one."""


def times_of(table, run: Run) -> np.ndarray:
    """The deliver time of each entry of *run* that is delayed, in microseconds, 0 of the others. An entry's first
    message decides; one that is deleted or lost waits for nothing."""
    times = read_slice(table, [run], ["deliver_at_time"])["deliver_at_time"].cast(pa.int64()).fill_null(0).to_numpy()
    return np.where(times > run.delayed_after, times, 0)


def delayed_between(topic: TopicState, partition: int, first: int, last: int) -> tuple[np.ndarray, np.ndarray]:
    """The positions, ascending, and deliver times of the delayed entries at *first*..*last*."""
    found = [(np.empty(0, np.int64), np.empty(0, np.int64))]
    ledgers = topic.ledgers(partition)
    last = min(last, ledgers.last_delayed_position)
    for run in ledgers.overlapping(first, last) if first <= last else ():
        if run.delayed_after is not None:
            part = run.part(first, last)
            times = times_of(topic.topic.path, part)
            places = np.flatnonzero(times)
            found.append((places + part.first_position, times[places]))
    positions, times = (np.concatenate(columns) for columns in zip(*found))
    return positions, times


def delayed_at(topic: TopicState, partition: int, positions: np.ndarray) -> np.ndarray:
    """The deliver times of the entries at *positions*, which ascend: 0 of those that are not delayed."""
    times = np.zeros(len(positions), np.int64)
    starts = np.flatnonzero(np.diff(positions, prepend=-_GAP - 2) > _GAP)
    for start, end in zip(starts.tolist(), [*starts[1:].tolist(), len(positions)]):
        found, of_found = delayed_between(topic, partition, int(positions[start]), int(positions[end - 1]))
        at = np.searchsorted(found, positions[start:end])
        is_there = np.append(found, -1)[at] == positions[start:end]
        times[start:end][is_there] = of_found[at[is_there]]
    return times
