"""What a table is made from: its name, what a row is, and its columns."""

from operator import itemgetter
from typing import NamedTuple

import numpy as np
import pyarrow as pa

LAYOUT_VERSION = 2
"""Version of the tables' layout that this release makes. A root of a lower one is brought up by its next broker
(storage.migrations)."""

SPLIT_LAYOUT_VERSION = 3
"""That of roots that are split into bundles, or once were about to be: their tables are as those of the version before,
and releases that know one bundle only, and would serve all topics with it, are refused by the number."""

NEWEST_LAYOUT_VERSION = SPLIT_LAYOUT_VERSION
"""A root of a higher one is refused."""

TIME = pa.timestamp("us", tz="UTC")
PROPERTIES = pa.map_(pa.string(), pa.string())
ENCRYPTION_KEYS = pa.list_(pa.struct({"key": pa.string(), "value": pa.binary(), "metadata": PROPERTIES}))
HASH_RANGES = pa.list_(pa.struct({name: pa.int32() for name in ("start", "end", "modulus", "remainder")}))


_MANY = 1000


class Column(NamedTuple):
    """``since`` is the layout version that brought the column; in rows written before it is null."""

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
        """The Arrow schema; every column may be null, because kinds of rows share a table."""
        return self.schema_at(LAYOUT_VERSION)

    def schema_at(self, version: int) -> pa.Schema:
        """The schema in that layout version."""
        return pa.schema([(column.name, column.type) for column in self.columns if column.since <= version])

    def rows(self, rows: list[dict]) -> pa.Table:
        """*rows* as an Arrow table of this spec; a missing key is null, an unknown one is an error."""
        known, schema = set().union(*rows), self.schema
        if unknown := known - set(schema.names):
            raise KeyError(f"{self.name} has no column {sorted(unknown)}")
        return pa.Table.from_arrays(
            [
                _array(_values(rows, name), kind) if name in known else pa.nulls(len(rows), kind)
                for name, kind in zip(schema.names, schema.types)  # a field makes its name anew whenever it is asked
            ],
            schema=schema,
        )


def _values(rows: list[dict], name: str) -> list:
    """What *rows* say of a column; quicker where each says something, as most of a kind do."""
    try:
        return list(map(itemgetter(name), rows))
    except KeyError:
        return [row.get(name) for row in rows]


def _array(values: list, kind: pa.DataType) -> pa.Array:
    """*values* as Arrow; many that are all the same, as most columns of letters are, of one of them."""
    if len(values) > _MANY and values.count(values[0]) == len(values):
        return pa.array(values[:1], kind).take(pa.array(np.zeros(len(values), np.int32)))
    return pa.array(values, kind)
