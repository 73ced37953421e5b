"""The rows of staged files that are no duplicates, as files that an append may move."""

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from pulsar_spark.protocol.policies.deduplication import app_id
from pulsar_spark.storage.delta.data_files import partition_values, write_parts
from pulsar_spark.storage.delta.staged_files import StagedFile, StagedFolder
from pulsar_spark.storage.store.away import check_there
from pulsar_spark.storage.store.store import AnyPath, store_of

NAMED_BY = ("producer_name", "sequence_id")
_CHUNK_ID = "chunk_id"


class NewRows(NamedTuple):
    """Files of new rows, and then the highest sequence ids, by transaction."""

    files: list[StagedFile]
    transactions: dict[str, int]


@contextlib.contextmanager
def new_rows(table: AnyPath, files: Sequence[StagedFile], highest: Mapping[str, int], since: int) -> Iterator[NewRows]:
    """The rows of *files* above the *highest* stored sequence ids, in order; rows without name or id are new.

    Files not moved into the table are deleted after the block.
    """
    folder, search, left = StagedFolder(table), _Search(highest, since), []
    try:
        for file in files:
            is_new = search.are_new(file)
            if not is_new.any():
                continue
            check_there(table)
            (folder.path / file.place).parent.mkdir(parents=True, exist_ok=True)
            if is_new.all():
                store_of(table).link(file.source, folder.path / file.place)
            else:
                _write_some(file, is_new, folder.path)
            left.append(folder.file(file.place))
        yield NewRows(left, search.transactions)
    finally:
        folder.remove()


class _Search:
    def __init__(self, highest: Mapping[str, int], since: int):
        self._highest, self._since = highest, since
        self._seen: dict[str, list[np.ndarray]] = {}
        self.transactions: dict[str, int] = {}

    def are_new(self, file: StagedFile) -> np.ndarray:
        opened = pq.ParquetFile(store_of(file.source).parquet(file.source))
        there = opened.schema_arrow.names
        rows = opened.read(columns=[name for name in (*NAMED_BY, _CHUNK_ID) if name in there])
        is_new = np.ones(rows.num_rows, bool)
        is_named = pc.and_(*(pc.is_valid(rows[name]) for name in NAMED_BY)).to_numpy()
        starts = self._starts(rows)
        indexes = np.flatnonzero(is_named & starts)
        if len(indexes):
            partition = int(partition_values(file.name).get("partition", -1))
            names = rows["producer_name"].take(pa.array(indexes)).combine_chunks().dictionary_encode()
            ids = rows["sequence_id"].take(pa.array(indexes)).cast(pa.int64()).to_numpy()
            is_new[indexes] = self._are_new(partition, names, ids)
        return is_new[np.maximum.accumulate(np.where(starts, np.arange(rows.num_rows), 0))]

    def _starts(self, rows: pa.Table) -> np.ndarray:
        if _CHUNK_ID not in rows.column_names:
            return np.ones(rows.num_rows, bool)
        return pc.equal(pc.fill_null(rows[_CHUNK_ID], 0), 0).to_numpy()

    def _are_new(self, partition: int, names: pa.DictionaryArray, ids: np.ndarray) -> np.ndarray:
        codes = names.indices.to_numpy()
        order = np.lexsort((ids, codes))  # stable: the first of equals comes first
        ends = np.flatnonzero(np.diff(codes[order])) + 1
        is_new = np.empty(len(ids), bool)
        for rows in np.split(order, ends):
            name = app_id(self._since, partition, names.dictionary[int(codes[rows[0]])].as_py())
            is_new[rows] = self._of_name(name, ids[rows])
        return is_new

    def _of_name(self, name: str, ids: np.ndarray) -> np.ndarray:
        is_new = np.concatenate(([True], ids[1:] != ids[:-1]))
        highest, seen = self._highest.get(name), self._seen.setdefault(name, [])
        if highest is not None:
            is_new &= ids > highest
        for before in seen:
            if ids[0] <= before[-1] and before[0] <= ids[-1]:
                is_new &= ~np.isin(ids, before)
        if is_new.any():
            seen.append(ids[is_new])
            last = int(seen[-1][-1])
            self.transactions[name] = max(self.transactions.get(name, last), last)
        return is_new


def _write_some(file: StagedFile, is_new: np.ndarray, folder: AnyPath) -> None:
    """Write a file's new rows under its name in *folder*, with entry ids counted from its first."""
    source = pq.ParquetFile(store_of(file.source).parquet(file.source))
    first = file.statistics["minValues"]["entry_id"]

    def parts() -> Iterator[pa.Table]:
        at, entry_id = 0, first
        for group in range(source.num_row_groups):
            rows = source.read_row_group(group)
            left = rows.filter(pa.array(is_new[at : at + rows.num_rows]))
            at += rows.num_rows
            ids = pa.array(np.arange(entry_id, entry_id + left.num_rows), pa.int64())
            entry_id += left.num_rows
            if left.num_rows:
                yield left.set_column(
                    left.schema.get_field_index("entry_id"), source.schema_arrow.field("entry_id"), ids
                )

    write_parts(folder, file.place, source.schema_arrow, parts())
