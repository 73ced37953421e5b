"""Rows of kind ``range`` in ``cursor_ledger`` as ranges, read by column and packed if many."""

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pulsar_spark.protocol.acknowledgement.cursor import Range
from pulsar_spark.protocol.acknowledgement.packed_ranges import TAIL, PackedRanges, used_numbers
from pulsar_spark.protocol.acknowledgement.positions import stretches_of
from pulsar_spark.protocol.entries.entry_ranges import ScatteredRange

AnyRows = TypeVar("AnyRows", pa.Table, pa.RecordBatch)

LARGE = 16
"""Ranges a place, on average, from which packing them is quicker than objects."""


def facts_and_ranges(rows: pa.Table) -> tuple[pa.Table, pa.Table]:
    """The rows of a round without ranges, copied, since a slice keeps all in memory; and the ranges."""
    is_range = pc.equal(rows["kind"], "range")
    count = pc.sum(is_range).as_py() or 0
    first_range = rows.num_rows - count
    if count > first_range and pc.all(is_range.slice(first_range)).as_py():
        return rows.take(np.arange(first_range)), rows.slice(first_range)
    return rows.filter(pc.invert(is_range)), rows.filter(is_range)


def scattered_ranges(rows: pa.Table, place: Sequence[str]) -> Iterator[tuple[tuple, ScatteredRange]]:
    """Rows of ranges that name positions: their values in columns *place*, and what they say."""
    found = zip(*(column.to_pylist() for column in rows.select(place).columns))
    for values, range_, positions in zip(found, _packed(rows), lists_of(rows["positions"])):
        if positions is not None:
            yield values, ScatteredRange(range_, positions)


def lists_of(column: pa.ChunkedArray | pa.ListArray) -> list[np.ndarray | None]:
    """The numbers of each row of a column of lists; None for null."""
    found: list[np.ndarray | None] = []
    for part in column.chunks if isinstance(column, pa.ChunkedArray) else [column]:
        values, offsets = part.values.to_numpy(), part.offsets.to_pylist()
        is_there = part.is_valid().to_pylist()
        found += [values[begin:end] if there else None for there, (begin, end) in zip(is_there, pairwise(offsets))]
    return found


def ranges_by_place(rows: pa.Table, place: Sequence[str]) -> Iterator[tuple[tuple, Sequence[Range]]]:
    """Consecutive ranges with equal values in columns *place*, after these values."""
    if not rows.num_rows:
        return
    places = rows.select(place)
    numbers = np.stack([_numbered(column)[0] for column in places.columns])
    starts = np.flatnonzero(np.append(True, (numbers[:, 1:] != numbers[:, :-1]).any(axis=0)))
    ranges: Sequence[Range] = _packed(rows)
    if len(ranges) < LARGE * len(starts):
        ranges = list(ranges)
    found = zip(*(column.to_pylist() for column in places.take(starts).columns))
    for values, (first, end) in zip(found, pairwise([*starts.tolist(), len(ranges)])):
        yield values, ranges[first:end]


def _packed(rows: pa.Table) -> PackedRanges:
    ends = np.stack([rows.column(name).to_numpy() for name in ("first", "last")])
    which, tails = np.zeros(rows.num_rows, np.int64), [()]
    for name in TAIL:
        numbers, values = _numbered(rows.column(name))
        used, which = used_numbers(which * len(values) + numbers, len(tails) * len(values))
        tails = [(*tails[at // len(values)], values[at % len(values)]) for at in used.tolist()]
    return PackedRanges(ends, which, tails)


def _numbered(column: pa.ChunkedArray) -> tuple[np.ndarray, list]:
    """Each row's index among the distinct values, and these: microseconds for instants, tuples for lists."""
    if column.null_count == len(column):
        return np.zeros(len(column), np.int64), [None]
    if pa.types.is_list(column.type):
        known: dict[tuple | None, int] = {}
        found = (None if value is None else tuple(value) for value in column.to_pylist())
        return np.array([known.setdefault(value, len(known)) for value in found], np.int64), list(known)
    if pa.types.is_timestamp(column.type):
        column = column.cast(pa.int64())
    parts = column.dictionary_encode("encode").chunks
    numbers = np.concatenate([part.indices.to_numpy() for part in parts])
    return numbers.astype(np.int64), parts[-1].dictionary.to_pylist()


def by_position(rows: AnyRows) -> AnyRows:
    """*rows* of ranges, of which each that names ``positions`` becomes a row per stretch of these, without
    ``entries``."""
    lists = lists_of(rows.column("positions"))
    if all(positions is None for positions in lists):
        return rows
    ends = zip(*(rows.column(name).to_pylist() for name in ("first", "last")))
    stretches = [
        np.array([[first], [last]]) if positions is None else stretches_of(np.sort(positions))
        for (first, last), positions in zip(ends, lists, strict=True)
    ]
    counts = [each.shape[1] for each in stretches]
    firsts, lasts = np.concatenate(stretches, axis=1)
    places, is_cut = (np.repeat(each, counts) for each in (np.arange(len(lists)), [each is not None for each in lists]))
    without = _with(rows, "positions", pa.nulls(len(lists), rows.schema.field("positions").type))
    cut = without.take(pa.array(places))
    for name, values in {"first": firsts, "last": lasts}.items():
        cut = _with(cut, name, pa.array(values, pa.int64()))
    if "entries" not in cut.schema.names:
        return cut
    return _with(cut, "entries", pc.if_else(pa.array(is_cut), pa.scalar(None, pa.int64()), cut.column("entries")))


def _with(rows: AnyRows, name: str, values: pa.Array) -> AnyRows:
    at = rows.schema.get_field_index(name)
    return rows.set_column(at, rows.schema.field(at), values)
