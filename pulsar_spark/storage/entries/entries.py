"""Read entries: the rows at given positions of a run. Spark reads large amounts instead (see slices).

A run names its file. If rows were removed or rewritten, or the file is gone, the table's current files are searched.
"""

from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from itertools import groupby, islice
from operator import itemgetter

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pulsar_spark.errors import DOCTOR, CorruptState
from pulsar_spark.protocol.acknowledgement.positions import as_array, expanded
from pulsar_spark.protocol.topics.numbering import NO_POSITION, Run
from pulsar_spark.storage.delta.reader_rows import table_of
from pulsar_spark.storage.entries.message_files import (
    ENTRY_COLUMNS,
    Damaged,
    EntryIds,
    RowGroups,
    SortedRows,
    in_order,
    rows_schema,
    taken,
)
from pulsar_spark.storage.entries.missing import Missing, Present, is_trimmed, lost_error, missing_of
from pulsar_spark.storage.entries.rewritten_runs import WholeRuns, whole_runs
from pulsar_spark.storage.entries.stated_messages import joined, may_be_stated, placed, stated_messages
from pulsar_spark.storage.entries.stated_values import MOST_ENTRIES, Values, common_values
from pulsar_spark.storage.entries.topic_files import (
    READ_ERRORS,
    files_of,
    partition_of,
    raise_unless_damage,
    read_where,
)
from pulsar_spark.storage.processes.threads import Threads
from pulsar_spark.storage.store.store import StrPath, store_of
from pulsar_spark.table_specs import MESSAGES

BLOCK_ROWS = 2048
CACHED_BYTES = 16 * 1024 * 1024
Spans = Iterable[tuple[int, int]]
_AT_ONCE, _TOGETHER, _SLICED = 8, 256, 4096


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
        wanted, search, present = entry_ids_of(run, spans), _Search(table, run, columns, as_published), Present()
        if wanted.count:
            yield from self._blocks(search, wanted, present)
            missing = _check(wanted, present, search)
            if missing is not None:
                yield missing

    def there(
        self, table: StrPath, run: Run, columns: Sequence[str], *, as_published: bool = False
    ) -> Iterator[pa.Table]:
        """The readable blocks of a run; *as_published* as in :func:`read_slice`."""
        wanted = entry_ids_of(run, None)
        yield from self._blocks(_Search(table, run, columns, as_published), wanted, Present())

    def _blocks(self, search: "_Search", wanted: EntryIds, present: Present) -> Iterator[pa.Table]:
        for rows in self._rows(search, wanted):
            places, size = wanted.rows_in(rows.entry_ids), self._block_rows
            blocks: Iterator[np.ndarray | slice]
            if isinstance(places, np.ndarray):
                blocks = (places[at : at + size] for at in range(0, len(places), size))
            else:
                blocks = (slice(at, min(at + size, places.stop)) for at in range(places.start, places.stop, size))
            for at in blocks:
                yield _block(search.run, rows, at, search.names, present)

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
        stated = iter(stated_messages(table, [run for run, is_so in zip(runs, are_so) if is_so]))
        found = [next(stated) if is_so else None for is_so in are_so]
        are_there = [is_so and (bool(each) or _has_file(table, run)) for run, is_so, each in zip(runs, are_so, found)]
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

    def _rows(self, search: "_Search", wanted: EntryIds) -> Iterator:
        run = search.run
        if search.as_published or search.holders == [run.path]:
            if may_be_stated(run) and (stated := _stated_rows(search)) is not None:
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

    def _elsewhere(self, search: "_Search", wanted: EntryIds) -> Iterator:
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
            yield in_order(_once(_possible(pa.concat_tables(rows), run.batch_size)))


class _Search:
    """Where a run's rows were looked for, and which files are lost."""

    def __init__(self, table: StrPath, run: Run, columns: Sequence[str] | None, as_published: bool = False):
        self.table, self.run, self.as_published = table, run, as_published
        self.columns = ENTRY_COLUMNS if columns is None else tuple(columns)
        self.names = [name for name in ENTRY_COLUMNS if name in ("entry_id", "batch_index", *self.columns)]
        self.is_elsewhere = False
        self.lost: list[str] = []

    @cached_property
    def holders(self) -> list[str]:
        return files_of(self.table).holders(self.run.path, self.run.publish_id, self.run.ledger_id)


def _stated_rows(search: _Search) -> SortedRows | None:
    """The rows of a run from its commit."""
    (stated,) = stated_messages(search.table, [search.run])
    if stated is None:
        return None
    entry_ids = np.array(stated["entry_id"])
    rows = table_of(stated, len(entry_ids), rows_schema(search.columns))
    return None if rows is None else SortedRows(rows, entry_ids)


_SLICES = EntryReader(CACHED_BYTES, block_rows=1 << 20)


def _has_file(table: StrPath, run: Run) -> bool:
    return store_of(table).has(f"{table}/{run.path}")


def is_in_table(table: StrPath, run: Run) -> bool:
    """Is the published file in the table, with no row removed or rewritten?"""
    return files_of(table).holders(run.path, run.publish_id, run.ledger_id) == [run.path]


def are_as_published(table: StrPath, runs: Sequence[Run]) -> list[bool]:
    return files_of(table).are_as_published([(run.path, run.ledger_id) for run in runs])


def read_slice(table: StrPath, runs: Iterable[Run], columns: Sequence[str], *, as_published: bool = False) -> pa.Table:
    """``position`` and *columns* of the entries of *runs*, in order, from each first message; null if deleted or lost.

    *as_published* ignores deletions until VACUUM.
    """
    runs, schema = list(runs), _slice_schema(columns)
    parts, left = [(schema.empty_table(), np.empty(0, np.int64))], np.arange(len(runs))
    for read in (_stated_slice, _rewritten_slice, _slice_of_files):
        chosen = [runs[number] for number in left]
        if chosen:
            is_found, rows = read(table, chosen, columns, as_published)
            entries = [run.entries for run, is_so in zip(chosen, is_found) if is_so]
            parts.append((rows, np.repeat(left[is_found], entries)))
            left = left[~is_found]
    order = np.argsort(np.concatenate([numbers for _, numbers in parts]), kind="stable")
    found = pa.concat_tables([rows for rows, _ in parts if rows.num_rows] or [schema.empty_table()])
    return found if (np.diff(order) == 1).all() else found.take(pa.array(order))


def are_missing(table: StrPath, runs: Iterable[Run]) -> np.ndarray:
    """Which entries of *runs* are deleted or lost; opens their files."""
    found = [rows["entry_id"] for rows in _from_files(table, list(runs), ["entry_id"], as_published=False)]
    return np.concatenate([np.empty(0, bool), *(column.is_null().to_numpy() for column in found)])


def _slice_schema(columns: Sequence[str]) -> pa.Schema:
    return pa.schema([("position", pa.int64()), *(MESSAGES.schema.field(name) for name in columns)])


def _stated_slice(
    table: StrPath, runs: Sequence[Run], columns: Sequence[str], as_published: bool
) -> tuple[np.ndarray, pa.Table]:
    """Which of *runs* have the same values in all rows by their commits, and their slice."""
    is_few = np.array([run.entries <= MOST_ENTRIES for run in runs])
    few = [run for run in runs if run.entries <= MOST_ENTRIES]
    if few and not as_published:
        is_few[is_few] = are_as_published(table, few)
    few = [run for run, is_so in zip(runs, is_few) if is_so]
    values = common_values(table, few, columns)
    is_few[is_few] = [each is not None for each in values]
    known = [each for each in values if each is not None]
    return is_few, _repeated(_slice_schema(columns), [run for run, is_so in zip(runs, is_few) if is_so], known)


def _rewritten_slice(
    table: StrPath, runs: Sequence[Run], columns: Sequence[str], as_published: bool
) -> tuple[np.ndarray, pa.Table]:
    """Which small *runs* of rewritten files are whole, and their slice; *as_published* does not matter."""
    are_so = are_as_published(table, runs)
    are_whole = np.array(
        [may_be_stated(run) and not (is_so and _has_file(table, run)) for run, is_so in zip(runs, are_so)]
    )
    small = [run for run, is_small in zip(runs, are_whole) if is_small]
    found, parts = list[bool](), [_slice_schema(columns).empty_table()]
    for at in range(0, len(small), _SLICED):
        together = small[at : at + _SLICED]
        each, rows = _SLICES.whole_runs(table, together, tuple(columns))
        found += each
        parts.append(_first_messages([run for run, is_so in zip(together, each) if is_so], rows, columns))
    are_whole[are_whole] = found
    return are_whole, pa.concat_tables(parts)


def _first_messages(runs: Sequence[Run], rows: pa.Table, columns: Sequence[str]) -> pa.Table:
    """The slice of *runs*, of which *rows* are all messages."""
    entries, sizes = (np.array([getattr(run, name) for run in runs], np.int64) for name in ("entries", "batch_size"))
    firsts = np.array([run.first_position for run in runs], np.int64)
    steps = np.repeat(sizes, entries)
    at = np.cumsum(steps) - steps
    found = rows.select(columns).take(pa.array(at)).cast(pa.schema(list(_slice_schema(columns))[1:]))
    return found.add_column(0, "position", pa.array(expanded(firsts, firsts + entries - 1)))


def _slice_of_files(
    table: StrPath, runs: Sequence[Run], columns: Sequence[str], as_published: bool
) -> tuple[np.ndarray, pa.Table]:
    return np.ones(len(runs), bool), pa.concat_tables(_from_files(table, runs, columns, as_published))


def _repeated(schema: pa.Schema, runs: Sequence[Run], values: Sequence[Values]) -> pa.Table:
    if not runs:
        return schema.empty_table()
    entries = np.array([run.entries for run in runs])
    firsts = np.array([run.first_position for run in runs])
    of_run = pa.array(np.repeat(np.arange(len(runs)), entries))
    stated = [pa.array(column, field.type) for column, field in zip(zip(*values), list(schema)[1:])]
    columns = [pa.array(expanded(firsts, firsts + entries - 1)), *(column.take(of_run) for column in stated)]
    return pa.Table.from_arrays(columns, schema=schema)


def _from_files(table: StrPath, runs: Sequence[Run], columns: Sequence[str], as_published: bool) -> Iterator[pa.Table]:

    def read(run: Run) -> pa.Table:
        return _entries_of(table, run, columns, as_published).cast(_slice_schema(columns))

    if len(runs) < 2:
        yield from map(read, runs)
        return
    with Threads(_AT_ONCE, "slices") as pool:
        yield from pool.map(read, runs)


def _entries_of(table: StrPath, run: Run, columns: Sequence[str], as_published: bool) -> pa.Table:
    blocks = list(_SLICES.there(table, run, columns, as_published=as_published))
    positions = np.arange(run.first_position, run.first_position + run.entries)
    if not blocks:
        rows = MESSAGES.schema.empty_table().select(columns).append_column("position", pa.array([], pa.int64()))
    else:
        rows = pa.concat_tables(blocks)
    there = rows.column("position").to_numpy()
    if len(there) != len(positions) or (there != positions).any():
        at = np.searchsorted(there, positions, "left")
        is_there = np.append(there, -1)[np.minimum(at, len(there))] == positions
        rows = rows.take(pa.array(at, mask=~is_there))
    return rows.select(columns).add_column(0, "position", pa.array(positions))


def entry_ids_of(run: Run, spans: Spans | None) -> EntryIds:
    if spans is None:
        return EntryIds.between(run.first_entry_id, run.last_entry_id)
    firsts, lasts = as_array(spans) - run.to_position
    return EntryIds(firsts, lasts).cut(run.first_entry_id, run.last_entry_id)


def _block(run: Run, rows: SortedRows, places: slice | np.ndarray, names: list[str], present: Present) -> pa.Table:
    """Some of the rows, copied if they would keep much more memory."""
    table = rows.table if rows.table.num_columns == len(names) else rows.table.select(names)
    block, entry_ids = taken(table, places), rows.entry_ids[places]
    if isinstance(places, slice) and rows.table.num_rows > 4 * block.num_rows:
        block, entry_ids = block.take(pa.array(np.arange(block.num_rows))), entry_ids.copy()
    present.add(entry_ids, block.column("batch_index"))
    if run.first_position == NO_POSITION:
        return block.append_column("position", pa.nulls(len(entry_ids), pa.int64()))
    return block.append_column("position", pa.array(entry_ids + run.to_position))


def _check(wanted: EntryIds, present: Present, search: _Search) -> Missing | None:
    """The missing messages; :class:`CorruptState` if unchanged files have another number of messages."""
    table, run = search.table, search.run
    found, expected = present.messages, wanted.count * run.batch_size
    if found == expected or (not run.batch_size and not present.gaps(wanted)):
        return None
    if search.is_elsewhere or search.lost:
        return missing_of(table, run, wanted, present, search.lost)
    if not is_trimmed(table, run):
        first, last = int(wanted.firsts[0]), int(wanted.lasts[-1])
        raise CorruptState(
            f"{str(table)!r}: publish commit {run.ledger_id} should have {expected or 'messages'} messages in entries "
            f"{first} to {last} of partition {partition_of(run.path)}, found {found}; {DOCTOR}"
        )
    return None


def _possible(rows: pa.Table, batch_size: int) -> pa.Table:
    """The rewritten rows with a batch index that is possible."""
    index, is_outside = rows["batch_index"], batch_size == 1
    if not batch_size or (is_outside and index.null_count == rows.num_rows):
        return rows
    inside = pc.and_(pc.greater_equal(index, 0), pc.less(index, batch_size))
    return rows.filter(pc.fill_null(inside, is_outside))


def _once(rows: pa.Table) -> pa.Table:
    """*rows* of one publish, the first of each entry and batch index."""
    if rows.num_rows < 2:
        return rows
    places = rows.select(["entry_id", "batch_index"]).append_column("row", pa.array(np.arange(rows.num_rows)))
    kept = places.group_by(["entry_id", "batch_index"]).aggregate([("row", "min")])["row_min"]
    return rows if len(kept) == rows.num_rows else rows.take(kept.sort())
