"""Append to tables without a JVM. An append whose version is taken tries the next, in turn.

Deletion, trimming, and Spark's commits on a local disk hold the table's lock alone; an append shares it while it puts
its commit in place.
"""

import contextlib
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import Future
from typing import TypeAlias

import pyarrow as pa
from deltalake import DeltaTable

from pulsar_spark.errors import BrokerFenced
from pulsar_spark.storage.delta.actions import HOUSEKEEPING
from pulsar_spark.storage.delta.commits import commit
from pulsar_spark.storage.delta.data_files import place_files, remove_files, removing, sync_files, write_files
from pulsar_spark.storage.delta.definitions import read_definition
from pulsar_spark.storage.delta.log import TableLog
from pulsar_spark.storage.delta.reader_rows import EVERYBODY, Readers
from pulsar_spark.storage.delta.scan import open_table
from pulsar_spark.storage.delta.staged_files import StagedFile
from pulsar_spark.storage.delta.table_lock import shared_lock, turn
from pulsar_spark.storage.processes.threads import Threads
from pulsar_spark.storage.store.store import AnyPath, StrPath, path_of

Rows: TypeAlias = "pa.Table | Sequence[StagedFile]"


def is_committed(path: StrPath, app_id: str, version: int) -> bool:
    """Has *app_id* committed this or a higher *version*?"""
    return _has_transaction(open_table(path), app_id, version)


def _has_transaction(table: DeltaTable, app_id: str, version: int) -> bool:
    seen = table.transaction_version(app_id)
    return seen is not None and seen >= version


class AppendTable:
    """A handle for appending to one table from one thread.

    ``check`` is called for each version tried, and raises to stop :meth:`append`. Without *makes_checkpoints* another
    process makes them.
    """

    def __init__(self, path: StrPath, check: Callable[[], None] = lambda: None, *, makes_checkpoints: bool = True):
        self.path, self._check, self._makes_checkpoints = str(path), check, makes_checkpoints
        self._folder: AnyPath = path_of(path)
        self.definition = read_definition(path)
        self._log = TableLog(path)
        self._life = self._log.life()
        self._is_partitioned = bool(self.definition.properties.get("partitions"))
        self._known = -1

    def append(self, rows: Rows, is_there: Callable[[], bool] = lambda: False) -> int | None:
        """Append *rows* in one commit; its version, None if *is_there* finds them from an earlier try."""

        def goes_on(seen: int) -> bool:
            self._check()
            return not is_there()

        self._update()
        if not goes_on(self._known):
            return None
        return self._commit(rows, {}, goes_on)

    def append_transaction(self, app_id: str, version: int) -> int:
        """Commit that *app_id* reached *version*, without rows; the table's version."""
        self._update()
        return self._committed(self._commit([], {app_id: version}))

    def append_once(self, rows: Rows, app_id: str, version: int) -> int | None:
        """Append *rows* unless *app_id* has committed this or a higher *version*; the table's version, else None."""
        if self._is_committed(app_id, version):
            return None
        return self._commit(rows, {app_id: version}, lambda seen: self._is_new(seen, app_id, version))

    def append_after(
        self, known: int, rows: Rows, transactions: dict[str, int], is_there: Callable[[], bool] = lambda: False
    ) -> int | None:
        """Append *rows* with *transactions* chosen from version *known*; the version.

        None if another writer committed one of them since, or *is_there* finds the rows.
        """
        self._check_life()
        self._check()

        def are_ours(seen: int) -> bool:
            self._check()
            if is_there() or self._log.is_shortened(seen):
                return False
            commits = self._log.commits(seen, self._known)
            return all(transactions.keys().isdisjoint(each.transactions) for each in commits)

        self._known = known
        return self._commit(rows, transactions, are_ours)

    @contextlib.contextmanager
    def writing(self, rows: pa.Table) -> Iterator[Future[list[dict]]]:
        """Write the files of *rows*, for :meth:`append_fenced`, while the block runs; none is left if it fails."""
        with Threads(1) as pool:
            files = pool.submit(self._written, rows)
            try:
                yield files
            except BaseException:
                if files.exception() is None:
                    remove_files(self._folder, files.result())
                raise

    def _written(self, rows: pa.Table) -> list[dict]:
        adds = write_files(self._folder, rows, self._is_partitioned)
        with removing(self._folder, adds):
            sync_files(self._folder, adds)
        return adds

    def append_fenced(
        self, rows: pa.Table, expected: int, readers: Readers = EVERYBODY, files: list[dict] | None = None
    ) -> int:
        """Append *rows* for *readers* directly after version *expected*; the version. *files* are those of the rows, if
        they are written.

        :class:`BrokerFenced` if another writer has changed data since.
        """
        with removing(self._folder, files or []):
            self._update()
            self._check_fence(expected)
        return self._committed(self._commit(rows, {}, lambda seen: self._check_fence(expected), readers, files))

    def replace_files(
        self, adds: list[dict], removes: Sequence[dict], version: int, *, drops_rows: bool = False
    ) -> int | None:
        """Replace files of *version* by *adds* with the same rows; the version, None if a file was removed since.

        Without *adds* the rows go, as housekeeping; some do if it *drops_rows*.
        """
        needed, self._known = {remove["path"] for remove in removes}, version

        def versions() -> Iterator[int]:
            while True:
                if not self._log.has_news(self._known):
                    yield self._known + 1
                if self._log.is_shortened(self._known) or not needed.isdisjoint(
                    self._log.removed_paths(self._known + 1)
                ):
                    return
                self._known += 1

        is_rearranged = bool(adds) and not drops_rows
        transactions = {} if is_rearranged else {HOUSEKEEPING: version}
        return commit(
            self._folder, versions(), adds, transactions, removes, is_rearranged=is_rearranged, lock=self._shared
        )

    def _adds(self, rows: Rows) -> list[dict]:
        if isinstance(rows, pa.Table):
            return write_files(self._folder, rows, self._is_partitioned)
        return place_files(self._folder, rows) if rows else []

    def _check_fence(self, expected: int) -> bool:
        if (
            self._known < expected
            or self._log.is_shortened(expected)
            or any(commit.is_fencing for commit in self._log.commits(expected, self._known))
        ):
            raise BrokerFenced(
                f"{self.path!r} is at version {self._known}, not {expected}: another broker serves this bundle"
            )
        return True

    def _is_committed(self, app_id: str, version: int) -> bool:
        self._update()
        table = open_table(self.path)
        self._known = table.version()
        return _has_transaction(table, app_id, version)

    def _is_new(self, seen: int, app_id: str, version: int) -> bool:
        if self._log.is_shortened(seen):
            return not _has_transaction(open_table(self.path), app_id, version)
        commits = self._log.commits(seen, self._known)
        return all(commit.transactions.get(app_id, version - 1) < version for commit in commits)

    def _commit(
        self,
        rows: Rows,
        transactions: dict[str, int],
        goes_on: Callable[[int], bool] = lambda seen: True,
        readers: Readers = EVERYBODY,
        files: list[dict] | None = None,
    ) -> int | None:
        """Commit *rows*, or their synced *files*; the version.

        If it is taken, *goes_on*, given the last known one, decides whether to try the next.
        """
        adds = self._adds(rows) if files is None else files

        def catches_up() -> bool:
            seen, self._known = self._known, self._log.latest(self._known)
            return goes_on(seen)

        def versions() -> Generator[int, None, None]:
            if self._log.has(self._known + 1) and not catches_up():  # the files took a while
                return
            yield self._known + 1
            with turn(self.path):
                while catches_up():
                    yield self._known + 1

        with contextlib.closing(versions()) as free:
            version = commit(
                self._folder,
                free,
                adds,
                transactions,
                readers=readers,
                lock=self._shared,
                makes_checkpoint=self._makes_checkpoints,
                are_synced=files is not None or not isinstance(rows, pa.Table),
            )
        self._known = self._known if version is None else version
        return version

    @staticmethod
    def _committed(version: int | None) -> int:
        assert version is not None
        return version

    @contextlib.contextmanager
    def _shared(self) -> Iterator[None]:
        """Share the lock if it is the same table; FileExistsError if versions after the known one left the log."""
        with shared_lock(self.path):
            self._check_life()
            if self._log.is_shortened(self._known):
                raise FileExistsError(f"{self.path!r}: another writer took version {self._known + 1} long ago")
            yield

    def _update(self) -> None:
        """Catch up with the log; FileNotFoundError if the table was deleted or made again."""
        self._check_life()
        self._known = self._log.latest(self._known)

    def _check_life(self) -> None:
        """Notice a new first commit, or a new table; errors of :func:`read_definition`."""
        now = self._log.life()
        if now == self._life or None in (now, self._life):
            return
        definition = read_definition(self.path)
        if definition.table_id != self.definition.table_id:
            raise FileNotFoundError(f"table {self.path!r} was deleted and created again since it was opened")
        self.definition, self._life = definition, now
