"""The rows of a round as Arrow: facts, and one row per range of entries."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from operator import attrgetter, itemgetter
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from pulsar_spark.broker.chunks.chunked import Chunked
from pulsar_spark.broker.cursors.state import Cursor
from pulsar_spark.protocol.acknowledgement.cursor import PENDING, Range
from pulsar_spark.protocol.acknowledgement.packed_ranges import TAIL, PackedRanges, joined, used_numbers
from pulsar_spark.protocol.entries.entry_ranges import ChangedRanges, changed_ranges, join_acknowledged
from pulsar_spark.storage.cursor_ledger.cursor_ledger import CursorKey
from pulsar_spark.storage.ledgers.packed_columns import null_column
from pulsar_spark.table_specs import CURSOR_LEDGER

_BLOCK_ROWS = 65_536
COUNTED = ("delivered", "redelivered", "acknowledged", "dead", "returned")
"""What rounds count, by the names of the column ``counts``."""


class CursorRanges(NamedTuple):
    """Ranges of a cursor, one row each. By a range's first position: ``positions`` of its entries, unless it means all
    between its ends; and ``chunks``, its chunked messages, packed."""

    key: CursorKey
    topic: str
    ranges: Sequence[Range]
    positions: Mapping[int, np.ndarray] | None = None
    chunks: Mapping[int, bytes | None] | None = None


class RoundRows:
    """Collects the rows of a round: facts, and ranges of entries."""

    def __init__(self, facts: list[dict], number: int):
        self.facts, self.number = list(facts), number
        self.ranges: list[CursorRanges] = []
        self.acknowledged = 0
        """Entries that were not acknowledged before, without the dead ones."""
        self.counts: Counter[str] = Counter()
        """See :data:`COUNTED`."""

    def add_ranges(self, cursor: Cursor, states: ChangedRanges) -> None:
        """Add rows that replace earlier states of their entries."""
        if states.ranges:
            chunks = None if cursor.chunked is None else self._chunks_in(cursor.chunked, states)
            self.ranges.append(CursorRanges(cursor.key, cursor.topic, states.ranges, states.positions, chunks))

    def _chunks_in(self, chunked: Chunked, states: ChangedRanges) -> dict[int, bytes | None]:
        """The packed chunked messages in ranges delivered in this round, by first position."""
        return {
            range_.first: chunked.packed_at(states.positions[range_.first])
            if range_.first in states.positions
            else chunked.packed_between(range_.first, range_.last)
            for range_ in states.ranges
            if range_.status == PENDING and range_.delivery_round == self.number
        }

    def add_map(self, cursor: Cursor) -> None:
        entries = cursor.entries
        join_acknowledged(entries)
        self.add_ranges(cursor, changed_ranges(entries.everything(), entries.codes, entries.mark_delete))


def rows_of_round(round_number: int, facts: list[dict], entries: Iterable[CursorRanges]) -> pa.Table:
    """The Arrow rows of a round: *facts*, the kinds with many rows last, then a row per range of *entries*."""
    many: dict[str, list[dict]] = {"": [], "consumer": [], "letter": []}
    for fact in facts:
        many.get(fact["kind"], many[""]).append(fact)
    table = pa.concat_tables(CURSOR_LEDGER.rows(same) for same in many.values() if same)
    at = table.schema.get_field_index("round")
    table = table.set_column(at, table.field(at), _repeated([round_number], [len(facts)], table.field(at).type))
    entries = [each for each in entries if each.ranges]
    if not entries:
        return table
    ranges = joined([each.ranges for each in entries])
    return pa.concat_tables([table, _rows_of_ranges(round_number, entries, ranges)])


def _rows_of_ranges(round_number: int, entries: list[CursorRanges], ranges: PackedRanges) -> pa.Table:
    columns = {"first": ranges.ends[0], "last": ranges.ends[1]}
    used, which = used_numbers(ranges.which, len(ranges.tails))
    for name, values in zip(TAIL, zip(*(ranges.tails[number] for number in used.tolist()))):
        columns[name] = _Chosen(values, which)
    if any(each.chunks for each in entries):
        columns["chunks"] = [(each.chunks or {}).get(range_.first) for each in entries for range_ in each.ranges]
    if any(each.positions for each in entries):
        columns["positions"] = _lists(entries)
    return _with_places(round_number, entries, columns)


def _lists(entries: list[CursorRanges]) -> pa.ListArray:
    """The positions that each range of *entries* names; null for a range that means all between its ends."""
    found: list[np.ndarray | None] = []
    for each in entries:
        named = each.positions
        found += [named.get(range_.first) for range_ in each.ranges] if named else [None] * len(each.ranges)
    offsets = np.cumsum([0, *(0 if each is None else len(each) for each in found)])
    values = np.concatenate([np.empty(0, np.int64), *(each for each in found if each is not None)])
    is_null = np.array([each is None for each in found])
    return pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), pa.array(values), mask=pa.array(is_null))


class _Chosen(NamedTuple):
    """A column of *values*, one by number for each row."""

    values: Sequence
    which: np.ndarray

    def array(self, kind: pa.DataType) -> pa.Array | pa.ChunkedArray:
        if self.values.count(self.values[0]) == len(self.values):
            return _repeated(self.values[:1], [len(self.which)], kind)
        return pa.array(self.values, kind).take(pa.array(self.which))


def _with_places(
    round_number: int, entries: list[CursorRanges], columns: Mapping[str, "np.ndarray | list | pa.ListArray | _Chosen"]
) -> pa.Table:
    runs, of_runs = [], []
    for (topic, key), alike in groupby(entries, attrgetter("topic", "key")):
        runs.append((topic, *key))
        of_runs.append(sum(len(each.ranges) for each in alike))
    of_places = dict(zip(("topic", *CursorKey._fields), zip(*runs)))
    same, rows = {"round": round_number, "kind": "range"}, sum(of_runs)

    def column(field: pa.Field) -> pa.Array | pa.ChunkedArray:
        if field.name in columns:
            values = columns[field.name]
            if isinstance(values, pa.ListArray):
                return values.cast(field.type)
            return values.array(field.type) if isinstance(values, _Chosen) else pa.array(values, field.type)
        if field.name in of_places:
            return _repeated(of_places[field.name], of_runs, field.type)
        return _repeated([same.get(field.name)], [rows], field.type)

    return pa.Table.from_arrays([column(field) for field in CURSOR_LEDGER.schema], schema=CURSOR_LEDGER.schema)


def _repeated(values: Sequence, counts: Sequence[int], kind: pa.DataType) -> pa.ChunkedArray:
    """Each value by its count, as slices of one array, which saves memory."""
    slices = []
    for value, same in groupby(zip(values, counts), key=itemgetter(0)):
        left = sum(count for _, count in same)
        if value is None:
            slices += null_column(left, kind).chunks
            continue
        block = pa.repeat(pa.scalar(value, kind), min(left, _BLOCK_ROWS))
        while left:
            slices.append(block.slice(0, min(left, _BLOCK_ROWS)))
            left -= len(slices[-1])
    return pa.chunked_array(slices, kind)
