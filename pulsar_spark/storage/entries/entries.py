"""Read entries: the rows at given positions of a run. Spark reads large amounts instead (see slices).

A run names its file. If rows were removed or rewritten, or the file is gone, the table's current files are searched.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import groupby, islice
from operator import itemgetter
from typing import TypeVar

import numpy as np
import pyarrow as pa

from pulsar_spark.protocol.topics.numbering import Run
from pulsar_spark.storage.entries.message_files import ENTRY_COLUMNS, Damaged, EntryIds, RowGroups, in_order
from pulsar_spark.storage.entries.missing import Missing, Present, lost_error
from pulsar_spark.storage.entries.rewritten_runs import WholeRuns, whole_runs
from pulsar_spark.storage.entries.run_search import (
    RunSearch,
    Spans,
    block_of,
    entry_ids_of,
    missing_from,
    once,
    possible,
    stated_rows,
)
from pulsar_spark.storage.entries.stated_messages import joined, may_be_stated, placed, stated_messages
from pulsar_spark.storage.entries.topic_files import READ_ERRORS, files_of, raise_unless_damage, read_where
from pulsar_spark.storage.store.store import StrPath, store_of

T = TypeVar("T")
BLOCK_ROWS = 2048
CACHED_BYTES = 16 * 1024 * 1024
_TOGETHER = 256


class EntryReader:
    """Reads entries; *cached_bytes* of decoded row groups are kept. Thread-safe."""

    def __init__(self, cached_bytes: int = 0, block_rows: int = BLOCK_ROWS):
        self._groups, self._block_rows = RowGroups(cached_bytes), block_rows

    def forget(self) -> None:
        self._groups.forget()

    def read(
        self,
        table: StrPath,
        run: Run,
        spans: Spans | None = None,
        columns: Sequence[str] | None = None,
        *,
        as_published: bool = False,
    ) -> Iterator[pa.Table | Missing]:
        """The messages of *run*, or of its ordered *spans* of positions (first, last); then :class:`Missing`, if any.

        Blocks, in order of position and batch index, have ``entry_id``, ``batch_index``, *columns* (default: all but
        publish id and partition) and ``position``, null if the run is not numbered. *as_published*: the caller knows
        that no commit removed its rows. :class:`CorruptState` if the published file does not hold the run's messages.
        """
        wanted, search, present = entry_ids_of(run, spans), RunSearch(table, run, columns, as_published), Present()
        if wanted.count:
            yield from self._blocks(search, wanted, present)
            missing = missing_from(wanted, present, search)
            if missing is not None:
                yield missing

    def there(
        self, table: StrPath, run: Run, columns: Sequence[str], *, as_published: bool = False
    ) -> Iterator[pa.Table]:
        """The readable blocks of a run; *as_published* as in :func:`read_slice`."""
        wanted = entry_ids_of(run, None)
        yield from self._blocks(RunSearch(table, run, columns, as_published), wanted, Present())

    def _blocks(self, search: RunSearch, wanted: EntryIds, present: Present) -> Iterator[pa.Table]:
        for rows in self._rows(search, wanted):
            places, size = wanted.rows_in(rows.entry_ids), self._block_rows
            blocks: Iterator[np.ndarray | slice]
            if isinstance(places, np.ndarray):
                blocks = (places[at : at + size] for at in range(0, len(places), size))
            else:
                blocks = (slice(at, min(at + size, places.stop)) for at in range(places.start, places.stop, size))
            for at in blocks:
                yield block_of(search.run, rows, at, search.names, present)

    def rows_of(
        self, table: StrPath, run: Run, spans: Spans | None = None, columns: Sequence[str] | None = None
    ) -> Iterator[pa.Table]:
        """The blocks of :meth:`read`, ignoring deleted messages; :class:`MessagesLost` at the end if some are lost."""
        for rows in self.read(table, run, spans, columns):
            if not isinstance(rows, Missing):
                yield rows
            elif rows.is_lost:
                raise lost_error(table, run, rows)

    def read_all(
        self, table: StrPath, parts: Iterable[tuple[Run, list[tuple[int, int]]]]
    ) -> Iterator[tuple[Run | None, pa.Table | Missing]]:
        """:meth:`read` of runs in turn, each with its spans. Messages of many small publishes come together, without a
        run and with a column ``ledger_id``."""
        for is_small, members in groupby(parts, lambda part: may_be_stated(part[0])):
            if not is_small:
                yield from self._read_each(table, members)
            while is_small and (together := list(islice(members, _TOGETHER))):
                yield from self._read_small(table, together)

    def _read_small(
        self, table: StrPath, parts: Sequence[tuple[Run, list[tuple[int, int]]]]
    ) -> Iterator[tuple[Run | None, pa.Table | Missing]]:
        runs = [run for run, _ in parts]
        are_so = are_as_published(table, runs)
        found = found_of(runs, are_so, partial(stated_messages, table))
        are_there = [
            is_so and (bool(each) or has_published_file(table, run)) for run, is_so, each in zip(runs, are_so, found)
        ]
        kinds = zip(parts, found, are_there)
        for (is_stated, is_file), members in groupby(kinds, lambda each: (bool(each[1]), each[2])):
            together = list(members)
            rows = joined((run, spans, columns) for (run, spans), columns, _ in together if columns)
            if is_stated and rows is not None:
                yield None, rows
            elif is_file:
                yield from self._read_each(table, [part for part, *_ in together])
            else:
                yield from self._read_rewritten(table, [part for part, *_ in together])

    def _read_each(
        self, table: StrPath, parts: Iterable[tuple[Run, list[tuple[int, int]]]]
    ) -> Iterator[tuple[Run, pa.Table | Missing]]:
        for run, spans in parts:
            yield from ((run, rows) for rows in self.read(table, run, spans))

    def _read_rewritten(
        self, table: StrPath, parts: Sequence[tuple[Run, list[tuple[int, int]]]]
    ) -> Iterator[tuple[Run | None, pa.Table | Missing]]:
        found, at = self.whole_runs(table, [run for run, _ in parts], ENTRY_COLUMNS), 0
        for are_whole, members in groupby(zip(parts, found.are_whole), itemgetter(1)):
            together = [part for part, _ in members]
            if are_whole:
                size = sum(run.entries * run.batch_size for run, _ in together)
                yield None, placed(together, found.rows.slice(at, size))
                at += size
            else:
                yield from self._read_each(table, together)

    def whole_runs(self, table: StrPath, runs: Sequence[Run], columns: tuple[str, ...]) -> WholeRuns:
        return whole_runs(self._groups, table, runs, columns)

    def _rows(self, search: RunSearch, wanted: EntryIds) -> Iterator:
        run = search.run
        if search.as_published or search.holders == [run.path]:
            if may_be_stated(run) and (stated := stated_rows(search)) is not None:
                yield stated
                return
            groups = self._groups.read(f"{search.table}/{run.path}", wanted, search.columns)
            try:
                rows = next(groups, None)
            except READ_ERRORS as error:
                raise_unless_damage(error)
            else:
                while rows is not None:
                    if not isinstance(rows, Damaged):
                        yield rows
                    elif files_of(search.table).holders_now(run.path, run.publish_id) == [run.path]:
                        search.lost.append(run.path)
                    else:
                        yield from self._elsewhere(search, wanted.cut(rows.first, rows.last))
                    rows = next(groups, None)
                return
        yield from self._elsewhere(search, wanted)

    def _elsewhere(self, search: RunSearch, wanted: EntryIds) -> Iterator:
        run, search.is_elsewhere = search.run, True
        if not wanted.count:
            return

        def read(holder: str) -> tuple[str, list]:
            path = f"{search.table}/{holder}"
            return holder, list(self._groups.read_of_publish(path, run.publish_id, wanted, search.columns))

        found, lost = read_where(search.table, run.path, run.publish_id, search.holders, read)
        search.lost += lost
        search.lost += [holder for holder, parts in found if any(isinstance(part, Damaged) for part in parts)]
        if rows := [part for _, parts in found for part in parts if not isinstance(part, Damaged)]:
            yield in_order(once(possible(pa.concat_tables(rows), run.batch_size)))


def has_published_file(table: StrPath, run: Run) -> bool:
    return store_of(table).has(f"{table}/{run.path}")


def found_of(
    runs: Sequence[Run], are_chosen: Iterable[bool], find: Callable[[list[Run]], Iterable[T]]
) -> list[T | None]:
    """What *find* returns for each of the chosen *runs*, None for the others."""
    chosen = list(are_chosen)
    found = iter(find([run for run, is_chosen in zip(runs, chosen) if is_chosen]))
    return [next(found) if is_chosen else None for is_chosen in chosen]


def is_in_table(table: StrPath, run: Run) -> bool:
    """Is the published file in the table, with no row removed or rewritten?"""
    return files_of(table).holders(run.path, run.publish_id, run.ledger_id) == [run.path]


def are_as_published(table: StrPath, runs: Sequence[Run]) -> list[bool]:
    return files_of(table).are_as_published([(run.path, run.ledger_id) for run in runs])
