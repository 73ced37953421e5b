"""Messages of small publishes, from their commits instead of their files.

The commit counts only while the file is as published and there, so that deleted and lost messages stay so.
"""

from collections.abc import Iterable, Sequence

import numpy as np
import pyarrow as pa

from pulsar_spark.protocol.topics.numbering import Run
from pulsar_spark.storage.delta.log import TableLog
from pulsar_spark.storage.delta.reader_rows import MOST_STATED, MOST_STATED_BYTES, Columns, table_of
from pulsar_spark.storage.entries.message_files import ENTRY_COLUMNS
from pulsar_spark.storage.entries.stated_values import files_in, in_turn, is_there
from pulsar_spark.storage.store.store import StrPath
from pulsar_spark.table_specs import MESSAGES

_FILE_BYTES = 2 * MOST_STATED_BYTES
"""Larger files are of rows that no commit states."""
_JOINED = pa.schema(
    [
        *(MESSAGES.schema.field(name) for name in ENTRY_COLUMNS),
        pa.field("ledger_id", pa.int64()),
        pa.field("position", pa.int64()),
    ]
)


def may_be_stated(run: Run) -> bool:
    """Is the publish of *run* small enough that its commit may state its messages?"""
    return 0 < run.entries * run.batch_size <= MOST_STATED and run.bytes <= _FILE_BYTES


def stated_messages(table: StrPath, runs: Sequence[Run]) -> list[Columns | None]:
    """For each of *runs* its messages as its commit states them, in order; None if it does not."""
    log = TableLog(table)

    def of_run(run: Run) -> Columns | None:
        file = files_in(log, run.ledger_id).get(run.path) if may_be_stated(run) else None
        if file is None or file.stated is None:
            return None
        found = _entries_of(file.stated, run)
        return found if found is not None and is_there(table, run) else None

    return list(in_turn(table, of_run, runs))


def _entries_of(stated: Columns, run: Run) -> Columns | None:
    """The rows of *run*; None unless they are all there and in order."""
    ids = stated.get("entry_id", [])
    indexes = stated.get("batch_index") or [None] * len(ids)
    wanted = [
        (entry_id, index or 0)
        for entry_id in range(run.first_entry_id, run.last_entry_id + 1)
        for index in range(run.batch_size)
    ]
    there = [(entry_id, index or 0) for entry_id, index in zip(ids, indexes)]
    if there == wanted:
        return stated
    first = there.index(wanted[0]) if wanted[0] in there else 0
    last = first + len(wanted)
    if there[first:last] != wanted:
        return None
    return {name: values[first:last] for name, values in stated.items()}


def joined(parts: Iterable[tuple[Run, Sequence[tuple[int, int]], Columns]]) -> pa.Table | None:
    """The messages of stated runs within stretches of positions, with ``ledger_id`` and ``position``; None if a value
    does not fit its column."""
    columns: dict[str, list] = {name: [] for name in ("ledger_id", "position")}
    rows = 0
    for run, spans, stated in parts:
        positions = [entry_id + run.to_position for entry_id in stated["entry_id"]]
        if spans[0][0] > positions[0] or spans[-1][1] < positions[-1] or len(spans) > 1:
            kept = [at for at, each in enumerate(positions) if any(first <= each <= last for first, last in spans)]
            stated = {name: [values[at] for at in kept] for name, values in stated.items()}
            positions = [positions[at] for at in kept]
        for name, values in stated.items():
            if (column := columns.get(name)) is None:
                column = columns[name] = [None] * rows
            column += values
        rows += len(positions)
        columns["ledger_id"] += [run.ledger_id] * len(positions)
        columns["position"] += positions
        for column in columns.values():
            column += [None] * (rows - len(column))
    return table_of(columns, rows, _JOINED)


def placed(parts: Sequence[tuple[Run, Sequence[tuple[int, int]]]], rows: pa.Table) -> pa.Table:
    """All *rows* of runs as :func:`joined` makes them, of their stretches of positions."""
    sizes = [run.entries * run.batch_size for run, _ in parts]
    ledger_ids = np.repeat([run.ledger_id for run, _ in parts], sizes)
    positions = rows["entry_id"].to_numpy() + np.repeat([run.to_position for run, _ in parts], sizes)
    found = pa.Table.from_arrays([*rows.columns, pa.array(ledger_ids), pa.array(positions)], schema=_JOINED)
    firsts, lasts = np.array([span for _, spans in parts for span in spans]).T
    is_inside = lasts[np.searchsorted(firsts, positions, "right") - 1] >= positions
    is_inside &= positions >= firsts[0]
    return found if is_inside.all() else found.filter(pa.array(is_inside))
