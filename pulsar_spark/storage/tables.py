"""Appending to tables without a JVM.

Appends wait for nobody: a version that is taken is followed by the next, and ``append_fenced`` commits exactly the
next version or nothing. Who finds one taken waits for a turn, because of many who try at once all but one try in vain,
again and again. See commits for how, and data_files for what is in them.

A table's inter-process lock is for those whom put if absent does not serve: deleting, which renames the folder,
trimming, and a Spark commit on a local disk, which checks and then renames. They hold it alone
(:func:`append_lock`); an append shares it with all others for the instant of its link, in which it also sees that
the table is still the one it was opened for.
"""

import contextlib
import os
from collections.abc import Callable, Iterator, Sequence

import pyarrow as pa
from deltalake import DeltaTable

from pulsar_spark.errors import BrokerFenced, NewerLayout
from pulsar_spark.storage.actions import HOUSEKEEPING
from pulsar_spark.storage.commits import commit
from pulsar_spark.storage.data_files import place_files, write_files
from pulsar_spark.storage.definitions import read_definition
from pulsar_spark.storage.log import TableLog
from pulsar_spark.storage.scan import open_table
from pulsar_spark.storage.staged_files import StagedFile
from pulsar_spark.storage.store import AnyPath, path_of
from pulsar_spark.storage.table_lock import shared_lock, turn


def is_committed(path: str | os.PathLike, app_id: str, version: int) -> bool:
    """Has the table a commit of *app_id* with this or a higher transaction *version*?"""
    return _has_transaction(open_table(path), app_id, version)


def _has_transaction(table: DeltaTable, app_id: str, version: int) -> bool:
    seen = table.transaction_version(app_id)
    return seen is not None and seen >= version


class AppendTable:
    """A handle for appending to one table from one thread at a time. ``check`` raises where :meth:`append` must not: it
    is called when it is known which version comes next, and again when that was taken. *makes_checkpoints*: not where
    somebody else does (see checkpoints)."""

    def __init__(
        self, path: str | os.PathLike, check: Callable[[], None] = lambda: None, *, makes_checkpoints: bool = True
    ):
        self.path, self._check, self._makes_checkpoints = str(path), check, makes_checkpoints
        self._folder: AnyPath = path_of(path)
        self.definition = read_definition(path)
        self._log = TableLog(path)
        self._life = self._log.life()
        self._is_partitioned = bool(self.definition.properties.get("partitions"))
        self._known = -1

    def append(self, rows: pa.Table, is_there: Callable[[], bool] = lambda: False) -> int | None:
        """Append *rows* in one commit, unless ``check`` raises; the version committed. None where they *are
        there* already, by an earlier try."""

        def goes_on(seen: int) -> bool:
            self._check()
            return not is_there()

        self._update()
        if not goes_on(self._known):
            return None
        return self._commit(write_files(self._folder, rows, self._is_partitioned), {}, goes_on)

    def append_transaction(self, app_id: str, version: int) -> int:
        """Commit that *app_id* has come to *version*, and nothing else; the table version committed."""
        self._update()
        return self._commit([], {app_id: version})

    def append_once(self, rows: pa.Table, app_id: str, version: int) -> int | None:
        """Append *rows* unless a commit of *app_id* with this or a higher *version* is there; the table version
        committed, else None."""
        if self._is_committed(app_id, version):
            return None
        adds = write_files(self._folder, rows, self._is_partitioned)
        return self._commit(adds, {app_id: version}, lambda seen: self._is_new(seen, app_id, version))

    def append_behind(
        self, known: int, rows: pa.Table, transactions: dict[str, int], is_there: Callable[[], bool] = lambda: False
    ) -> int | None:
        """Append *rows*, unless ``check`` raises, with *transactions* that were chosen by the table as it was in
        version *known*; the version committed, None where somebody else has committed one of them since, and as of
        :meth:`append`."""
        self._check_life()
        self._check()
        adds = write_files(self._folder, rows, self._is_partitioned)
        return self._commit_behind(known, adds, transactions, is_there)

    def append_staged_behind(self, known: int, files: Sequence[StagedFile], transactions: dict[str, int]) -> int | None:
        """The same of *files*, which are moved into the table, or gone where they are not."""
        self._check_life()
        return self._commit_behind(known, place_files(self._folder, files), transactions)

    def _commit_behind(
        self, known: int, adds: list[dict], transactions: dict[str, int], is_there: Callable[[], bool] = lambda: False
    ) -> int | None:
        def are_ours(seen: int) -> bool:
            self._check()
            return (
                not is_there()
                and not self._log.is_shortened(seen)
                and all(
                    transactions.keys().isdisjoint(commit.transactions)
                    for commit in self._log.commits(seen, self._known)
                )
            )

        self._known = known
        return self._commit(adds, transactions, are_ours)

    def append_staged(
        self, files: Sequence[StagedFile], app_id: str | None = None, version: int | None = None
    ) -> int | None:
        """Move *files* into the table with one commit, the version of which is given. None where there are no files,
        and where a commit of *app_id* with this or a higher *version* is there."""
        if not files or (app_id is not None and self._is_committed(app_id, version)):
            return None
        self._update()
        adds = place_files(self._folder, files)
        if app_id is None:
            return self._commit(adds, {})
        return self._commit(adds, {app_id: version}, lambda seen: self._is_new(seen, app_id, version))

    def append_fenced(self, rows: pa.Table, expected: int, concerns: Sequence[str] | None = None) -> int:
        """Append *rows* directly behind version *expected* or raise :class:`BrokerFenced`: somebody else has appended
        since, or the root was brought to a layout of a newer release. Commits that change no data, such as an OPTIMIZE,
        may lie between. *concerns* names all whom the rows concern, where that is known. The version committed."""
        try:
            self._update()
            self._check_fence(expected)
            adds = write_files(self._folder, rows, self._is_partitioned, is_sparse=True)
            return self._commit(adds, {}, lambda seen: self._check_fence(expected), concerns)
        except NewerLayout as newer:
            raise BrokerFenced(f"a newer release wrote the root: {newer}") from newer

    def replace_files(self, adds: list[dict], removes: Sequence[dict], version: int) -> int | None:
        """Take files out of the table as it was in *version*, and put *adds* in, which hold the same rows; without
        these the rows go, which is housekeeping. The version committed; None where somebody else has taken one of the
        files out since, and then *adds* are taken away."""
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

        said = {} if adds else {HOUSEKEEPING: version}
        return commit(self._folder, versions(), adds, said, removes, is_rearranged=bool(adds), held=self._shared)

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
        """The same of :func:`is_committed`, as far as the log goes now: what comes later :meth:`_is_new` looks at."""
        self._update()
        table = open_table(self.path)
        self._known = table.version()
        return _has_transaction(table, app_id, version)

    def _is_new(self, seen: int, app_id: str, version: int) -> bool:
        if self._log.is_shortened(seen):
            return not _has_transaction(open_table(self.path), app_id, version)
        commits = self._log.commits(seen, self._known)
        return all(commit.transactions.get(app_id, version - 1) < version for commit in commits)

    def _append(
        self, rows: pa.Table, transactions: dict[str, int], goes_on: Callable[[int], bool] = lambda seen: True
    ) -> int:
        self._update()
        return self._commit(write_files(self._folder, rows, self._is_partitioned), transactions, goes_on)

    def _commit(
        self,
        adds: list[dict],
        transactions: dict[str, int],
        goes_on: Callable[[int], bool] = lambda seen: True,
        concerns: Sequence[str] | None = None,
    ) -> int | None:
        """The version committed. Where another writer has taken the next one, *goes_on* is asked, with the last version
        that was known before, whether to try the one behind; None where it does not."""

        def versions() -> Iterator[int]:
            yield self._known + 1
            with turn(self.path):
                while True:
                    seen, self._known = self._known, self._log.latest(self._known)
                    if not goes_on(seen):
                        return
                    yield self._known + 1

        with contextlib.closing(versions()) as free:
            version = commit(
                self._folder,
                free,
                adds,
                transactions,
                concerns=concerns,
                held=self._shared,
                makes_checkpoint=self._makes_checkpoints,
            )
        self._known = self._known if version is None else version
        return version

    @contextlib.contextmanager
    def _shared(self) -> Iterator[None]:
        """Nobody deletes the table or holds it alone, and it is still the one that was opened. FileExistsError where
        versions behind the one that is known were taken and are gone from the log since."""
        with shared_lock(self.path):
            self._check_life()
            if self._log.is_shortened(self._known):
                raise FileExistsError(f"{self.path!r}: another writer took version {self._known + 1} long ago")
            yield

    def _update(self) -> None:
        """Catch up with the log; FileNotFoundError when the table was deleted, even if another has been made in its
        place since."""
        self._check_life()
        self._known = self._log.latest(self._known)

    def _check_life(self) -> None:
        """A migration gives the table's first commit another version: :class:`NewerLayout` where it is too high for
        us."""
        now = self._log.life()
        if now == self._life or None in (now, self._life):
            return
        definition = read_definition(self.path)
        if definition.table_id != self.definition.table_id:
            raise FileNotFoundError(f"table {self.path!r} was deleted and created again since it was opened")
        self.definition, self._life = definition, now
