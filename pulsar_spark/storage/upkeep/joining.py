"""Join small files of a table to larger ones, in commits that change no data, while others append, remove and read.

:data:`FILES` files of one size class become one, so each row is rewritten once per class.
"""

import math
import re
import uuid
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from deltalake import DeltaTable

from pulsar_spark.errors import CorruptState
from pulsar_spark.storage.delta.actions import KNOWN_FEATURES, READER_VERSION
from pulsar_spark.storage.delta.data_files import (
    conform,
    file_add,
    partition_values,
    regrouped,
    remove_files,
    removing,
    write_parts,
)
from pulsar_spark.storage.delta.log import TableLog
from pulsar_spark.storage.delta.tables import AppendTable
from pulsar_spark.storage.entries.topic_files import READ_ERRORS, raise_unless_damage
from pulsar_spark.storage.store.store import AnyPath, store_of

FILES = 64
"""Files of one size class that become one; fewer wait."""
GROUPS = 16
BYTES = 32 * 1024 * 1024
"""The largest file made; files of half this size are not joined."""
JOINED_BYTES = 100 * 1024 * 1024
"""The largest file made on request, as by Delta."""
_SMALLEST = 4096
_PLAIN = re.compile(r"[A-Za-z0-9=./_-]+")
"""Paths that are equal as text and as URL."""


class DataFile(NamedTuple):
    """A file of a table; ``written`` in milliseconds, rounds if it has them."""

    path: str
    size: int
    rows: int
    written: int
    first_round: int | None
    last_round: int | None


def files_of(table: DeltaTable) -> list[DataFile]:
    """The table's files, oldest first, except those with foreign names."""
    actions = pa.table(table.get_add_actions())
    columns = [actions[name].to_pylist() for name in ("path", "size_bytes", "num_records", "modification_time")]
    columns[2] = [rows or 0 for rows in columns[2]]
    found = map(DataFile, *columns, _rounds(actions, "min"), _rounds(actions, "max"))
    return sorted((file for file in found if _PLAIN.fullmatch(file.path)), key=lambda file: (file.written, file.path))


def _rounds(actions: pa.Table, bound: str) -> list[int | None]:
    kind = actions.schema.field(bound).type if bound in actions.schema.names else pa.null()
    if not pa.types.is_struct(kind) or kind.get_field_index("round") < 0:
        return [None] * actions.num_rows
    return pc.struct_field(actions[bound], "round").to_pylist()


def can_be_joined(table: DeltaTable) -> bool:
    """Are the table's rows exactly those of its files, without unknown features?"""
    protocol = table.protocol()
    return protocol.min_reader_version <= READER_VERSION and KNOWN_FEATURES.issuperset(protocol.writer_features or ())


def groups_of(files: Iterable[DataFile]) -> Iterator[list[DataFile]]:
    """Groups of *files* to join, each of one partition and size class."""
    alike: dict[tuple, list[DataFile]] = defaultdict(list)
    for file in files:
        if file.size < BYTES // 2:
            alike[_folder(file), _size(file)].append(file)
    for same in alike.values():
        *full, last = _in_order(same, BYTES, FILES)
        yield from full
        if len(last) == FILES:
            yield last


def large_groups_of(files: Iterable[DataFile]) -> Iterator[list[DataFile]]:
    """Groups of *files* to join now, each to a large file of one partition."""
    by_folder: dict[str, list[DataFile]] = defaultdict(list)
    for file in files:
        if file.size < JOINED_BYTES:
            by_folder[_folder(file)].append(file)
    for same in by_folder.values():
        yield from (group for group in _in_order(same, JOINED_BYTES, len(same)) if len(group) > 1)


def _in_order(files: Sequence[DataFile], most_bytes: int, most_files: int) -> Iterator[list[DataFile]]:
    group: list[DataFile] = []
    size = 0
    for file in files:
        if group and (size + file.size > most_bytes or len(group) == most_files):
            yield group
            group, size = [], 0
        group.append(file)
        size += file.size
    yield group


def _size(file: DataFile) -> int:
    """The size class of a file; a joined file is in the next."""
    largest = max(file.rows, file.size / _SMALLEST, 1)
    return int(math.log(largest, FILES) + 1e-9)


def join(path: AnyPath, table: DeltaTable, groups: Iterable[Sequence[DataFile]]) -> Iterator[list[int]]:
    """Join the readable files of each of *groups* of the *table* at *path*, in steps.

    Each step yields how many files each joined file replaced, usually none. Takes a row group or two of memory.
    """
    schema, written = _schema(table), []
    try:
        for group in groups:
            joined = _write(path, group, schema)
            written += [] if joined is None else [joined]
            yield _commit(path, table, written) if len(written) == GROUPS else []
        if written:
            yield _commit(path, table, written)
    finally:
        remove_files(path, [each.add for each in written])


class _Joined(NamedTuple):
    add: dict
    files: Sequence[DataFile]


def _write(path: AnyPath, group: Sequence[DataFile], schema: pa.Schema) -> _Joined | None:
    while len(group) > 1:
        name = f"{_folder(group[0])}part-00000-{uuid.uuid4()}-c000.snappy.parquet"
        try:
            with removing(path, [{"path": name}]):
                write_parts(path, name, schema, regrouped(_rows(path, group, schema)))
                add = file_add(path, name)
        except _Damaged as damaged:
            group = [file for file in group if file != damaged.file]
            continue
        return _Joined(add | {"modificationTime": max(file.written for file in group)}, group)
    return None


def _commit(path: AnyPath, table: DeltaTable, written: list[_Joined]) -> list[int]:
    """Commit the *written* files whose sources are still the table's, and empty the list; how many each replaced."""
    log = TableLog(path)
    latest = log.latest(table.version())
    gone = set().union(*map(log.removed_paths, range(table.version() + 1, latest + 1)))
    whole = [each for each in written if gone.isdisjoint(file.path for file in each.files)]
    remove_files(path, [each.add for each in written if each not in whole])
    written.clear()
    removes = [remove_of(file) for each in whole for file in each.files]
    if not whole or AppendTable(path).replace_files([each.add for each in whole], removes, latest) is None:
        return []
    return [len(each.files) for each in whole]


def remove_of(file: DataFile) -> dict:
    return {"path": file.path, "size": file.size, "partitionValues": partition_values(file.path)}


class _Damaged(Exception):
    def __init__(self, file: DataFile):
        super().__init__(file.path)
        self.file = file


def _schema(table: DeltaTable) -> pa.Schema:
    partitioned = table.metadata().partition_columns
    fields = pa.schema(table.schema().to_arrow())
    return pa.schema([field.with_nullable(True) for field in fields if field.name not in partitioned])


def _folder(file: DataFile) -> str:
    return "".join(f"{name}={value}/" for name, value in partition_values(file.path).items())


def _rows(path: AnyPath, group: Sequence[DataFile], schema: pa.Schema) -> Iterator[pa.Table]:
    for file in group:
        rows = 0
        try:
            with pq.ParquetFile(store_of(path).parquet(path / file.path)) as parquet:
                for number in range(parquet.num_row_groups):
                    part = conform(parquet.read_row_group(number), schema)
                    rows += part.num_rows
                    yield part
        except READ_ERRORS as error:
            raise_unless_damage(error)
            raise _Damaged(file) from error
        if file.rows and rows != file.rows:
            raise CorruptState(f"{str(path / file.path)!r} has {rows} rows, the log says {file.rows}")
