"""Opening Delta tables, and reading their rows, without a JVM.

Datasets of Arrow are imported where one is made: pandas comes with them, and most clients never make one.
"""

import json
import os
from typing import TYPE_CHECKING

from deltalake import DeltaTable
from deltalake.exceptions import DeltaError, TableNotFoundError
from pyarrow import fs

from pulsar_spark.errors import CorruptState
from pulsar_spark.storage import forks
from pulsar_spark.storage.log import TableLog
from pulsar_spark.storage.store import path_of, store_of
from pulsar_spark.storage.volumes import named

if TYPE_CHECKING:
    from pyarrow.dataset import Dataset

_LISTINGS = 20
_LOOK_BACK = 10_000


def open_table(path: str | os.PathLike, version: int | None = None) -> DeltaTable:
    """The table at a path, in its latest version or a given one.

    A log that is listed while others commit may lack a commit that others in the list follow, because a folder's list
    promises nothing of files that come meanwhile. ``deltalake`` takes that for a broken log; the next list has the
    commit. A gap that stays is raised as it is.
    """
    forks.use()
    place, options = store_of(path).delta(path_of(path))
    for _ in range(_LISTINGS):
        try:
            return DeltaTable(place, version=version, storage_options=options)
        except DeltaError as error:
            if "found gap" not in str(error):
                raise
            gap = error
    raise gap


def open_as_far_as_it_goes(path: str | os.PathLike) -> DeltaTable:
    """The table in its latest version that can be read: where a commit cannot, or asks for what we do not know, as it
    was before that. DeltaError when none can, as ever without a table."""
    try:
        return open_table(path)
    except TableNotFoundError:
        raise
    except DeltaError:
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
