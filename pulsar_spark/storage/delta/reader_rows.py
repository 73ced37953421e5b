"""The readers of a commit, and the few rows that they need, in the commit itself, so that they need not open its files.

A round's commit has the rows that clients need as JSON objects without nulls, a small append all its rows as columns,
one object for each file. Instants are microseconds since 1970, bytes are base64. They stand in ``commitInfo``, which
other programs ignore; checkpoints would repeat the tags of an ``add`` action. Source: the Delta protocol, "Commit
Provenance Information".
"""

import base64
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from types import MappingProxyType
from typing import Any, NamedTuple, TypeAlias

import pyarrow as pa

from pulsar_spark.protocol.delays.instants import from_micros


class Readers(NamedTuple):
    """The *names* of those who must read the rows of a commit (None: everybody), and the rows that they need, as
    :func:`objects_of` makes them (None: they are in the files)."""

    names: Sequence[str] | None
    rows: Sequence[dict[str, Any]] | None


EVERYBODY = Readers(None, None)
MOST_ROWS, MOST_BYTES = 256, 1 << 16
STATED = "rows"
"""The field with an append's rows, and the key under which writers keep a file's rows in its ``add`` action before."""
MOST_STATED, MOST_STATED_BYTES = 16, 8 * 1024
Columns: TypeAlias = Mapping[str, list]
"""Values of columns as JSON has them. Columns that are null in all rows are left out."""
_MICROSECONDS = pa.timestamp("us", tz="UTC")


def objects_of(rows: pa.Table) -> list[dict[str, Any]] | None:
    """*rows* as objects; None if they are too many or too large."""
    if rows.num_rows > MOST_ROWS:
        return None
    columns = {name: column for name, column in zip(rows.column_names, rows.columns) if column.null_count < len(column)}
    if sum(column.nbytes for column in columns.values()) > MOST_BYTES:
        return None
    values = (
        zip(*(_values(each.type, plain_values(each)) for each in columns.values())) if columns else [()] * rows.num_rows
    )
    return [{name: value for name, value in zip(columns, row) if value is not None} for row in values]


def rows_from(objects: Iterable[dict[str, Any]], schema: pa.Schema) -> list[dict[str, Any]]:
    """The rows of *objects*, with all columns of *schema*."""
    rows = [{**dict.fromkeys(schema.names), **row} for row in objects]
    for name, unpack in [(field.name, unpack) for field in schema if (unpack := _unpack_of(field.type))]:
        for row in rows:
            if (value := row[name]) is not None:
                row[name] = unpack(value)
    return rows


def plain_values(column: pa.ChunkedArray) -> list:
    """Its values, instants as microseconds since 1970."""
    if pa.types.is_timestamp(column.type):
        column = (column if column.type == _MICROSECONDS else column.cast(_MICROSECONDS)).cast(pa.int64())
    return column.to_pylist()


def _values(kind: pa.DataType, values: list) -> list:
    """Plain values as JSON has them."""
    if pa.types.is_binary(kind):
        return [None if value is None else base64.b64encode(value).decode() for value in values]
    return values


def _unpack_of(kind: pa.DataType) -> Callable[[Any], Any] | None:
    if pa.types.is_timestamp(kind):
        return from_micros
    return base64.b64decode if pa.types.is_binary(kind) else None


def few_columns(rows: pa.Table) -> dict[str, list]:
    """The plain values of *rows* that are few and small enough for a commit, else none."""
    if not 0 < rows.num_rows <= MOST_STATED:
        return {}
    if rows.get_total_buffer_size() > MOST_STATED_BYTES < rows.nbytes:  # quick, but more than the bytes of a slice
        return {}
    return {name: plain_values(column) for name, column in zip(rows.column_names, rows.columns)}


def stated_columns(schema: pa.Schema, few: Mapping[str, list]) -> dict[str, list] | None:
    """The columns *few* for a commit; None if there are none, or one of a type that JSON lacks."""
    if not few or any(pa.types.is_nested(kind) and not _is_plain(kind) for kind in schema.types):
        return None
    return {name: _values(kind, few[name]) for name, kind in zip(schema.names, schema.types)}


def _is_plain(kind: pa.DataType) -> bool:
    """Whether the items of a list or map are numbers or texts."""
    items = [kind.key_type, kind.item_type] if pa.types.is_map(kind) else [kind.field(0).type]
    is_list = pa.types.is_list(kind) or pa.types.is_map(kind)
    return is_list and all(pa.types.is_integer(item) or pa.types.is_string(item) for item in items)


def table_of(
    columns: Columns, rows: int, schema: pa.Schema, constants: Mapping[str, str] = MappingProxyType({})
) -> pa.Table | None:
    """The stated rows in *schema*; *constants* are values of whole columns. None if any value does not fit."""
    try:
        arrays = [
            pa.repeat(pa.scalar(constants[name]), rows).cast(kind)
            if name in constants
            else _array(columns[name], kind)
            if name in columns
            else (_nulls if rows <= MOST_STATED else pa.nulls)(rows, kind)
            for name, kind in zip(schema.names, schema.types)
        ]
    except (pa.ArrowException, TypeError, ValueError, OverflowError):
        return None
    return pa.Table.from_arrays(arrays, schema=schema)


_nulls = lru_cache(maxsize=512)(pa.nulls)
"""Made once for each type and small number of rows."""


def _array(values: list, kind: pa.DataType) -> pa.Array:
    if pa.types.is_timestamp(kind):
        return pa.array(values, pa.int64()).cast(kind)
    if pa.types.is_binary(kind):
        return pa.array([None if each is None else base64.b64decode(each, validate=True) for each in values], kind)
    if pa.types.is_map(kind):
        values = [None if each is None else [(name, value) for name, value in each] for each in values]
    return pa.array(values, kind)


def columns_of(stated: object, rows: int) -> Columns | None:
    """One file's columns from a commit; None if they are not *rows* values each."""
    if not isinstance(stated, dict) or not 0 < rows <= MOST_STATED:
        return None
    is_whole = all(isinstance(values, list) and len(values) == rows for values in stated.values())
    return stated if is_whole else None
