"""Reading entries of a compacted topic by their positions: what an :class:`EntryReader` is to the topic, for a consumer
that reads compacted. Up to the horizon of its partition an entry is what the compacted view has of it; messages that
were compacted out are missing, as if they had been deleted: whoever reads passes over them, acknowledged. Behind it the
topic follows as it is."""

import threading
from collections.abc import Iterable, Iterator, Sequence

import pyarrow as pa

from pulsar_spark.protocol.numbering import Run
from pulsar_spark.storage.compacted import CompactedView
from pulsar_spark.storage.entries import EntryReader, entry_ids_of
from pulsar_spark.storage.message_files import ENTRY_COLUMNS
from pulsar_spark.storage.missing import Missing, Present
from pulsar_spark.storage.topic_files import partition_of


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
            view = self._views.get(str(table))
            if view is None:
                view = self._views[str(table)] = CompactedView(table)
            else:
                view.look()
            is_compacted = run.ledger_id <= view.horizon(partition)
            found = list(self._rows(view, partition, run, spans)) if is_compacted else []
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

    def _rows(
        self, view: CompactedView, partition: int, run: Run, spans: list[tuple[int, int]] | None
    ) -> Iterator[pa.Table]:
        spans = [(run.first_position, run.last_position)] if spans is None else spans
        for attempt in range(2):
            try:
                yield from list(view.rows_between(partition, spans))
                return
            except FileNotFoundError:  # it left the view long ago, and there is another
                if attempt or not view.look():
                    raise
