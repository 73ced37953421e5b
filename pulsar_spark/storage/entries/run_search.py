"""Where the rows of one run were looked for, the blocks made of them, and what is missing."""

from collections.abc import Iterable, Sequence
from functools import cached_property

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pulsar_spark.errors import DOCTOR, CorruptState
from pulsar_spark.protocol.acknowledgement.positions import as_array
from pulsar_spark.protocol.topics.numbering import NO_POSITION, Run
from pulsar_spark.storage.delta.reader_rows import table_of
from pulsar_spark.storage.entries.message_files import ENTRY_COLUMNS, EntryIds, SortedRows, rows_schema, taken
from pulsar_spark.storage.entries.missing import Missing, Present, is_trimmed, missing_of
from pulsar_spark.storage.entries.stated_messages import stated_messages
from pulsar_spark.storage.entries.topic_files import files_of, partition_of
from pulsar_spark.storage.store.store import StrPath

Spans = Iterable[tuple[int, int]]


class RunSearch:
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


def stated_rows(search: RunSearch) -> SortedRows | None:
    """The rows of a run from its commit."""
    (stated,) = stated_messages(search.table, [search.run])
    if stated is None:
        return None
    entry_ids = np.array(stated["entry_id"])
    rows = table_of(stated, len(entry_ids), rows_schema(search.columns))
    return None if rows is None else SortedRows(rows, entry_ids)


def entry_ids_of(run: Run, spans: Spans | None) -> EntryIds:
    if spans is None:
        return EntryIds.between(run.first_entry_id, run.last_entry_id)
    firsts, lasts = as_array(spans) - run.to_position
    return EntryIds(firsts, lasts).cut(run.first_entry_id, run.last_entry_id)


def block_of(run: Run, rows: SortedRows, places: slice | np.ndarray, names: list[str], present: Present) -> pa.Table:
    """Some of the rows, copied if they would keep much more memory."""
    table = rows.table if rows.table.num_columns == len(names) else rows.table.select(names)
    block, entry_ids = taken(table, places), rows.entry_ids[places]
    if isinstance(places, slice) and rows.table.num_rows > 4 * block.num_rows:
        block, entry_ids = block.take(pa.array(np.arange(block.num_rows))), entry_ids.copy()
    present.add(entry_ids, block.column("batch_index"))
    if run.first_position == NO_POSITION:
        return block.append_column("position", pa.nulls(len(entry_ids), pa.int64()))
    return block.append_column("position", pa.array(entry_ids + run.to_position))


def missing_from(wanted: EntryIds, present: Present, search: RunSearch) -> Missing | None:
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


def possible(rows: pa.Table, batch_size: int) -> pa.Table:
    """The rewritten rows with a batch index that is possible."""
    index, is_outside = rows["batch_index"], batch_size == 1
    if not batch_size or (is_outside and index.null_count == rows.num_rows):
        return rows
    inside = pc.and_(pc.greater_equal(index, 0), pc.less(index, batch_size))
    return rows.filter(pc.fill_null(inside, is_outside))


def once(rows: pa.Table) -> pa.Table:
    """*rows* of one publish, the first of each entry and batch index."""
    if rows.num_rows < 2:
        return rows
    places = rows.select(["entry_id", "batch_index"]).append_column("row", pa.array(np.arange(rows.num_rows)))
    kept = places.group_by(["entry_id", "batch_index"]).aggregate([("row", "min")])["row_min"]
    return rows if len(kept) == rows.num_rows else rows.take(kept.sort())
