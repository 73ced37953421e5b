"""Folders of an object store: the names in and below them, and operations on all of them."""

from collections.abc import Collection, Iterable, Mapping
from typing import Any

from pulsar_spark.storage.processes.threads import Threads
from pulsar_spark.storage.store.object_path import ObjectPath, Stat
from pulsar_spark.storage.store.store_calls import CALLS_AT_ONCE, StoreCalls, missing

FOLDER = ".folder"
"""The object in an otherwise empty folder."""


class StoreFolders(StoreCalls):
    """One bucket, with operations on folders. A folder exists while something lies below it."""

    def has_below(self, folder: ObjectPath) -> bool:
        key = folder.key
        chunks = self._ask("list", key, lambda obstore: next(iter(obstore.list(self._raw, key, chunk_size=1)), ()))
        return len(chunks) > 0

    def names(self, folder: ObjectPath) -> list[str]:
        found = self._listed(folder)
        names = [*found["common_prefixes"], *(each["path"] for each in found["objects"])]
        if not names:
            raise missing(str(folder))
        return _last_parts(names)

    def folders(self, folder: ObjectPath) -> list[str]:
        return _last_parts(self._listed(folder)["common_prefixes"])

    def _listed(self, folder: ObjectPath) -> dict[str, Any]:
        key = folder.key
        return self._ask("list", key, lambda obstore: obstore.list_with_delimiter(self._raw, key))

    def names_after(self, folder: str | ObjectPath, name: str) -> list[str]:
        """The names in a folder after *name*, in order."""
        key = self._key(folder)
        chunks = self._ask(
            "list", key, lambda obstore: list(obstore.list(self._raw, key, offset=f"{key}/{name}", chunk_size=1000))
        )
        return [each["path"][len(key) + 1 :] for chunk in chunks for each in chunk]

    def below(self, folder: ObjectPath, *, without: str | None = None) -> dict[str, Stat]:
        found = {
            each["path"][len(folder.key) + 1 :]: Stat(each["size"], each["last_modified"].timestamp())
            for each in self._all_below(folder)
        }
        if without is None:
            return found
        return {name: seen for name, seen in found.items() if f"/{without}" not in f"/{name.rpartition('/')[0]}"}

    def stamps(self, folder: ObjectPath) -> dict[str, str]:
        """By name, a stamp that changes with each object in a folder; one call for a thousand."""
        return {each["path"][len(folder.key) + 1 :]: each["e_tag"] or "" for each in self._all_below(folder)}

    def _all_below(self, folder: ObjectPath) -> list[Mapping[str, Any]]:
        key = folder.key
        chunks = self._ask("list", key, lambda obstore: list(obstore.list(self._raw, key)))
        return [each for chunk in chunks for each in chunk]

    def make_folder(self, folder: ObjectPath) -> None:
        self.put(folder / FOLDER, b"")

    def take_names(self, folder: str) -> list[str]:
        names = self.names_after(folder, "")
        self.remove(f"{folder}/{name}" for name in names)
        return names

    def sizes(self, folder: ObjectPath, names: Iterable[str]) -> dict[str, int]:
        below = self.below(folder)
        return {name: below[name].st_size for name in names if name in below}

    def clone_folder(self, folder: ObjectPath, clone: ObjectPath) -> None:
        """Copy a folder within the store. Commits are listed first, so none lacks its files."""
        with Threads(CALLS_AT_ONCE) as pool:
            list(pool.map(lambda name: self.link(folder / name, clone / name), self.below(folder)))

    def remove_folder(self, folder: ObjectPath, but: Collection[ObjectPath] = ()) -> None:
        self.remove(path for name in self.below(folder) if (path := folder / name) not in but)


def _last_parts(names: Iterable[str]) -> list[str]:
    return [name.rstrip("/").rpartition("/")[2] for name in names]
