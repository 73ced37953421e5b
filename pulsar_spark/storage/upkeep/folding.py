"""Fold the samples of the table ``activity``.

Of those older than a day the last of each hour stays, of those older than 14 days the last of each day, and of those
older than 90 days the last one, from which later differences count.
"""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable

from pulsar_spark.storage.delta.data_files import read_file, remove_files, write_files
from pulsar_spark.storage.delta.tables import AppendTable
from pulsar_spark.storage.ledgers.packed_columns import numbers
from pulsar_spark.storage.store.store import AnyPath
from pulsar_spark.storage.upkeep.joining import files_of, remove_of
from pulsar_spark.table_specs import ACTIVITY

HOUR, DAY = 3_600_000_000, 86_400_000_000
LEVELS = ((DAY, HOUR), (14 * DAY, DAY), (90 * DAY, 1 << 62))
"""From which age on (microseconds) one sample stays in each stretch of so many."""
_KEYS = ["minute_time", "round", "topic_id", "partition", "subscription"]
WORTH = 0.1
"""The share of the rows that must go for files to be written anew."""


def fold(table: AnyPath, opened: DeltaTable, now: float) -> int:
    """Fold samples as of *now* (seconds since 1970); returns how many files were replaced."""
    files = files_of(opened)
    if not files:
        return 0
    keys = [
        read_file(table, file.path, ACTIVITY.schema, _KEYS) for file in files
    ]  # all columns are read of what stays alone
    are_staying = are_kept(pa.concat_tables(keys).combine_chunks(), int(now * 1_000_000))
    if np.count_nonzero(~are_staying) <= WORTH * len(are_staying):
        return 0
    of_files = np.split(are_staying, np.cumsum([rows.num_rows for rows in keys])[:-1])
    kept = [
        read_file(table, file.path, ACTIVITY.schema).filter(pa.array(are_staying))
        for file, are_staying in zip(files, of_files, strict=True)
        if are_staying.any()
    ]
    adds = write_files(table, pa.concat_tables(kept), False)
    removes = [remove_of(file) for file in files]
    if AppendTable(table).replace_files(adds, removes, opened.version(), drops_rows=True) is None:
        remove_files(table, adds)
        return 0
    return len(files)


def are_kept(rows: pa.Table, now: int) -> np.ndarray:
    """Which samples stay at *now* (microseconds)."""
    times, rounds = (numbers(rows[name].combine_chunks()) for name in ("minute_time", "round"))
    stretches = times.copy()
    for age, length in LEVELS:
        is_old = times <= now - age
        stretches[is_old] = -1 - times[is_old] // length  # below 0, so that no minute is meant
    names = ("topic_id", "partition", "subscription")
    places = [pc.dictionary_encode(rows[name].combine_chunks(), "encode").indices.to_numpy() for name in names]
    order = np.lexsort((rounds, times, stretches, *places))
    columns = [column[order] for column in (stretches, *places)]
    is_last = np.zeros(len(order), bool)
    is_last[-1:] = True
    for column in columns:
        is_last[:-1] |= column[1:] != column[:-1]
    kept = np.empty(len(order), bool)
    kept[order] = is_last
    return kept
