"""Reading entries of a compacted topic by their positions: what an :class:`EntryReader` is to the topic, for a consumer
that reads compacted. Up to the horizon of its partition an entry is what the compacted view has of it; messages that
were compacted out are missing, as if they had been deleted: whoever reads passes over them, acknowledged. Behind it the
topic follows as it is."""

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TypeVar

import numpy as np
import pyarrow as pa

from pulsar_spark.protocol.numbering import Run
from pulsar_spark.storage.compacted import CompactedView
from pulsar_spark.storage.entries import EntryReader, entry_ids_of
from pulsar_spark.storage.message_files import ENTRY_COLUMNS
from pulsar_spark.storage.missing import Missing, Present
from pulsar_spark.storage.topic_files import partition_of

_T = TypeVar("_T")


class CompactedEntries:
    """Reads entries; behind the horizons by the *entries* of others. Safe for threads."""

    def __init__(self, entries: EntryReader):
        self._entries = entries
        self._views: dict[str, CompactedView] = {}
        self._lock = threading.Lock()

    def read(
        self, table, run: Run, spans: Iterable[tuple[int, int]] | None = None, columns: Sequence[str] | None = None
    ) -> Iterator[pa.Table | Missing]:
        """As :meth:`EntryReader.read` does, of runs that are numbered; what is missing comes first."""
        partition, spans = partition_of(run.path), None if spans is None else list(spans)
        with self._lock:
            view = self._view(table)
            is_compacted = run.ledger_id <= view.horizon(partition)
            found = self._rows(view, partition, run, spans) if is_compacted else []
        if not is_compacted:
            yield from self._entries.read(table, run, spans, columns)
            return
        wanted, present = entry_ids_of(run, spans), Present()
        names = [*(ENTRY_COLUMNS if columns is None else ("entry_id", "batch_index", *columns)), "position"]
        for rows in found:
            present.add(rows["entry_id"].to_numpy(), rows["batch_index"])
        missing = wanted.count * run.batch_size - present.messages
        if missing:
            yield Missing(missing, present.gaps(wanted), present.parts(run.batch_size), None)
        yield from (rows.select(list(dict.fromkeys(names))) for rows in found)

    def places(self, table, partition: int, first: int, last: int, more: int) -> tuple[int, np.ndarray]:
        """The last ledger that is compacted, and where those entries lie that the view has, at *first*..*last* and so
        many *more* behind them."""
        with self._lock:
            view = self._view(table)
            found = _read_of(view, lambda: view.positions(partition, first, last, more))
            return view.horizon(partition), found

    def _view(self, table) -> CompactedView:
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


def _read_of(view: CompactedView, read: Callable[[], _T]) -> _T:
    """What *read* gives of the view, or of the one there is now where a file of it is gone, because it left it long
    ago."""
    try:
        return read()
    except FileNotFoundError:
        if not view.look():
            raise
        return read()
