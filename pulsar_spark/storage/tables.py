"""Creating, opening and appending to tables without a JVM.

Every table's description is a line of JSON with the layout version and what the table is, written by the commit that
creates it, so creation is atomic and a table of another make or a newer release is known before a byte is read.
Appends wait for nobody: a version that is taken is followed by the next, and ``append_fenced`` commits exactly the
next version or nothing. See commits for how, and data_files for what is in them.

A table's inter-process lock is for those whom put if absent does not serve: deleting, which renames the folder,
trimming, and a Spark commit on a local disk, which checks and then renames. They hold it alone
(:func:`append_lock`); an append shares it with all others for the instant of its link, in which it also sees that
the table is still the one it was opened for.
"""

import contextlib
import json
import os
import shutil
import tempfile
import uuid
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError, TableNotFoundError

from pulsar_spark.errors import BrokerFenced, CorruptState, NewerLayout, NotARoot
from pulsar_spark.storage import forks
from pulsar_spark.storage.actions import HOUSEKEEPING
from pulsar_spark.storage.commits import WRITER_VERSION, commit
from pulsar_spark.storage.data_files import place_files, write_files
from pulsar_spark.storage.dropped import create_where_nothing_is, is_dropped, is_rest
from pulsar_spark.storage.durability import is_durable, sync_file, sync_folder, sync_parents
from pulsar_spark.storage.log import TableLog
from pulsar_spark.storage.scan import open_table
from pulsar_spark.storage.staged_files import StagedFile
from pulsar_spark.storage.store import AnyPath, path_of, store_of
from pulsar_spark.storage.table_lock import append_lock, shared_lock
from pulsar_spark.table_specs import LAYOUT_VERSION, NEWEST_LAYOUT_VERSION, TableSpec

FORMAT, _CONFIGURATION = "pulsar_spark", {"delta.enableChangeDataFeed": "true"}


class Definition(NamedTuple):
    """What the creating commit says of a table."""

    table: str
    layout_version: int
    table_id: str
    properties: dict


def create_table(
    path: str | os.PathLike,
    spec: TableSpec,
    properties: dict | None = None,
    partition_by: tuple[str, ...] = (),
    statistics_of: tuple[str, ...] = (),
    not_null: tuple[str, ...] = (),
    layout_version: int = LAYOUT_VERSION,
) -> bool:
    """Create the table unless it is there, in *layout_version*; True for the caller whose commit created it.
    *properties* go into its definition; Spark collects statistics of the columns *statistics_of*, or, without them, of
    all; Delta refuses rows without the columns *not_null* (writer version 2, "Column Invariants")."""
    if TableLog(path).latest() >= 0 and not is_rest(path):
        return False
    description = json.dumps(
        {"format": FORMAT, "table": spec.name, "layout_version": layout_version, **(properties or {})}, sort_keys=True
    )
    configuration = _CONFIGURATION | (
        {"delta.dataSkippingStatsColumns": ",".join(statistics_of)} if statistics_of else {}
    )
    table = path_of(path)
    schema = pa.schema([column.with_nullable(column.name not in not_null) for column in spec.schema_at(layout_version)])

    def draw(draft: Path) -> Path:
        forks.use()
        DeltaTable.create(
            str(draft),
            schema,
            description=description,
            partition_by=list(partition_by) or None,
            configuration=configuration,
        )
        return TableLog(draft).file(0)

    store = store_of(table)
    if store.is_local:
        return _create_beside(table, draw)
    with tempfile.TemporaryDirectory() as folder:
        return create_where_nothing_is(table, draw(Path(folder) / "table").read_bytes())


def _create_beside(table: Path, draw: Callable[[Path], Path]) -> bool:
    """Make the table of a first commit that is *drawn* beside it."""
    draft, log_folder = table.with_name(f".new-{uuid.uuid4().hex}"), table / "_delta_log"
    try:
        table.parent.mkdir(parents=True, exist_ok=True)  # where it cannot be made, an OSError says so, not deltalake
        first = draw(draft)
        log_folder.mkdir(parents=True, exist_ok=True)
        if is_durable(table):
            sync_file(first)
            sync_folder(table)
            sync_parents(table, table.absolute().parents[2])
        with append_lock(table):
            os.link(first, log_folder / first.name)
    except FileExistsError:
        if TableLog(table).latest() < 0:
            raise  # something else lies in the way
        return False
    finally:
        shutil.rmtree(draft, ignore_errors=True)
    if is_durable(table):
        sync_folder(log_folder)
    return True


def read_definition(path: str | os.PathLike) -> Definition:
    """The table's definition. :class:`NotARoot` for a table of another make, :class:`NewerLayout` for one of a newer
    release, FileNotFoundError without a table, :class:`CorruptState` for one half written."""
    log = TableLog(path)
    if log.latest() < 0 and not (log.folder / "_last_checkpoint").exists():
        raise FileNotFoundError(path)  # also for the folder of one whose creation came to nothing
    description = table_id = None
    try:
        first = log.first_actions()
        if is_dropped(first):
            raise FileNotFoundError(path)
        for action in first or ():
            if (asked := action.get("protocol", {}).get("minWriterVersion", 0)) > WRITER_VERSION:
                raise NewerLayout(
                    f"table {str(path)!r} asks for Delta writer version {asked}, this release writes "
                    f"up to {WRITER_VERSION}: install a newer pulsar_spark"
                )
            if "metaData" in action:
                description, table_id = action["metaData"].get("description"), action["metaData"]["id"]
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as broken:
        raise CorruptState(
            f"table {str(path)!r}: its first commit cannot be read ({broken}); restore it or delete the folder"
        ) from broken
    if first is None:
        try:
            metadata = open_table(path).metadata()
            description, table_id = metadata.description, str(metadata.id)
        except (TableNotFoundError, DeltaError) as broken:
            raise CorruptState(
                f"table {str(path)!r} is half written ({broken}): delete the folder and create it again"
            ) from broken
    return parse_definition(path, description, table_id)


def parse_definition(path: str | os.PathLike, description: str | None, table_id: str) -> Definition:
    """The definition that a table's *description* gives; refuses as :func:`read_definition` does."""
    try:
        properties = json.loads(description or "")
        is_ours = (
            properties.pop("format") == FORMAT
            and isinstance(properties["table"], str)
            and isinstance(properties["layout_version"], int)
        )
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        is_ours = False
    if not is_ours:
        raise NotARoot(f"table {str(path)!r} was not made by pulsar_spark: give another root")
    version = properties.pop("layout_version")
    if version > NEWEST_LAYOUT_VERSION:
        raise NewerLayout(
            f"table {str(path)!r} has layout {version}, this release reads up to {NEWEST_LAYOUT_VERSION}: install a "
            "newer pulsar_spark, with 'pip install --upgrade pulsar_spark'"
        )
    return Definition(properties.pop("table"), version, table_id, properties)


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
            adds = write_files(self._folder, rows, self._is_partitioned)
            return self._commit(adds, {}, lambda seen: self._check_fence(expected), concerns)
        except NewerLayout as newer:
            raise BrokerFenced(f"the root is a newer release's: {newer}") from newer

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
            while True:
                yield self._known + 1
                seen, self._known = self._known, self._log.latest(self._known)
                if not goes_on(seen):
                    return

        version = commit(
            self._folder,
            versions(),
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
                raise FileExistsError(f"{self.path!r}: version {self._known + 1} was taken long ago")
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
            raise FileNotFoundError(f"table {self.path!r} was deleted and made again since it was opened")
        self.definition, self._life = definition, now
