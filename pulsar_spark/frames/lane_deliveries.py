"""Deliveries of a lane.

Of a range of a lane (protocol.lanes) a consumer was sent the entries between its ends whose hashes are the lane's. As
long as all that a round delivered of a partition is handled alike it stays a range: it is read by its ends and the
hashes (see lane_frames), and acknowledged as what that round delivered. So **a delivery that has a range of a lane has
all that the range's round delivered of its partition.** Who takes some of it away, or decides row by row, makes
positions of the partition's ranges first (:func:`exact`), and so does who finds that some of it is gone.

Of the due lane (protocol.delays) the broker says the positions; the order in which they came due is of no concern to a
frame, which has none.
"""

from collections.abc import Callable, Iterable
from typing import NamedTuple

import numpy as np

from pulsar_spark.protocol.lanes import LaneHashes
from pulsar_spark.protocol.positions import ranges_of
from pulsar_spark.storage.key_hashes import sent_by_lane
from pulsar_spark.storage.ledger_index import LedgerIndex
from pulsar_spark.storage.slices import PositionRange
from pulsar_spark.storage.topics import Topic


class LaneRange(NamedTuple):
    """So many *entries* with the *hashes* of a lane, between the ends of *held*, delivered in *round*."""

    held: PositionRange
    hashes: LaneHashes
    entries: int
    round: int

    @property
    def partition(self) -> int:
        return self.held.partition

    @property
    def first(self) -> int:
        return self.held.first

    @property
    def last(self) -> int:
        return self.held.last

    @property
    def is_batch(self) -> bool:
        """Are its entries batches? They are of their first message's hash, which the other messages need not have: who
        reads them needs their positions, but acknowledges them with their round all the same."""
        return self.held.batch_size != 1 or self.held.ack_set is not None

    @property
    def messages(self) -> int:
        """Messages still unacknowledged in it."""
        return self.held._replace(last=self.held.first).messages * self.entries


class DueRange(NamedTuple):
    """The entries at some *positions*, in the order they came due; *held* says the rest of them."""

    held: PositionRange
    positions: np.ndarray


def exact(
    topic: Topic,
    ledgers: LedgerIndex,
    ranges: Iterable[PositionRange | LaneRange | DueRange],
    is_asked: Callable[[LaneRange], bool] = lambda held: True,
) -> tuple[PositionRange | LaneRange, ...]:
    """The same as ranges of positions, of those of a lane the ones that are asked for. What is gone and may have been
    sent with one (protocol.lanes) is found missing later."""
    found: list[PositionRange | LaneRange] = []
    for each in ranges:
        if isinstance(each, LaneRange) and is_asked(each):
            found += _exact(topic, ledgers, each)
        elif isinstance(each, DueRange):
            stretches = ranges_of(np.sort(each.positions))
            found += [each.held._replace(first=first, last=last) for first, last in stretches]
        else:
            found.append(each)
    return tuple(found)


def _exact(topic: Topic, ledgers: LedgerIndex, sent: LaneRange) -> list[PositionRange]:
    held = sent.held
    place, span = (topic.topic_id, held.partition), (held.first, held.last)
    positions = sent_by_lane(ledgers, topic.path, place, span, sent.hashes, sent.entries)
    return [held._replace(first=first, last=last) for first, last in ranges_of(positions)]
