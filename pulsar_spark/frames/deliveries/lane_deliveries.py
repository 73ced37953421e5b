"""Ranges in deliveries by lane (protocol.keys.lanes) and from the due lane (protocol.delays).

A lane range means the entries between its ends with the lane's hashes. It is read by them (see lane_frames) and
acknowledged by round. So **a delivery with a lane range has all that the range's round delivered of its partition.** To
remove or decide single rows, convert it to positions first (:func:`exact`).
"""

from collections.abc import Callable, Iterable
from typing import NamedTuple

import numpy as np

from pulsar_spark.protocol.acknowledgement.positions import ranges_of
from pulsar_spark.protocol.keys.lanes import LaneHashes
from pulsar_spark.storage.entries.key_hashes import sent_by_lane
from pulsar_spark.storage.entries.slices import PositionRange
from pulsar_spark.storage.ledgers.ledger_index import LedgerIndex
from pulsar_spark.storage.topics.topics import Topic


class LaneRange(NamedTuple):
    """The *entries* with the *hashes* of a lane between the ends of *position_range*, delivered in *round*."""

    position_range: PositionRange
    hashes: LaneHashes
    entries: int
    round: int

    @property
    def partition(self) -> int:
        return self.position_range.partition

    @property
    def first(self) -> int:
        return self.position_range.first

    @property
    def last(self) -> int:
        return self.position_range.last

    @property
    def is_batch(self) -> bool:
        """Whether its entries are batches, whose hash is that of the first message only: reading them needs
        positions."""
        return self.position_range.batch_size != 1 or self.position_range.ack_set is not None

    @property
    def messages(self) -> int:
        """The number of unacknowledged messages."""
        return self.position_range._replace(last=self.position_range.first).messages * self.entries


class DueRange(NamedTuple):
    """Entries at *positions*, in the order in which they came due; *position_range* has their other properties."""

    position_range: PositionRange
    positions: np.ndarray


def exact(
    topic: Topic,
    ledgers: LedgerIndex,
    ranges: Iterable[PositionRange | LaneRange | DueRange],
    is_selected: Callable[[LaneRange], bool] = lambda range_: True,
) -> tuple[PositionRange | LaneRange, ...]:
    """Convert due ranges, and the lane ranges that *is_selected* selects, to ranges of positions.

    Entries that are gone, but may have been sent (protocol.keys.lanes), are found missing later.
    """
    found: list[PositionRange | LaneRange] = []
    for each in ranges:
        if isinstance(each, LaneRange) and is_selected(each):
            found += _exact(topic, ledgers, each)
        elif isinstance(each, DueRange):
            stretches = ranges_of(np.sort(each.positions))
            found += [each.position_range._replace(first=first, last=last) for first, last in stretches]
        else:
            found.append(each)
    return tuple(found)


def _exact(topic: Topic, ledgers: LedgerIndex, sent: LaneRange) -> list[PositionRange]:
    range_ = sent.position_range
    place, span = (topic.topic_id, range_.partition), (range_.first, range_.last)
    positions = sent_by_lane(ledgers, topic.path, place, span, sent.hashes, sent.entries)
    return [range_._replace(first=first, last=last) for first, last in ranges_of(positions)]
