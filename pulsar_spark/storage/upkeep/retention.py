"""How long a table's properties promise to keep removed files, and which left lately.

Source: the Delta protocol, "Remove File and Add Deletion Vector", "Metadata Cleanup".
"""

import contextlib
import re
import time
from functools import partial

from deltalake import DeltaTable

from pulsar_spark.errors import InvalidConfiguration
from pulsar_spark.storage.delta.commits import commit
from pulsar_spark.storage.delta.log import TableLog, versions_of
from pulsar_spark.storage.delta.scan import metadata_of, open_table
from pulsar_spark.storage.delta.table_lock import shared_lock
from pulsar_spark.storage.store.store import AnyPath, store_of

FILES_PROPERTY, LOG_PROPERTY = "delta.deletedFileRetentionDuration", "delta.logRetentionDuration"
_FILES_SECONDS = 7 * 24 * 60 * 60
"""Delta's default of FILES_PROPERTY."""
_SECONDS = {"microsecond": 1e-6, "millisecond": 1e-3, "second": 1, "minute": 60, "hour": 3600, "day": 86_400}
_SECONDS["week"] = 7 * _SECONDS["day"]
LEAST_SECONDS = 5 * 60
"""How long files and versions stay at least: longer than a reader needs from open to read, and a usual lease."""
_TRIES = 10
_OWN_PROMISE = re.compile(r"interval \d+ seconds")
"""As :func:`write_promise` writes it, and no other program."""
_PART = re.compile(rf"(\d+)\s+({'|'.join(_SECONDS)})s?(?:\s+|$)")


def promised_seconds(table: DeltaTable) -> float:
    """How long the properties promise to keep files and commits, else 0; :class:`InvalidConfiguration` if invalid."""
    properties = table.metadata().configuration
    return max(
        (_seconds(name, properties[name]) for name in (FILES_PROPERTY, LOG_PROPERTY) if name in properties), default=0
    )


def looked_back(table: AnyPath, seconds: float, versions: int | None, now: float) -> float:
    """How many seconds versions stay: *seconds*, or the age of the last *versions*, at least :data:`LEAST_SECONDS`."""
    if versions is None:
        return seconds
    log = TableLog(table)
    try:
        made = now - log.file(log.latest() - versions).stat().st_mtime
    except FileNotFoundError:  # there are fewer versions
        return seconds
    return min(seconds, max(made, LEAST_SECONDS))


def left_since(path: AnyPath, table: DeltaTable, before: float, promised_from: float) -> set[str]:
    """Files that left after *before* (seconds), unless the state lists them and they left after *promised_from*."""
    interval = table.metadata().configuration.get(FILES_PROPERTY)
    known = time.time() - (_FILES_SECONDS if interval is None else _seconds(FILES_PROPERTY, interval))
    known, left = max(known, promised_from), set[str]()
    if before < known:
        log = TableLog(path)
        for name, seen in store_of(log.folder).below(log.folder).items():
            for version in versions_of([name]) if before <= seen.st_mtime <= known else ():
                with contextlib.suppress(FileNotFoundError):  # the log was shortened meanwhile, so it is old enough
                    left |= log.removed_paths(version)
    return left


def write_promise(path: AnyPath, seconds: int) -> bool:
    """Promise by a commit to keep files for *seconds*; False if it stands there, or if others took all versions."""
    opened = open_table(path)
    for _ in range(_TRIES):
        if not _may_promise(opened, seconds):
            return False
        metadata = metadata_of(opened)
        metadata["configuration"] |= {FILES_PROPERTY: f"interval {seconds} seconds"}
        versions, lock = [opened.version() + 1], partial(shared_lock, path)
        operation = "SET TBLPROPERTIES"
        if commit(path, versions, [], {}, metadata=metadata, metadata_operation=operation, lock=lock) is not None:
            return True
        opened.update_incremental()
    return False


def _may_promise(table: DeltaTable, seconds: int) -> bool:
    interval = table.metadata().configuration.get(FILES_PROPERTY)
    return interval is None or (
        _OWN_PROMISE.fullmatch(interval) is not None and interval != f"interval {seconds} seconds"
    )


def _seconds(name: str, interval: str) -> float:
    text = interval.strip().lower().removeprefix("interval").strip()
    parts = _PART.findall(text)
    if not parts or _PART.sub("", text):
        raise InvalidConfiguration(
            f"table property {name} {interval!r}: give an interval of weeks, days, hours, minutes and seconds, such as "
            "'interval 30 days'"
        )
    return sum(int(number) * _SECONDS[unit] for number, unit in parts)
