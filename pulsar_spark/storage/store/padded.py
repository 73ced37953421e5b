"""Parquet files padded to a given length, between data and footer, so that one can replace another under a plan.

Source: the Parquet format, "File Format".
"""

import os
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

_TAIL = 8


def to_parquet(rows: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    pq.write_table(rows, sink, compression="none", store_schema=False)
    return sink.getvalue().to_pybytes()


def replace_padded(path: Path, parquet: bytes, length: int) -> None:
    footer = int.from_bytes(parquet[-_TAIL : -_TAIL + 4], "little")
    data_end = len(parquet) - _TAIL - footer
    fresh = path.with_suffix(".new")
    fresh.write_bytes(parquet[:data_end] + b"\0" * (length - len(parquet)) + parquet[data_end:])
    os.replace(fresh, path)
