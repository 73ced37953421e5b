"""Write, take in, describe and read the data files of tables. A file belongs to a table once a commit names it."""

import contextlib
import json
import os
import time
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from types import MappingProxyType

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from pulsar_spark.protocol.chunks.chunking import MAX_MESSAGE_SIZE
from pulsar_spark.storage.delta.actions import AddedFile, Commit
from pulsar_spark.storage.delta.file_statistics import empty_columns, file_statistics, statistics
from pulsar_spark.storage.delta.reader_rows import STATED, few_columns, stated_columns, table_of
from pulsar_spark.storage.delta.staged_files import StagedFile
from pulsar_spark.storage.ledgers.packed_columns import null_column
from pulsar_spark.storage.processes.threads import Threads
from pulsar_spark.storage.store.durability import is_durable, sync_file, sync_folder
from pulsar_spark.storage.store.store import AnyPath, StrPath, store_of

ROW_GROUP_ROWS = 1 << 17
"""Most rows of a row group, so that readers with a filter skip most of a large file."""
ROW_GROUP_BYTES = 32 * 1024 * 1024
"""Most bytes of payload in a row group, unless one message has more; readers load whole row groups."""
BY_KEY_OPTIONS = {"parquet.page.row.count.limit": "2000"}
"""Options of Spark's writer for rows sorted by hash: small pages, for readers of many short stretches."""
MESSAGE_OPTIONS = {
    "parquet.enable.dictionary#entry_id": "false",
    "parquet.size.statistics.enabled": "false",
    "mapreduce.fileoutputcommitter.marksuccessfuljobs": "false",
}
"""Options of Spark's writer for messages: no dictionary for unique numbers, no size statistics, no success file."""
_ROWS_FOR_THREADS = 10_000
"""For fewer rows, one thread is faster than several."""
SIZED = "payload"
_FILE_ROWS, _FILES_AT_ONCE = 1 << 20, 2
_SYNCS_AT_ONCE = 8
_COUNTING = ("first", "last", "positions.list.element")
"""Columns of positions that mostly count up, so they are stored as differences."""
_PART_GROUPS = 2
_PARTITION = "partition"


def spark_writer_options(largest: int | None = None) -> dict[str, str]:
    """Options of Spark's writer that limit row groups; *largest* is the most bytes of a payload (None: of any message).

    A group exceeds :data:`ROW_GROUP_BYTES` at most twofold.
    """
    most_rows = max(1, ROW_GROUP_BYTES // (largest or MAX_MESSAGE_SIZE))
    return {
        "parquet.block.size": str(ROW_GROUP_BYTES),
        "parquet.block.row.count.limit": str(ROW_GROUP_ROWS),
        "parquet.page.size": str(2 * ROW_GROUP_BYTES),
        "parquet.page.size.row.check.min": "1",
        "parquet.page.size.row.check.max": str(min(most_rows, 10_000)),
    }


def place_files(table: AnyPath, staged: Sequence[StagedFile]) -> list[dict]:
    """Move staged files into the table, durably if the root is, and dated now; their ``add`` actions."""
    if is_durable(table):
        with Threads(max(1, min(len(staged), _SYNCS_AT_ONCE))) as pool:
            list(pool.map(sync_file, [file.source for file in staged]))
    adds: list[dict] = []
    with removing(table, adds):
        for file in staged:
            if file.source != table / file.name:
                store_of(table).move(file.source, table / file.name)
            elif file.taken is not None:
                file.taken.add(file.source)
            adds.append(_add(table, file.name, partition_values(file.name), file.statistics))
        _sync_folders_of(table, adds)
    return adds


def write_files(table: AnyPath, rows: pa.Table, is_partitioned: bool) -> list[dict]:
    """Write *rows* as Parquet files, one or more per partition, without columns that are null in all rows; their
    ``add`` actions. No file is left after an error. The files are not synced (:func:`sync_files`)."""
    pieces = []
    for folder, values, part in _parts(rows, is_partitioned):
        if folder:
            (table / folder).mkdir(exist_ok=True)
        for first in range(0, max(part.num_rows, 1), _FILE_ROWS):
            named = {"path": f"{folder}part-00000-{uuid.uuid4()}-c000.snappy.parquet"}
            pieces.append((named, values, part.slice(first, _FILE_ROWS)))
    with removing(table, [named for named, _, _ in pieces]):
        if rows.num_rows <= _FILE_ROWS:
            return [_write_file(table, *piece) for piece in pieces]
        with Threads(_FILES_AT_ONCE) as pool:
            return list(pool.map(lambda piece: _write_file(table, *piece), pieces))


def sync_files(table: AnyPath, adds: Iterable[dict]) -> None:
    """Wait until the files of *adds*, and then their names, are on the disk."""
    adds = list(adds)
    if adds and is_durable(table):
        for add in adds:
            sync_file(f"{table}/{add['path']}")
        _sync_folders_of(table, adds)


@contextlib.contextmanager
def removing(table: AnyPath, adds: list[dict]) -> Iterator[None]:
    """Remove the files, which need not exist, if the block fails."""
    is_done = False
    try:
        yield
        is_done = True
    finally:
        if not is_done:
            remove_files(table, adds)


def remove_files(table: AnyPath, adds: Iterable[dict]) -> None:
    """Remove files that no commit will name, as far as possible."""
    store = store_of(table)
    for add in adds:
        with contextlib.suppress(OSError):
            store.remove([table / add["path"]])


def _sync_folders_of(table: AnyPath, adds: list[dict]) -> None:
    if is_durable(table):
        folders = {os.path.dirname(add["path"]) for add in adds}
        for folder in [*(folders - {""}), ""]:
            sync_folder(f"{table}/{folder}")


def _write_file(table: AnyPath, named: dict, values: dict[str, str], rows: pa.Table) -> dict:
    path, columns = named["path"], zip(rows.column_names, rows.columns)
    written = rows.select([name for name, column in columns if column.null_count < rows.num_rows] or rows.column_names)
    few = few_columns(written)
    _write_parts(f"{table}/{path}", written.schema, small_enough(written))
    return _add(table, path, values, statistics(rows, few)) | {STATED: stated_columns(written.schema, few)}


def write_parts(table: AnyPath, path: str, schema: pa.Schema, parts: Iterable[pa.Table]) -> None:
    """Write a file in the table's folder, each of *parts* as one or more row groups, and sync it."""
    file = f"{table}/{path}"
    _write_parts(file, schema, parts)
    if is_durable(table):
        sync_file(file)


def _write_parts(file: str, schema: pa.Schema, parts: Iterable[pa.Table]) -> None:
    with store_of(file).create(file) as sink, parquet_writer(sink, schema) as writer:
        for part in parts:
            writer.write_table(part, row_group_size=ROW_GROUP_ROWS)


def parquet_writer(sink: pa.NativeFile, schema: pa.Schema, *, is_large: bool = False) -> pq.ParquetWriter:
    """The writer of a data file; *is_large* adds page indexes."""
    leaves, counting = _leaves_of(schema)
    return pq.ParquetWriter(
        sink,
        schema,
        compression="snappy",
        store_schema=False,
        write_page_checksum=True,
        write_page_index=is_large,
        use_dictionary=[leaf for leaf in leaves if leaf not in counting],
        column_encoding=dict.fromkeys(counting, "DELTA_BINARY_PACKED"),
    )


def regrouped(tables: Iterable[pa.Table]) -> Iterator[pa.Table]:
    """The rows of *tables* in large parts of at most :data:`ROW_GROUP_BYTES` of payload, or one row."""
    waiting: list[pa.Table] = []
    for rows in tables:
        waiting.append(rows)
        if sum(each.num_rows for each in waiting) >= ROW_GROUP_ROWS:
            yield from small_enough(pa.concat_tables(waiting))
            waiting = []
        elif SIZED in rows.schema.names and sum(each[SIZED].nbytes for each in waiting) > ROW_GROUP_BYTES:
            *whole, rest = small_enough(pa.concat_tables(waiting))
            yield from whole
            waiting = [rest]
    yield from small_enough(pa.concat_tables(waiting)) if waiting else ()


def small_enough(rows: pa.Table) -> Iterator[pa.Table]:
    """*rows* in parts of at most :data:`ROW_GROUP_BYTES` of payload, or one row."""
    if SIZED not in rows.schema.names or rows[SIZED].nbytes <= ROW_GROUP_BYTES:
        yield rows
        return
    ends = np.cumsum(pc.fill_null(pc.binary_length(rows[SIZED]), 0).to_numpy().astype(np.int64))
    first, before = 0, 0
    while first < len(ends):
        end = max(first + 1, int(np.searchsorted(ends, before + ROW_GROUP_BYTES, "right")))
        yield rows.slice(first, end - first)
        first, before = end, int(ends[end - 1])


@lru_cache(maxsize=256)
def _leaves_of(schema: pa.Schema) -> tuple[list[str], list[str]]:
    """All leaf columns, and those with positions."""
    leaves = list(_leaves(schema))
    return leaves, [leaf for leaf in _COUNTING if leaf in leaves]


def _leaves(schema: pa.Schema) -> Iterator[str]:
    for field in schema:
        if pa.types.is_map(field.type):
            yield from (f"{field.name}.key_value.key", f"{field.name}.key_value.value")
        else:
            yield f"{field.name}.list.element" if pa.types.is_list(field.type) else field.name


def _add(table: AnyPath, path: str, values: dict[str, str], of_file: dict) -> dict:
    return {
        "path": path,
        "partitionValues": values,
        "size": store_of(table).size(f"{table}/{path}"),
        "modificationTime": time.time_ns() // 1_000_000,
        "dataChange": True,
        "stats": json.dumps(of_file),
    }


def _parts(rows: pa.Table, is_partitioned: bool) -> Iterator[tuple[str, dict[str, str], pa.Table]]:
    if not is_partitioned:
        yield "", {}, rows
        return
    data = rows.drop_columns([_PARTITION])
    for value in pc.unique(rows[_PARTITION]).to_pylist():
        yield f"{_PARTITION}={value}/", {_PARTITION: str(value)}, data.filter(pc.equal(rows[_PARTITION], value))


def file_add(table: AnyPath, path: str) -> dict:
    return _add(table, path, partition_values(path), file_statistics(store_of(table).footer(table / path)))


def partition_values(path: str) -> dict[str, str]:
    """Partition columns of a data file, from the names of its folders."""
    return dict(part.split("=", 1) for part in path.split("/")[:-1] if "=" in part)


def read_file(table: StrPath, file: AddedFile | str, schema: pa.Schema, columns: list[str] | None = None) -> pa.Table:
    """A data file's rows in *schema*, with partition columns; FileNotFoundError if it is gone."""
    return pa.concat_tables(read_parts(table, file, schema, columns))


def read_parts(
    table: StrPath, file: AddedFile | str, schema: pa.Schema, columns: list[str] | None = None
) -> Iterator[pa.Table]:
    path = file.path if isinstance(file, AddedFile) else file
    values = partition_values(path)
    wanted = schema if columns is None else pa.schema([schema.field(name) for name in columns])
    if isinstance(file, AddedFile) and file.stated is not None:
        rows = table_of(file.stated, file.rows, wanted, values)
        if rows is not None:
            yield rows
            return
    opened = pq.ParquetFile(store_of(table).parquet(f"{table}/{path}"))
    names = [field.name for field in wanted if field.name not in values]
    if opened.metadata.num_rows <= _ROWS_FOR_THREADS:
        yield conform(opened.read(columns=names, use_threads=False), wanted, values)
        return
    empty = empty_columns(opened.metadata)
    names = [name for name in names if name not in empty] or names[:1]
    groups = range(opened.num_row_groups)
    for first in groups[::_PART_GROUPS]:
        rows = opened.read_row_groups(groups[first : first + _PART_GROUPS], columns=names)
        yield conform(rows, wanted, values)


def conform(rows: pa.Table, schema: pa.Schema, values: Mapping[str, str] = MappingProxyType({})) -> pa.Table:
    """*rows* with the columns of *schema*: *values* are constants, missing columns null."""

    def column(field: pa.Field) -> pa.Array | pa.ChunkedArray:
        if field.name in values:
            return pa.repeat(pa.scalar(values[field.name]), rows.num_rows).cast(field.type)
        if field.name not in names:
            return null_column(rows.num_rows, field.type)
        found = rows.column(field.name)
        return found if found.type == field.type else found.cast(field.type)  # a cast to the same type is no cheaper

    names = set(rows.column_names)
    return pa.Table.from_arrays([column(field) for field in schema], schema=schema)


def read_added(table: StrPath, commit: Commit, schema: pa.Schema, columns: list[str] | None = None) -> pa.Table:
    """The rows that *commit* added; none for a commit such as OPTIMIZE."""
    found = [read_file(table, file, schema, columns) for file in commit.added]
    if len(found) == 1:
        return found[0]
    wanted = schema if columns is None else pa.schema([schema.field(name) for name in columns])
    return pa.concat_tables([wanted.empty_table(), *found])
