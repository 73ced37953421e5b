"""Deliver times of entries at given positions: which of them are delayed (protocol.delays), and until when."""

import numpy as np

from pulsar_spark.broker.topics import TopicState
from pulsar_spark.protocol.positions import clusters
from pulsar_spark.storage.delayed import delayed_in, has_delayed


def delayed_between(topic: TopicState, partition: int, first: int, last: int) -> tuple[np.ndarray, np.ndarray]:
    """The positions, ascending, and deliver times of the delayed entries at *first*..*last*."""
    found = [(np.empty(0, np.int64), np.empty(0, np.int64))]
    ledgers = topic.ledgers(partition)
    last = min(last, ledgers.last_delayed_position)
    for run in ledgers.overlapping(first, last) if first <= last else ():
        if has_delayed(run):
            found.append(delayed_in(topic.topic.path, run.part(first, last), topic.chunks(partition)))
    positions, times = (np.concatenate(columns) for columns in zip(*found))
    return positions, times


def delayed_at(topic: TopicState, partition: int, positions: np.ndarray) -> np.ndarray:
    """The deliver times of the entries at *positions*, which ascend: 0 of those that are not delayed."""
    times = np.zeros(len(positions), np.int64)
    for start, end in clusters(positions, positions):
        found, of_found = delayed_between(topic, partition, int(positions[start]), int(positions[end - 1]))
        at = np.searchsorted(found, positions[start:end])
        is_there = np.append(found, -1)[at] == positions[start:end]
        times[start:end][is_there] = of_found[at[is_there]]
    return times
