"""The compacted view of a topic: the latest message of each key up to a horizon (protocol.policies.compaction).

It is a table in the topic's folder, with whole rows in order of position and with joined chunks. A partition's horizon
is the last compacted publish commit. One commit of exactly the next version replaces a partition's rows and horizon, so
of two concurrent compactions one fails. Rules: CompactedTopicImpl, Compactor.COMPACTION_SUBSCRIPTION.
"""

import contextlib
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import NamedTuple
from urllib.parse import unquote

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable
from deltalake.exceptions import TableNotFoundError

from pulsar_spark.errors import CorruptState, NotAllowedError
from pulsar_spark.protocol.acknowledgement.positions import distinct
from pulsar_spark.storage.clock import now_micros
from pulsar_spark.storage.delta.commits import commit
from pulsar_spark.storage.delta.data_files import conform
from pulsar_spark.storage.delta.definitions import create_table
from pulsar_spark.storage.delta.file_statistics import group_bounds
from pulsar_spark.storage.delta.log import TableLog
from pulsar_spark.storage.delta.scan import open_table
from pulsar_spark.storage.entries.topic_files import READ_ERRORS, raise_unless_damage
from pulsar_spark.storage.store.store import AnyPath, StrPath, path_of, store_of
from pulsar_spark.storage.topics.topics import Topic
from pulsar_spark.storage.upkeep.upkeep import remove_unseen
from pulsar_spark.table_specs import COMPACTED

FOLDER = "_compacted"
HORIZON = "compacted/"
"""Prefix, followed by the partition, of the view's transactions; the version is the last compacted ledger."""
REMOVED, SUCCEED_TIME_MS, DURATION_MS = "compacted_removed", "compacted_time_ms", "compacted_duration_ms"
"""Transactions with the number of messages that the last compaction left out, its end and its duration."""
GRACE_SECONDS = 60 * 60
IN_PROGRESS = "Compaction already in progress"
BLOCK_ROWS = 2048


class Facts(NamedTuple):
    removed: int
    duration_ms: int


class _File(NamedTuple):
    path: str
    partition: int
    first: int
    last: int
    size: int
    rows: int


class CompactedView:
    """The compacted view of the topic with that table, as of the last look; empty without a table."""

    def __init__(self, table: StrPath):
        self.path = path_of(table) / FOLDER
        self._log = TableLog(self.path)
        self._opened: DeltaTable | None = None
        self._transactions: dict[str, int] = {}
        self._files: list[_File] = []
        self._group: tuple[tuple[str, int], pa.Table] | None = None
        self._bounds: dict[str, list[_Bounds]] = {}
        self.look()

    def look(self) -> bool:
        """Look for a newer compaction; whether there was one."""
        if not (self._log.has(0) if self._opened is None else self._log.has_news(self.version)):
            return False
        try:
            self._opened = open_table(self.path)
        except (CorruptState, TableNotFoundError) as broken:
            raise CorruptState(
                f"{str(self.path)!r}: the compacted view cannot be opened ({broken}): restore it, or remove "
                "the folder and compact the topic again, without its trimmed messages"
            ) from broken
        self._files, self._transactions, self._bounds = sorted(_files(self._opened), key=lambda file: file[1:3]), {}, {}
        return True

    @property
    def version(self) -> int:
        return -1 if self._opened is None else self._opened.version()

    @property
    def is_made(self) -> bool:
        """Was the topic ever compacted?"""
        return self.transaction(SUCCEED_TIME_MS) > 0

    def transaction(self, app_id: str) -> int:
        """The value of a transaction of the view; 0 without one."""
        if app_id not in self._transactions:
            opened = self._opened
            if opened is not None and store_of(self.path).is_lent:  # transaction_version asks the store again
                opened = open_table(self.path, self.version)
            found = opened and opened.transaction_version(app_id)
            self._transactions[app_id] = found or 0
        return self._transactions[app_id]

    def horizon(self, partition: int) -> int:
        """The last compacted ledger of a partition; 0 without one."""
        return self.transaction(f"{HORIZON}{partition}")

    def size(self, partitions: Collection[int]) -> int:
        return sum(file.size for file in self._files if file.partition in partitions)

    def messages(self, partitions: Collection[int]) -> int:
        return sum(file.rows for file in self._files if file.partition in partitions)

    def removes(self, partitions: Collection[int]) -> list[dict]:
        return [
            {"path": file.path, "size": file.size, "partitionValues": _partition(file)}
            for file in self._files
            if file.partition in partitions
        ]

    def rows_between(self, partition: int, spans: Iterable[tuple[int, int]]) -> Iterator[pa.Table]:
        """The rows at *spans* (first, last; in order), in blocks, by position and batch index.

        FileNotFoundError if a file left the view long ago: look again.
        """
        for first, last in spans:
            for file in self._files:
                if file.partition == partition and file.first <= last and file.last >= first:
                    for rows in self._groups(file, lambda has: has.last >= first and has.first <= last):
                        positions = rows["position"].to_numpy()
                        yield from _blocks(rows, *np.searchsorted(positions, [first, last + 1]))

    def rows_after(self, partition: int, ledger_id: int, position: int = -1) -> Iterator[pa.Table]:
        """The rows of ledgers from *ledger_id* on, after *position*; otherwise like :meth:`rows_between`."""
        for file in self._files:
            if file.partition == partition and file.last > position:
                for rows in self._groups(file, lambda has: has.last_ledger_id >= ledger_id):
                    begin = max(
                        np.searchsorted(rows["ledger_id"].to_numpy(), ledger_id),
                        np.searchsorted(rows["position"].to_numpy(), position, "right"),
                    )
                    yield from _blocks(rows, int(begin), rows.num_rows)

    def positions(self, partition: int, first: int, last: int, more: int) -> np.ndarray:
        """Positions of the view's entries, in order: those at *first*..*last*, and up to *more* after them."""
        found, later = [np.empty(0, np.int64)], 0
        for here in self._positions_from(partition, first):
            found.append(here)
            later += int((here > last).sum())
            if later >= more:
                break
        there = np.concatenate(found)
        return there[: int(np.searchsorted(there, last, "right")) + more]

    def _positions_from(self, partition: int, first: int) -> Iterator[np.ndarray]:
        for file in self._files:
            if file.partition == partition and file.last >= first:
                for number, has in enumerate(self._bounds_of(file)):
                    if has.last >= first:
                        here = distinct(self._positions_of(file, number))
                        yield here[here >= first]

    def _positions_of(self, file: _File, number: int) -> np.ndarray:
        if self._group is not None and self._group[0] == (file.path, number):
            return self._group[1]["position"].to_numpy()
        with self._reading(file) as opened:
            return opened.read_row_group(number, columns=["position"])["position"].to_numpy()

    def _groups(self, file: _File, is_wanted: Callable[["_Bounds"], bool]) -> Iterator[pa.Table]:
        for number, has in enumerate(self._bounds_of(file)):
            if is_wanted(has):
                if self._group is None or self._group[0] != (file.path, number):
                    with self._reading(file) as opened:
                        rows = conform(opened.read_row_group(number), COMPACTED.schema, _partition(file))
                    self._group = (file.path, number), rows
                yield self._group[1]

    def _bounds_of(self, file: _File) -> list["_Bounds"]:
        if file.path not in self._bounds:
            with self._reading(file) as opened:
                positions, ledgers = (group_bounds(opened.metadata, name) for name in ("position", "ledger_id"))
                self._bounds[file.path] = [
                    _Bounds(here[0], here[1], of[1]) for here, of in zip(positions, ledgers) if here and of
                ]
        return self._bounds[file.path]

    @contextlib.contextmanager
    def _reading(self, file: _File) -> Iterator[pq.ParquetFile]:
        """Open a file; FileNotFoundError if it left the view, :class:`CorruptState` if it is unreadable."""
        try:
            source = store_of(self.path).parquet(self.path / file.path)
            with pq.ParquetFile(source, page_checksum_verification=True) as opened:
                yield opened
        except READ_ERRORS as error:
            raise_unless_damage(error)
            if isinstance(error, FileNotFoundError) and self._log.has_news(self.version):
                raise
            raise CorruptState(
                f"{str(self.path / file.path)!r}, a file of the compacted view, is missing, incomplete or "
                f"damaged: restore it, or remove the folder {str(self.path)!r} and compact the topic again, "
                "without its trimmed messages"
            ) from error


class _Bounds(NamedTuple):
    first: int
    last: int
    last_ledger_id: int


def _files(opened: DeltaTable) -> Iterator[_File]:
    found = pa.table(opened.get_add_actions(flatten=True))
    if not found.num_rows:
        return
    partitions = "partition.partition"
    names = ["path", "size_bytes", "num_records", "min.position", "max.position"]
    for row in found.select([*names, *([partitions] if partitions in found.column_names else [])]).to_pylist():
        path, size, rows, first, last, partition = *(row[name] for name in names), row.get(partitions, -1)
        yield _File(unquote(path), int(partition), first, last, size, rows)


def _partition(file: _File) -> dict[str, str]:
    return {"partition": str(file.partition)} if file.partition >= 0 else {}


def _blocks(rows: pa.Table, begin: int, end: int) -> Iterator[pa.Table]:
    for at in range(int(begin), int(end), BLOCK_ROWS):
        yield rows.slice(at, min(BLOCK_ROWS, int(end) - at))


def is_in_order(path: AnyPath) -> bool:
    """Are the rows of a file in order of position, which readers rely on?"""
    last = -1
    with pq.ParquetFile(store_of(path).parquet(path)) as opened:
        for number in range(opened.num_row_groups):
            positions = opened.read_row_group(number, columns=["position"])["position"].to_numpy()
            if positions[0] < last or (np.diff(positions) < 0).any():
                return False
            last = positions[-1]
    return True


def make_view(topic: Topic) -> CompactedView:
    """The view of a topic; creates its table if there is none."""
    definition = {"topic": str(topic.name), "topic_id": topic.topic_id}
    by = ("partition",) if topic.partitions else ()
    create_table(topic.path / FOLDER, COMPACTED, definition, partition_by=by, statistics_of=("position", "ledger_id"))
    return CompactedView(topic.path)


def replace_rows(view: CompactedView, horizons: Mapping[int, int], adds: list[dict], facts: Facts) -> None:
    """Replace all rows of the partitions of *horizons* by the files of *adds*, in one commit, and delete old files.

    :class:`NotAllowedError` if another compaction was faster.
    """
    transactions = {f"{HORIZON}{partition}": ledger_id for partition, ledger_id in horizons.items()}
    transactions |= {REMOVED: facts.removed, SUCCEED_TIME_MS: now_micros() // 1000, DURATION_MS: facts.duration_ms}
    if commit(view.path, [view.version + 1], adds, transactions, view.removes(horizons)) is None:
        raise NotAllowedError(f"{str(view.path)!r}: {IN_PROGRESS}: another one was faster; try again")
    list(remove_unseen(view.path, time.time() - GRACE_SECONDS, frozenset()))  # files that left the view long ago
