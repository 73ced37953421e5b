"""Specifications of tables: a name, the meaning of a row, and columns."""

from operator import itemgetter
from typing import NamedTuple

import numpy as np
import pyarrow as pa

LAYOUT_VERSION = 2
"""The layout version that this release creates. A broker migrates older roots when it starts (storage.migrations)."""

SPLIT_LAYOUT_VERSION = 3
"""The version of roots that are split into bundles, or once were about to be. Tables are unchanged, but releases that
know only one bundle must refuse such roots."""

NEWEST_LAYOUT_VERSION = SPLIT_LAYOUT_VERSION
"""Roots of a later version are refused."""

TIME = pa.timestamp("us", tz="UTC")
PROPERTIES = pa.map_(pa.string(), pa.string())
ENCRYPTION_KEYS = pa.list_(pa.struct({"key": pa.string(), "value": pa.binary(), "metadata": PROPERTIES}))
HASH_RANGES = pa.list_(pa.struct({name: pa.int32() for name in ("start", "end", "modulus", "remainder")}))


_MANY = 1000


class Column(NamedTuple):
    """``since`` is the layout version that added the column; older rows have null."""

    name: str
    type: pa.DataType
    meaning: str
    since: int = 1


class TableSpec(NamedTuple):
    name: str
    row: str
    columns: tuple[Column, ...]

    @property
    def schema(self) -> pa.Schema:
        """The Arrow schema. All columns are nullable, because kinds of rows share a table."""
        return self.schema_at(LAYOUT_VERSION)

    def schema_at(self, version: int) -> pa.Schema:
        """The schema in a layout version."""
        return pa.schema([(column.name, column.type) for column in self.columns if column.since <= version])

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
