"""Following a table's Delta log commit by commit, without a JVM and without opening the table.

A reader that knows version v asks whether ``v + 1`` exists (microseconds) and parses only that JSON file: this is what
makes an idle topic cost a look at its log version. Only commits are read, no checkpoints: who starts from nothing opens
the table (see tables) or a projection instead. Source: the Delta protocol, sections "Delta Log Entries" and "Actions".
"""

import errno
import os
from collections.abc import Iterator
from pathlib import Path

from pulsar_spark.errors import DOCTOR, CorruptState
from pulsar_spark.storage.actions import Commit, parse_actions, parse_commit

_NO_FOLDER = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP)


class TableLog:
    """The log of one table, by path. Holds no state but the path; safe to share."""

    def __init__(self, table: str | os.PathLike):
        self.folder = Path(table) / "_delta_log"

    def file(self, version: int) -> Path:
        """The file of a commit, there or not."""
        return self.folder / f"{version:020d}.json"

    def exists(self) -> bool:
        return self.folder.is_dir()

    def life(self) -> tuple[int, int] | None:
        """What tells the table from another that was made in its place: its first commit's file, for the price of a
        stat. None when log clean-up has taken that file; FileNotFoundError without a table, as of :meth:`versions`."""
        try:
            found = os.stat(f"{self.folder}/{0:020d}.json")
        except OSError as error:
            if error.errno not in _NO_FOLDER:
                raise
            if not self.exists():
                raise FileNotFoundError(errno.ENOENT, "no table", str(self.folder)) from error
            return None
        return found.st_ino, found.st_mtime_ns

    def has(self, version: int) -> bool:
        return os.path.exists(f"{self.folder}/{version:020d}.json")

    def latest(self, known: int = -1) -> int:
        """The highest version, at least *known*; -1 for no table. Cheap when little came after *known*."""
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

    def versions(self) -> list[int]:
        """The versions whose commit files exist, in no order; FileNotFoundError without a table, also where a file or a
        link to nowhere, stands in the place of one of its folders."""
        try:
            names = os.listdir(self.folder)
        except OSError as error:
            if isinstance(error, FileNotFoundError) or self.exists():
                raise
            raise FileNotFoundError(errno.ENOENT, "no table", str(self.folder)) from error
        return [int(name[:20]) for name in names if len(name) == 25 and name.endswith(".json") and name[:20].isdigit()]

    def earliest(self) -> int:
        """The lowest version whose commit file still exists; -1 for no table."""
        try:
            return min(self.versions(), default=-1)
        except OSError as error:
            if error.errno not in _NO_FOLDER:
                raise
            return -1

    def commit(self, version: int) -> Commit:
        """The commit of one version; :class:`CorruptState` when it is missing or unreadable."""
        try:
            text = self.file(version).read_bytes()
        except FileNotFoundError as missing:
            raise CorruptState(
                f"{self.folder.parent}: commit {version} is gone from the log: it was trimmed before it was "
                f"read; {DOCTOR}"
            ) from missing
        return parse_commit(version, text, self.folder.parent)

    def may_remove(self, version: int) -> bool:
        """Whether a commit may take files out, for the price of reading its bytes; FileNotFoundError when it is
        gone."""
        return b'"remove"' in (text := self.file(version).read_bytes()) or b'"Overwrite"' in text

    def commits(self, after: int, until: int | None = None) -> Iterator[Commit]:
        """The commits above *after*, in order, up to the latest or *until*."""
        version = after + 1
        while (until is None or version <= until) and self.has(version):
            yield self.commit(version)
            version += 1


def read_actions(path: Path) -> list[dict]:
    """The actions of a commit's file; ValueError or TypeError, with the cause in words, for one that is no commit."""
    return parse_actions(path.read_bytes())
