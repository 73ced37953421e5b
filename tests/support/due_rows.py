"""What the rows of a cursor say of delayed entries, worked out from the topic without the broker's index."""

from collections.abc import Iterable

import numpy as np
import pyarrow as pa

from pulsar_spark.broker.bundle.topic_state import TopicState
from pulsar_spark.protocol.acknowledgement.cursor import Range
from pulsar_spark.protocol.delays.delays import are_delayed
from pulsar_spark.protocol.entries.entry_codes import WAITING
from pulsar_spark.storage.entries.run_slices import read_slice
from tests.support import chunk_rows


def delayed_entries(state: TopicState, partition: int) -> list[tuple[int, int]]:
    """(deliver time in microseconds, position) of all delayed entries, in due order. A chunk that is not the last of
    its message is none."""
    found, parts = [], chunk_rows.chunks_of(state, partition).parts
    for run in state.ledgers(partition).runs:
        if run.delayed_after is not None:
            times = read_slice(state.topic.path, [run], ["deliver_at_time"])["deliver_at_time"].cast(pa.int64())
            times = times.fill_null(run.delayed_after).to_numpy()
            places = np.flatnonzero(are_delayed(times, run.delayed_after))
            found += [
                (time, position)
                for time, position in zip(times[places].tolist(), (run.first_position + places).tolist())
                if position not in parts
            ]
    return sorted(found)


def by_position(
    cursor: dict, ranges: Iterable[Range], state: TopicState, partition: int
) -> tuple[dict[int, Range], dict[int, int]]:
    """What the row and the ranges of a cursor say of each position behind its mark-delete, as ranges of one; and until
    when it waits for delayed entries. What waits has a status of its own once a read passed it."""
    found = {
        position: range_._replace(first=position, last=position)
        for range_ in ranges
        for position in range(range_.first, range_.last + 1)
    }
    waits = {}
    for time, position in delayed_entries(state, partition) if cursor["due_since"] is not None else ():
        said = found.get(position)
        if said is not None and said.status == WAITING:
            assert time > cursor["due_since"], "it is due, and not looked for any more"
        if said.status == WAITING if said is not None else time > cursor["due_since"]:
            waits[position] = time
    found = {position: said for position, said in found.items() if said.status != WAITING}
    return _behind(cursor, found), _behind(cursor, waits)


def _behind(cursor: dict, found: dict) -> dict:
    return {position: said for position, said in sorted(found.items()) if position > cursor["mark_delete_position"]}
