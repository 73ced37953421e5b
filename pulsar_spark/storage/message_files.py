"""Reading the messages of runs from a topic's files, a row group at a time, with the last ones kept decoded.

A run names its file, so no table is opened. Where rows were removed or rewritten since, or the file is gone, they are
found in the files the table has now (see storage.topic_files). What a consumer holds of a large row group is copied out
in small blocks, so that one kept message does not keep a hundred megabytes.
"""

import threading
from collections import OrderedDict
from collections.abc import Iterator
from datetime import datetime
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from pulsar_spark.errors import DOCTOR, CorruptState
from pulsar_spark.storage.ledger_index import Run
from pulsar_spark.storage.published import Missing, entries_of, lost_error, missing_of, once
from pulsar_spark.storage.tables import conform
from pulsar_spark.storage.topic_files import GONE, files_of, read_where
from pulsar_spark.storage.trimmed import trimmed_ledgers
from pulsar_spark.table_specs import MESSAGES

BLOCK_ROWS = 2048
CACHED_BYTES = 64 * 1024 * 1024
_SCHEMA = pa.schema([field for field in MESSAGES.schema if field.name not in ("publish_id", "partition")])
_WITH_PUBLISH_ID = pa.schema([MESSAGES.schema.field("publish_id"), *_SCHEMA])


class FileEntries(NamedTuple):
    """One file of a publish commit, as the topic's log tells of it; ``last_publish_time`` None where that is not
    known."""

    ledger_id: int
    publish_id: str
    first_entry_id: int
    last_entry_id: int
    rows: int
    path: str
    partition: int
    last_publish_time: datetime | None = None


class _Rows(NamedTuple):
    """Rows in the order of entries, then of the batch."""

    table: pa.Table
    entry_ids: np.ndarray


class _Searched:
    """Whether rows had to be looked for in other files than the one that was published, and which of those are gone."""

    def __init__(self):
        self.is_elsewhere = False
        self.lost: list[str] = []


class MessageFiles:
    """Reads runs; shared by a client's consumers and readers, safe for threads."""

    def __init__(self, cached_bytes: int = CACHED_BYTES):
        self._cached_bytes = cached_bytes
        self._cache: OrderedDict[tuple[str, int], _Rows] = OrderedDict()
        self._size = 0
        self._lock = threading.Lock()

    def read(self, topic_path, partition: int, run: Run) -> Iterator[pa.Table]:
        """The run's rows in order, in blocks of at most 2,048. Those that were deleted or trimmed are passed over;
        :class:`MessagesLost` behind the others when some are lost."""
        last = run.first_entry_id + run.entries - 1
        return self.read_entries(topic_path, partition, run, run.first_entry_id, last, run.entries * run.batch_size)

    def read_entries(
        self, topic_path, partition: int, file: "Run | FileEntries", first: int, last: int, expected: int
    ) -> Iterator[pa.Table]:
        """The rows of entries *first*..*last* of *file*, likewise; *expected* is how many there should be."""
        for rows in self.read_and_tell(topic_path, partition, file, first, last, expected):
            if not isinstance(rows, Missing):
                yield rows
            elif rows.is_lost:
                entries = rows.whole or [(entry, entry) for entry in rows.parts]
                raise lost_error(topic_path, partition, file.ledger_id, entries, rows.lost)

    def read_and_tell(
        self, topic_path, partition: int, file: "Run | FileEntries", first: int, last: int, expected: int
    ) -> "Iterator[pa.Table | Missing]":
        """The blocks of :meth:`read_entries`, and behind them what is missing, if anything is."""
        found, present, searched = 0, [], _Searched()
        for rows in self._pieces(topic_path, file, first, last, searched):
            start, end = np.searchsorted(rows.entry_ids, first, "left"), np.searchsorted(rows.entry_ids, last, "right")
            found += end - start
            present.append((rows, start, end))
            for at in range(start, end, BLOCK_ROWS):
                size = min(BLOCK_ROWS, end - at)
                block = rows.table.slice(at, size)
                yield block.take(pa.array(range(size))) if len(rows.entry_ids) > 4 * size else block
        if (
            found != expected
            and not searched.is_elsewhere
            and file.ledger_id > trimmed_ledgers(topic_path, [partition])[partition]
        ):
            raise CorruptState(
                f"{str(topic_path)!r}: publish commit {file.ledger_id} should have {expected} messages in entries "
                f"{first} to {last} of "
                f"partition {partition}, found {found}; {DOCTOR}"
            )
        if found < expected:
            there = [
                (rows.entry_ids[start:end], rows.table.column("batch_index").slice(start, end - start).to_pylist())
                for rows, start, end in present
            ]
            missing = missing_of(
                topic_path, partition, file, first, last, getattr(file, "batch_size", None), there, searched.lost
            )
            if missing is not None:
                yield missing

    def _pieces(
        self, topic_path, run: "Run | FileEntries", first: int, last: int, searched: "_Searched"
    ) -> Iterator[_Rows]:
        """The rows of the file's entries, and perhaps others around them, in order."""
        path = f"{topic_path}/{run.path}"
        if files_of(topic_path).holders(run.path, run.publish_id, run.ledger_id) == [run.path]:
            whole = self._cached((path, 0))
            if (
                whole is not None
                and len(whole.entry_ids)
                and whole.entry_ids[0] <= first
                and whole.entry_ids[-1] >= last
            ):
                yield whole
                return
            try:
                file = pq.ParquetFile(path)
            except GONE:
                pass
            else:
                with file:
                    yield from self._groups(path, file, first, last)
                return
        searched.is_elsewhere = True
        found, searched.lost = read_where(
            topic_path,
            run.path,
            run.publish_id,
            run.ledger_id,
            lambda holder: self._rows_of(f"{topic_path}/{holder}", run.publish_id, first, last),
        )
        if rows := [part for parts in found for part in parts]:
            yield _in_order(once(pa.concat_tables(rows)))

    def _groups(self, path: str, file: pq.ParquetFile, first: int, last: int) -> Iterator[_Rows]:
        for group in range(file.metadata.num_row_groups):
            if _may_hold(file.metadata.row_group(group), "entry_id", first, last):
                key = (path, group)
                rows = self._cached(key)
                if rows is None:
                    rows = _in_order(conform(file.read_row_group(group), _SCHEMA))
                    self._keep(key, rows)
                yield rows

    def _rows_of(self, path: str, publish_id: str, first: int, last: int) -> list[pa.Table]:
        """The rows of some entries of a publish in a file that may hold several publishes."""
        found = []
        with pq.ParquetFile(path) as file:
            for group in range(file.metadata.num_row_groups):
                of_group = file.metadata.row_group(group)
                if _may_hold(of_group, "publish_id", publish_id, publish_id) and _may_hold(
                    of_group, "entry_id", first, last
                ):
                    rows = conform(file.read_row_group(group), _WITH_PUBLISH_ID)
                    found.append(entries_of(rows, publish_id, first, last).select(_SCHEMA.names))
        return found

    def _cached(self, key: tuple[str, int]) -> _Rows | None:
        with self._lock:
            if key in self._cache:
                self._cache.move_to_end(key)
                return self._cache[key]
        return None

    def _keep(self, key: tuple[str, int], rows: _Rows) -> None:
        with self._lock:
            if key not in self._cache:
                self._cache[key] = rows
                self._size += rows.table.nbytes
            while self._size > self._cached_bytes and len(self._cache) > 1:
                self._size -= self._cache.popitem(last=False)[1].table.nbytes


def _may_hold(group: pq.RowGroupMetaData, name: str, first: int | str, last: int | str) -> bool:
    """Whether a row group may have a value of a column between two."""
    for index in range(group.num_columns):
        column = group.column(index)
        if column.path_in_schema == name:
            statistics = column.statistics
            return (
                statistics is None or not statistics.has_min_max or (statistics.min <= last and statistics.max >= first)
            )
    return False


def _in_order(rows: pa.Table) -> _Rows:
    entry_ids = rows.column("entry_id").to_numpy()
    steps = np.diff(entry_ids)
    if (steps < 0).any() or ((steps == 0).any() and _batches_are_mixed(rows, steps)):
        rows = rows.sort_by([("entry_id", "ascending"), ("batch_index", "ascending")])
        entry_ids = rows.column("entry_id").to_numpy()
    return _Rows(rows, entry_ids)


def _batches_are_mixed(rows: pa.Table, steps: np.ndarray) -> bool:
    indexes = pc.fill_null(rows.column("batch_index"), 0).to_numpy()
    return bool((np.diff(indexes)[steps == 0] < 0).any())
