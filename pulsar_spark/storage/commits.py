"""Writing one append commit (or one that removes files, see trimming) to a Delta log: data files first, then the commit file, put in place by a hard link,
which the file system does only once.

Why not through ``deltalake``: its append brings the whole table's file list into play, so it takes 20 ms on a table of 60 commits and 200 to 500 ms on one of
300 to 800, and a broker makes that many in minutes. An append needs none of it: 2 ms, however long the log is (``python -m tests.benchmarks``). What is left
out is what appends of ours never need: schema changes, deletion vectors, column mapping; a table that asks for more than :data:`WRITER_VERSION` is refused.
Every so many commits a checkpoint is made by ``deltalake`` in the background, for those who open the table. Source: the Delta protocol, "Delta Log Entries",
"Actions", "Per-file Statistics".
"""
import json
import os
import sys
import threading
import time
import uuid
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from pulsar_spark.storage.scan import open_table

WRITER_VERSION = 4
CHECKPOINT_EVERY = 100
_STATISTICS_TEXT = 256
_ROW_GROUP_ROWS = 1 << 17
"""So few that a reader with a filter passes over most of a large file."""
_FILE_ROWS, _FILES_AT_ONCE = 1 << 20, 2
_COUNTING = ("first", "last")
"""Positions that mostly count up: as differences they take a fiftieth of the bytes."""
_PARTITION = "partition"
_MICROSECONDS = pa.timestamp("us", tz="UTC")
_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
_FIRST = (datetime.min.replace(tzinfo=timezone.utc) - _EPOCH) // timedelta(microseconds=1)
_LAST = (datetime.max.replace(tzinfo=timezone.utc) - _EPOCH) // timedelta(microseconds=1) - 999
_checkpointing = threading.Lock()


class StagedFile(NamedTuple):
    """A file that was written elsewhere on the table's file system; *name* is to be its path in the table, whose folders name values of partition columns."""

    source: Path
    name: str
    statistics: dict

    @property
    def rows(self) -> int:
        return self.statistics["numRecords"]


def place_files(table: Path, staged: Iterable[StagedFile]) -> list[dict]:
    """Move staged files into the table; their ``add`` actions."""
    adds = []
    for file in staged:
        (table / file.name).parent.mkdir(exist_ok=True)
        os.rename(file.source, table / file.name)
        adds.append(_add(table, file.name, partition_values(file.name), file.statistics))
    return adds


def write_files(table: Path, rows: pa.Table, is_partitioned: bool) -> list[dict]:
    """Write *rows* as Parquet files, one per partition if the table has partitions, more where there are millions of rows; their ``add`` actions."""
    pieces = []
    for folder, values, part in _parts(rows, is_partitioned):
        (table / folder).mkdir(exist_ok=True)
        pieces += [(folder, values, part.slice(first, _FILE_ROWS)) for first in range(0, max(part.num_rows, 1), _FILE_ROWS)]
    if rows.num_rows <= _FILE_ROWS:
        return [_write_file(table, *piece) for piece in pieces]
    with ThreadPoolExecutor(_FILES_AT_ONCE) as pool:
        return list(pool.map(lambda piece: _write_file(table, *piece), pieces))


def _write_file(table: Path, folder: str, values: dict[str, str], rows: pa.Table) -> dict:
    path = f"{folder}part-00000-{uuid.uuid4()}-c000.snappy.parquet"
    counting = [name for name in _COUNTING if name in rows.schema.names]
    pq.write_table(rows, table / path, compression="snappy", store_schema=False, row_group_size=_ROW_GROUP_ROWS,
                   use_dictionary=[leaf for leaf in _leaves(rows.schema) if leaf not in counting],
                   column_encoding=dict.fromkeys(counting, "DELTA_BINARY_PACKED"))
    return _add(table, path, values, statistics(rows))


def _leaves(schema: pa.Schema) -> Iterator[str]:
    """Columns as Parquet knows them, where a map is two and a list another."""
    for field in schema:
        below = ("key_value.key", "key_value.value") if pa.types.is_map(field.type) else ("list.element",) if pa.types.is_list(field.type) else ()
        yield from (f"{field.name}.{leaf}" for leaf in below) if below else (field.name,)


def _add(table: Path, path: str, values: dict[str, str], of_file: dict) -> dict:
    return {"path": path, "partitionValues": values, "size": os.path.getsize(table / path), "modificationTime": _now_ms(), "dataChange": True,
            "stats": json.dumps(of_file)}


def partition_values(path: str) -> dict[str, str]:
    """Partition columns of a data file, as the names of its folders say them."""
    return dict(part.split("=", 1) for part in path.split("/")[:-1] if "=" in part)


def commit(table: Path, version: int, adds: list[dict], transactions: dict[str, int], removes: Sequence[dict] = ()) -> bool:
    """Put the commit of *version* in place; False when that version exists. Call it under the table's append lock.

    *removes* are path, size and partitionValues of files that leave the table."""
    operation = {"operation": "DELETE", "operationParameters": {}} if removes else {"operation": "WRITE", "operationParameters": {"mode": "Append"}}
    actions = [{"commitInfo": {"timestamp": _now_ms(), **operation, "isBlindAppend": not removes, "engineInfo": "pulsar_spark"}}]
    actions += [{"txn": {"appId": app_id, "version": number, "lastUpdated": _now_ms()}} for app_id, number in transactions.items()]
    actions += [{"add": add} for add in adds]
    actions += [{"remove": {**remove, "deletionTimestamp": _now_ms(), "dataChange": True, "extendedFileMetadata": True}} for remove in removes]
    log = table / "_delta_log"
    fresh = log / f".{version:020d}.{uuid.uuid4().hex}.tmp"
    fresh.write_text("\n".join(map(json.dumps, actions)) + "\n")
    try:
        os.link(fresh, log / f"{version:020d}.json")
    except FileExistsError:
        return False
    finally:
        fresh.unlink()
    if version % CHECKPOINT_EVERY == 0:
        threading.Thread(target=_checkpoint, args=(table,), name=f"checkpoint {table.name}").start()
    return True


def statistics(rows: pa.Table) -> dict:
    """Delta's statistics of a file: row count, nulls of every plain column, least and greatest of numbers, instants and texts.

    Instants are kept to the millisecond and texts to a number of characters, rounded outwards, so that no row lies outside what they say. Every text has them,
    because ``deltalake`` takes a column with nulls counted but no bounds for one that matches no filter.
    """
    least, greatest, nulls = {}, {}, {}
    for field, column in zip(rows.schema, rows.columns):
        if pa.types.is_nested(field.type):
            continue
        nulls[field.name] = column.null_count
        is_text = pa.types.is_string(field.type)
        if column.null_count == rows.num_rows or not (pa.types.is_integer(field.type) or pa.types.is_timestamp(field.type) or is_text):
            continue
        is_instant = pa.types.is_timestamp(field.type)
        bounds = pc.min_max(column.cast(_MICROSECONDS).cast(pa.int64()) if is_instant else column).as_py()
        low, high = (_datetime(bounds[name]) if is_instant else bounds[name] for name in ("min", "max"))
        least[field.name], greatest[field.name] = _at_most(low), _at_least(high)
    return {"numRecords": rows.num_rows, "minValues": least, "maxValues": greatest, "nullCount": nulls}


def file_statistics(footer: pq.FileMetaData) -> dict:
    """The same of a Parquet file, from its footer, with instants in microseconds; of a text too long for the footer nothing is said, not even its nulls."""
    least, greatest, nulls = {}, {}, {}
    groups = [footer.row_group(index) for index in range(footer.num_row_groups)]
    for number in range(footer.num_columns):
        column = footer.schema.column(number)
        found = [group.column(number).statistics for group in groups]
        if "." in column.path or any(each is None or not each.has_null_count for each in found):
            continue
        nulls[column.path] = sum(each.null_count for each in found)
        bounds = [_bounds(each, column.logical_type.type) for each in found if each.has_min_max]
        if bounds and None not in bounds:
            least[column.path] = _at_most(min(low for low, _ in bounds))
            greatest[column.path] = _at_least(max(high for _, high in bounds))
    return {"numRecords": footer.num_rows, "minValues": least, "maxValues": greatest, "nullCount": nulls}


def _bounds(found: pq.Statistics, logical_type: str) -> tuple | None:
    """Least and greatest value of integers, instants (whose year Python may not know) and texts."""
    if logical_type == "TIMESTAMP":
        return _datetime(found.min_raw), _datetime(found.max_raw)
    is_bounded = isinstance(found.min, int | str) and not isinstance(found.min, bool)
    return (found.min, found.max) if is_bounded else None


def _parts(rows: pa.Table, is_partitioned: bool) -> Iterator[tuple[str, dict[str, str], pa.Table]]:
    if not is_partitioned:
        yield "", {}, rows
        return
    data = rows.drop_columns([_PARTITION])
    for value in pc.unique(rows[_PARTITION]).to_pylist():
        yield f"{_PARTITION}={value}/", {_PARTITION: str(value)}, data.filter(pc.equal(rows[_PARTITION], value))


def _at_most(value: int | str | datetime) -> int | str:
    if isinstance(value, str):
        return value[:_STATISTICS_TEXT]
    return _instant(value) if isinstance(value, datetime) else value


def _at_least(value: int | str | datetime) -> int | str:
    if isinstance(value, str):
        return value if len(value) <= _STATISTICS_TEXT else value[:_STATISTICS_TEXT] + chr(sys.maxunicode)
    return _instant(value + timedelta(microseconds=999)) if isinstance(value, datetime) else value


def _datetime(micros: int) -> datetime:
    """The instant, or the end of Python's calendar where it lies beyond: tables and Spark know earlier and later ones."""
    return _EPOCH + timedelta(microseconds=min(max(micros, _FIRST), _LAST))


def _instant(value: datetime) -> str:
    return value.isoformat(timespec="milliseconds").removesuffix("+00:00") + "Z"


def _checkpoint(table: Path) -> None:
    """Make a checkpoint of the table as it is. One at a time; a table deleted meanwhile needs none."""
    with _checkpointing:
        if (table / "_delta_log").is_dir():
            open_table(table).create_checkpoint()


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
