"""Read some columns of whole runs: a row for each entry, from its first message.

Values that a commit states are repeated; small runs of rewritten files are read together, others each from its file.
"""

from collections.abc import Iterable, Iterator, Sequence
from functools import partial

import numpy as np
import pyarrow as pa

from pulsar_spark.protocol.acknowledgement.positions import expanded
from pulsar_spark.protocol.topics.numbering import Run
from pulsar_spark.storage.entries.entries import (
    CACHED_BYTES,
    EntryReader,
    are_as_published,
    found_of,
    has_published_file,
)
from pulsar_spark.storage.entries.stated_messages import may_be_stated
from pulsar_spark.storage.entries.stated_values import MOST_ENTRIES, Values, common_values
from pulsar_spark.storage.processes.threads import Threads
from pulsar_spark.storage.store.store import StrPath
from pulsar_spark.table_specs import MESSAGES

_AT_ONCE, _SLICED = 8, 4096
_SLICES = EntryReader(CACHED_BYTES, block_rows=1 << 20)


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
    are_few = [run.entries <= MOST_ENTRIES for run in runs]
    if not as_published:
        are_few = [bool(each) for each in found_of(runs, are_few, partial(are_as_published, table))]
    values = found_of(runs, are_few, partial(common_values, table, columns=columns))
    known = [(run, each) for run, each in zip(runs, values) if each is not None]
    return np.array([each is not None for each in values], bool), _repeated(_slice_schema(columns), known)


def _rewritten_slice(
    table: StrPath, runs: Sequence[Run], columns: Sequence[str], as_published: bool
) -> tuple[np.ndarray, pa.Table]:
    """Which small *runs* of rewritten files are whole, and their slice; *as_published* does not matter."""
    are_so = are_as_published(table, runs)
    are_whole = np.array(
        [may_be_stated(run) and not (is_so and has_published_file(table, run)) for run, is_so in zip(runs, are_so)]
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


def _repeated(schema: pa.Schema, stated_runs: Sequence[tuple[Run, Values]]) -> pa.Table:
    if not stated_runs:
        return schema.empty_table()
    entries = np.array([run.entries for run, _ in stated_runs])
    firsts = np.array([run.first_position for run, _ in stated_runs])
    of_run = pa.array(np.repeat(np.arange(len(stated_runs)), entries))
    stated = [
        pa.array(column, field.type)
        for column, field in zip(zip(*(values for _, values in stated_runs)), list(schema)[1:])
    ]
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
