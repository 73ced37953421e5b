"""Files that are written for a table before a commit takes them in: beside it, from where they are moved, or in a store
within it, where they stay.
"""

import os
import uuid
from collections.abc import Iterator
from typing import NamedTuple

import pyarrow.parquet as pq

from pulsar_spark.storage.file_statistics import staged_statistics
from pulsar_spark.storage.layout import STAGED, beside
from pulsar_spark.storage.store import AnyPath, store_of

STAGED_WITHIN, _UNDER_WAY = "publish-", "/_temporary"
"""In a store the files of a publish lie in a folder of the table that begins so."""


class StagedFile(NamedTuple):
    """A file that was written elsewhere on the table's file system, or in a store where it may stay; *name* is to be
    its path in the table, whose folders name values of partition columns. *taken* is told of one that stays."""

    source: AnyPath
    name: str
    statistics: dict
    taken: set[AnyPath] | None = None

    @property
    def rows(self) -> int:
        return self.statistics["numRecords"]

    @property
    def place(self) -> str:
        """Its name with no other folders than those of partitions."""
        *folders, name = self.name.split("/")
        return "/".join([*(folder for folder in folders if "=" in folder), name])


class StagedFolder:
    """A folder for files that one commit is to take in: beside the table, from where they are moved, in a store within
    it, where they stay, because there nothing can be moved. What is not taken goes with the folder."""

    def __init__(self, table: AnyPath):
        self._store, unique, self._taken = store_of(table), uuid.uuid4().hex, set()
        self._within = "" if self._store.is_local else f"{STAGED_WITHIN}{unique}/"
        self.path: AnyPath = staging_folder(table) / unique if self._store.is_local else table / self._within

    def file(self, place: str, footer: pq.FileMetaData | None = None) -> StagedFile:
        """The file at a *place* in the folder, of which the *footer* may be known."""
        source = self.path / place
        found = staged_statistics(footer or self._store.footer(source))
        return StagedFile(source, self._within + place, found, self._taken)

    def files(self) -> Iterator[StagedFile]:
        """All Parquet files in it, by name."""
        return (self.file(name) for name in sorted(self._store.below(self.path)) if name.endswith(".parquet"))

    def remove(self) -> None:
        """What is in it still, and no commit has taken."""
        self._store.remove_folder(self.path, self._taken)


def staging_folder(table: str | os.PathLike) -> AnyPath:
    """Where files for the table are written that an append is to move into it."""
    return beside(table, STAGED)


def staged_folders(table: AnyPath) -> dict[AnyPath, float]:
    """Where writers have staged files that no commit has taken, or not yet, and when something last changed there. In a
    store what Spark is done with counts as any file of the table's: it is what a task left under way."""
    if store_of(table).is_local:
        return {
            folder: max((path.lstat().st_mtime for path in (folder, *folder.rglob("*"))), default=0.0)
            for folder in staging_folder(table).glob("*")
        }
    found: dict[AnyPath, float] = {}
    for name, seen in store_of(table).below(table).items():
        folder, under_way, _ = name.partition(_UNDER_WAY)
        if under_way and folder.startswith(STAGED_WITHIN):
            of = table / f"{folder}{under_way}"
            found[of] = max(found.get(of, 0.0), seen.st_mtime)
    return found


def remove_staged(table: AnyPath) -> None:
    """Remove all that was staged for a table that nobody writes to: what a crash left. In a store what Spark was done
    with is left, which is the table's, or is no file of it."""
    store = store_of(table)
    for folder in [staging_folder(table)] if store.is_local else staged_folders(table):
        store.remove_folder(folder)
