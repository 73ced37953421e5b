"""Append until the rows are surely there, once, for publishes and requests.

Before another try the log is searched for the rows. A store's unanswered write may come even later, so the next try
searches again at each version.
"""

from collections.abc import Callable
from typing import TypeVar

import pyarrow as pa
import pyarrow.compute as pc
from deltalake.exceptions import DeltaError

from pulsar_spark.storage.delta.log import TableLog
from pulsar_spark.storage.delta.tables import AppendTable
from pulsar_spark.storage.store.away import check_there, is_away
from pulsar_spark.storage.store.faults import UnclearWrite, is_fault_of_disk
from pulsar_spark.storage.store.store import StrPath

T = TypeVar("T")


class SureAppend:
    """Appends to one table, from one thread. Each commit has its own smallest value in column *identity*."""

    def __init__(
        self, path: StrPath, identity: str, check: Callable[[], None] = lambda: None, *, makes_checkpoints: bool = True
    ):
        self._table, self._identity = AppendTable(path, check, makes_checkpoints=makes_checkpoints), identity
        self._log = TableLog(path)
        self._known = self._log.latest()

    @property
    def path(self) -> str:
        return self._table.path

    def exists(self) -> bool:
        """Does the table exist, or is its root only away?"""
        return self._log.exists() or is_away(self.path)

    def append(self, rows: pa.Table, wait: Callable[[Exception], None]) -> int:
        """Append *rows*; the version. *wait* pauses after each error, or raises. FileNotFoundError without a table."""
        version = self._append(rows, lambda *more: self._table.append(rows, *more), wait)
        assert version is not None  # it found its rows or appended them
        return version

    def append_after(
        self, known: int, rows: pa.Table, transactions: dict[str, int], wait: Callable[[Exception], None]
    ) -> int | None:
        """:meth:`append` with *transactions* chosen from version *known*; None if another writer committed one."""
        return self._append(rows, lambda *more: self._table.append_after(known, rows, transactions, *more), wait)

    def _append(
        self, rows: pa.Table, append: Callable[..., int | None], wait: Callable[[Exception], None]
    ) -> int | None:
        more: tuple[Callable[[], bool], ...] = ()
        """How the next try finds out that an unclear one took place meanwhile."""

        def find() -> int | None:
            return self._find(pc.min(rows[self._identity]).as_py())

        self._known = _patiently(self._latest, wait)
        while True:
            try:
                version = append(*more)
            except (DeltaError, OSError) as unclear:
                if isinstance(unclear, FileNotFoundError) and not is_away(self.path):
                    raise
                if isinstance(unclear, UnclearWrite):
                    more = (lambda: find() is not None,)
                version = _patiently(find, wait)
                if version is None:
                    wait(unclear)
                    continue
            if version is None and more:
                version = _patiently(find, wait)
            self._known = self._known if version is None else version
            return version

    def _latest(self) -> int:
        check_there(self.path)
        found = self._log.latest(self._known)
        if found < self._known:
            check_there(self.path)
        return found

    def _find(self, named: str) -> int | None:
        check_there(self.path)
        for commit in self._log.commits(after=self._known):
            if any(file.min_values.get(self._identity) == named for file in commit.added):
                return commit.version
        return None


def _patiently(read: Callable[[], T], wait: Callable[[Exception], None]) -> T:
    """The result of *read*, once the disk or store permits."""
    while True:
        try:
            return read()
        except OSError as fault:
            if not is_fault_of_disk(fault):
                raise
            wait(fault)
