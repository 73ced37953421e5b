"""Files that Spark writes for a table, beside it and without its lock; one commit takes them in, as
:meth:`AppendTable.append_staged` does.

Why not Delta's own writer: on a local file system its commit checks and then renames, so the whole write, however long,
would have to hold the lock that every append takes, and clients would wait for it. It also collects statistics row by
row, which takes a fifth of an append; here they come from the files' footers.

A crash leaves the folder of the files, which nobody reads; ``maintain vacuum`` takes it away when nothing in it has
changed for as long as other files are kept.
"""

import contextlib
import shutil
import threading
import uuid
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import MappingProxyType

import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession

from pulsar_spark.storage.data_files import StagedFile, staging_folder
from pulsar_spark.storage.file_statistics import staged_statistics

_TIMESTAMP_TYPE = "spark.sql.parquet.outputTimestampType"
_FILE_SETTINGS = {_TIMESTAMP_TYPE: "TIMESTAMP_MICROS", "spark.sql.parquet.datetimeRebaseModeInWrite": "CORRECTED"}
"""What Delta's writer sets too: instants of any year, with statistics."""
_writing = threading.Lock()
_writers: dict[int, tuple[int, dict[str, str | None]]] = {}


@contextlib.contextmanager
def staged(
    rows: DataFrame,
    table: Path,
    partition_by: tuple[str, ...],
    options: Mapping[str, str] = MappingProxyType({}),
    *,
    are_ms: bool = False,
) -> Iterator[list[StagedFile]]:
    """Run *rows* and write them, with *options* of Spark's writer; the files, none for no rows, stay until the end of
    the ``with`` unless they were moved into the table. With *are_ms* timestamps are written in milliseconds, by a
    session in which nobody else writes."""
    folder = staging_folder(table) / uuid.uuid4().hex
    try:
        settings = _FILE_SETTINGS | ({_TIMESTAMP_TYPE: "TIMESTAMP_MILLIS"} if are_ms else {})
        with _file_settings(rows.sparkSession, settings):
            rows.write.options(**options).partitionBy(*partition_by).parquet(str(folder))
        found = (
            StagedFile(path, str(path.relative_to(folder)), staged_statistics(pq.read_metadata(path)))
            for path in sorted(folder.rglob("*.parquet"))
        )
        yield [file for file in found if file.rows]
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextlib.contextmanager
def _file_settings(spark: SparkSession, settings: Mapping[str, str]) -> Iterator[None]:
    """Settings that Spark takes from the session only, set back when the last one who writes is done."""
    with _writing:
        writers, before = _writers.get(id(spark), (0, {}))
        if not writers:
            before = {name: spark.conf.get(name, None) for name in settings}
            for name, value in settings.items():
                spark.conf.set(name, value)
        _writers[id(spark)] = writers + 1, before
    try:
        yield
    finally:
        with _writing:
            writers, before = _writers.pop(id(spark))
            if writers > 1:
                _writers[id(spark)] = writers - 1, before
            else:
                for name, value in before.items():
                    if value is None:
                        spark.conf.unset(name)
                    else:
                        spark.conf.set(name, value)
