"""The row groups of a topic's Parquet files: which of them can hold some entries, and their rows.

A footer says which entry ids and which publish lie in each row group, so what cannot hold a wanted entry is not read.
A row group whose bytes are no longer what was written (see storage.topic_files) is told of by the entries that it
should hold; the others of its file are read as ever. Page checksums are verified where the writer left any: without
them most flipped bytes of a payload go unseen. The last groups stay decoded, and the footers of the last files known,
for somebody who reads on where he stopped.
"""

import threading
from collections import OrderedDict
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from pulsar_spark.storage.data_files import conform
from pulsar_spark.storage.topic_files import READ_ERRORS, raise_unless_damage
from pulsar_spark.table_specs import MESSAGES

_KNOWN_FOOTERS = 64
_OF_A_GROUP = 24 * 1024
"""Bytes that a decoded row group takes beside its values, for columns and buffers: all there is to one of a message."""
_PLACE = ("entry_id", "batch_index")
ENTRY_COLUMNS = tuple(name for name in MESSAGES.schema.names if name not in ("publish_id", "partition"))
"""What is read of a message: how its file is found is known before."""


class EntryIds:
    """Entry ids of one publish: stretches firsts[n]..lasts[n], in order, none of which overlaps the next."""

    def __init__(self, firsts: np.ndarray, lasts: np.ndarray):
        self.firsts, self.lasts = firsts, lasts

    @classmethod
    def between(cls, first: int, last: int) -> "EntryIds":
        """All from *first* to *last*."""
        return cls(np.array([first]), np.array([last]))

    @property
    def count(self) -> int:
        """How many they are."""
        return int((self.lasts - self.firsts + 1).sum())

    def cut(self, low: int, high: int) -> "EntryIds":
        """Those from *low* to *high*."""
        begin, end = np.searchsorted(self.lasts, low, "left"), np.searchsorted(self.firsts, high, "right")
        return EntryIds(np.maximum(self.firsts[begin:end], low), np.minimum(self.lasts[begin:end], high))

    def meets(self, low: int, high: int) -> bool:
        """Is any of them from *low* to *high*?"""
        at = np.searchsorted(self.lasts, low, "left")
        return at < len(self.firsts) and self.firsts[at] <= high

    def rows_in(self, entry_ids: np.ndarray) -> slice | np.ndarray:
        """Where they are among *entry_ids*, which are in order: a slice, where they follow each other."""
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


class Rows(NamedTuple):
    """Rows in the order of entries, then of the batch."""

    table: pa.Table
    entry_ids: np.ndarray


class Damaged(NamedTuple):
    """Rows of entries *first*..*last* are in bytes that cannot be read."""

    first: int
    last: int


class _Footer(NamedTuple):
    """What a file says of itself, with the bounds of each row group: None where a group does not tell."""

    metadata: pq.FileMetaData
    entry_ids: list[tuple[int, int] | None]

    @classmethod
    def of(cls, metadata: pq.FileMetaData) -> "_Footer":
        return cls(metadata, _bounds_of(metadata, "entry_id"))


class RowGroups:
    """Reads the rows of entries from files, a row group at a time; safe for threads. With *cached_bytes* the groups
    that were read last stay decoded."""

    def __init__(self, cached_bytes: int = 0):
        self._cached_bytes = cached_bytes
        self._groups: OrderedDict[tuple[str, int, tuple[str, ...]], Rows] = OrderedDict()
        self._footers: OrderedDict[str, _Footer] = OrderedDict()
        self._size = 0
        self._lock = threading.Lock()

    def forget(self) -> None:
        """Keep nothing of what was read so far."""
        with self._lock:
            self._groups.clear()
            self._footers.clear()
            self._size = 0

    def read(self, path: str, wanted: EntryIds, columns: tuple[str, ...] = ENTRY_COLUMNS) -> Iterator[Rows | Damaged]:
        """The rows that may be of *wanted*, and perhaps others around them, in order: their place and *columns*. The
        whole file is one publish."""
        first, last = int(wanted.firsts[0]), int(wanted.lasts[-1])
        whole = self._cached(path, 0, columns)
        if whole is not None and len(whole.entry_ids) and whole.entry_ids[0] <= first and whole.entry_ids[-1] >= last:
            yield whole
            return
        with self._open(path) as file:
            bounds = self._footer(path, file.metadata).entry_ids
            groups = [number for number, each in enumerate(bounds) if each is None or wanted.meets(*each)]
            known = [bounds[number] for number in groups]
            if None in known or any(high > low for (_, high), (low, _) in zip(known, known[1:])):
                yield from _together([self._group(path, file, number, columns, wanted) for number in groups])
                return
            for number in groups:
                yield self._group(path, file, number, columns, wanted)

    def read_of_publish(
        self, path: str, publish_id: str, wanted: EntryIds, columns: tuple[str, ...] = ENTRY_COLUMNS
    ) -> Iterator[pa.Table | Damaged]:
        """The rows of *wanted*, and no others, of a file that may hold several publishes; in no order."""
        schema = _schema(("publish_id", *columns))
        with self._open(path) as file:
            entry_ids, publish_ids = (
                self._footer(path, file.metadata).entry_ids,
                _bounds_of(file.metadata, "publish_id"),
            )
            for number, (ids, publishes) in enumerate(zip(entry_ids, publish_ids)):
                if (ids is None or wanted.meets(*ids)) and (
                    publishes is None or publishes[0] <= publish_id <= publishes[1]
                ):
                    try:
                        rows = conform(file.read_row_group(number, columns=schema.names), schema)
                    except READ_ERRORS as error:
                        raise_unless_damage(error)
                        yield Damaged(*ids or (int(wanted.firsts[0]), int(wanted.lasts[-1])))
                        continue
                    rows = in_order(rows.filter(pc.equal(rows["publish_id"], publish_id)).drop_columns("publish_id"))
                    yield taken(rows.table, wanted.rows_in(rows.entry_ids))

    def _open(self, path: str) -> pq.ParquetFile:
        with self._lock:
            footer = self._footers.get(path)
        metadata = None if footer is None else footer.metadata
        return pq.ParquetFile(path, metadata=metadata, page_checksum_verification=True)

    def _footer(self, path: str, metadata: pq.FileMetaData) -> _Footer:
        with self._lock:
            found = self._footers.get(path)
        if found is None:
            found = _Footer.of(metadata)
            with self._lock:
                self._footers[path] = found
                while len(self._footers) > (_KNOWN_FOOTERS if self._cached_bytes else 0):
                    self._footers.popitem(last=False)
        return found

    def _group(
        self, path: str, file: pq.ParquetFile, number: int, columns: tuple[str, ...], wanted: EntryIds
    ) -> Rows | Damaged:
        rows = self._cached(path, number, columns)
        if rows is None:
            schema = _schema(columns)
            try:
                rows = in_order(conform(file.read_row_group(number, columns=schema.names), schema))
            except READ_ERRORS as error:
                raise_unless_damage(error)
                bounds = _bounds_of(file.metadata, "entry_id")[number]
                return Damaged(*bounds or (int(wanted.firsts[0]), int(wanted.lasts[-1])))
            self._keep((path, number, columns), rows)
        return rows

    def _cached(self, path: str, number: int, columns: tuple[str, ...]) -> Rows | None:
        """A group that was decoded with these columns, or with all."""
        with self._lock:
            for key in ((path, number, columns), (path, number, ENTRY_COLUMNS)):
                if key in self._groups:
                    self._groups.move_to_end(key)
                    return self._groups[key]
        return None

    def _keep(self, key: tuple[str, int, tuple[str, ...]], rows: Rows) -> None:
        with self._lock:
            if self._cached_bytes and key not in self._groups:
                self._groups[key] = rows
                self._size += _size(rows)
            while self._size > self._cached_bytes and len(self._groups) > 1:
                self._size -= _size(self._groups.popitem(last=False)[1])


def _size(rows: Rows) -> int:
    return rows.table.nbytes + _OF_A_GROUP


def is_sound(path: str) -> bool:
    """Can every row of a file be read?"""
    try:
        with pq.ParquetFile(path, page_checksum_verification=True) as file:
            for number in range(file.metadata.num_row_groups):
                file.read_row_group(number)
    except READ_ERRORS as error:
        raise_unless_damage(error)
        return False
    return True


def _schema(columns: tuple[str, ...]) -> pa.Schema:
    return pa.schema([field for field in MESSAGES.schema if field.name in (*_PLACE, *columns)])


def _bounds_of(metadata: pq.FileMetaData, name: str) -> list[tuple | None]:
    """The least and the greatest value of a column in each row group."""
    paths = [metadata.schema.column(index).path for index in range(metadata.num_columns)]
    if name not in paths:
        return [None] * metadata.num_row_groups
    index = paths.index(name)
    found = [metadata.row_group(number).column(index).statistics for number in range(metadata.num_row_groups)]
    return [(each.min, each.max) if each is not None and each.has_min_max else None for each in found]


def _together(found: list[Rows | Damaged]) -> Iterator[Rows | Damaged]:
    """Row groups that do not follow each other, as one."""
    yield from (each for each in found if isinstance(each, Damaged))
    tables = [each.table for each in found if isinstance(each, Rows)]
    if tables:
        yield in_order(pa.concat_tables(tables))


def taken(rows: pa.Table, places: slice | np.ndarray) -> pa.Table:
    return rows.slice(places.start, places.stop - places.start) if isinstance(places, slice) else rows.take(places)


def in_order(rows: pa.Table) -> Rows:
    """*rows* in the order of entries, then of the batch."""
    entry_ids = rows.column("entry_id").to_numpy()
    steps = np.diff(entry_ids)
    if (steps < 0).any() or ((steps == 0).any() and _batches_are_mixed(rows, steps)):
        rows = rows.sort_by([("entry_id", "ascending"), ("batch_index", "ascending")])
        entry_ids = rows.column("entry_id").to_numpy()
    return Rows(rows, entry_ids)


def _batches_are_mixed(rows: pa.Table, steps: np.ndarray) -> bool:
    indexes = pc.fill_null(rows.column("batch_index"), 0).to_numpy()
    return bool((np.diff(indexes)[steps == 0] < 0).any())
