"""Files that a frame's tasks write in Python, one per task and partition; files of lost attempts are ignored."""

import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame

from pulsar_spark.storage.delta.data_files import ROW_GROUP_BYTES, ROW_GROUP_ROWS, SIZED, parquet_writer, small_enough
from pulsar_spark.storage.store.store import AnyPath, path_of, store_of

MOST_FILES = 8
_FILES_SCHEMA = pa.schema([("file", pa.string())])


class ByTasks(NamedTuple):
    """How tasks write: *at_once* files at most, *constants* as added columns."""

    at_once: int
    constants: Mapping[str, pa.Scalar]


def write_task_files(rows: DataFrame, folder: AnyPath, partition_by: Sequence[str], how: ByTasks) -> list[str]:
    """Run *rows* and write a file per task and partition value into *folder*, which tasks must see; sorted names."""
    written = rows.mapInArrow(_write_into(str(folder), partition_by, how), "file string").collect()
    return sorted(row.file for row in written)


def _write_into(folder: str, partition_by: Sequence[str], how: ByTasks) -> Callable:

    def write(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        names = write_batches(batches, folder, partition_by, how)
        yield pa.RecordBatch.from_arrays([pa.array(names, pa.string())], schema=_FILES_SCHEMA)

    return write


def write_batches(
    batches: Iterable[pa.RecordBatch], folder: str, partition_by: Sequence[str], how: ByTasks
) -> list[str]:
    """Write the rows of one task into *folder*, a file per partition value; the files' names."""
    files: dict[str, _File] = {}
    with ExitStack() as opened:
        for batch in batches:
            table = pa.table(batch.columns, names=batch.schema.names)
            for name, value in how.constants.items():
                table = table.append_column(name, pa.repeat(value, batch.num_rows))
            for place, rows in _by_place(table, *partition_by):
                if place not in files:
                    group_bytes = ROW_GROUP_BYTES // how.at_once
                    files[place] = _File(path_of(folder), place, rows.schema, group_bytes, opened)
                files[place].add(rows)
        for file in files.values():
            file.flush()
    return [file.name for file in files.values()]


def _by_place(rows: pa.Table, partition: str | None = None) -> Iterator[tuple[str, pa.Table]]:
    if partition is None:
        yield "", rows
        return
    values, rest = rows[partition], rows.drop_columns([partition])
    for value in pc.unique(values).to_pylist():
        yield f"{partition}={value}/", rest.filter(pc.equal(values, value))


class _File:
    def __init__(self, folder: AnyPath, place: str, schema: pa.Schema, group_bytes: int, opened: ExitStack):
        store = store_of(folder)
        store.make_folder(folder / place)
        self.name = f"{place}part-{uuid.uuid4()}.snappy.parquet"
        sink = opened.enter_context(store.create(folder / self.name))
        self._writer = opened.enter_context(parquet_writer(sink, schema, is_large=True))
        self._group_bytes = group_bytes
        self._buffered: list[pa.Table] = []
        self._bytes = self._rows = 0

    def add(self, rows: pa.Table) -> None:
        self._buffered.append(rows)
        self._rows += rows.num_rows
        self._bytes += rows[SIZED].nbytes if SIZED in rows.column_names else 0
        if self._rows >= ROW_GROUP_ROWS or self._bytes >= self._group_bytes:
            self.flush()

    def flush(self) -> None:
        for part in small_enough(pa.concat_tables(self._buffered)) if self._buffered else ():
            self._writer.write_table(part, row_group_size=ROW_GROUP_ROWS)
        self._buffered, self._rows, self._bytes = [], 0, 0
