"""Read entries of a compacted topic by position: up to the horizon from the compacted view, later ones from the topic.

Messages that were compacted out count as deleted.
"""

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pulsar_spark.protocol.acknowledgement.positions import distinct, ranges_of
from pulsar_spark.protocol.policies.compaction import TAG_BYTES
from pulsar_spark.protocol.topics.numbering import Run
from pulsar_spark.storage.compaction.compacted import CompactedView
from pulsar_spark.storage.delta.data_files import conform
from pulsar_spark.storage.entries.entries import EntryReader
from pulsar_spark.storage.entries.message_files import ENTRY_COLUMNS
from pulsar_spark.storage.entries.missing import Missing, Present
from pulsar_spark.storage.entries.run_search import Spans, entry_ids_of
from pulsar_spark.storage.entries.topic_files import partition_of
from pulsar_spark.storage.store.store import StrPath
from pulsar_spark.table_specs import COMPACTED

_T = TypeVar("_T")
_NONE = np.empty(0, np.int64)
_JUDGED_BY = ("partition_key", "payload", "uncompressed_size", "encryption_keys", "uuid")


class CompactedEntries:
    """Reads entries, those after the horizon through *entries*. Thread-safe."""

    def __init__(self, entries: EntryReader):
        self._entries = entries
        self._views: dict[str, CompactedView] = {}
        self._deletions: dict[tuple[str, int], np.ndarray] = {}
        self._lock = threading.Lock()

    def read(
        self, table: StrPath, run: Run, spans: Spans | None = None, columns: Sequence[str] | None = None
    ) -> Iterator[pa.Table | Missing]:
        """Like :meth:`EntryReader.read`, for numbered runs; up to the horizon, :class:`Missing` comes first."""
        partition, spans = partition_of(run.path), None if spans is None else list(spans)
        with self._lock:
            view = self._view(table)
            is_compacted = run.ledger_id <= view.horizon(partition)
            found = self._rows(view, partition, run, spans) if is_compacted else []
            deleted = _within(self._deletions.get((str(table), partition), _NONE), run, spans)
        if not is_compacted:
            yield from self._entries.read(table, run, spans, columns)
            return
        wanted, present = entry_ids_of(run, spans), Present()
        names = [*(ENTRY_COLUMNS if columns is None else ("entry_id", "batch_index", *columns)), "position"]
        if len(deleted):
            found = _in_order([*found, *self._deletions_at(table, run, deleted)])
        for rows in found:
            present.add(rows["entry_id"].to_numpy(), rows["batch_index"])
        missing = wanted.count * run.batch_size - present.messages
        if missing:
            yield Missing(missing, present.gaps(wanted), present.parts(run.batch_size), None)
        yield from (rows.select(list(dict.fromkeys(names))) for rows in found)

    def read_all(
        self, table: StrPath, parts: Iterable[tuple[Run, list[tuple[int, int]]]]
    ) -> Iterator[tuple[Run, pa.Table | Missing]]:
        """:meth:`read` of runs in turn, each with its spans."""
        for run, spans in parts:
            yield from ((run, rows) for rows in self.read(table, run, spans))

    def places(self, table: StrPath, partition: int, first: int, last: int, more: int) -> tuple[int, np.ndarray]:
        """The horizon, and the view's positions at *first*..*last* and up to *more* after them."""
        with self._lock:
            view = self._view(table)
            found = _read_of(view, lambda: view.positions(partition, first, last, more))
            return view.horizon(partition), found

    def look_for_deletions(
        self, table: StrPath, partition: int, parts: Iterable[tuple[Run, list[tuple[int, int]]]]
    ) -> None:
        """Find the deletions in *parts*: runs with stretches of positions."""
        found = [
            rows["position"].to_numpy()
            for run, spans in parts
            for rows in self._rows_that_delete(table, run, spans, _JUDGED_BY)
        ]
        with self._lock:
            known = self._deletions.get((str(table), partition), _NONE)
            self._deletions[str(table), partition] = distinct(np.concatenate([known, *found]))

    def deletions(self, table: StrPath, partition: int, first: int, last: int) -> np.ndarray:
        with self._lock:
            known = self._deletions.get((str(table), partition), _NONE)
        return known[np.searchsorted(known, first) : np.searchsorted(known, last, "right")]

    def _deletions_at(self, table: StrPath, run: Run, positions: np.ndarray) -> Iterator[pa.Table]:
        for rows in self._rows_that_delete(table, run, ranges_of(positions), None):
            yield conform(rows, COMPACTED.schema, {"ledger_id": str(run.ledger_id), "publish_id": run.publish_id})

    def _rows_that_delete(
        self, table: StrPath, run: Run, spans: Sequence[tuple[int, int]], columns: Sequence[str] | None
    ) -> Iterator[pa.Table]:
        for rows in self._entries.read(table, run, spans, columns):
            if not isinstance(rows, Missing):
                yield rows.filter(_deletes(rows))

    def _view(self, table: StrPath) -> CompactedView:
        view = self._views.get(str(table))
        if view is None:
            view = self._views[str(table)] = CompactedView(table)
        else:
            view.look()
        return view

    def _rows(
        self, view: CompactedView, partition: int, run: Run, spans: list[tuple[int, int]] | None
    ) -> list[pa.Table]:
        spans = [(run.first_position, run.last_position)] if spans is None else spans
        return _read_of(view, lambda: list(view.rows_between(partition, spans)))


def _deletes(rows: pa.Table) -> pa.ChunkedArray:
    """Which *rows* are deletions (protocol.policies.compaction.payload_size)."""
    stored = pc.fill_null(pc.binary_length(rows["payload"]), 0).cast(pa.int64())
    plain = pc.subtract(stored, pc.multiply(rows["encryption_keys"].is_valid().cast(pa.int64()), TAG_BYTES))
    is_empty = pc.less_equal(pc.coalesce(rows["uncompressed_size"].cast(pa.int64()), plain), 0)
    return pc.and_(is_empty, pc.and_(rows["partition_key"].is_valid(), rows["uuid"].is_null()))


def _within(known: np.ndarray, run: Run, spans: list[tuple[int, int]] | None) -> np.ndarray:
    spans = [(run.first_position, run.last_position)] if spans is None else spans
    parts = [known[np.searchsorted(known, first) : np.searchsorted(known, last, "right")] for first, last in spans]
    return np.concatenate([_NONE, *parts])


def _in_order(tables: list[pa.Table]) -> list[pa.Table]:
    rows = pa.concat_tables(table.select(COMPACTED.schema.names) for table in tables)
    return [rows.sort_by([("position", "ascending"), ("batch_index", "ascending")])]


def _read_of(view: CompactedView, read: Callable[[], _T]) -> _T:
    """The result of *read*, again if a file left the view long ago."""
    try:
        return read()
    except FileNotFoundError:
        if not view.look():
            raise
        return read()
