"""The readers of a commit, and the few rows that they need, in the commit itself, so that they need not open its files.

The rows stand in ``commitInfo`` as JSON objects without nulls: instants as microseconds since 1970, bytes as base64.
Other programs ignore them.
"""

import base64
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import pyarrow as pa

from pulsar_spark.protocol.delays.instants import from_micros


class Readers(NamedTuple):
    """The *names* of those who must read the rows of a commit (None: everybody), and the rows that they need, as
    :func:`objects_of` makes them (None: they are in the files)."""

    names: Sequence[str] | None
    rows: Sequence[dict[str, Any]] | None


EVERYBODY = Readers(None, None)
MOST_ROWS, MOST_BYTES = 64, 1 << 15
_MICROSECONDS = pa.timestamp("us", tz="UTC")


def objects_of(rows: pa.Table) -> list[dict[str, Any]] | None:
    """*rows* as objects; None if they are too many or too large."""
    if rows.num_rows > MOST_ROWS:
        return None
    columns = {name: column for name, column in zip(rows.column_names, rows.columns) if column.null_count < len(column)}
    if sum(column.nbytes for column in columns.values()) > MOST_BYTES:
        return None
    values = zip(*map(_values, columns.values())) if columns else [()] * rows.num_rows
    return [{name: value for name, value in zip(columns, row) if value is not None} for row in values]


def rows_from(objects: Iterable[dict[str, Any]], schema: pa.Schema) -> list[dict[str, Any]]:
    """The rows of *objects* in the columns of *schema*."""
    unpack = [(field.name, _unpack_of(field.type)) for field in schema]
    return [
        {name: None if (value := row.get(name)) is None else unpacked(value) for name, unpacked in unpack}
        for row in objects
    ]


def _values(column: pa.ChunkedArray) -> list:
    if pa.types.is_timestamp(column.type):
        return column.cast(_MICROSECONDS).cast(pa.int64()).to_pylist()
    if pa.types.is_binary(column.type):
        return [None if value is None else base64.b64encode(value).decode() for value in column.to_pylist()]
    return column.to_pylist()


def _unpack_of(kind: pa.DataType) -> Callable[[Any], Any]:
    if pa.types.is_timestamp(kind):
        return from_micros
    return base64.b64decode if pa.types.is_binary(kind) else _itself


def _itself(value: Any) -> Any:
    return value
