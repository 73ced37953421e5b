"""Convert rows of due-lane deliveries (protocol.delays), whose ``positions`` are in due order, to ranges of
positions."""

from typing import TypeVar

import numpy as np
import pyarrow as pa

from pulsar_spark.protocol.acknowledgement.packing import unpacked
from pulsar_spark.protocol.acknowledgement.positions import ranges_of

Rows = TypeVar("Rows", pa.Table, pa.RecordBatch)


def by_position(rows: Rows) -> Rows:
    """*rows* of ranges; one with ``positions`` becomes a row per stretch of these, without lane, count and page."""
    packed = rows.column("positions").to_pylist()
    if not any(packed):
        return rows
    places: list[int] = []
    firsts, lasts, is_cut = [], [], []
    whole = zip(*(rows.column(name).to_pylist() for name in ("first", "last")))
    for place, (ends, data) in enumerate(zip(whole, packed, strict=True)):
        stretches = [ends] if data is None else ranges_of(np.sort(unpacked(data)))
        places += [place] * len(stretches)
        firsts += [first for first, _ in stretches]
        lasts += [last for _, last in stretches]
        is_cut += [data is not None] * len(stretches)
    cut = rows.take(pa.array(places, pa.int64()))
    for name, values in {"first": firsts, "last": lasts}.items():
        cut = _with(cut, name, pa.array(values, pa.int64()))
    for name in {"lane", "entries", "positions", "page"} & set(cut.schema.names):
        kept = cut.column(name).to_pylist()
        values = [None if is_of_due_lane else value for value, is_of_due_lane in zip(kept, is_cut, strict=True)]
        cut = _with(cut, name, pa.array(values, cut.schema.field(name).type))
    return cut


def _with(rows: Rows, name: str, values: pa.Array) -> Rows:
    at = rows.schema.get_field_index(name)
    return rows.set_column(at, rows.schema.field(at), values)
