"""Read a broker's table in parts, without files, row groups and columns that statistics rule out.

All is read in the calling thread: threads of Arrow's datasets keep memory (``python -m tests.benchmarks --only past``).
"""

import contextlib
import ctypes
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import reduce
from typing import NamedTuple
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from deltalake import DeltaTable
from deltalake.exceptions import DeltaProtocolError
from deltalake.table import SUPPORTED_READER_FEATURES

from pulsar_spark.storage.delta.data_files import conform, partition_values
from pulsar_spark.storage.delta.file_statistics import footer_columns, group_bounds, groups_without_nulls
from pulsar_spark.storage.delta.scan import folder_of, reading
from pulsar_spark.storage.store.store import store_of

PART_ROWS = 1 << 12
_MASKS: dict[str, Callable] = {
    "==": pc.equal,
    ">": pc.greater,
    ">=": pc.greater_equal,
    "<": pc.less,
    "<=": pc.less_equal,
    "in": lambda column, values: pc.is_in(column, pa.array(values, column.type)),
}
_RULES: dict[str, tuple[Callable, Callable]] = {
    "==": (lambda low, high, value: low <= value <= high, lambda low, high, value: low == high == value),
    ">": (lambda low, high, value: high > value, lambda low, high, value: low > value),
    ">=": (lambda low, high, value: high >= value, lambda low, high, value: low >= value),
    "<": (lambda low, high, value: low < value, lambda low, high, value: high < value),
    "<=": (lambda low, high, value: low <= value, lambda low, high, value: high <= value),
    "in": (
        lambda low, high, values: any(low <= value <= high for value in values),
        lambda low, high, values: low == high and low in values,
    ),
}
"""By comparison: can it hold of a value between two bounds, and must it?"""


class Term(NamedTuple):
    """A condition: a column, or a sum of several, against a value (``in``: values)."""

    columns: tuple[str, ...]
    is_: str
    value: object

    def mask(self, rows: pa.Table) -> pa.ChunkedArray:
        found = rows.column(self.columns[0])
        for name in self.columns[1:]:
            found = pc.add(found, rows.column(name).cast(found.type))
        return _MASKS[self.is_](found, self.value)

    def may_hold(self, bounds: Sequence[tuple | None]) -> bool:
        """Can a row within these bounds (None: unknown) satisfy it?"""
        return self._of_bounds(0, bounds, True)

    def must_hold(self, bounds: Sequence[tuple | None]) -> bool:
        """Does every row within them, without nulls, satisfy it?"""
        return self._of_bounds(1, bounds, False)

    def _of_bounds(self, rule: int, bounds: Sequence[tuple | None], unknown: bool) -> bool:
        if any(each is None or None in each for each in bounds):
            return unknown
        lows, highs = zip(*bounds)
        low, high = (lows[0], highs[0]) if len(bounds) == 1 else (sum(lows), sum(highs))
        return _RULES[self.is_][rule](low, high, self.value)


def term(columns: str | tuple[str, ...], is_: str, value: object) -> Term:
    return Term((columns,) if isinstance(columns, str) else columns, is_, value)


def read_parts(
    opened: DeltaTable,
    schema: pa.Schema,
    columns: Iterable[str],
    wanted: Iterable[Term] = (),
    part_rows: int | None = None,
) -> Iterator[pa.Table]:
    """*columns* (null if missing) of the rows that satisfy all of *wanted*, in any order, *part_rows* at a time."""
    _check_readable(opened)
    columns, wanted = list(columns), list(wanted)
    folder = folder_of(opened)
    with reading(folder):
        for path in _files(opened, wanted):
            yield from _rows_of(f"{folder}/{path}", schema, columns, wanted, part_rows or PART_ROWS)


def _check_readable(opened: DeltaTable) -> None:
    """DeltaProtocolError if files do not hold the rows as they are (deletion vectors)."""
    protocol = opened.protocol()
    unknown = set(protocol.reader_features or ()) - SUPPORTED_READER_FEATURES
    if protocol.min_reader_version == 2 or unknown:
        raise DeltaProtocolError(
            f"table {opened.table_uri!r} requires readers with "
            f"{', '.join(sorted(unknown)) or 'columnMapping'}, which this release does not support"
        )


def _files(opened: DeltaTable, wanted: Iterable[Term]) -> list[str]:
    files = pa.table(opened.get_add_actions(flatten=True))
    for each in wanted:
        names = [f"{bound}.{name}" for name in each.columns for bound in ("min", "max")]
        if set(names) <= set(files.column_names):
            limits = zip(*(files[name].to_pylist() for name in names))
            may_hold = [each.may_hold(list(zip(bounds[::2], bounds[1::2]))) for bounds in limits]
            files = files.filter(pa.array(may_hold, pa.bool_()))
    return [unquote(path) for path in files["path"].to_pylist()]


def _rows_of(
    path: str, schema: pa.Schema, columns: list[str], wanted: list[Term], part_rows: int
) -> Iterator[pa.Table]:
    values = partition_values(path)
    with pq.ParquetFile(store_of(path).parquet(path), pre_buffer=False) as file:
        names = {name for each in wanted for name in each.columns}
        bounds = {name: group_bounds(file.metadata, name) for name in names}
        there = set(footer_columns(file.metadata))
        are_full = {name: groups_without_nulls(file.metadata, name) for name in names & there}
        for number in range(file.metadata.num_row_groups):
            found = {name: bounds[name][number] for name in names}
            full = {name: found[name] if name in are_full and are_full[name][number] else None for name in names}
            if not all(each.may_hold([found[name] for name in each.columns]) for each in wanted):
                continue
            filters = [each for each in wanted if not each.must_hold([full[name] for name in each.columns])]
            used = dict.fromkeys([*columns, *(name for each in filters for name in each.columns)])
            read = pa.schema([schema.field(name) for name in used])
            stored = [name for name in used if name not in values]
            for batch in file.iter_batches(part_rows, row_groups=[number], columns=stored, use_threads=False):
                rows = conform(pa.table(batch), read, values)
                if filters:
                    rows = rows.filter(reduce(pc.and_, (each.mask(rows) for each in filters)))
                if rows.num_rows:
                    yield rows.select(columns)


def give_memory_back() -> None:
    """Return free memory of Arrow and the C library to the system, in milliseconds without Python's lock."""
    pa.default_memory_pool().release_unused()
    with contextlib.suppress(AttributeError):
        ctypes.CDLL(None).malloc_trim(0)
