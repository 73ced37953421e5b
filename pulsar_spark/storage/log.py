"""Following a table's Delta log commit by commit, without a JVM and without opening the table.

A reader that knows version v asks whether ``v + 1`` exists (microseconds) and parses only that JSON file: this is what
makes an idle topic cost a look at its log version. Only commits are read, no checkpoints: who starts from nothing opens
the table (see tables) or a projection instead. So does who was away for longer than the log is kept: the oldest commits
go (see shortening). The first, by which a table is known, stays then under another name, the same file. Source: the
Delta protocol, sections "Delta Log Entries" and "Actions".
"""

import contextlib
import errno
import os
from collections.abc import Iterator
from itertools import chain

from pulsar_spark.errors import DOCTOR, CorruptState, LogShortened
from pulsar_spark.storage.actions import Commit, parse_actions, parse_commit
from pulsar_spark.storage.store import AnyPath, path_of, store_of

FIRST_COMMIT = ".first_commit.json"
"""The first commit of a table whose log begins later; nobody else reads it."""
_NEAR = 62
"""How many versions are asked for one by one where a later one is looked for."""
_NO_FOLDER = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP)


class TableLog:
    """The log of one table, by path. Holds no state but the path; safe to share."""

    def __init__(self, table: str | os.PathLike):
        self.folder = path_of(table) / "_delta_log"
        self._store = store_of(self.folder)
        self._has = self._store.has
        self._commits = f"{self.folder}/".replace("%", "%%") + "%020d.json"

    def file(self, version: int) -> AnyPath:
        """The file of a commit, there or not."""
        return self.folder / f"{version:020d}.json"

    def exists(self) -> bool:
        return self.folder.is_dir()

    def life(self) -> tuple | None:
        """What tells the table from another that was made in its place: its first commit's file, wherever it is, for
        the price of a stat or two. None when somebody else's log clean-up has taken that file; FileNotFoundError
        without a table, as of :meth:`versions`."""
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
        """The file of the first commit: in the log, or else beside it, where it need not be."""
        return self.file(0) if self.has(0) else self.folder / FIRST_COMMIT

    def first_actions(self) -> list[dict] | None:
        """What the first commit says; None when there is none, ValueError or TypeError as of :func:`read_actions`."""
        for file in (self.file(0), self.folder / FIRST_COMMIT):
            with contextlib.suppress(FileNotFoundError):
                return read_actions(file)
        return None

    def keep_first_commit(self) -> None:
        """Let the first commit, if it is in the log, be found when it is no longer. For who holds the table alone."""
        if not self.has(0):
            return
        with contextlib.suppress(FileNotFoundError):
            self._store.keep_as(self.file(0), self.folder / FIRST_COMMIT)

    def has(self, version: int) -> bool:
        """Is the commit of a version there? A broker asks that of topics in turn each time it looks."""
        return self._has(self._commits % version)

    def latest(self, known: int = -1) -> int:
        """The highest version, at least *known*; -1 for no table. Cheap when little came after *known*."""
        if self._store.lists_from_a_name and known > 0:
            return self._latest_listed(known)
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

    def _latest_listed(self, known: int) -> int:
        """The same in a store that lists from a name on: one call tells whether *known* is still there, and what came
        behind it."""
        listed = self._listed_from(known)
        if known not in listed:
            return max(self.versions(), default=-1) if self.exists() else -1
        while known + 1 in listed:
            known += 1
        return known

    def _listed_from(self, first: int) -> list[int]:
        """The versions from *first* on that are there, of a table in a store: by one call, where they are few."""
        return _versions(self._store.names_behind(self.folder, self.file(first - 1).name))

    def next_there(self, first: int) -> int | None:
        """The lowest version from *first* on that is there; None where none is found. On a local disk the next are
        asked for one by one, and then some: a list of the whole log would cost more."""
        if not self._store.is_local:
            return min(self._listed_from(first), default=None)
        reach = chain(range(first, first + _NEAR), (first + (1 << power) for power in range(7, 16)))
        beyond = next((found for found in reach if self.has(found)), None)
        return None if beyond is None else next(found for found in range(first, beyond + 1) if self.has(found))

    def versions(self) -> list[int]:
        """The versions whose commit files exist, in no order; FileNotFoundError without a table, also where a file or a
        link to nowhere, stands in the place of one of its folders."""
        try:
            names = self._store.names(self.folder)
        except OSError as error:
            if isinstance(error, FileNotFoundError) or self.exists():
                raise
            raise FileNotFoundError(errno.ENOENT, "no table", str(self.folder)) from error
        return _versions(names)

    def written(self) -> dict[int, float]:
        """The versions whose commit files exist, and when each was written, in seconds since 1970."""
        found = {name: seen.st_mtime for name, seen in self._store.below(self.folder).items() if "/" not in name}
        return {int(name[:20]): at for name, at in found.items() if _versions([name])}

    def earliest(self) -> int:
        """The version at which the log begins; -1 for no table. It is the first, or the lowest behind those that were
        taken away because a checkpoint stands in for them."""
        try:
            return min(self.versions(), default=-1)
        except OSError as error:
            if error.errno not in _NO_FOLDER:
                raise
            return -1

    def is_shortened(self, known: int) -> bool:
        """Are commits behind version *known* gone, so that who has read up to it must begin elsewhere? For the price of
        a stat or two where they are not."""
        return not self.has(known + 1) and self._begins_behind(known)

    def has_news(self, known: int) -> bool:
        """Is anything behind version *known*, there to be read or gone already?"""
        return self.has(known + 1) or self._begins_behind(known)

    def _begins_behind(self, known: int) -> bool:
        return not self.has(known) and self.earliest() > known + 1

    def commit(self, version: int) -> Commit:
        """The commit of one version; :class:`CorruptState` when it is missing or unreadable."""
        try:
            text = self.file(version).read_bytes()
        except FileNotFoundError as missing:
            raise CorruptState(
                f"{str(self.folder.parent)!r}: commit {version} is missing from the log: it was deleted "
                f"before it was read; {DOCTOR}"
            ) from missing
        return parse_commit(version, text, self.folder.parent)

    def may_remove(self, version: int) -> bool:
        """Whether a commit may take files out, for the price of reading its bytes; FileNotFoundError when it is
        gone."""
        return b'"remove"' in (text := self.file(version).read_bytes()) or b'"Overwrite"' in text

    def commits_that_say(self, text: bytes, after: int, until: int) -> Iterator[Commit]:
        """The commits above *after*, up to *until*, in which these bytes are, in order; FileNotFoundError when one is
        gone."""
        for version in range(after + 1, until + 1):
            said = self.file(version).read_bytes()
            if text in said:
                yield parse_commit(version, said, self.folder.parent)

    def removed_paths(self, version: int) -> Iterator[str]:
        """The files that the commit of *version*, which is there, takes out of the table, for whatever reason, as it
        writes their paths."""
        return (action["remove"]["path"] for action in read_actions(self.file(version)) if "remove" in action)

    def commits(self, after: int, until: int | None = None) -> Iterator[Commit]:
        """The commits above *after*, in order, up to the latest or *until*; :class:`LogShortened` where the next ones
        are gone."""
        version = after + 1
        while until is None or version <= until:
            if not self.has(version):
                if version == after + 1 and self._begins_behind(after):
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
        """The commits that are still in the log, the latest first, but for the one that made the table."""
        for version in range(self.latest(), max(self.earliest(), 1) - 1, -1):
            yield self.commit(version)

    def last_append(self) -> int:
        """The last version that added rows and took none out; 0 where none is left in the log."""
        return next(
            (commit.version for commit in self.commits_from_the_end() if commit.added and not commit.removed), 0
        )

    def commits_left(self, after: int) -> Iterator[Commit]:
        """The commits above *after* that are still in the log, in order."""
        return self.commits(max(after, self.earliest() - 1) if self.is_shortened(after) else after)


def _versions(names: list[str]) -> list[int]:
    return [int(name[:20]) for name in names if len(name) == 25 and name.endswith(".json") and name[:20].isdigit()]


def read_actions(path: AnyPath) -> list[dict]:
    """The actions of a commit's file; ValueError or TypeError, with the cause in words, for one that is no commit."""
    return parse_actions(path.read_bytes())
