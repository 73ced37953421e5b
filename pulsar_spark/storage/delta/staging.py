"""Files that a Spark job writes beside a table (in a store: within), without its lock; one commit takes them in.

``maintain vacuum`` removes what a crash leaves.
"""

import contextlib
import errno
import threading
from collections import deque
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import NamedTuple

from pyspark.sql import DataFrame, SparkSession

from pulsar_spark.storage.delta.staged_files import StagedFile, StagedFolder
from pulsar_spark.storage.delta.task_files import ByTasks, write_task_files
from pulsar_spark.storage.store.store import AnyPath

_TIMESTAMP_TYPE = "spark.sql.parquet.outputTimestampType"
_FILE_SETTINGS = {
    # What Delta's writer sets too: instants of any year, with statistics.
    _TIMESTAMP_TYPE: "TIMESTAMP_MICROS",
    "spark.sql.parquet.datetimeRebaseModeInWrite": "CORRECTED",
    # The folder then has each finished task's files once. Protocols of platforms also leave files of lost tasks.
    "spark.sql.sources.commitProtocolClass": (
        "org.apache.spark.sql.execution.datasources.SQLHadoopMapReduceCommitProtocol"
    ),
}
_OPTIONS = {"mapreduce.fileoutputcommitter.algorithm.version": "1"}
"""With version 2 a task that is lost while its files are moved leaves some of them."""
_SORTED = {"spark.sql.maxConcurrentOutputFileWriters": "0"}
"""Spark's default: a task writes one file at a time, in the order of the frame's rows."""
_writing = threading.Condition()
_in_use: dict[object, dict[str, "_Setting"]] = {}
"""Settings in use, by JVM session (for which Python may have several objects) and name."""
_waiting: dict[object, deque[object]] = {}


class _Setting(NamedTuple):
    value: str
    before: str | None
    writers: int


@contextlib.contextmanager
def staged(
    rows: DataFrame,
    table: AnyPath,
    partition_by: tuple[str, ...],
    options: Mapping[str, str] = MappingProxyType({}),
    *,
    are_ms: bool = False,
    by_tasks: ByTasks | None = None,
) -> Iterator[list[StagedFile]]:
    """Run *rows* and write them; files not moved into the table are deleted after the block.

    Spark's writer uses *options*, sorts rows by partition, and with *are_ms* writes timestamps in milliseconds. With
    *by_tasks*, tasks write unsorted (see task_files). FileNotFoundError if the driver does not see the files.
    """
    folder = StagedFolder(table)
    try:
        if by_tasks is not None:
            found = [*map(folder.file, write_task_files(rows, folder.path, partition_by, by_tasks))]
        else:
            settings = _FILE_SETTINGS | ({_TIMESTAMP_TYPE: "TIMESTAMP_MILLIS"} if are_ms else {})
            with _file_settings(rows.sparkSession, settings | (_SORTED if partition_by else {})):
                rows.write.options(**_OPTIONS, **options).partitionBy(*partition_by).parquet(str(folder.path))
            found = list(folder.files())
            if not found and not partition_by:  # Spark writes a file even for no rows
                raise FileNotFoundError(errno.ENOENT, "a file that a task wrote is missing", str(folder.path))
        yield [file for file in found if file.rows]
    finally:
        folder.remove()


@contextlib.contextmanager
def _file_settings(spark: SparkSession, settings: Mapping[str, str]) -> Iterator[None]:
    """Change settings of the session until their last writer is done; writers that need other values wait."""
    session = getattr(spark, "_jsparkSession", spark)
    with _writing:
        _await_turn(session, settings)
        in_use = _in_use.setdefault(session, {})
        before = {name: spark.conf.get(name, None) for name in settings if name not in in_use}
        for name in before:
            spark.conf.set(name, settings[name])
        for name, value in settings.items():  # after what may fail: an entry without a writer would block others
            known = in_use.get(name) or _Setting(value, before[name], 0)
            in_use[name] = known._replace(writers=known.writers + 1)
    try:
        yield
    finally:
        with _writing:
            for name in settings:
                in_use[name] = in_use[name]._replace(writers=in_use[name].writers - 1)
            done = {name: in_use.pop(name).before for name in settings if not in_use[name].writers}
            if not in_use:
                del _in_use[session]
            _writing.notify_all()  # others enter only after this block, and must wake even if Spark is gone
            for name, before_it in done.items():
                _set_back(spark, name, before_it)


def _await_turn(session: object, settings: Mapping[str, str]) -> None:
    queue, me = _waiting.setdefault(session, deque()), object()
    queue.append(me)
    try:
        _writing.wait_for(lambda: queue[0] is me and _fits(_in_use.get(session, {}), settings))
    finally:
        queue.remove(me)
        if not queue:
            del _waiting[session]
        _writing.notify_all()


def _fits(in_use: Mapping[str, _Setting], settings: Mapping[str, str]) -> bool:
    return all(name not in in_use or in_use[name].value == value for name, value in settings.items())


def _set_back(spark: SparkSession, name: str, before: str | None) -> None:
    if before is None:
        spark.conf.unset(name)
    else:
        spark.conf.set(name, before)
