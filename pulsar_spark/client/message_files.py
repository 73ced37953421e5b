"""Reading the messages of runs from a topic's files, a row group at a time, with the last ones kept decoded.

A run names its file, so no table is opened. When the file is gone (rewritten by OPTIMIZE and vacuumed), the run's rows are found in the table by
publish id. What a consumer holds of a large row group is copied out in small blocks, so that one kept message does not keep a hundred megabytes.
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
from deltalake.exceptions import TableNotFoundError

from pulsar_spark.client.ledgers import Run
from pulsar_spark.errors import DOCTOR, CorruptState, TopicNotFound
from pulsar_spark.schemas import MESSAGES
from pulsar_spark.storage.scan import dataset_of, open_table
from pulsar_spark.storage.trimmed import trimmed_ledgers

BLOCK_ROWS = 2048
CACHED_BYTES = 64 * 1024 * 1024
_SCHEMA = pa.schema([field for field in MESSAGES.schema if field.name not in ("publish_id", "partition")])


class FileEntries(NamedTuple):
    """One file of a publish commit, as the topic's log tells of it; ``last_publish_time`` None where that is not known."""

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


class MessageFiles:
    """Reads runs; shared by a client's consumers and readers, safe for threads."""

    def __init__(self, cached_bytes: int = CACHED_BYTES):
        self._cached_bytes = cached_bytes
        self._cache: OrderedDict[tuple[str, int], _Rows] = OrderedDict()
        self._size = 0
        self._lock = threading.Lock()

    def read(self, topic_path, partition: int, run: Run) -> Iterator[pa.Table]:
        """The run's rows in order, in blocks of at most 2,048; :class:`CorruptState` when some are missing, but for those of a ledger that was trimmed."""
        last = run.first_entry_id + run.entries - 1
        return self.read_entries(topic_path, partition, run, run.first_entry_id, last, run.entries * run.batch_size)

    def read_entries(self, topic_path, partition: int, file: "Run | FileEntries", first: int, last: int, expected: int) -> Iterator[pa.Table]:
        """The rows of entries *first*..*last* of *file*, likewise; *expected* is how many there should be."""
        found = 0
        for rows in self._pieces(topic_path, partition, file, first, last):
            start, end = np.searchsorted(rows.entry_ids, first, "left"), np.searchsorted(rows.entry_ids, last, "right")
            found += end - start
            for at in range(start, end, BLOCK_ROWS):
                size = min(BLOCK_ROWS, end - at)
                block = rows.table.slice(at, size)
                yield block.take(pa.array(range(size))) if len(rows.entry_ids) > 4 * size else block
        if found != expected and file.ledger_id > trimmed_ledgers(topic_path, [partition])[partition]:
            raise CorruptState(f"{str(topic_path)!r}: publish commit {file.ledger_id} should have {expected} messages in entries {first} to {last} of "
                               f"partition {partition}, found {found}; {DOCTOR}")

    def _pieces(self, topic_path, partition: int, run: "Run | FileEntries", first: int, last: int) -> Iterator[_Rows]:
        path = f"{topic_path}/{run.path}"
        whole = self._cached((path, 0))
        if whole is not None and len(whole.entry_ids) and whole.entry_ids[0] <= first and whole.entry_ids[-1] >= last:
            yield whole
            return
        try:
            file = pq.ParquetFile(path)
        except FileNotFoundError:
            yield _from_table(topic_path, partition, run, first, last)
            return
        with file:
            for group in range(file.metadata.num_row_groups):
                if _may_hold(file.metadata.row_group(group), first, last):
                    key = (path, group)
                    rows = self._cached(key)
                    if rows is None:
                        rows = _in_order(_conform(file.read_row_group(group)))
                        self._keep(key, rows)
                    yield rows

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


def _may_hold(group: pq.RowGroupMetaData, first: int, last: int) -> bool:
    for index in range(group.num_columns):
        column = group.column(index)
        if column.path_in_schema == "entry_id":
            statistics = column.statistics
            return statistics is None or not statistics.has_min_max or (statistics.min <= last and statistics.max >= first)
    return False


def _conform(rows: pa.Table) -> pa.Table:
    """*rows* with the columns and types of messages, whoever wrote them."""
    names = set(rows.column_names)
    arrays = [rows.column(field.name).cast(field.type) if field.name in names else pa.nulls(rows.num_rows, field.type) for field in _SCHEMA]
    return pa.Table.from_arrays(arrays, schema=_SCHEMA)


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


def _from_table(topic_path, partition: int, run: "Run | FileEntries", first: int, last: int) -> _Rows:
    wanted = ((pc.field("publish_id") == run.publish_id) & (pc.field("partition") == partition)
              & (pc.field("entry_id") >= first) & (pc.field("entry_id") <= last))
    try:
        table = open_table(topic_path)
    except TableNotFoundError as gone:
        raise TopicNotFound(f"the topic at {str(topic_path)!r} was deleted") from gone
    return _in_order(_conform(dataset_of(table).to_table(filter=wanted)))
