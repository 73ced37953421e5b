"""Specifications of tables: a name, the meaning of a row, and columns."""

from operator import itemgetter
from typing import NamedTuple

import numpy as np
import pyarrow as pa

LAYOUT_VERSION = 6
"""The only layout that this release reads and writes; tables of another are refused (storage.delta.definitions)."""

TIME = pa.timestamp("us", tz="UTC")
PROPERTIES = pa.map_(pa.string(), pa.string())
COUNTS = pa.map_(pa.string(), pa.int64())
ENCRYPTION_KEYS = pa.list_(pa.struct({"key": pa.string(), "value": pa.binary(), "metadata": PROPERTIES}))
HASH_RANGES = pa.list_(pa.struct({name: pa.int32() for name in ("start", "end", "modulus", "remainder")}))


_MANY = 1000


class Column(NamedTuple):
    name: str
    type: pa.DataType
    meaning: str


class TableSpec(NamedTuple):
    name: str
    row: str
    columns: tuple[Column, ...]

    @property
    def schema(self) -> pa.Schema:
        """The Arrow schema. All columns are nullable, because kinds of rows share a table."""
        return pa.schema([(column.name, column.type) for column in self.columns])

    def rows(self, rows: list[dict]) -> pa.Table:
        """*rows* as an Arrow table; missing keys are null, unknown ones an error."""
        known, schema = set().union(*rows), self.schema
        if unknown := known - set(schema.names):
            raise KeyError(f"{self.name} has no column {sorted(unknown)}")
        return pa.Table.from_arrays(
            [
                _array(_values(rows, name), kind) if name in known else pa.nulls(len(rows), kind)
                for name, kind in zip(schema.names, schema.types)  # a field computes its name at each access
            ],
            schema=schema,
        )


def table_spec(name: str, row: str, *columns: tuple[str, pa.DataType, str]) -> TableSpec:
    """A table whose rows each mean *row*, with *columns* (name, type, meaning)."""
    return TableSpec(name, row, tuple(Column(*column) for column in columns))


def _values(rows: list[dict], name: str) -> list:
    """The values of a column, with a fast path if every row has it."""
    try:
        return list(map(itemgetter(name), rows))
    except KeyError:
        return [row.get(name) for row in rows]


def _array(values: list, kind: pa.DataType) -> pa.Array:
    """*values* as Arrow; many equal ones are converted once."""
    if len(values) > _MANY and values.count(values[0]) == len(values):
        return pa.array(values[:1], kind).take(pa.array(np.zeros(len(values), np.int32)))
    return pa.array(values, kind)
