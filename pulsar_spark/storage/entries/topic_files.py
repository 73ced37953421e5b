"""Which files hold the rows of a publish now, after DELETE, UPDATE, MERGE or RESTORE.

Rows are lost if the table's file is missing, incomplete or damaged; rows in no file were deleted or trimmed. Source:
the Delta protocol, "Add File and Remove File".
"""

import contextlib
import errno
import threading
from bisect import bisect_right, insort
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple, TypeVar
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.compute as pc
from deltalake.exceptions import DeltaError, TableNotFoundError

from pulsar_spark.errors import DOCTOR, CorruptState, TopicNotFound
from pulsar_spark.protocol.topics.numbering import Run
from pulsar_spark.storage.delta.actions import TRIMMED
from pulsar_spark.storage.delta.data_files import partition_values
from pulsar_spark.storage.delta.log import TableLog
from pulsar_spark.storage.delta.scan import open_as_far_as_it_goes, open_table
from pulsar_spark.storage.processes import forks
from pulsar_spark.storage.store.away import check_there
from pulsar_spark.storage.store.faults import is_fault_of_disk
from pulsar_spark.storage.store.store import StrPath, path_of, store_of

MOST_LOOKS = 5000
"""Most commits that are searched for removes; instead of more, the table is opened."""
_REMEMBERED = 1024
_known: OrderedDict[str, "TopicFiles"] = OrderedDict()
_lock = forks.module_lock()
T = TypeVar("T")

READ_ERRORS = (OSError, pa.ArrowInvalid, pa.ArrowNotImplementedError)
"""Errors of opening or reading a data file; see :func:`raise_unless_damage`."""
_FOOTER = b"PAR1"


class _Snapshot(NamedTuple):
    """The files of one table version, with bounds of publish ids (null: unknown)."""

    version: int
    paths: pa.Array
    lowest: pa.Array
    highest: pa.Array

    def holds(self, path: str) -> bool:
        return pc.index(self.paths, path).as_py() >= 0

    def hold(self, paths: Sequence[str]) -> list[bool]:
        return pc.is_in(pa.array(paths, pa.string()), self.paths).to_pylist()

    def files_with(self, first_id: str, last_id: str, partition: str | None) -> list[str]:
        """The files that may have publishes with ids from *first_id* to *last_id*."""
        may_begin = pc.fill_null(pc.less_equal(self.lowest, last_id), True)
        found = self.paths.filter(
            pc.and_(may_begin, pc.fill_null(pc.greater_equal(self.highest, first_id), True))
        ).to_pylist()
        return [path for path in found if partition_values(path).get("partition") == partition]


class TopicFiles:
    """The files of one topic's table; safe for threads."""

    def __init__(self, table: StrPath):
        self._table, self._log = path_of(table), TableLog(table)
        self._lock = threading.Lock()
        self._life: tuple | None = None
        self._removing: list[int] = []
        self._snapshot: _Snapshot | None = None
        self._from = self._seen = -1

    def holders(self, path: str, publish_id: str, ledger_id: int) -> list[str]:
        """The files that now hold what publish commit *ledger_id* wrote to *path*, usually that."""
        with self._lock:
            self._follow(ledger_id)
            if bisect_right(self._removing, ledger_id) == len(self._removing):
                return [path]
            return self._holders(path, publish_id, self._removing[-1])

    def holders_of(self, runs: Sequence[Run]) -> list[str]:
        """The files that may now hold rows of *runs*, which are of one partition."""
        ids = sorted(run.publish_id for run in runs)
        with self._lock:
            self._follow(min(run.ledger_id for run in runs))
            snapshot = self._snapshot_of(self._removing[-1] if self._removing else -1)
            return snapshot.files_with(ids[0], ids[-1], partition_values(runs[0].path).get("partition"))

    def are_as_published(self, files: Sequence[tuple[str, int]]) -> list[bool]:
        """Is each of *files* (path, publish commit) still the table's, unchanged?"""
        if not files:
            return []
        with self._lock:
            self._follow(min(ledger_id for _, ledger_id in files))
            last = self._removing[-1] if self._removing else -1
            found = [ledger_id >= last for _, ledger_id in files]
            older = [number for number, is_newer in enumerate(found) if not is_newer]
            if older:
                snapshot = self._snapshot_of(last)
                for number, is_there in zip(older, snapshot.hold([files[number][0] for number in older])):
                    found[number] = is_there
            return found

    def holders_now(self, path: str, publish_id: str) -> list[str]:
        """The present holders of those rows, for a missing *path*; if it is among them, it is lost."""
        with self._lock:
            self._follow(self._log.latest())
            return self._holders(path, publish_id, self._seen)

    def _holders(self, path: str, publish_id: str, version: int) -> list[str]:
        snapshot = self._snapshot_of(version)
        return (
            [path]
            if snapshot.holds(path)
            else snapshot.files_with(publish_id, publish_id, partition_values(path).get("partition"))
        )

    def _snapshot_of(self, version: int) -> _Snapshot:
        if self._snapshot is None or self._snapshot.version < version:
            self._snapshot = _snapshot(self._table, self._seen)
        return self._snapshot

    def _follow(self, ledger_id: int) -> None:
        """Learn the later commits than *ledger_id* that remove."""
        try:
            life = self._log.life()
        except FileNotFoundError as gone:
            check_there(self._table)
            raise TopicNotFound(f"the topic at {str(self._table)!r} was deleted") from gone
        if self._from < 0 or (life != self._life and None not in (life, self._life)):
            self._removing, self._snapshot = [], None
            self._from = self._seen = ledger_id
        self._life = life
        if ledger_id < self._from:
            self._look(range(ledger_id + 1, self._from + 1))
            self._from = ledger_id
        if self._log.has_news(self._seen):
            self._seen = self._look(range(self._seen + 1, self._log.latest(self._seen) + 1))

    def _look(self, versions: range) -> int:
        """Note which *versions* remove rows or are gone; returns the last readable one."""
        if len(versions) > MOST_LOOKS:
            insort(self._removing, versions[-1])
            return versions[-1]
        for version in versions:
            try:
                text = self._log.file(version).read_bytes()
                if b'"remove"' not in text and b'"Overwrite"' not in text:
                    continue
                commit = self._log.commit(version)
            except FileNotFoundError:
                insort(self._removing, version)
                continue
            except CorruptState:
                return version - 1
            if (commit.removed or commit.is_overwrite) and not commit.trimmed:
                insort(self._removing, version)
        return versions[-1]


def files_of(table: StrPath) -> TopicFiles:
    """This process's cached view of a topic's files."""
    with _lock:
        found = _known.get(str(table))
        if found is None:
            found = _known[str(table)] = TopicFiles(table)
        _known.move_to_end(str(table))
        while len(_known) > _REMEMBERED:
            _known.popitem(last=False)
        return found


def read_where(
    table: StrPath, path: str, publish_id: str, holders: list[str], read: Callable[[str], T]
) -> tuple[list[T], list[str]]:
    """*read* of each of *holders*, or of the present ones if one is damaged; and the lost files."""
    found, lost = _read_each(holders, read)
    if lost:
        found, lost = _read_each(files_of(table).holders_now(path, publish_id), read)
    return found, lost


def _read_each(holders: list[str], read: Callable[[str], T]) -> tuple[list[T], list[str]]:
    found, lost = [], []
    for holder in holders:
        try:
            found.append(read(holder))
        except READ_ERRORS as error:
            raise_unless_damage(error)
            lost.append(holder)
    return found, lost


def raise_unless_damage(error: BaseException) -> None:
    """Raise an *error* of reading a data file unless its bytes are gone, or no Parquet, for good.

    Arrow raises an OSError without a number for broken pages.
    """
    is_of_bytes = isinstance(error, READ_ERRORS) and (not isinstance(error, OSError) or error.errno is None)
    if not isinstance(error, FileNotFoundError) and (not is_of_bytes or is_fault_of_disk(error)):
        raise error


def is_there(file: StrPath) -> bool:
    """Does a data file exist, with a Parquet file's end?"""
    try:
        return store_of(file).last_bytes(file, len(_FOOTER)) == _FOOTER
    except FileNotFoundError:
        return False
    except OSError as error:
        if error.errno != errno.EINVAL:
            raise
        return False  # shorter than a footer


def partition_of(path: str) -> int:
    """The partition of a topic's file; -1 without one."""
    return int(partition_values(path).get("partition", -1))


def live_files(table: StrPath) -> list[str]:
    return _snapshot(table, None).paths.to_pylist()


def trimmed_ledgers(table: StrPath, partitions: Iterable[int]) -> dict[int, int]:
    """The last ledger that trimming took from each of *partitions*; 0 if none is gone."""
    with _opening(table):
        delta = open_as_far_as_it_goes(table)
    return {partition: delta.transaction_version(f"{TRIMMED}{partition}") or 0 for partition in partitions}


@contextlib.contextmanager
def _opening(table: StrPath) -> Iterator[None]:
    try:
        yield
    except TableNotFoundError as gone:
        check_there(table)
        raise TopicNotFound(f"the topic at {str(table)!r} was deleted") from gone
    except DeltaError as broken:
        if is_fault_of_disk(broken):
            raise
        raise CorruptState(f"{str(table)!r}: the table cannot be opened ({broken}); {DOCTOR}") from broken


def _snapshot(table: StrPath, version: int | None) -> _Snapshot:
    with _opening(table):
        opened = open_as_far_as_it_goes(table) if version is None else open_table(table, version)
        files = pa.table(opened.get_add_actions(flatten=True))
    unknown = pa.nulls(files.num_rows, pa.string())
    lowest, highest = (
        files[f"{bound}.publish_id"].combine_chunks().cast(pa.string())
        if f"{bound}.publish_id" in files.column_names
        else unknown
        for bound in ("min", "max")
    )
    return _Snapshot(
        opened.version(), pa.array([unquote(path) for path in files["path"].to_pylist()], pa.string()), lowest, highest
    )
