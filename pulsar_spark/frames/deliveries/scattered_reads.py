"""Read entries that lie scattered: scans of the stretches in which they lie, and a filter by position.

A delivery has them as named entries or as many short ranges."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from pulsar_spark.frames.deliveries.named_entries import Delivered, NamedEntries
from pulsar_spark.protocol.acknowledgement.positions import distinct, expanded
from pulsar_spark.storage.entries.slices import PositionRange
from pulsar_spark.storage.session import local_frame

MOST_KINDS = 4
"""A delivery with more kinds of scattered entries is read by ranges, because each kind is a read of its own."""
MOST_RANGES, MOST_ENTRIES = 8, 1 << 24
"""More ranges than these are read as scattered entries, if they have at most these entries, whose positions are
arrays."""


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
"""Bits of the positions of a page, whose entries are one row of bits."""
_IS_MEANT = "shiftright(words[int(shiftright(position, 6) & 63)], int(position & 63)) & 1L = 1L"


class Scattered(NamedTuple):
    """Entries of one redelivery count and ack set: those of ``alike``. ``positions``, by partition, ascend."""

    alike: PositionRange
    positions: dict[int, np.ndarray]


def scattered(ranges: Iterable[Delivered]) -> list[Scattered]:
    """The entries of *ranges*, for each redelivery count and ack set."""
    parts: dict[tuple, dict[int, list[np.ndarray]]] = {}
    for each in ranges:
        range_ = each if isinstance(each, PositionRange) else each.position_range
        parts.setdefault(range_[3:5], {}).setdefault(each.partition, []).append(_positions(each))
    found = []
    for kind, by_partition in parts.items():
        positions = {partition: distinct(np.concatenate(some)) for partition, some in by_partition.items()}
        found.append(Scattered(PositionRange(-1, 0, 0, *kind), positions))
    return found


def are_scattered(ranges: Sequence[Delivered]) -> bool:
    """Whether *ranges* are to be read as scattered entries."""
    if any(isinstance(each, NamedEntries) for each in ranges):
        return True
    return len(ranges) > MOST_RANGES and sum(each.last - each.first + 1 for each in ranges) <= MOST_ENTRIES


def scans_of(entries: Scattered) -> list[list[PositionRange]]:
    """Ranges in which all *entries* lie, without the widest gaps, by partition and position: a list for each scan."""
    few = _stretches(entries, FEW)
    if sum(map(len, entries.positions.values())) > _MOST_WITH_FEW:
        many = _stretches(entries, MANY)
        if _size(many) < (1 - _LEAST_SKIPPED) * _size(few):
            return [many[at : at + _MOST_IN_SCAN] for at in range(0, len(many), _MOST_IN_SCAN)]
    return [few]


def only(spark: SparkSession, messages: DataFrame, entries: Scattered) -> DataFrame:
    """Those of *messages* (``partition``, ``position``) that are of *entries*."""
    parts = [_bits(partition, positions) for partition, positions in entries.positions.items()]
    pages = F.broadcast(local_frame(spark, pa.concat_tables(parts)))
    located = messages.withColumn("page", F.shiftright("position", _PAGE_BITS))
    return (
        located.join(pages.withColumnRenamed("of", "partition"), on=["partition", "page"], how="inner")
        .filter(F.expr(_IS_MEANT))
        .select(*messages.columns)
    )


def _positions(part: Delivered) -> np.ndarray:
    if isinstance(part, NamedEntries):
        return part.positions
    return expanded(np.array([part.first]), np.array([part.last]))


def _stretches(entries: Scattered, bounds: _Bounds) -> list[PositionRange]:
    found: list[PositionRange] = []
    most = max(FEW.most, bounds.most // len(entries.positions))
    for partition, positions in entries.positions.items():
        gaps = np.diff(positions)
        widest = np.argsort(-gaps, kind="stable")[: most - 1]
        cuts = np.sort(widest[gaps[widest] > bounds.least_gap]) + 1
        firsts, lasts = positions[np.append(0, cuts)], positions[np.append(cuts, len(positions)) - 1]
        alike = entries.alike._replace(partition=partition)
        found += [alike._replace(first=first, last=last) for first, last in zip(firsts.tolist(), lasts.tolist())]
    return found


def _size(ranges: Sequence[PositionRange]) -> int:
    return sum(each.last - each.first + 1 for each in ranges)


def _bits(partition: int, positions: np.ndarray) -> pa.Table:
    """A row for each page with any of *positions*, which ascend: 64 words whose bits say which."""
    pages, at = np.unique(positions >> _PAGE_BITS, return_inverse=True)
    is_meant = np.zeros((len(pages), 1 << _PAGE_BITS), bool)
    is_meant[at, positions & (1 << _PAGE_BITS) - 1] = True
    words = np.packbits(is_meant, axis=1, bitorder="little").view(np.int64)
    offsets = pa.array(np.arange(len(pages) + 1, dtype=np.int32) * words.shape[1])
    return pa.table(
        {
            "of": pa.array(np.full(len(pages), partition, np.int32)),
            "page": pa.array(pages),
            "words": pa.ListArray.from_arrays(offsets, pa.array(words.ravel())),
        }
    )
