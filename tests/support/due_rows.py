"""What the rows of a cursor say of delayed entries, in positions: worked out from the topic and the definition of
numbers (broker.delays.due_lane, broker.delays.promotion), without the broker's index.

The number of a delayed entry is its rank by (deliver time, position) among all of its topic partition.
"""

from collections.abc import Iterable, Iterator

import numpy as np
import pyarrow as pa

from pulsar_spark.broker.bundle.topic_state import TopicState
from pulsar_spark.protocol.acknowledgement.cursor import ACKNOWLEDGED, Range
from pulsar_spark.protocol.delays.delays import APART_BASE, DUE_BASE, are_delayed
from pulsar_spark.storage.entries.entries import read_slice
from tests.support import chunk_rows


def delayed_entries(state: TopicState, partition: int) -> list[tuple[int, int]]:
    """(deliver time in microseconds, position) of all delayed entries, by number. A chunk that is not the last of its
    message is none."""
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
    when it waits for its own delayed entries that it says nothing of."""
    ranges, passed = list(ranges), cursor["main_mark_delete_position"]
    found = {
        position: range_._replace(first=position, last=position)
        for range_ in ranges
        if range_.first < DUE_BASE
        for position in range(range_.first, range_.last + 1)
    }
    if passed is None:
        return _behind(cursor, found), {}
    for position in range(cursor["mark_delete_position"] + 1, passed + 1):
        found[position] = Range(position, position, ACKNOWLEDGED)
    waits = {}
    if cursor["due_since"] is None:
        return _behind(cursor, found), {}
    for number, (time, position) in enumerate(delayed_entries(state, partition)):
        if time > cursor["due_since"] and position >= cursor["due_floor"]:
            assert position not in found or found[position].status == ACKNOWLEDGED, "the main lane has it as well"
            found.pop(position, None)
            said = [*_said_of(ranges, APART_BASE + position), *_said_of(ranges, DUE_BASE + number)]
            if number <= cursor["due_mark_delete"] and not said:
                said = [Range(position, position, ACKNOWLEDGED)]
            if said:
                found[position] = said[0]._replace(first=position, last=position)
            else:
                waits[position] = time
    return _behind(cursor, found), _behind(cursor, waits)


def _said_of(ranges: list[Range], place: int) -> Iterator[Range]:
    return (range_ for range_ in ranges if range_.first <= place <= range_.last)


def _behind(cursor: dict, found: dict) -> dict:
    return {position: said for position, said in sorted(found.items()) if position > cursor["mark_delete_position"]}
