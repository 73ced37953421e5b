"""Deliveries of a lane, as exact positions.

Of a range of a lane (protocol.lanes) a consumer was sent the entries between its ends whose hashes are the lane's. Who
handles a delivery looks them up: a delivery knows positions and nothing else. Of the due lane (protocol.delays) the
broker says the positions; the order in which they came due is of no concern to a frame, which has none.
"""

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from pulsar_spark.protocol.lanes import LaneHashes
from pulsar_spark.protocol.positions import expanded, ranges_of
from pulsar_spark.storage.key_hashes import read_hashes
from pulsar_spark.storage.ledger_index import LedgerIndex
from pulsar_spark.storage.lost import find_missing
from pulsar_spark.storage.slices import PositionRange
from pulsar_spark.storage.topics import Topic


class LaneRange(NamedTuple):
    """So many *entries* with the *hashes* of a lane, between the ends of *held*."""

    held: PositionRange
    hashes: LaneHashes
    entries: int


class DueRange(NamedTuple):
    """The entries at some *positions*, in the order they came due; *held* says the rest of them."""

    held: PositionRange
    positions: np.ndarray


def exact(
    topic: Topic, ledgers: LedgerIndex, ranges: Iterable[PositionRange | LaneRange | DueRange]
) -> tuple[PositionRange, ...]:
    """The same as ranges of positions. Where entries of a lane are gone, so are their keys, and all that is gone
    between the ends counts as sent: it is found missing later."""
    found: list[PositionRange] = []
    for each in ranges:
        if isinstance(each, LaneRange):
            found += _exact(topic, ledgers, each)
        elif isinstance(each, DueRange):
            stretches = ranges_of(np.sort(each.positions))
            found += [each.held._replace(first=first, last=last) for first, last in stretches]
        else:
            found.append(each)
    return tuple(found)


def _exact(topic: Topic, ledgers: LedgerIndex, sent: LaneRange) -> list[PositionRange]:
    held = sent.held
    runs = list(ledgers.runs(topic.topic_id, held.partition, held.first, held.last))
    is_mine = sent.hashes.holds(read_hashes(topic.path, runs))
    if is_mine.sum() < sent.entries:
        for run in runs:
            missing = find_missing(topic.path, run)
            if missing is not None:
                stretches = missing.entries if missing.is_lost else missing.whole
                gone = np.array(stretches, np.int64).reshape(-1, 2).T + run.to_position
                is_mine[expanded(*gone) - held.first] = True
    positions = held.first + np.flatnonzero(is_mine)
    return [held._replace(first=first, last=last) for first, last in ranges_of(positions)]
