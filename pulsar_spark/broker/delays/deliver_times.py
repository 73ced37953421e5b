"""Until when delayed entries wait (protocol.delays)."""

import numpy as np

from pulsar_spark.broker.bundle.topic_state import TopicState
from pulsar_spark.protocol.acknowledgement.positions import clusters
from pulsar_spark.protocol.delays.delays import are_delayed
from pulsar_spark.storage.delay_index.delayed import are_parts


def delayed_at(topic: TopicState, partition: int, positions: np.ndarray) -> np.ndarray:
    """Deliver times of entries at ascending *positions*; 0 if not delayed."""
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
