"""Split the rows of files by consumer, into Parquet files of one consumer each. Each thread takes a stretch of row
groups."""

import os
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import islice
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from pulsar_spark.frames.deliveries.lane_deliveries import LaneRange
from pulsar_spark.protocol.keys.hash_ranges import NOBODY
from pulsar_spark.protocol.keys.lanes import lane_numbers
from pulsar_spark.protocol.topics.numbering import Run
from pulsar_spark.storage.entries.key_hashes import hashes_in
from pulsar_spark.storage.store.store import AnyPath
from pulsar_spark.table_specs import HASH, KEY_COLUMNS, MESSAGES

_MOST_THREADS = 4
_PIECE_ROWS = 1 << 17
"""Rows read, sorted and written at a time. Larger pieces are slower: the system takes their memory back and clears it
for each new piece."""
_LEAST_ROWS = 1 << 14
"""About the fewest rows of a consumer in a row group of its file; as many pieces are written together."""
PLACE = ("partition", "ledger_id", "position")
_NAMES = ["publish_id", "producer_name"]
"""Texts of few values, handled as dictionary numbers."""
_OF_A_PUBLISH = [*_NAMES, "batch_size", "publish_time"]
_OF_FEW_VALUES = [*_OF_A_PUBLISH, "partition", "ledger_id"]
_AS_DIFFERENCES = dict.fromkeys(("entry_id", "sequence_id", "position"), "DELTA_BINARY_PACKED")
"""Numbers that ascend slowly take one byte instead of eight. Writing a new page costs more than encoding it."""
SPLIT_SCHEMA = pa.schema(
    [
        *(column for column in MESSAGES.schema if column.name != "partition"),
        pa.field("partition", pa.int32()),
        pa.field("ledger_id", pa.int64()),
        pa.field("position", pa.int64()),
    ]
)


class Job(NamedTuple):
    """A row group of a run's file, and the file's columns."""

    partition: int
    run: Run
    group: int
    columns: frozenset[str]


class Jobs(NamedTuple):
    """The row groups to split, the columns with a value in any, and in ``same`` those with one value in all rows."""

    jobs: list[Job]
    columns: frozenset[str]
    same: Mapping[str, object]


def with_values(group: pq.RowGroupMetaData) -> Iterator[str]:
    """The columns of a row group that may have a value; nested ones always, as an empty map counts as null."""
    for chunk in map(group.column, range(group.num_columns)):
        name, is_nested, _ = chunk.path_in_schema.partition(".")
        known = chunk.statistics
        if is_nested or known is None or not known.has_null_count or known.null_count < chunk.num_values:
            yield name


def same_in_all(jobs: Sequence[Job], groups: Sequence[pq.RowGroupMetaData]) -> dict[str, object]:
    """The columns with one value in all rows of *jobs*, as statistics show."""
    found = [
        {"partition": job.partition, "ledger_id": job.run.ledger_id, **dict(_only_values(group))}
        for job, group in zip(jobs, groups, strict=True)
    ]
    known = found[0].items() if found else ()
    return {name: value for name, value in known if all(name in each and each[name] == value for each in found)}


def _only_values(group: pq.RowGroupMetaData) -> Iterator[tuple[str, object]]:
    for chunk in map(group.column, range(group.num_columns)):
        known = chunk.statistics if chunk.path_in_schema in _OF_A_PUBLISH else None
        has_statistics = known is not None and known.has_min_max and known.has_null_count and not known.null_count
        if has_statistics and known.min == known.max:
            yield chunk.path_in_schema, pa.scalar(known.min, MESSAGES.schema.field(chunk.path_in_schema).type).as_py()


class _Owners:
    """The consumer, by number, of each entry of a partition. *ranges* are (consumer, lane number, range)."""

    def __init__(self, ranges: Sequence[tuple[int, int, LaneRange]], lanes: int):
        self._owners = np.full(lanes + 1, NOBODY, np.int16)
        self._firsts, self._lasts = np.zeros(lanes + 1, np.int64), np.full(lanes + 1, np.iinfo(np.int64).max)
        self._others: list[tuple[int, int, LaneRange]] = []
        for owner, lane, range_ in ranges:
            if self._owners[lane] == NOBODY:
                self._owners[lane], self._firsts[lane], self._lasts[lane] = owner, range_.first, range_.last
            else:
                self._others.append((owner, lane, range_))

    def of(self, positions: np.ndarray, numbers: np.ndarray) -> np.ndarray:
        """The owner of each entry, by position and lane number; :data:`NOBODY` where there is none."""
        owners = self._owners[numbers]
        if positions.min() < self._firsts.max() or positions.max() > self._lasts.min():
            is_outside = (positions < self._firsts[numbers]) | (positions > self._lasts[numbers])
            owners[is_outside] = NOBODY
        for owner, lane, range_ in self._others:
            owners[(numbers == lane) & (positions >= range_.first) & (positions <= range_.last)] = owner
        return owners


class _Piece(NamedTuple):
    """*rows* in order of their owners; *cuts* are the borders between owners."""

    rows: pa.Table
    cuts: list[int]

    def has(self, owner: int) -> bool:
        return self.cuts[owner] < self.cuts[owner + 1]

    def of(self, owner: int) -> pa.Table:
        first, end = self.cuts[owner : owner + 2]
        return self.rows.slice(first, end - first)


class Splitter:
    """Writes the rows of *ranges*, which are by consumer, into a folder for each: :data:`PLACE` and *columns* of
    *table*, except columns with one value in all rows."""

    def __init__(self, table: AnyPath, ranges: Mapping[str, set[LaneRange]], columns: Sequence[str], folder: AnyPath):
        self._table, self._columns, self._folder = table, columns, folder
        self._consumers = list(ranges)
        lanes = list({range_.hashes: None for each in ranges.values() for range_ in each})
        self._numbers = lane_numbers(lanes)
        at = {lane: number for number, lane in enumerate(lanes)}
        dealt = [(owner, at[range_.hashes], range_) for owner, each in enumerate(ranges.values()) for range_ in each]
        self._owners = {
            partition: _Owners([each for each in dealt if each[2].partition == partition], len(lanes))
            for partition in {range_.partition for _, _, range_ in dealt}
        }

    def run(self, found: Jobs) -> None:
        """Split the row groups of *found*. Columns without a value are left out; readers see nulls."""
        wanted = {*self._columns, "entry_id", HASH, *KEY_COLUMNS} & found.columns - found.same.keys()
        self._wanted = [name for name in MESSAGES.schema.names if name in wanted and name != "partition"]
        kept = {*self._columns, *PLACE} & {*found.columns, *PLACE, HASH} - found.same.keys()
        self._schema = pa.schema([_as_written(each) for each in SPLIT_SCHEMA if each.name in kept])
        jobs = found.jobs
        threads = min(_MOST_THREADS, len(os.sched_getaffinity(0)), len(jobs))
        bounds = np.linspace(0, len(jobs), threads + 1).astype(int).tolist()
        parts = [jobs[start:end] for start, end in zip(bounds, bounds[1:])]
        with ThreadPoolExecutor(threads) as pool:
            list(pool.map(self._write, range(threads), parts))

    def _write(self, thread: int, jobs: Sequence[Job]) -> None:
        writers: dict[int, pq.ParquetWriter] = {}
        pieces = (piece for job in jobs for piece in self._pieces(job))
        at_once = max(1, len(self._consumers) * _LEAST_ROWS // _PIECE_ROWS)
        try:
            while batch := list(islice(pieces, at_once)):
                for owner, consumer in enumerate(self._consumers):
                    mine = [each.of(owner) for each in batch if each.has(owner)]
                    if mine and owner not in writers:
                        writers[owner] = pq.ParquetWriter(
                            self._folder / consumer / f"part-{thread}.parquet",
                            self._schema,
                            compression="none",
                            use_dictionary=_OF_FEW_VALUES,
                            column_encoding=_AS_DIFFERENCES,
                            write_statistics=False,
                            store_schema=False,
                        )
                    if mine:
                        writers[owner].write_table(pa.concat_tables(mine))
                del batch, mine  # free the rows before the next are read
        finally:
            for writer in writers.values():
                writer.close()

    def _pieces(self, job: Job) -> Iterator[_Piece]:
        path = f"{self._table}/{job.run.path}"
        texts = [name for name in _NAMES if name in job.columns]
        wanted = [name for name in self._wanted if name in job.columns]
        with pq.ParquetFile(path, page_checksum_verification=True, read_dictionary=texts) as file:
            # map holds no rows while it reads the next, unlike a loop
            yield from map(partial(self._piece, job), file.iter_batches(_PIECE_ROWS, [job.group], wanted, False))

    def _piece(self, job: Job, batch: pa.RecordBatch) -> _Piece:
        rows = pa.Table.from_batches([batch])
        run, entry_ids, hashes = job.run, rows["entry_id"].to_numpy(), hashes_in(rows)
        positions = entry_ids + run.to_position
        owners = self._owners[job.partition].of(positions, self._numbers.of(hashes))
        if entry_ids.min() < run.first_entry_id or entry_ids.max() > run.last_entry_id:
            owners[(entry_ids < run.first_entry_id) | (entry_ids > run.last_entry_id)] = NOBODY
        order = np.argsort(owners, kind="stable")
        cuts = np.searchsorted(owners[order], np.arange(len(self._consumers) + 1)).tolist()
        located = self._located(rows, job, positions, hashes).take(pa.array(order[cuts[0] :]))
        return _Piece(located, [cut - cuts[0] for cut in cuts])

    def _located(self, rows: pa.Table, job: Job, positions: np.ndarray, hashes: np.ndarray) -> pa.Table:
        """The rows with hash and place, in the schema that all files of the split have."""
        given = {name: rows[name] for name in rows.column_names} | {
            HASH: pa.array(hashes),
            "position": pa.array(positions),
        }
        of_job = {"partition": job.partition, "ledger_id": job.run.ledger_id}
        columns = [
            given[each.name].cast(each.type)
            if each.name in given
            else pa.repeat(pa.scalar(of_job.get(each.name), each.type), len(positions))
            for each in self._schema
        ]
        return pa.Table.from_arrays(columns, schema=self._schema).combine_chunks()


def _as_written(column: pa.Field) -> pa.Field:
    return column.with_type(pa.dictionary(pa.int32(), column.type)) if column.name in _NAMES else column
