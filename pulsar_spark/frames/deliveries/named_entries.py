"""Entries of deliveries that are named one by one, because they lie scattered or came due in another order.

They are read at once and acknowledged by round. So **a delivery with named entries has all that their round delivered
of their partition.** To remove or decide single rows, convert them to ranges first (:func:`exact`)."""

from collections.abc import Container, Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from pulsar_spark.protocol.acknowledgement.positions import ranges_of
from pulsar_spark.storage.entries.slices import PositionRange
from pulsar_spark.storage.session import local_frame

MOST_READS = 4
"""A delivery with more kinds of named entries is read by ranges, because each kind is a read of its own."""


class _Bounds(NamedTuple):
    """The most stretches of positions to read in a partition, and the smallest gap between two of them, in entries."""

    most: int
    least_gap: int


FEW = _Bounds(8, 1 << 17)
"""For scans that are quick to prepare: a gap is longer than a row group."""
MANY = _Bounds(256, 2000)
"""For files in order of hash: a gap is a page of them (see storage.delta.data_files)."""
_MOST_IN_SCAN = 32
"""Stretches that one scan reads: the code of more would be too long for Java to compile."""
_MOST_WITH_FEW, _LEAST_SKIPPED = 100_000, 0.3
"""Many stretches are for more entries than these, and if they leave out this part of few stretches."""
_PAGE_BITS = 12
"""Bits of the positions of a page, whose named entries are one row of bits."""
_IS_NAMED = "shiftright(words[int(shiftright(position, 6) & 63)], int(position & 63)) & 1L = 1L"


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


def by_kind(named: Iterable[NamedEntries]) -> list[list[NamedEntries]]:
    """Named entries that may be read together: of one redelivery count and without acknowledged messages."""
    found: dict[tuple, list[NamedEntries]] = {}
    for each in named:
        found.setdefault(each.position_range[3:5], []).append(each)
    return list(found.values())


def scans_of(named: Sequence[NamedEntries]) -> list[list[PositionRange]]:
    """Ranges in which all of *named* lie, without the widest gaps, by partition and position: a list for each scan."""
    few = _stretches(named, FEW)
    if sum(len(each.positions) for each in named) > _MOST_WITH_FEW:
        many = _stretches(named, MANY)
        if _size(many) < (1 - _LEAST_SKIPPED) * _size(few):
            return [many[at : at + _MOST_IN_SCAN] for at in range(0, len(many), _MOST_IN_SCAN)]
    return [few]


def _stretches(named: Sequence[NamedEntries], bounds: _Bounds) -> list[PositionRange]:
    found: list[PositionRange] = []
    by_partition = _by_partition(named)
    most = max(FEW.most, bounds.most // len(by_partition))
    for partition, positions in by_partition.items():
        gaps = np.diff(positions)
        widest = np.argsort(-gaps, kind="stable")[: most - 1]
        cuts = np.sort(widest[gaps[widest] > bounds.least_gap]) + 1
        firsts, lasts = positions[np.append(0, cuts)], positions[np.append(cuts, len(positions)) - 1]
        alike = named[0].position_range._replace(partition=partition)
        found += [alike._replace(first=first, last=last) for first, last in zip(firsts.tolist(), lasts.tolist())]
    return found


def _size(ranges: Sequence[PositionRange]) -> int:
    return sum(each.last - each.first + 1 for each in ranges)


def only(spark: SparkSession, messages: DataFrame, named: Sequence[NamedEntries]) -> DataFrame:
    """Those of *messages* (``partition``, ``position``) whose entries are *named*."""
    parts = [_bits(partition, positions) for partition, positions in _by_partition(named).items()]
    pages = F.broadcast(local_frame(spark, pa.concat_tables(parts)))
    located = messages.withColumn("page", F.shiftright("position", _PAGE_BITS))
    return (
        located.join(pages.withColumnRenamed("of", "partition"), on=["partition", "page"], how="inner")
        .filter(F.expr(_IS_NAMED))
        .select(*messages.columns)
    )


def _by_partition(named: Sequence[NamedEntries]) -> dict[int, np.ndarray]:
    found: dict[int, list[np.ndarray]] = {}
    for each in named:
        found.setdefault(each.partition, []).append(each.positions)
    return {partition: np.sort(np.concatenate(parts)) for partition, parts in found.items()}


def _bits(partition: int, positions: np.ndarray) -> pa.Table:
    """A row for each page with any of *positions*, which ascend: 64 words whose bits say which."""
    pages, at = np.unique(positions >> _PAGE_BITS, return_inverse=True)
    is_named = np.zeros((len(pages), 1 << _PAGE_BITS), bool)
    is_named[at, positions & (1 << _PAGE_BITS) - 1] = True
    words = np.packbits(is_named, axis=1, bitorder="little").view(np.int64)
    offsets = pa.array(np.arange(len(pages) + 1, dtype=np.int32) * words.shape[1])
    return pa.table(
        {
            "of": pa.array(np.full(len(pages), partition, np.int32)),
            "page": pa.array(pages),
            "words": pa.ListArray.from_arrays(offsets, pa.array(words.ravel())),
        }
    )
