"""Which entries are delayed (protocol.delays), and until when."""

from typing import NamedTuple

import numpy as np

from pulsar_spark.broker.bundle.topic_state import TopicState
from pulsar_spark.protocol.acknowledgement.positions import clusters, expanded
from pulsar_spark.protocol.delays.delays import are_delayed
from pulsar_spark.storage.delay_index.delayed import are_parts
from pulsar_spark.storage.ledgers.partition_ledgers import Stretches


class Delayed(NamedTuple):
    """Ascending positions of delayed entries, and their deliver times."""

    positions: np.ndarray
    times: np.ndarray


def delayed_between(topic: TopicState, partition: int, first: int, last: int) -> Delayed:
    ledgers = topic.ledgers(partition)
    last = min(last, ledgers.last_delayed_position)
    if last < first:
        return Delayed(np.empty(0, np.int64), np.empty(0, np.int64))
    runs = ledgers.stretches(first, last)
    positions = expanded(runs.firsts[runs.has_delayed], runs.lasts[runs.has_delayed])
    return _delayed(topic, partition, runs, positions)


def delayed_at(topic: TopicState, partition: int, positions: np.ndarray) -> np.ndarray:
    """Deliver times of entries at ascending *positions*; 0 if not delayed."""
    times = np.zeros(len(positions), np.int64)
    ledgers = topic.ledgers(partition)
    delayed = positions[: np.searchsorted(positions, ledgers.last_delayed_position, "right")]
    for start, end in clusters(delayed, delayed):
        here = delayed[start:end]
        runs = ledgers.stretches(int(here[0]), int(here[-1]))
        found = _delayed(topic, partition, runs, here[runs.has_delayed[runs.of(here)]])
        times[start + np.searchsorted(here, found.positions)] = found.times
    return times


def _delayed(topic: TopicState, partition: int, runs: Stretches, positions: np.ndarray) -> Delayed:
    of_run, times = runs.of(positions), topic.deliver_times(partition).at(positions)
    is_delayed = are_delayed(times, runs.delayed_after[of_run])
    positions, times, of_run = positions[is_delayed], times[is_delayed], of_run[is_delayed]
    is_one = ~are_parts(topic.chunks(partition), positions, runs.may_have_chunks[of_run])
    return Delayed(positions[is_one], times[is_one])
