"""Files written for a table before a commit takes them in: beside it, or in an object store within it."""

import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from pulsar_spark.storage.delta.file_statistics import staged_statistics
from pulsar_spark.storage.layout import STAGED, beside
from pulsar_spark.storage.store.store import AnyPath, StrPath, store_of

STAGED_WITHIN, _UNDER_WAY = "publish-", "/_temporary"
"""In a store, the prefix of a publish's folder in the table, and Spark's folder for unfinished files."""


class StagedFile(NamedTuple):
    """A file outside a table (in a store: within); *name* is its path there, *taken* collects files that stay."""

    source: AnyPath
    name: str
    statistics: dict
    taken: set[AnyPath] | None = None

    @property
    def rows(self) -> int:
        return self.statistics["numRecords"]

    @property
    def place(self) -> str:
        """Its name with only the folders of partitions."""
        *folders, name = self.name.split("/")
        return "/".join([*(folder for folder in folders if "=" in folder), name])


class StagedFolder:
    """A folder of files for one commit, *unique* if given by name; other files are deleted with it."""

    def __init__(self, table: AnyPath, unique: str | None = None):
        self._store, unique = store_of(table), unique or uuid.uuid4().hex
        self._taken: set[AnyPath] = set()
        self._within = "" if self._store.is_local else f"{STAGED_WITHIN}{unique}/"
        self.path: AnyPath = staging_folder(table) / unique if self._store.is_local else table / self._within

    def file(self, place: str) -> StagedFile:
        source = self.path / place
        return StagedFile(source, self._within + place, staged_statistics(self._store.footer(source)), self._taken)

    def files(self) -> Iterator[StagedFile]:
        return (self.file(name) for name in sorted(self._store.below(self.path)) if name.endswith(".parquet"))

    def remove(self) -> None:
        """Delete the files that no commit has taken."""
        self._store.remove_folder(self.path, self._taken)


def staging_folder(table: StrPath) -> AnyPath:
    return beside(table, STAGED)


def staged_folders(table: AnyPath) -> dict[AnyPath, float]:
    """Folders of staged files (in a store: of running tasks), with their last change."""
    if isinstance(beside_it := staging_folder(table), Path):
        return {
            folder: max((path.lstat().st_mtime for path in (folder, *folder.rglob("*"))), default=0.0)
            for folder in beside_it.glob("*")
        }
    found: dict[AnyPath, float] = {}
    for name, seen in store_of(table).below(table).items():
        folder, under_way, _ = name.partition(_UNDER_WAY)
        if under_way and folder.startswith(STAGED_WITHIN):
            of = table / f"{folder}{under_way}"
            found[of] = max(found.get(of, 0.0), seen.st_mtime)
    return found


def remove_staged(table: AnyPath) -> None:
    """Delete staged files of a table without writers; in a store only unfinished ones."""
    store = store_of(table)
    for folder in [staging_folder(table)] if store.is_local else staged_folders(table):
        store.remove_folder(folder)
