"""Many rows as Python objects."""

import contextlib
import gc
from collections.abc import Iterator

import pyarrow as pa
import pyarrow.compute as pc

from pulsar_spark.protocol.delays.instants import FIRST_MICROS, LAST_MICROS, from_micros
from pulsar_spark.table_specs.spec import TIME


@contextlib.contextmanager
def uncollected() -> Iterator[None]:
    """Disable garbage collection inside: it doubles the time to make millions of ranges."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def values_of(column: pa.ChunkedArray) -> list:
    """*column* as a list, quick for nulls and instants."""
    if column.null_count == len(column):
        return [None] * len(column)
    if column.type != TIME:
        return column.to_pylist()
    return [None if micros is None else from_micros(micros) for micros in column.cast(pa.int64()).to_pylist()]


def python_rows(rows: pa.Table) -> list[dict]:
    """*rows* as dicts, with instants beyond Python's calendar as its last."""
    try:
        names, columns = rows.column_names, [values_of(column) for column in rows.columns]
        return [dict(zip(names, row)) for row in zip(*columns)]  # quicker than to_pylist()
    except (OverflowError, ValueError):
        for number, field in enumerate(rows.schema):
            if pa.types.is_timestamp(field.type):
                micros = pc.min_element_wise(
                    pc.max_element_wise(rows.column(number).cast(pa.int64()), FIRST_MICROS, skip_nulls=False),
                    LAST_MICROS,
                    skip_nulls=False,
                )
                rows = rows.set_column(number, field, micros.cast(field.type))
        return rows.to_pylist()
