"""Parquet files of a length given beforehand.

A plan that was built once knows its file by path and length, and opens it again at each execution; so the file may be
replaced by another of the same length. What is missing to it goes between the data and the footer, where readers do not
look: the footer is found from the end, the data by the footer's offsets.
Source: the Parquet format, "File Format".
"""

import os
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

_TAIL = 8
"""The footer's length and the magic number."""


def to_parquet(rows: pa.Table) -> bytes:
    """The bytes of a Parquet file that holds *rows*."""
    sink = pa.BufferOutputStream()
    pq.write_table(rows, sink, compression="none", store_schema=False)
    return sink.getvalue().to_pybytes()


def replace_padded(path: Path, parquet: bytes, length: int) -> None:
    """Put *parquet*, made *length* bytes long, in the place of the file at *path*."""
    footer = int.from_bytes(parquet[-_TAIL : -_TAIL + 4], "little")
    data_end = len(parquet) - _TAIL - footer
    fresh = path.with_suffix(".new")
    fresh.write_bytes(parquet[:data_end] + b"\0" * (length - len(parquet)) + parquet[data_end:])
    os.replace(fresh, path)
