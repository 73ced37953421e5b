"""The rows of a publish commit, from wherever they are now (see topic_files): for small amounts, read at once.

Rows that trimming or a DELETE took out are nowhere; those whose file was taken by hand are lost, which is an error with
a name, for whoever needs them.
"""

import os
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pulsar_spark.errors import MessagesLost
from pulsar_spark.storage.commits import partition_values
from pulsar_spark.storage.tables import read_file
from pulsar_spark.storage.topic_files import files_of, is_there, read_where
from pulsar_spark.storage.trimmed import trimmed_ledgers
from pulsar_spark.table_specs import MESSAGES

_PLACE = ("publish_id", "entry_id", "batch_index")


class Missing(NamedTuple):
    """Entries of a publish, as (first, last) ids, some of whose messages are not in the table: all of them if the entry
    is in ``whole``."""

    messages: int
    whole: list[tuple[int, int]]
    parts: dict[int, list[int]]
    lost: str | None

    @property
    def is_lost(self) -> bool:
        """Were they taken by hand, and not deleted?"""
        return self.lost is not None


def read_published(
    table: str | os.PathLike,
    path: str,
    publish_id: str,
    first: int,
    last: int,
    columns: list[str] | None = None,
    ledger_id: int = 0,
) -> pa.Table:
    """Entries *first*..*last* (ids) of *publish_id*, commit *ledger_id*, that were published in file *path*, in no
    order: these *columns*, or all.

    What was deleted or trimmed is not among them; :class:`MessagesLost` when some are lost.
    """
    names = columns or MESSAGES.schema.names
    wanted = [*names, *(name for name in _PLACE if name not in names)]

    def read(holder: str) -> pa.Table:
        return entries_of(read_file(table, holder, MESSAGES.schema, wanted), publish_id, first, last)

    found, lost = read_where(table, path, publish_id, ledger_id, read)
    rows = pa.concat_tables(found) if found else MESSAGES.schema.empty_table().select(wanted)
    if len(found) > 1:
        rows = once(rows)
    if lost:
        gone = gaps(pc.unique(rows["entry_id"]).to_numpy(), first, last)
        if gone:
            raise lost_error(table, int(partition_values(path).get("partition", -1)), ledger_id, gone, lost[0])
    return rows.select(names)


def entries_of(rows: pa.Table, publish_id: str, first: int, last: int) -> pa.Table:
    """Those of *rows* that are entries *first*..*last* of a publish: a file may hold several."""
    inside = pc.and_(pc.greater_equal(rows["entry_id"], first), pc.less_equal(rows["entry_id"], last))
    return rows.filter(pc.and_(inside, pc.equal(rows["publish_id"], publish_id)))


def once(rows: pa.Table) -> pa.Table:
    """*rows* of one publish without copies that somebody made of them: the first of each entry and batch index."""
    places = rows.select(["entry_id", "batch_index"]).append_column("row", pa.array(range(rows.num_rows), pa.int64()))
    kept = places.group_by(["entry_id", "batch_index"]).aggregate([("row", "min")])["row_min"]
    return rows if len(kept) == rows.num_rows else rows.take(kept.sort())


def gaps(entry_ids: np.ndarray, first: int, last: int) -> list[tuple[int, int]]:
    """The ids between *first* and *last* that are not among *entry_ids*, as ranges.

    >>> gaps(np.array([3, 4, 7]), 2, 9)
    [(2, 2), (5, 6), (8, 9)]
    """
    known = np.concatenate(([first - 1], np.unique(entry_ids), [last + 1]))
    at = np.nonzero(np.diff(known) > 1)[0]
    return [(int(known[index]) + 1, int(known[index + 1]) - 1) for index in at]


def missing_of(
    table: str | os.PathLike,
    partition: int,
    file,
    first: int,
    last: int,
    batch_size: int | None,
    present: Iterable[tuple[np.ndarray, list]],
    lost: list[str],
) -> Missing | None:
    """What is missing of entries *first*..*last* of *file* (a run, or a file of the log), of which those *present* are
    there: entry ids with batch indexes, block by block. None for nothing, and for what was trimmed."""
    if file.ledger_id <= trimmed_ledgers(table, [partition])[partition]:
        return None
    blocks = list(present)
    entry_ids = np.concatenate([ids for ids, _ in blocks]) if blocks else np.empty(0, np.int64)
    whole = gaps(entry_ids, first, last)
    parts: dict[int, list[int]] = {}
    if batch_size is not None and batch_size > 1:
        ids, counts = np.unique(entry_ids, return_counts=True)
        short = set(ids[counts < batch_size].tolist())
        for block_ids, indexes in blocks:
            for entry_id, index in zip(block_ids.tolist(), indexes):
                if entry_id in short:
                    parts.setdefault(entry_id, []).append(index)
        parts = {entry_id: sorted(set(range(batch_size)) - set(there)) for entry_id, there in parts.items()}
    messages = sum(end - start + 1 for start, end in whole) * (batch_size or 1) + sum(map(len, parts.values()))
    return Missing(messages, whole, parts, lost[0] if lost else None) if messages else None


def find_missing(table: str | os.PathLike, partition: int, run) -> Missing | None:
    """What is not in the table any more of the entries of *run*, without reading them where its file is still the
    table's."""

    def read(holder: str) -> pa.Table | None:
        if holder == run.path:
            if not is_there(f"{table}/{holder}"):
                raise FileNotFoundError(holder)
            return None
        return read_file(table, holder, MESSAGES.schema, list(_PLACE))

    if files_of(table).holders(run.path, run.publish_id, run.ledger_id) == [run.path] and is_there(
        f"{table}/{run.path}"
    ):
        return None
    found, lost = read_where(table, run.path, run.publish_id, run.ledger_id, read)
    if None in [None if rows is None else 0 for rows in found]:
        return None
    last = run.first_entry_id + run.entries - 1
    blocks = []
    for rows in found:
        rows = entries_of(rows, run.publish_id, run.first_entry_id, last)
        blocks.append((rows["entry_id"].to_numpy(), rows["batch_index"].to_pylist()))
    return missing_of(table, partition, run, run.first_entry_id, last, run.batch_size, blocks, lost)


def lost_error(
    table: str | os.PathLike, partition: int, ledger_id: int, ranges: list[tuple[int, int]], path: str
) -> MessagesLost:
    """The error that names lost entries."""
    named = ", ".join(
        f"{ledger_id}:{first}" if first == last else f"{ledger_id}:{first} to {ledger_id}:{last}"
        for first, last in ranges[:5]
    )
    more = f" and {len(ranges) - 5} more stretches" if len(ranges) > 5 else ""
    where = f" of partition {partition}" if partition >= 0 else ""
    text = (
        f"messages {named}{more}{where} of the topic at {str(table)!r} are lost: file {path!r} is gone or "
        "not whole, though nobody took it out of the table; put it back, or skip them with 'pulsar-spark "
        "subscriptions skip-lost TOPIC "
        "-s SUBSCRIPTION'"
    )
    return MessagesLost(text, str(Path(table)), partition, ledger_id, tuple(ranges), path)
