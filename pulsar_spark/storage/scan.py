"""Opening Delta tables, and reading their rows, without a JVM.

Datasets of Arrow are imported where one is made: pandas comes with them, and most clients never make one.
"""

import contextlib
import errno
import json
import os
from collections.abc import Iterator
from typing import TYPE_CHECKING
from urllib.parse import unquote

import pyarrow as pa
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError, TableNotFoundError
from pyarrow import fs

from pulsar_spark.errors import DOCTOR, CorruptState
from pulsar_spark.storage import forks
from pulsar_spark.storage.away import check_there
from pulsar_spark.storage.broken_log import check_log, empty_commit
from pulsar_spark.storage.faults import is_fault_of_disk
from pulsar_spark.storage.log import TableLog
from pulsar_spark.storage.store import AnyPath, path_of, store_of
from pulsar_spark.storage.volumes import named

if TYPE_CHECKING:
    from pyarrow.dataset import Dataset, Expression

_GAP = "found gap"
_LISTINGS = 20
_LOOK_BACK = 10_000


def open_table(path: str | os.PathLike, version: int | None = None) -> DeltaTable:
    """The table at a path, in its latest version or a given one; :class:`CorruptState`, which says what is broken, for
    one that cannot be opened, TableNotFoundError without one.

    A log that is listed while others commit may lack a commit that others in the list follow, because a folder's list
    promises nothing of files that come meanwhile. ``deltalake`` takes that for a broken log; the next list has the
    commit. An empty commit ``deltalake`` passes over, and its files with it.
    """
    forks.use()
    place, options = store_of(path).delta(path_of(path))
    for _ in range(_LISTINGS):
        try:
            opened = DeltaTable(place, version=version, storage_options=options)
        except TableNotFoundError:
            raise
        except DeltaError as error:
            if _GAP in str(error):
                gap = error
                continue
            raise _cannot_open(path, error) from error
        empty = empty_commit(path_of(path), opened.version())
        if empty is not None:
            TableLog(path).commit(empty)  # which says so
        return opened
    raise _cannot_open(path, gap) from gap


def check_opens(path: str | os.PathLike) -> None:
    """Raise :class:`CorruptState` where the log of a table is torn, before Spark reads the table. Features that only
    Spark knows are no fault."""
    try:
        open_table(path)
    except CorruptState:
        check_log(path_of(path))


def _cannot_open(path: str | os.PathLike, error: DeltaError) -> Exception:
    """The error to raise for a table that ``deltalake`` cannot open; a fault of the disk is raised as it is."""
    if is_fault_of_disk(error):
        return error
    try:
        check_log(path_of(path))
    except CorruptState as broken:
        return broken
    if _GAP in str(error):
        return OSError(errno.EAGAIN, "other writers commit faster than the log can be listed", str(path))
    return CorruptState(f"{str(path)!r}: the table cannot be opened ({str(error).partition(chr(10))[0]}); {DOCTOR}")


@contextlib.contextmanager
def reading(table: str | os.PathLike) -> Iterator[None]:
    """Turn errors of the block that a torn log or data file of *table* causes into :class:`CorruptState`, which names
    it. Faults of the disk, and a missing file that is no longer the table's, are raised as they are."""
    try:
        yield
    except (pa.ArrowException, OSError) as error:
        if is_fault_of_disk(error):
            raise
        check_there(table)
        try:
            fault = _fault_of_files(path_of(table), error)
        except TableNotFoundError:  # it was deleted meanwhile
            fault = None
        if fault is None:
            raise
        raise CorruptState(f"{str(table)!r}: {fault}; {DOCTOR}") from error


def _fault_of_files(table: AnyPath, error: Exception) -> str | None:
    named_files = pa.table(open_table(table).get_add_actions(flatten=True)).select(["path", "size_bytes"])
    sizes = dict(zip(map(unquote, named_files["path"].to_pylist()), named_files["size_bytes"].to_pylist()))
    found = store_of(table).sizes(table, sizes)
    for name, size in sizes.items():
        if name not in found:
            return f"data file {name!r} is missing"
        if found[name] != size:
            return f"data file {name!r} has {found[name]} bytes instead of {size}"
    if not isinstance(error, OSError) or (error.errno is None and store_of(table).is_local):
        return f"a data file cannot be read: {str(error).partition(chr(10))[0]}"
    return None


def open_as_far_as_it_goes(path: str | os.PathLike) -> DeltaTable:
    """The table in its latest version that can be read: where a commit cannot, or asks for what we do not know, as it
    was before that. :class:`CorruptState` when none can, TableNotFoundError without a table."""
    try:
        return open_table(path)
    except CorruptState:
        log = TableLog(path)
        latest = log.latest()
        for version in range(max(log.earliest(), 1, latest - _LOOK_BACK), latest + 1):
            try:
                is_readable = log.commit(version).asks_for is None
            except CorruptState:
                is_readable = False
            if not is_readable:
                return open_table(path, version - 1)
        raise


def metadata_of(opened: DeltaTable) -> dict:
    """What a ``metaData`` action says of an open table as it is; for who commits another."""
    found = opened.metadata()
    return {
        "id": str(found.id),
        "name": found.name,
        "description": found.description,
        "format": {"provider": "parquet", "options": {}},
        "schemaString": json.dumps(json.loads(opened.schema().to_json())),
        "partitionColumns": found.partition_columns,
        "createdTime": found.created_time,
        "configuration": dict(found.configuration),
    }


def folder_of(opened: DeltaTable) -> str:
    """Where an open table lies, as its files are named."""
    uri = named(opened.table_uri)
    return fs.FileSystem.from_uri(uri)[1] if store_of(uri).is_local else uri.rstrip("/")


def dataset_of(table: DeltaTable | str | os.PathLike) -> "Dataset":
    """The rows of a table in the version it is open at, or the latest of the one at a path; filters pass over files by
    their statistics.

    Its files are opened by Arrow itself. ``to_pyarrow_dataset`` would open them through Python, whose lock Arrow's
    threads then wait for, and where the interpreter ends meanwhile they abort the process (apache/arrow issue 34314),
    so it is for tables in a store alone.
    """
    opened = table if isinstance(table, DeltaTable) else open_table(table)
    if not store_of(named(opened.table_uri)).is_local:
        return opened.to_pyarrow_dataset()
    filesystem, folder = fs.FileSystem.from_uri(opened.table_uri)
    return opened.to_pyarrow_dataset(filesystem=fs.SubTreeFileSystem(folder, filesystem))


def read_rows(path: str | os.PathLike, columns: list[str] | None = None, only: "Expression | None" = None) -> pa.Table:
    """*columns* of the rows of a table in its latest version; *only* is a filter."""
    with reading(path):
        return dataset_of(path).to_table(columns=columns, filter=only)
