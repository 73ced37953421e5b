"""Opening Delta tables, and reading their rows, without a JVM."""
import os

from deltalake import DeltaTable
from deltalake.exceptions import DeltaError
from pyarrow import dataset as ds
from pyarrow import fs

from pulsar_spark.storage import forks

_LISTINGS = 20


def open_table(path: str | os.PathLike, version: int | None = None) -> DeltaTable:
    """The table at a path, in its latest version or a given one.

    A log that is listed while others commit may lack a commit that others in the list follow, because a folder's list promises nothing of files that come
    meanwhile. ``deltalake`` takes that for a broken log; the next list has the commit. A gap that stays is raised as it is.
    """
    forks.use()
    for _ in range(_LISTINGS):
        try:
            return DeltaTable(str(path), version=version)
        except DeltaError as error:
            if "found gap" not in str(error):
                raise
            gap = error
    raise gap


def dataset_of(table: DeltaTable | str | os.PathLike) -> ds.Dataset:
    """The rows of a table in the version it is open at, or the latest of the one at a path; filters pass over files by their statistics.

    Its files are opened by Arrow itself. ``to_pyarrow_dataset`` would open them through Python, whose lock Arrow's threads then wait for, and where the
    interpreter ends meanwhile they abort the process (apache/arrow issue 34314).
    """
    opened = table if isinstance(table, DeltaTable) else open_table(table)
    filesystem, folder = fs.FileSystem.from_uri(opened.table_uri)
    return opened.to_pyarrow_dataset(filesystem=fs.SubTreeFileSystem(folder, filesystem))
