"""Entries of deliveries that are named one by one, because they lie scattered or came due in another order.

They are read at once and acknowledged by round. So **a delivery with named entries has all that their round delivered
of their partition.** To remove or decide single rows, convert them to ranges first (:func:`exact`)."""

from collections.abc import Container, Iterable
from dataclasses import dataclass

import numpy as np

from pulsar_spark.protocol.acknowledgement.positions import ranges_of
from pulsar_spark.storage.entries.slices import PositionRange


@dataclass(frozen=True, eq=False)
class NamedEntries:
    """Entries at *positions*, which ascend, delivered in *round*; *position_range* spans them."""

    position_range: PositionRange
    positions: np.ndarray
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
    def messages(self) -> int:
        return self.position_range._replace(last=self.first).messages * len(self.positions)


Delivered = PositionRange | NamedEntries


def exact(ranges: Iterable[Delivered]) -> list[PositionRange]:
    """*ranges*, with ranges of positions instead of named entries."""
    found: list[PositionRange] = []
    for each in ranges:
        if isinstance(each, PositionRange):
            found.append(each)
        else:
            stretches = ranges_of(each.positions)
            found += [each.position_range._replace(first=first, last=last) for first, last in stretches]
    return found


def exact_in(partitions: Container[int], ranges: Iterable[Delivered]) -> tuple[Delivered, ...]:
    """:func:`exact` for the *ranges* in some partitions."""
    return tuple(part for each in ranges for part in (exact([each]) if each.partition in partitions else [each]))
