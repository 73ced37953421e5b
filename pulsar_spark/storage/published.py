"""The rows of a publish commit: from the file that ``ledgers`` names, and from wherever they are now when that file is gone.

The path is a hint: OPTIMIZE moves rows to other files and vacuum takes the old ones away, but the publish id stays with the rows and file statistics prune on
it. Rows that trimming has removed are nowhere.
"""
import os

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from pulsar_spark.schemas import MESSAGES
from pulsar_spark.storage.commits import partition_values
from pulsar_spark.storage.scan import dataset_of
from pulsar_spark.storage.tables import read_file

_PLACE = ("publish_id", "entry_id")


def read_published(table: str | os.PathLike, path: str, publish_id: str, first: int, last: int, columns: list[str] | None = None) -> pa.Table:
    """Entries *first*..*last* (ids) of *publish_id* that were published in file *path*, in no order: these *columns*, or all. Empty when they were trimmed."""
    names = columns or MESSAGES.schema.names
    try:
        rows = read_file(table, path, MESSAGES.schema, [*names, *(name for name in _PLACE if name not in names)])
    except FileNotFoundError:
        rows = _find(table, path, publish_id, names)
    inside = pc.and_(pc.greater_equal(rows["entry_id"], first), pc.less_equal(rows["entry_id"], last))
    return rows.filter(inside).select(names)


def _find(table: str | os.PathLike, path: str, publish_id: str, names: list[str]) -> pa.Table:
    wanted = ds.field("publish_id") == publish_id
    for name, value in partition_values(path).items():
        wanted &= ds.field(name) == int(value)
    fields = [MESSAGES.schema.field(name) for name in dict.fromkeys([*names, *_PLACE])]
    rows = dataset_of(table).to_table(filter=wanted, columns=[field.name for field in fields])
    return rows.cast(pa.schema(fields))
