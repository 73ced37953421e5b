"""Delta's statistics of a data file, from its rows or footer. Source: the Delta protocol, "Per-file Statistics"."""

import json
import sys
from collections.abc import Mapping
from datetime import datetime, timedelta, timezone
from types import MappingProxyType

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from pulsar_spark.protocol.delays.instants import FIRST_MICROS, LAST_MICROS, from_micros, to_micros
from pulsar_spark.table_specs import MESSAGE_KEYS

_STATISTICS_TEXT = 256
_MICROSECONDS = pa.timestamp("us", tz="UTC")
_LAST = LAST_MICROS - 999
"""The last instant that statistics can round up."""


def statistics(rows: pa.Table, few: Mapping[str, list] = MappingProxyType({})) -> dict:
    """Row count, null counts and bounds (of numbers, instants, texts) of *rows*; *few* has the values of few rows.

    Bounds of instants and long texts are rounded outwards. ``deltalake`` skips files with null counts but no bounds, so
    every text column has bounds.
    """
    least, greatest, nulls = {}, {}, {}
    for name, column in zip(rows.column_names, rows.columns):
        kind = column.type
        if pa.types.is_nested(kind):
            continue
        nulls[name] = column.null_count
        is_instant = pa.types.is_timestamp(kind)
        if nulls[name] < rows.num_rows and (is_instant or pa.types.is_integer(kind) or pa.types.is_string(kind)):
            if name in few:
                values = [value for value in few[name] if value is not None]
                low, high = min(values), max(values)
            else:
                low, high = pc.min_max(_micros(column) if is_instant else column).as_py().values()
            low, high = (_datetime(low), _datetime(high)) if is_instant else (low, high)
            least[name], greatest[name] = _at_most(low), _at_least(high)
    return {"numRecords": rows.num_rows, "minValues": least, "maxValues": greatest, "nullCount": nulls}


def _micros(column: pa.ChunkedArray) -> pa.ChunkedArray:
    return (column if column.type == _MICROSECONDS else column.cast(_MICROSECONDS)).cast(pa.int64())


def footer_schema(footer: pq.FileMetaData) -> pq.ParquetSchema:
    """The schema of a footer; ``footer.schema`` has a reference cycle that keeps native memory."""
    return pq.ParquetSchema(footer)


def footer_columns(footer: pq.FileMetaData) -> list[str]:
    schema = footer_schema(footer)
    return [schema.column(number).path for number in range(footer.num_columns)]


def group_bounds(footer: pq.FileMetaData, name: str) -> list[tuple | None]:
    """Bounds of a column in each row group; None if a group states none."""
    paths = footer_columns(footer)
    if name not in paths:
        return [None] * footer.num_row_groups
    index = paths.index(name)
    found = [footer.row_group(number).column(index).statistics for number in range(footer.num_row_groups)]
    return [(each.min, each.max) if each is not None and each.has_min_max else None for each in found]


def groups_without_nulls(footer: pq.FileMetaData, name: str) -> list[bool]:
    index = footer_columns(footer).index(name)
    found = [footer.row_group(number).column(index).statistics for number in range(footer.num_row_groups)]
    return [each is not None and each.has_null_count and each.null_count == 0 for each in found]


def empty_columns(footer: pq.FileMetaData) -> set[str]:
    """The plain columns that are null in all rows, by the footer."""
    found: set[str] | None = None
    for group in map(footer.row_group, range(footer.num_row_groups)):
        columns = ((column.path_in_schema, column.statistics) for column in map(group.column, range(group.num_columns)))
        empty = {
            path
            for path, found in columns
            if "." not in path and found is not None and found.has_null_count and found.null_count == group.num_rows
        }
        found = empty if found is None else found & empty
    return found or set()


def file_statistics(footer: pq.FileMetaData) -> dict:
    """Statistics of a Parquet file from its footer; columns whose texts are too long for it have none."""
    least, greatest, nulls = {}, {}, {}
    groups, schema = [footer.row_group(index) for index in range(footer.num_row_groups)], footer_schema(footer)
    for number in range(footer.num_columns):
        column = schema.column(number)
        found = [group.column(number).statistics for group in groups]
        if "." in column.path or any(each is None or not each.has_null_count for each in found):
            continue
        nulls[column.path] = sum(each.null_count for each in found)
        bounds = [_bounds(each, column.logical_type) for each in found if each.has_min_max]
        known = [each for each in bounds if each is not None]
        if known and len(known) == len(bounds):
            least[column.path] = _at_most(min(low for low, _ in known))
            greatest[column.path] = _at_least(max(high for _, high in known))
    return {"numRecords": footer.num_rows, "minValues": least, "maxValues": greatest, "nullCount": nulls}


def staged_statistics(footer: pq.FileMetaData) -> dict:
    """Statistics of a staged file of messages; absent key columns count as all null."""
    found = file_statistics(footer)
    there = footer_columns(footer)
    found["nullCount"] |= {name: footer.num_rows for name in MESSAGE_KEYS if name not in there}
    return found


def _bounds(found: pq.Statistics, logical_type: pq.ParquetLogicalType) -> tuple | None:
    if logical_type.type == "TIMESTAMP":
        unit = 1000 if json.loads(logical_type.to_json())["timeUnit"] == "milliseconds" else 1
        return _datetime(found.min_raw * unit), _datetime(found.max_raw * unit)
    is_bounded = isinstance(found.min, int | str) and not isinstance(found.min, bool)
    return (found.min, found.max) if is_bounded else None


def _at_most(value: int | str | datetime) -> int | str:
    if isinstance(value, str):
        return value[:_STATISTICS_TEXT]
    return _instant(value) if isinstance(value, datetime) else value


def _at_least(value: int | str | datetime) -> int | str:
    if isinstance(value, str):
        return value if len(value) <= _STATISTICS_TEXT else value[:_STATISTICS_TEXT] + chr(sys.maxunicode)
    return _instant(value + timedelta(microseconds=999)) if isinstance(value, datetime) else value


def _datetime(micros: int) -> datetime:
    """The instant, or the nearest in Python's calendar."""
    return from_micros(min(max(micros, FIRST_MICROS), _LAST))


def _instant(value: datetime) -> str:
    return value.isoformat(timespec="milliseconds").removesuffix("+00:00") + "Z"


def instant_of(text: str | None) -> datetime | None:
    """The instant in statistics; None if there is none."""
    found = datetime.fromisoformat(text) if text else None
    return found.replace(tzinfo=timezone.utc) if found is not None and found.tzinfo is None else found


def is_beyond_calendar(instant: datetime) -> bool:
    """Whether *instant* may stand for one beyond Python's calendar."""
    return not FIRST_MICROS < to_micros(instant) < _LAST
