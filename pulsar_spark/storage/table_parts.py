"""Reading a table of the broker's a part at a time, in the thread that asks: for who stays in memory long after.

Arrow's datasets read ahead with threads of their own, each of which keeps what it had: of a table of 10^6 rows 50 MB
stayed with a client that wanted some thousands of them. Here no more than a part of a row group is decoded at a time,
and files and row groups whose statistics rule out what is wanted are not read.
"""

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

from pulsar_spark.storage.data_files import conform, partition_values
from pulsar_spark.storage.file_statistics import group_bounds
from pulsar_spark.storage.scan import folder_of
from pulsar_spark.storage.store import store_of

PART_ROWS = 1 << 12
_MASKS: dict[str, Callable] = {
    "==": pc.equal,
    ">": pc.greater,
    ">=": pc.greater_equal,
    "<": pc.less,
    "<=": pc.less_equal,
    "in": lambda column, values: pc.is_in(column, pa.array(values, column.type)),
}
_MAY: dict[str, Callable] = {
    "==": lambda low, high, value: low <= value <= high,
    ">": lambda low, high, value: high > value,
    ">=": lambda low, high, value: high >= value,
    "<": lambda low, high, value: low < value,
    "<=": lambda low, high, value: low <= value,
    "in": lambda low, high, values: any(low <= value <= high for value in values),
}


class Term(NamedTuple):
    """What must hold of a row that is wanted: a column, or the sum of several, beside a value (``in``: some)."""

    columns: tuple[str, ...]
    is_: str
    value: object

    def mask(self, rows: pa.Table) -> pa.ChunkedArray:
        """Of which rows it holds."""
        found = rows.column(self.columns[0])
        for name in self.columns[1:]:
            found = pc.add(found, rows.column(name).cast(found.type))
        return _MASKS[self.is_](found, self.value)

    def may_hold(self, bounds: Sequence[tuple | None]) -> bool:
        """Whether it may hold of a row between these least and greatest values of its columns; None for unknown."""
        if any(each is None or None in each for each in bounds):
            return True
        lows, highs = zip(*bounds)
        low, high = (lows[0], highs[0]) if len(bounds) == 1 else (sum(lows), sum(highs))
        return _MAY[self.is_](low, high, self.value)


def term(columns: str | tuple[str, ...], is_: str, value: object) -> Term:
    """The term of a column's name, or of those whose sum it is about."""
    return Term((columns,) if isinstance(columns, str) else columns, is_, value)


def read_parts(
    opened: DeltaTable, schema: pa.Schema, columns: Iterable[str], wanted: Iterable[Term] = ()
) -> Iterator[pa.Table]:
    """*columns* of the rows of a table, in the version it is open at, of which all of *wanted* holds: as *schema*, that
    of the table, has them, in no order, at most :data:`PART_ROWS` at a time. What a file does not have is null."""
    _check_readable(opened)
    columns, wanted = list(columns), list(wanted)
    asked = dict.fromkeys(name for each in wanted for name in each.columns)
    read = pa.schema([schema.field(name) for name in dict.fromkeys([*columns, *asked])])
    folder = folder_of(opened)
    for path in _files(opened, wanted):
        for rows in _rows_of(f"{folder}/{path}", read, wanted, partition_values(path)):
            if wanted:
                rows = rows.filter(reduce(pc.and_, (each.mask(rows) for each in wanted)))
            if rows.num_rows:
                yield rows.select(columns)


def _check_readable(opened: DeltaTable) -> None:
    """DeltaProtocolError for a table whose files do not hold its rows as they are, such as one with deletion
    vectors."""
    protocol = opened.protocol()
    unknown = set(protocol.reader_features or ()) - SUPPORTED_READER_FEATURES
    if protocol.min_reader_version == 2 or unknown:
        raise DeltaProtocolError(
            f"table {opened.table_uri!r} asks its readers for {', '.join(sorted(unknown)) or 'columnMapping'}, which "
            "this release does not know"
        )


def _files(opened: DeltaTable, wanted: Iterable[Term]) -> list[str]:
    """The files that may hold rows that are wanted, as the table's statistics say."""
    files = pa.table(opened.get_add_actions(flatten=True))
    for each in wanted:
        names = [f"{bound}.{name}" for name in each.columns for bound in ("min", "max")]
        if set(names) <= set(files.column_names):
            told = zip(*(files[name].to_pylist() for name in names))
            may_hold = [each.may_hold(list(zip(bounds[::2], bounds[1::2]))) for bounds in told]
            files = files.filter(pa.array(may_hold, pa.bool_()))
    return [unquote(path) for path in files["path"].to_pylist()]


def _rows_of(path: str, schema: pa.Schema, wanted: list[Term], values: dict[str, str]) -> Iterator[pa.Table]:
    """Rows of one file, without the row groups that can hold none that is wanted."""
    with pq.ParquetFile(store_of(path).parquet(path), pre_buffer=False) as file:
        bounds = {name: group_bounds(file.metadata, name) for each in wanted for name in each.columns}
        groups = [
            number
            for number in range(file.metadata.num_row_groups)
            if all(each.may_hold([bounds[name][number] for name in each.columns]) for each in wanted)
        ]
        columns = [name for name in schema.names if name not in values]
        for batch in file.iter_batches(PART_ROWS, row_groups=groups, columns=columns, use_threads=False):
            yield conform(pa.table(batch), schema, values)
