"""Follow a table's Delta log commit by commit, without opening the table.

Source: the Delta protocol, "Delta Log Entries", "Actions".
"""

import contextlib
import errno
from collections.abc import Iterable, Iterator
from itertools import chain
from urllib.parse import unquote

from pulsar_spark.errors import DOCTOR, CorruptState, LogShortened
from pulsar_spark.storage.delta.actions import Commit, parse_actions, parse_commit
from pulsar_spark.storage.store.object_path import ObjectPath
from pulsar_spark.storage.store.object_store import ObjectStore
from pulsar_spark.storage.store.store import AnyPath, StrPath, path_of, store_of

FIRST_COMMIT = ".first_commit.json"
"""A copy of the first commit, in tables whose log begins later."""
_NEAR = 62
_NO_FOLDER = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP)


class TableLog:
    def __init__(self, table: StrPath):
        self.folder = path_of(table) / "_delta_log"
        self._store = store_of(self.folder)
        self._has = self._store.has
        self._commits = f"{self.folder}/".replace("%", "%%") + "%020d.json"

    def file(self, version: int) -> AnyPath:
        return self.folder / f"{version:020d}.json"

    def exists(self) -> bool:
        return self.folder.is_dir()

    def life(self) -> tuple | None:
        """A stamp of the first commit, which differs if the table was made again; None if that file was removed.

        FileNotFoundError without a table.
        """
        for name in (f"{0:020d}.json", FIRST_COMMIT):
            try:
                return self._store.stamp(f"{self.folder}/{name}")
            except OSError as error:
                if error.errno not in _NO_FOLDER:
                    raise
                missing = error
        if not self.exists():
            raise FileNotFoundError(errno.ENOENT, "no table", str(self.folder)) from missing
        return None

    def first_commit(self) -> AnyPath:
        """The path of the first commit or its copy, which need not exist."""
        return self.file(0) if self.has(0) else self.folder / FIRST_COMMIT

    def first_actions(self) -> list[dict] | None:
        """The first commit's actions, or None; errors as of :func:`read_actions`."""
        for file in (self.file(0), self.folder / FIRST_COMMIT):
            with contextlib.suppress(FileNotFoundError):
                return read_actions(file)
        return None

    def keep_first_commit(self) -> None:
        """Copy the first commit, if in the log, so that it survives clean-up. For the holder of the table's lock."""
        if not self.has(0):
            return
        with contextlib.suppress(FileNotFoundError):
            self._store.keep_as(self.file(0), self.folder / FIRST_COMMIT)

    def has(self, version: int) -> bool:
        return self._has(self._commits % version)

    def latest(self, known: int = -1) -> int:
        """The highest version, at least *known*; -1 without a table."""
        if isinstance(self._store, ObjectStore) and self._store.lists_from_a_name and known > 0:
            listed = self._listed_from(known)
            if known not in listed:
                return max(self.versions(), default=-1) if self.exists() else -1
            while known + 1 in listed:
                known += 1
            return known
        if known < 0 or not self.has(known):
            try:
                known = max(self.versions(), default=-1)
            except OSError as error:
                if error.errno not in _NO_FOLDER:
                    raise
                return -1
        while known >= 0 and self.has(known + 1):
            known += 1
        return known

    def _listed_from(self, first: int) -> list[int]:
        assert isinstance(self.folder, ObjectPath)
        return versions_of(self.folder.store.names_after(self.folder, self.file(first - 1).name))

    def next_there(self, first: int) -> int | None:
        """The lowest existing version from *first* on, or None."""
        if not self._store.is_local:
            return min(self._listed_from(first), default=None)
        reach = chain(range(first, first + _NEAR), (first + (1 << power) for power in range(7, 16)))
        beyond = next((found for found in reach if self.has(found)), None)
        return None if beyond is None else next(found for found in range(first, beyond + 1) if self.has(found))

    def versions(self) -> list[int]:
        """Versions whose commit files exist, in no order; FileNotFoundError without a table."""
        try:
            names = self._store.names(self.folder)
        except OSError as error:
            if isinstance(error, FileNotFoundError) or self.exists():
                raise
            raise FileNotFoundError(errno.ENOENT, "no table", str(self.folder)) from error
        return versions_of(names)

    def earliest(self) -> int:
        """The lowest version in the log; -1 without a table."""
        try:
            return min(self.versions(), default=-1)
        except OSError as error:
            if error.errno not in _NO_FOLDER:
                raise
            return -1

    def is_shortened(self, known: int) -> bool:
        """Are commits after *known* gone?"""
        return not self.has(known + 1) and self._begins_after(known)

    def has_news(self, known: int) -> bool:
        """Is or was there a commit after version *known*?"""
        return self.has(known + 1) or self._begins_after(known)

    def _begins_after(self, known: int) -> bool:
        return not self.has(known) and self.earliest() > known + 1

    def commit(self, version: int) -> Commit:
        """The commit of one version; :class:`CorruptState` if missing or unreadable."""
        try:
            text = self.file(version).read_bytes()
        except FileNotFoundError as missing:
            raise CorruptState(
                f"{str(self.folder.parent)!r}: commit {version} is missing from the log: it was deleted "
                f"before it was read; {DOCTOR}"
            ) from missing
        return parse_commit(version, text, self.folder.parent)

    def removed_paths(self, version: int) -> set[str]:
        """Paths, as written and unquoted, of the files that a commit removes; FileNotFoundError if it is gone."""
        text = self.file(version).read_bytes()
        actions = parse_actions(text) if b'"remove"' in text else []
        paths = [action["remove"]["path"] for action in actions if "remove" in action]
        return {*paths, *map(unquote, paths)}

    def commits(self, after: int, until: int | None = None) -> Iterator[Commit]:
        """Commits above *after*, in order, up to *until*; :class:`LogShortened` if the next ones are gone."""
        version = after + 1
        while until is None or version <= until:
            if not self.has(version):
                if version == after + 1 and self._begins_after(after):
                    raise LogShortened(
                        f"{str(self.folder.parent)!r}: commits {version} to {self.earliest() - 1} are no "
                        "longer in the log: begin again with the table's present version"
                    )
                return
            try:
                commit = self.commit(version)
            except CorruptState:
                if self.has(version):
                    raise
                continue  # the log was shortened meanwhile
            yield commit
            version += 1

    def commits_from_the_end(self) -> Iterator[Commit]:
        """Commits in the log, latest first, without the table's creation."""
        for version in range(self.latest(), max(self.earliest(), 1) - 1, -1):
            yield self.commit(version)


def last_append(log: TableLog) -> int:
    """The log's last version that added rows and removed none; else 0."""
    return next((commit.version for commit in log.commits_from_the_end() if commit.added and not commit.removed), 0)


def commits_left(log: TableLog, after: int) -> Iterator[Commit]:
    """Commits above *after* that are still in the log, in order."""
    return log.commits(max(after, log.earliest() - 1) if log.is_shortened(after) else after)


def versions_of(names: Iterable[str]) -> list[int]:
    return [int(name[:20]) for name in names if len(name) == 25 and name.endswith(".json") and name[:20].isdigit()]


def read_actions(path: AnyPath) -> list[dict]:
    """The actions of a commit's file; ValueError or TypeError if it is no commit."""
    return parse_actions(path.read_bytes())
