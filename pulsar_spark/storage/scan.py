"""Reading a Delta table's rows without a JVM."""
import os

from deltalake import DeltaTable
from pyarrow import dataset as ds
from pyarrow import fs


def dataset_of(table: DeltaTable | str | os.PathLike) -> ds.Dataset:
    """The rows of a table in the version it is open at, or the latest of the one at a path; filters pass over files by their statistics.

    Its files are opened by Arrow itself. ``to_pyarrow_dataset`` would open them through Python, whose lock Arrow's threads then wait for, and where the
    interpreter ends meanwhile they abort the process (apache/arrow issue 34314).
    """
    opened = table if isinstance(table, DeltaTable) else DeltaTable(str(table))
    filesystem, folder = fs.FileSystem.from_uri(opened.table_uri)
    return opened.to_pyarrow_dataset(filesystem=fs.SubTreeFileSystem(folder, filesystem))
