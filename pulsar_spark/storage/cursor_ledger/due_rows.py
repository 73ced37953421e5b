"""Convert rows that name positions, to ranges of positions."""

from typing import TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pulsar_spark.protocol.acknowledgement.positions import stretches_of
from pulsar_spark.storage.cursor_ledger.range_rows import lists_of

Rows = TypeVar("Rows", pa.Table, pa.RecordBatch)


def by_position(rows: Rows) -> Rows:
    """*rows* of ranges; one with ``positions`` becomes a row per stretch of these, without count."""
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


def _with(rows: Rows, name: str, values: pa.Array) -> Rows:
    at = rows.schema.get_field_index(name)
    return rows.set_column(at, rows.schema.field(at), values)
