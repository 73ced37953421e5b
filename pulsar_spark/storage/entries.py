"""Reading entries by position without a JVM: for small amounts, such as letters and deliver times. Large ones go
through Spark (see slices)."""

from collections.abc import Iterable, Iterator
from functools import lru_cache
from itertools import groupby
from pathlib import Path

import numpy as np
import pyarrow as pa

from pulsar_spark.errors import MessagesLost
from pulsar_spark.protocol.numbering import Run
from pulsar_spark.storage.ledgers import PartitionLedgers
from pulsar_spark.storage.published import read_published


def read_entries(
    table: Path, ledgers: PartitionLedgers, spans: Iterable[tuple[int, int]]
) -> Iterator[tuple[Run, pa.Table]]:
    """The messages of the entries at positions first..last of each span, of which none overlaps the next: run by run,
    the rows of MESSAGES in order of position and batch index. A run is read once, however many spans lie in it."""
    parts = (
        (run, max(first, run.first_position), min(last, run.last_position))
        for first, last in spans
        for run in ledgers.overlapping(first, last)
    )
    for run, group in groupby(parts, key=lambda part: part[0]):
        firsts, lasts = (np.array(ends) - run.first_position + run.first_entry_id for ends in list(zip(*group))[1:])
        rows = read_published(table, run.path, run.publish_id, int(firsts[0]), int(lasts[-1]), ledger_id=run.ledger_id)
        entry_ids = rows["entry_id"].to_numpy()
        is_inside = entry_ids <= lasts[np.searchsorted(firsts, entry_ids, side="right") - 1]
        yield run, rows.filter(pa.array(is_inside)).sort_by([("entry_id", "ascending"), ("batch_index", "ascending")])


@lru_cache(maxsize=1024)
def deliver_times(table: Path, run: Run) -> list[tuple[int, int, int | None]]:
    """(first, last, deliver time in microseconds or None) of a run's entries by position, those of one time joined. An
    entry's first message decides. What is deleted or lost has none: whoever is sent it finds out."""
    last = run.first_entry_id + run.entries - 1
    try:
        rows = read_published(
            table,
            run.path,
            run.publish_id,
            run.first_entry_id,
            last,
            ["entry_id", "batch_index", "deliver_at_time"],
            run.ledger_id,
        )
    except MessagesLost:
        return [(run.first_position, run.last_position, None)]
    rows = rows.sort_by([("entry_id", "ascending"), ("batch_index", "ascending")])
    times = dict(
        zip(reversed(rows["entry_id"].to_pylist()), reversed(rows["deliver_at_time"].cast(pa.int64()).to_pylist()))
    )
    joined: list[tuple[int, int, int | None]] = []
    for entry_id in range(run.first_entry_id, last + 1):
        position = run.first_position + entry_id - run.first_entry_id
        if joined and joined[-1][2] == times.get(entry_id):
            joined[-1] = (joined[-1][0], position, times.get(entry_id))
        else:
            joined.append((position, position, times.get(entry_id)))
    return joined
