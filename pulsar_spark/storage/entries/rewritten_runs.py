"""Rows of small publishes whose files were joined or rewritten, read of many publishes at a time."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pulsar_spark.protocol.acknowledgement.positions import expanded
from pulsar_spark.protocol.topics.numbering import Run
from pulsar_spark.storage.entries.message_files import RowGroups, rows_schema
from pulsar_spark.storage.entries.topic_files import READ_ERRORS, files_of, raise_unless_damage
from pulsar_spark.storage.store.store import StrPath


class WholeRuns(NamedTuple):
    """``rows`` of those runs that ``are_whole``, in order of runs, entries and batch indexes."""

    are_whole: list[bool]
    rows: pa.Table


def whole_runs(groups: RowGroups, table: StrPath, runs: Sequence[Run], columns: tuple[str, ...]) -> WholeRuns:
    """Those of *runs*, of one partition, whose rows are each once in the table's present files."""
    ids = sorted({run.publish_id for run in runs})
    numbers = {publish_id: number for number, publish_id in enumerate(ids)}
    of_publish, firsts, lasts, sizes = _columns(
        (numbers[run.publish_id], run.first_entry_id, run.last_entry_id, run.batch_size) for run in runs
    )
    found = list(_rows_of(groups, table, runs, pa.array(ids), columns))
    rows = pa.concat_tables([rows_schema(columns).empty_table(), *(rows for _, rows in found)])
    publishes = np.concatenate([np.empty(0, np.int64), *(each for each, _ in found)])
    entry_ids = rows["entry_id"].to_numpy()
    indexes = pc.fill_null(rows["batch_index"], 0).to_numpy()
    of_row = _runs_of(of_publish, firsts, lasts, publishes, entry_ids)
    order = np.lexsort((indexes, entry_ids, of_row))
    is_possible = (of_row >= 0) & (indexes >= 0) & (indexes < sizes[of_row])
    order = order[is_possible[order]]
    of_row = of_row[order]
    is_twice = (np.diff(of_row) == 0) & (np.diff(entry_ids[order]) == 0) & (np.diff(indexes[order]) == 0)
    counts = np.bincount(of_row, minlength=len(runs))
    are_whole = counts == (lasts - firsts + 1) * sizes
    are_whole[of_row[1:][is_twice]] = False
    return WholeRuns(are_whole.tolist(), rows.take(pa.array(order[are_whole[of_row]])))


def _columns(rows: Iterator[tuple[int, ...]]) -> tuple[np.ndarray, ...]:
    return tuple(np.array(list(rows), np.int64).T)


def _rows_of(
    groups: RowGroups, table: StrPath, runs: Sequence[Run], ids: pa.Array, columns: tuple[str, ...]
) -> Iterator[tuple[np.ndarray, pa.Table]]:
    """Rows of publishes, each with the index of its id in *ids*; without those of unreadable files."""
    for holder in files_of(table).holders_of(runs):
        try:
            for published in groups.publishes(f"{table}/{holder}", ids[0].as_py(), ids[-1].as_py(), columns):
                wanted = pc.index_in(published.publish_ids, ids)
                there = np.flatnonzero(wanted.is_valid())
                firsts, ends = published.starts[there], published.starts[there + 1]
                each = np.repeat(wanted.drop_null().to_numpy().astype(np.int64), ends - firsts)
                yield each, published.table.take(pa.array(expanded(firsts, ends - 1)))
        except READ_ERRORS as error:
            raise_unless_damage(error)


def _runs_of(
    of_publish: np.ndarray, firsts: np.ndarray, lasts: np.ndarray, publishes: np.ndarray, entry_ids: np.ndarray
) -> np.ndarray:
    """The index of the run of each row, -1 for none."""
    order = np.lexsort((firsts, of_publish))
    width = int(max(lasts.max(), entry_ids.max(initial=0))) + 1
    at = np.searchsorted((of_publish * width + firsts)[order], publishes * width + entry_ids, "right") - 1
    found = order[at]
    is_inside = (at >= 0) & (of_publish[found] == publishes) & (entry_ids <= lasts[found])
    return np.where(is_inside, found, -1)
