"""Creating, opening, appending to and reading tables without a JVM.

Every table's description is a line of JSON with the layout version and what the table is, written by the commit that creates it, so creation is
atomic and a table of another make or a newer release is known before a byte is read. Appends on a local root hold an inter-process lock, because a Spark
commit there checks and then renames; ``append_fenced`` on top of that commits exactly the next version or nothing. See commits for how.
"""
import contextlib
import json
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError, TableNotFoundError
from filelock import FileLock

from pulsar_spark.errors import BrokerFenced, CorruptState, NewerLayout, NotARoot
from pulsar_spark.schemas import LAYOUT_VERSION, TableSpec
from pulsar_spark.storage.actions import parse_actions
from pulsar_spark.storage.commits import WRITER_VERSION, StagedFile, commit, partition_values, place_files, write_files
from pulsar_spark.storage.log import AddedFile, Commit, TableLog
from pulsar_spark.storage.scan import open_table

FORMAT = "pulsar_spark"
_ATTEMPTS = 20
_CONFIGURATION = {"delta.enableChangeDataFeed": "true"}


class Definition(NamedTuple):
    """What the creating commit says of a table."""

    table: str
    layout_version: int
    table_id: str
    properties: dict


@contextlib.contextmanager
def append_lock(table: str | os.PathLike) -> Iterator[None]:
    """Hold the table's inter-process lock; every append on a local root does. Not needed to read."""
    folder = Path(table)
    lock = folder.parent / f".{folder.name}.lock"
    lock.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(lock):
        yield


def staging_folder(table: str | os.PathLike) -> Path:
    """Where files for the table are written that an append is to move into it: on its file system, under a name that is no topic's."""
    folder = Path(table)
    return folder.parent / f".{folder.name}.staged"


def create_table(path: str | os.PathLike, spec: TableSpec, properties: dict | None = None, partition_by: tuple[str, ...] = (),
                 statistics_of: tuple[str, ...] = (), not_null: tuple[str, ...] = ()) -> bool:
    """Create the table unless it is there; True for the caller whose commit created it. *properties* go into its definition; Spark collects statistics of
    the columns *statistics_of*, or, without them, of all; Delta refuses rows without the columns *not_null* (writer version 2, "Column Invariants")."""
    description = json.dumps({"format": FORMAT, "table": spec.name, "layout_version": LAYOUT_VERSION, **(properties or {})}, sort_keys=True)
    configuration = _CONFIGURATION | ({"delta.dataSkippingStatsColumns": ",".join(statistics_of)} if statistics_of else {})
    with append_lock(path):
        if TableLog(path).latest() >= 0:
            return False
        schema = pa.schema([column.with_nullable(column.name not in not_null) for column in spec.schema])
        DeltaTable.create(str(path), schema, mode="ignore", description=description, partition_by=list(partition_by) or None,
                          configuration=configuration)
        return True


def read_definition(path: str | os.PathLike) -> Definition:
    """The table's definition. :class:`NotARoot` for a table of another make, :class:`NewerLayout` for one of a newer release,
    FileNotFoundError without a table, :class:`CorruptState` for one half written."""
    log = TableLog(path)
    if not log.exists():
        raise FileNotFoundError(path)
    description = table_id = None
    first = log.folder / f"{0:020d}.json"
    if first.exists():
        try:
            for action in parse_actions(first.read_bytes()):
                if (asked := action.get("protocol", {}).get("minWriterVersion", 0)) > WRITER_VERSION:
                    raise NewerLayout(f"table {str(path)!r} asks for Delta writer version {asked}, this release writes up to {WRITER_VERSION}: "
                                      "install a newer pulsar_spark")
                if "metaData" in action:
                    description, table_id = action["metaData"].get("description"), action["metaData"]["id"]
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as broken:
            raise CorruptState(f"table {str(path)!r}: its first commit cannot be read ({broken}); restore it or delete the folder") from broken
    else:
        try:
            metadata = open_table(path).metadata()
            description, table_id = metadata.description, str(metadata.id)
        except (TableNotFoundError, DeltaError) as broken:
            raise CorruptState(f"table {str(path)!r} is half written ({broken}): delete the folder and create it again") from broken
    return _parse_definition(path, description, table_id)


def _parse_definition(path, description: str | None, table_id: str) -> Definition:
    try:
        properties = json.loads(description or "")
        is_ours = properties.pop("format") == FORMAT and isinstance(properties["table"], str) and isinstance(properties["layout_version"], int)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        is_ours = False
    if not is_ours:
        raise NotARoot(f"table {str(path)!r} was not made by pulsar_spark: give another root")
    version = properties.pop("layout_version")
    if version > LAYOUT_VERSION:
        raise NewerLayout(f"table {str(path)!r} has layout {version}, this release reads up to {LAYOUT_VERSION}: install a newer pulsar_spark")
    return Definition(properties.pop("table"), version, table_id, properties)


def is_committed(path: str | os.PathLike, app_id: str, version: int) -> bool:
    """Has the table a commit of *app_id* with this or a higher transaction *version*?"""
    seen = open_table(path).transaction_version(app_id)
    return seen is not None and seen >= version


class AppendTable:
    """A handle for appending to one table from one thread at a time."""

    def __init__(self, path: str | os.PathLike):
        self.path = str(path)
        self.definition = read_definition(path)
        self._log = TableLog(path)
        self._life = self._log.life()
        self._is_partitioned = bool(self.definition.properties.get("partitions"))
        self._known = -1

    def append(self, rows: pa.Table) -> int:
        """Append *rows* in one commit; the version committed."""
        return self._append(rows, {})

    def append_once(self, rows: pa.Table, app_id: str, version: int) -> int | None:
        """Append *rows* unless a commit of *app_id* with this or a higher *version* is there; the table version committed, else None."""
        with append_lock(self.path):
            return None if is_committed(self.path, app_id, version) else self._append(rows, {app_id: version}, is_locked=True)

    def append_staged(self, files: Sequence[StagedFile], app_id: str | None = None, version: int | None = None) -> int | None:
        """Move *files* into the table with one commit, the version of which is given. None where there are no files, and where a commit of *app_id* with this
        or a higher *version* is there."""
        with append_lock(self.path):
            self._update()
            if not files or (app_id is not None and is_committed(self.path, app_id, version)):
                return None
            return self._commit(place_files(Path(self.path), files), {} if app_id is None else {app_id: version})

    def append_fenced(self, rows: pa.Table, expected: int) -> int:
        """Append *rows* directly behind version *expected* or raise :class:`BrokerFenced`: somebody else has appended since. Commits that change no
        data, such as an OPTIMIZE, may lie between. The version committed."""
        with append_lock(self.path):
            self._update()
            self._check_fence(expected)
            return self._append(rows, {}, is_locked=True, expected=expected)

    def _check_fence(self, expected: int) -> None:
        if any(commit.added or commit.removed for commit in self._log.commits(expected, self._known)) or self._known < expected:
            raise BrokerFenced(f"{self.path!r} is at version {self._known}, not {expected}: another broker serves this bundle")

    def _append(self, rows: pa.Table, transactions: dict[str, int], *, is_locked: bool = False, expected: int | None = None) -> int:
        with contextlib.nullcontext() if is_locked else append_lock(self.path):
            self._update()
            return self._commit(write_files(Path(self.path), rows, self._is_partitioned), transactions, expected)

    def _commit(self, adds: list[dict], transactions: dict[str, int], expected: int | None = None) -> int:
        for _ in range(_ATTEMPTS):
            if commit(Path(self.path), self._known + 1, adds, transactions):
                self._known += 1
                return self._known
            self._known = self._log.latest(self._known)
            if expected is not None:
                self._check_fence(expected)
        raise BrokerFenced(f"{self.path!r}: version {self._known} was taken by another writer that does not hold the table's lock")

    def _update(self) -> None:
        """Catch up with the log; FileNotFoundError when the table was deleted, even if another has been made in its place since."""
        now = self._log.life()
        if now != self._life and None not in (now, self._life):
            raise FileNotFoundError(f"table {self.path!r} was deleted and made anew since it was opened")
        self._known = self._log.latest(self._known)


def read_file(table: str | os.PathLike, file: AddedFile | str, schema: pa.Schema, columns: list[str] | None = None) -> pa.Table:
    """One data file's rows in *schema*, partition columns filled in from its folder names; FileNotFoundError when it is gone."""
    path = file.path if isinstance(file, AddedFile) else file
    values = partition_values(path)
    wanted = schema if columns is None else pa.schema([schema.field(name) for name in columns])
    rows = pq.ParquetFile(f"{table}/{path}").read(columns=[field.name for field in wanted if field.name not in values])
    arrays = [pa.repeat(pa.scalar(values[field.name]), rows.num_rows).cast(field.type) if field.name in values
              else rows.column(field.name).cast(field.type) if field.name in rows.column_names else pa.nulls(rows.num_rows, field.type)
              for field in wanted]
    return pa.Table.from_arrays(arrays, schema=wanted)


def read_added(table: str | os.PathLike, commit: Commit, schema: pa.Schema, columns: list[str] | None = None) -> pa.Table:
    """The rows that *commit* added, as :func:`read_file` gives them; none for a commit without, such as an OPTIMIZE."""
    wanted = schema if columns is None else pa.schema([schema.field(name) for name in columns])
    return pa.concat_tables([wanted.empty_table(), *(read_file(table, file, schema, columns) for file in commit.added)])
