"""A topic's publish commits, each whole, in columns: the input of trimming. There may be millions."""

from bisect import bisect_right
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pulsar_spark.errors import CorruptState
from pulsar_spark.protocol.topics.numbering import NO_POSITION
from pulsar_spark.storage.delta.scan import open_table
from pulsar_spark.storage.delta.table_parts import term
from pulsar_spark.storage.layout import Layout
from pulsar_spark.storage.ledgers.ledgers import groups, stored_rows
from pulsar_spark.storage.ledgers.packed_columns import numbers
from pulsar_spark.table_specs import LEDGERS

_COLUMNS = ("partition", "first_position", "entries", "ledger_id", "publish_id", "bytes", "max_publish_time")


class WholeLedgers(NamedTuple):
    """A partition's ledgers, with last publish times (microseconds, 0: unknown); then ledger and publish id by run."""

    ledger_ids: np.ndarray
    last_positions: np.ndarray
    bytes: np.ndarray
    published: np.ndarray
    run_ledger_ids: np.ndarray
    publish_ids: pa.Array

    def first_after(self, ledger_id: int) -> int:
        """Position of the first entry of a later ledger; else the end position."""
        at = bisect_right(self.ledger_ids, ledger_id)
        return int(self.last_positions[at - 1]) + 1 if at else 0

    @property
    def end_position(self) -> int:
        return int(self.last_positions[-1]) + 1 if len(self.last_positions) else 0


_NUMBERS = np.empty(0, np.int64)
NOTHING = WholeLedgers(_NUMBERS, _NUMBERS, _NUMBERS, _NUMBERS, _NUMBERS, pa.array([], pa.string()))


def whole_ledgers(layout: Layout, topic_id: str) -> dict[int, WholeLedgers]:
    """A topic's numbered ledgers by partition; :class:`CorruptState` if some are missing."""
    wanted = [term("topic_id", "==", topic_id), term("first_position", ">", NO_POSITION)]
    opened = open_table(layout.broker_table(LEDGERS.name))
    partitions = dict(groups(stored_rows(opened, _COLUMNS, wanted), "partition"))
    if any(pc.count_distinct(rows["ledger_id"]).as_py() < rows.num_rows for rows in partitions.values()):
        partitions = dict(groups(stored_rows(opened, (*_COLUMNS, "path"), wanted), "partition"))
    return {partition: _whole(rows) for partition, rows in partitions.items()}


def _whole(rows: pa.Table) -> WholeLedgers:
    rows = rows.sort_by("first_position").combine_chunks()
    firsts = numbers(rows["first_position"].combine_chunks())
    is_first = np.diff(firsts, prepend=-1) > 0  # repeated rows are equal
    if not is_first.all():
        rows, firsts = rows.filter(pa.array(is_first)), firsts[is_first]
    ends = firsts + numbers(rows["entries"].combine_chunks())
    begins = np.concatenate([[0], ends[:-1]])
    if (gaps := np.flatnonzero(firsts != begins)).size:
        raise CorruptState(
            f"positions {begins[gaps[0]]} to {firsts[gaps[0]] - 1} are missing: rebuild the ledgers table"
        )
    ledger_ids = numbers(rows["ledger_id"].combine_chunks())
    starts = np.flatnonzero(np.diff(ledger_ids, prepend=ledger_ids[0] - 1))
    lasts = np.append(starts[1:], len(ledger_ids)) - 1
    published = numbers(rows["max_publish_time"].combine_chunks())
    return WholeLedgers(
        ledger_ids[starts],
        ends[lasts] - 1,
        _bytes(rows, ledger_ids, starts),
        np.maximum.reduceat(published, starts),
        ledger_ids,
        rows["publish_id"].combine_chunks(),
    )


def _bytes(rows: pa.Table, ledger_ids: np.ndarray, starts: np.ndarray) -> np.ndarray:
    sizes = numbers(rows["bytes"].combine_chunks())
    if len(starts) == len(sizes):
        return sizes
    files = numbers(rows["path"].combine_chunks().dictionary_encode().indices)
    _, once = np.unique(np.stack([ledger_ids, files]), axis=1, return_index=True)
    return np.add.reduceat(np.where(np.isin(np.arange(len(sizes)), once), sizes, 0), starts)
