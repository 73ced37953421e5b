"""Open Delta tables and read their rows without a JVM. Arrow datasets load pandas, so they are imported on use."""

import contextlib
import errno
import json
from collections.abc import Iterator
from typing import TYPE_CHECKING
from urllib.parse import unquote

import pyarrow as pa
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError, TableNotFoundError
from pyarrow import fs

from pulsar_spark.errors import DOCTOR, CorruptState, PulsarSparkError
from pulsar_spark.storage.delta.log import TableLog
from pulsar_spark.storage.processes import forks
from pulsar_spark.storage.repair.broken_log import check_log, empty_commit
from pulsar_spark.storage.store.away import check_there
from pulsar_spark.storage.store.faults import is_fault_of_disk
from pulsar_spark.storage.store.store import AnyPath, StrPath, path_of, store_of
from pulsar_spark.storage.store.volumes import named

if TYPE_CHECKING:
    from pyarrow.dataset import Dataset, Expression

MAY_PASS = (OSError, PulsarSparkError, DeltaError)
"""What reading or writing a table raises, and a later attempt may not."""
LOOK_FAILED = (*MAY_PASS, pa.ArrowException)
"""What a look at a whole root raises: also for a file that changes or goes meanwhile."""
_GAP = "found gap"
_LISTINGS = 20
_LOOK_BACK = 10_000


def open_table(path: StrPath, version: int | None = None) -> DeltaTable:
    """The table in its latest or a given version.

    :class:`CorruptState` if it cannot be opened or has an empty commit, TableNotFoundError without a table.
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
            TableLog(path).commit(empty)  # raises with the cause
        return opened
    raise _cannot_open(path, gap) from gap


def check_opens(path: StrPath) -> None:
    """:class:`CorruptState` if a log is broken, before Spark reads it; features that only Spark knows are allowed."""
    try:
        open_table(path)
    except CorruptState:
        check_log(path_of(path))


def _cannot_open(path: StrPath, error: DeltaError) -> Exception:
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
def reading(table: StrPath) -> Iterator[None]:
    """Raise :class:`CorruptState` if a broken log or data file causes an error of the block; other errors pass."""
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
    sizes = sizes_of(open_table(table))
    found = store_of(table).sizes(table, sizes)
    for name, size in sizes.items():
        if name not in found:
            return f"data file {name!r} is missing"
        if found[name] != size:
            return f"data file {name!r} has {found[name]} bytes instead of {size}"
    if not isinstance(error, OSError) or (error.errno is None and store_of(table).is_local):
        return f"a data file cannot be read: {str(error).partition(chr(10))[0]}"
    return None


def open_as_far_as_it_goes(path: StrPath) -> DeltaTable:
    """The latest version before a broken commit or unknown requirements.

    :class:`CorruptState` if none is readable, TableNotFoundError without a table.
    """
    try:
        return open_table(path)
    except CorruptState:
        log = TableLog(path)
        latest = log.latest()
        for version in range(max(log.earliest(), 1, latest - _LOOK_BACK), latest + 1):
            try:
                is_readable = log.commit(version).unknown_feature is None
            except CorruptState:
                is_readable = False
            if not is_readable:
                return open_table(path, version - 1)
        raise


def sizes_of(opened: DeltaTable) -> dict[str, int]:
    files = pa.table(opened.get_add_actions()).select(["path", "size_bytes"])
    return dict(zip(map(unquote, files["path"].to_pylist()), files["size_bytes"].to_pylist()))


def metadata_of(opened: DeltaTable) -> dict:
    """The ``metaData`` action of an open table, for its next one."""
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
    """The folder to which paths of an open table's files are relative."""
    uri = named(opened.table_uri)
    return fs.FileSystem.from_uri(uri)[1] if store_of(uri).is_local else uri.rstrip("/")


def dataset_of(table: DeltaTable | StrPath) -> "Dataset":
    """The rows of an open table, or of the latest at a path; filters skip files by statistics.

    Arrow opens local files itself: through Python its threads may abort an ending process (apache/arrow issue 34314).
    """
    opened = table if isinstance(table, DeltaTable) else open_table(table)
    if not store_of(named(opened.table_uri)).is_local:
        return opened.to_pyarrow_dataset()
    filesystem, folder = fs.FileSystem.from_uri(opened.table_uri)
    return opened.to_pyarrow_dataset(filesystem=fs.SubTreeFileSystem(folder, filesystem))


def read_rows(path: StrPath, columns: list[str] | None = None, only: "Expression | None" = None) -> pa.Table:
    with reading(path):
        return dataset_of(path).to_table(columns=columns, filter=only)
