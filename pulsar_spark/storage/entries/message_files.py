"""Read the row groups of a topic's Parquet files that can hold given entries, as footers show."""

import threading
from bisect import bisect_left
from collections import OrderedDict
from collections.abc import Iterator
from functools import cache, cached_property
from operator import methodcaller
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from pulsar_spark.storage.delta.data_files import conform
from pulsar_spark.storage.delta.file_statistics import group_bounds
from pulsar_spark.storage.entries.topic_files import READ_ERRORS, raise_unless_damage
from pulsar_spark.storage.store.store import store_of
from pulsar_spark.table_specs import MESSAGES

_KNOWN_FOOTERS = 64
_OF_A_GROUP = 24 * 1024
"""Bytes of a decoded row group beside its values, for columns and buffers."""
_PLACE = ("entry_id", "batch_index")
ENTRY_COLUMNS = tuple(name for name in MESSAGES.schema.names if name not in ("publish_id", "partition"))
"""Columns read of a message, without those by which its file is found."""


class EntryIds:
    """Entry ids of one publish: ordered, disjoint stretches firsts[n]..lasts[n]."""

    def __init__(self, firsts: np.ndarray, lasts: np.ndarray):
        self.firsts, self.lasts = firsts, lasts

    @classmethod
    def between(cls, first: int, last: int) -> "EntryIds":
        return cls(np.array([first]), np.array([last]))

    @property
    def count(self) -> int:
        return int((self.lasts - self.firsts + 1).sum())

    def cut(self, low: int, high: int) -> "EntryIds":
        begin, end = np.searchsorted(self.lasts, low, "left"), np.searchsorted(self.firsts, high, "right")
        return EntryIds(np.maximum(self.firsts[begin:end], low), np.minimum(self.lasts[begin:end], high))

    def meets(self, low: int, high: int) -> bool:
        at = np.searchsorted(self.lasts, low, "left")
        return bool(at < len(self.firsts) and self.firsts[at] <= high)

    def rows_in(self, entry_ids: np.ndarray) -> slice | np.ndarray:
        """Their places in the ordered *entry_ids*: a slice if contiguous."""
        if not len(entry_ids):
            return slice(0, 0)
        if len(self.firsts) == 1:
            return slice(
                int(entry_ids.searchsorted(self.firsts[0])), int(entry_ids.searchsorted(self.lasts[0], "right"))
            )
        here = self.cut(int(entry_ids[0]), int(entry_ids[-1]))
        starts = np.searchsorted(entry_ids, here.firsts, "left")
        ends = np.searchsorted(entry_ids, here.lasts, "right")
        if not len(starts):
            return slice(0, 0)
        if (starts[1:] == ends[:-1]).all():
            return slice(int(starts[0]), int(ends[-1]))
        sizes = ends - starts
        return np.arange(sizes.sum()) + np.repeat(starts - np.concatenate(([0], np.cumsum(sizes)[:-1])), sizes)


class SortedRows(NamedTuple):
    table: pa.Table
    entry_ids: np.ndarray


class Published(NamedTuple):
    """Rows by publish: those of ascending *publish_ids* begin at *starts*."""

    table: pa.Table
    publish_ids: pa.Array
    starts: np.ndarray

    @classmethod
    def of(cls, table: pa.Table) -> "Published":
        table = table.filter(pc.is_valid(table["publish_id"]))
        known = table["publish_id"].combine_chunks().dictionary_encode()
        in_order = pc.array_sort_indices(known.dictionary)
        places = np.empty(len(in_order), np.int64)
        places[in_order.to_numpy()] = np.arange(len(in_order))
        each = places[known.indices.to_numpy()]
        table = table.drop_columns("publish_id")
        if (np.diff(each) < 0).any():
            table = table.take(np.argsort(each, kind="stable"))
        sizes = np.bincount(each, minlength=len(in_order))
        return cls(table, known.dictionary.take(in_order), np.concatenate(([0], np.cumsum(sizes))))

    def rows_of(self, publish_id: str) -> pa.Table:
        """A publish's rows, as a copy if few among many."""
        at = bisect_left(self.publish_ids, publish_id, key=methodcaller("as_py"))
        if at == len(self.publish_ids) or self.publish_ids[at].as_py() != publish_id:
            return self.table.slice(0, 0)
        first, end = self.starts[at].item(), self.starts[at + 1].item()
        if self.table.num_rows > 4 * (end - first):
            return self.table.take(pa.array(np.arange(first, end)))
        return self.table.slice(first, end - first)


class Damaged(NamedTuple):
    """Entries *first*..*last* whose rows cannot be read (see storage.entries.topic_files)."""

    first: int
    last: int


class _Footer:
    def __init__(self, metadata: pq.FileMetaData):
        self.metadata = metadata
        self.entry_ids: list[tuple[int, int] | None] = group_bounds(metadata, "entry_id")

    @cached_property
    def publish_ids(self) -> list[tuple[str, str] | None]:
        return group_bounds(self.metadata, "publish_id")


class RowGroups:
    """Reads rows by row group and keeps up to *cached_bytes* of them; safe for threads."""

    def __init__(self, cached_bytes: int = 0):
        self._cached_bytes = cached_bytes
        self._groups: OrderedDict[tuple[str, int, tuple[str, ...]], SortedRows | Published] = OrderedDict()
        self._footers: OrderedDict[str, _Footer] = OrderedDict()
        self._size = 0
        self._lock = threading.Lock()

    def forget(self) -> None:
        with self._lock:
            self._groups.clear()
            self._footers.clear()
            self._size = 0

    def read(
        self, path: str, wanted: EntryIds, columns: tuple[str, ...] = ENTRY_COLUMNS
    ) -> Iterator[SortedRows | Damaged]:
        """Rows of *wanted*, perhaps with others around them, in order, from a file of one publish."""
        first, last = int(wanted.firsts[0]), int(wanted.lasts[-1])
        whole = self._cached(path, 0, columns)
        if whole is not None and len(whole.entry_ids) and whole.entry_ids[0] <= first and whole.entry_ids[-1] >= last:
            yield whole
            return
        with self._open(path) as file:
            bounds = self._footer(path, file.metadata).entry_ids
            groups = [number for number, each in enumerate(bounds) if each is None or wanted.meets(*each)]
            known = [each for number in groups if (each := bounds[number]) is not None]
            if len(known) < len(groups) or any(high > low for (_, high), (low, _) in zip(known, known[1:])):
                yield from _together([self._group(path, file, number, columns, wanted) for number in groups])
                return
            for number in groups:
                yield self._group(path, file, number, columns, wanted)

    def read_of_publish(
        self, path: str, publish_id: str, wanted: EntryIds, columns: tuple[str, ...] = ENTRY_COLUMNS
    ) -> Iterator[pa.Table | Damaged]:
        """Exactly the rows of *wanted*, in no order, even if the file has several publishes."""
        footer = self._footer_of(path)
        for number, (ids, publishes) in enumerate(zip(footer.entry_ids, footer.publish_ids)):
            if (ids is None or wanted.meets(*ids)) and (
                publishes is None or publishes[0] <= publish_id <= publishes[1]
            ):
                published = self._published(path, number, columns)
                if published is None:
                    yield Damaged(*ids or (int(wanted.firsts[0]), int(wanted.lasts[-1])))
                else:
                    rows = in_order(published.rows_of(publish_id))
                    yield taken(rows.table, wanted.rows_in(rows.entry_ids))

    def publishes(self, path: str, first_id: str, last_id: str, columns: tuple[str, ...]) -> Iterator[Published]:
        """The readable row groups that may have publishes with ids from *first_id* to *last_id*."""
        for number, ids in enumerate(self._footer_of(path).publish_ids):
            if ids is None or (ids[0] <= last_id and first_id <= ids[1]):
                published = self._published(path, number, columns)
                if published is not None:
                    yield published

    def _footer_of(self, path: str) -> _Footer:
        with self._lock:
            footer = self._footers.get(path)
        if footer is None:
            with self._open(path) as file:
                footer = self._footer(path, file.metadata)
        return footer

    def _published(self, path: str, number: int, columns: tuple[str, ...]) -> Published | None:
        schema = rows_schema(("publish_id", *columns))
        key = path, number, tuple(schema.names)
        with self._lock:
            if isinstance(found := self._groups.get(key), Published):
                self._groups.move_to_end(key)
                return found
        with self._open(path) as file:
            try:
                rows = conform(_decoded(file, number, schema.names), schema)
            except READ_ERRORS as error:
                raise_unless_damage(error)
                return None
        found = Published.of(rows)
        self._keep(key, found)
        return found

    def _open(self, path: str) -> pq.ParquetFile:
        with self._lock:
            footer = self._footers.get(path)
        metadata = None if footer is None else footer.metadata
        return pq.ParquetFile(
            store_of(path).parquet(path), metadata=metadata, page_checksum_verification=True, pre_buffer=False
        )

    def _footer(self, path: str, metadata: pq.FileMetaData) -> _Footer:
        with self._lock:
            found = self._footers.get(path)
        if found is None:
            found = _Footer(metadata)
            with self._lock:
                self._footers[path] = found
                while len(self._footers) > (_KNOWN_FOOTERS if self._cached_bytes else 0):
                    self._footers.popitem(last=False)
        return found

    def _group(
        self, path: str, file: pq.ParquetFile, number: int, columns: tuple[str, ...], wanted: EntryIds
    ) -> SortedRows | Damaged:
        rows = self._cached(path, number, columns)
        if rows is None:
            schema = rows_schema(columns)
            try:
                rows = in_order(conform(_decoded(file, number, schema.names), schema))
            except READ_ERRORS as error:
                raise_unless_damage(error)
                bounds = group_bounds(file.metadata, "entry_id")[number]
                return Damaged(*bounds or (int(wanted.firsts[0]), int(wanted.lasts[-1])))
            self._keep((path, number, columns), rows)
        return rows

    def _cached(self, path: str, number: int, columns: tuple[str, ...]) -> SortedRows | None:
        """A group decoded with these columns, or with all."""
        with self._lock:
            for key in ((path, number, columns), (path, number, ENTRY_COLUMNS)):
                if isinstance(found := self._groups.get(key), SortedRows):
                    self._groups.move_to_end(key)
                    return found
        return None

    def _keep(self, key: tuple[str, int, tuple[str, ...]], rows: SortedRows | Published) -> None:
        with self._lock:
            if self._cached_bytes and key not in self._groups:
                self._groups[key] = rows
                self._size += _size(rows)
            while self._size > self._cached_bytes and len(self._groups) > 1:
                self._size -= _size(self._groups.popitem(last=False)[1])


def _decoded(file: pq.ParquetFile, number: int, columns: list[str]) -> pa.Table:
    """A row group, decoded by the calling thread: others keep memory."""
    return file.read_row_group(number, columns=columns, use_threads=False)


def _size(rows: SortedRows | Published) -> int:
    of_publishes = rows.publish_ids.nbytes + rows.starts.nbytes if isinstance(rows, Published) else 0
    return rows.table.nbytes + of_publishes + _OF_A_GROUP


def is_sound(path: str) -> bool:
    try:
        with pq.ParquetFile(store_of(path).parquet(path), page_checksum_verification=True) as file:
            for number in range(file.metadata.num_row_groups):
                file.read_row_group(number)
    except READ_ERRORS as error:
        raise_unless_damage(error)
        return False
    return True


@cache
def rows_schema(columns: tuple[str, ...]) -> pa.Schema:
    """The schema of *columns*, with the columns of a message's place."""
    return pa.schema([field for field in MESSAGES.schema if field.name in (*_PLACE, *columns)])


def _together(found: list[SortedRows | Damaged]) -> Iterator[SortedRows | Damaged]:
    """Row groups that overlap or lack bounds, as one."""
    yield from (each for each in found if isinstance(each, Damaged))
    tables = [each.table for each in found if isinstance(each, SortedRows)]
    if tables:
        yield in_order(pa.concat_tables(tables))


def taken(rows: pa.Table, places: slice | np.ndarray) -> pa.Table:
    return rows.slice(places.start, places.stop - places.start) if isinstance(places, slice) else rows.take(places)


def in_order(rows: pa.Table) -> SortedRows:
    entry_ids = rows.column("entry_id").to_numpy()
    steps = np.diff(entry_ids)
    is_mixed = bool((steps < 0).any())
    if not is_mixed and (steps == 0).any():
        indexes = pc.fill_null(rows.column("batch_index"), 0).to_numpy()
        is_mixed = bool((np.diff(indexes)[steps == 0] < 0).any())
    if is_mixed:
        rows = rows.sort_by([("entry_id", "ascending"), ("batch_index", "ascending")])
        entry_ids = rows.column("entry_id").to_numpy()
    return SortedRows(rows, entry_ids)
