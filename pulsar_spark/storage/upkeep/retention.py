"""How long a table's properties promise to keep removed files, and which were removed lately.

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
"""How long files and versions stay at least: longer than a usual lease, and than a reader needs from open to read."""
_TRIES = 10
"""How often :func:`write_promise` tries to commit."""
_OWN_PROMISE = re.compile(r"interval \d+ seconds")
"""The form in which :func:`write_promise` writes an interval. Intervals in another form are not ours, and stay."""
_PART = re.compile(rf"(\d+)\s+({'|'.join(_SECONDS)})s?(?:\s+|$)")


def promised_seconds(table: DeltaTable) -> float:
    """The longest time for which the properties promise to keep files or commits, 0 without a promise;
    :class:`InvalidConfiguration` for an invalid interval."""
    properties = table.metadata().configuration
    return max(
        (_seconds(name, properties[name]) for name in (FILES_PROPERTY, LOG_PROPERTY) if name in properties), default=0
    )


def kept_seconds(table: AnyPath, seconds: float, versions: int | None, now: float) -> float:
    """How many seconds old versions stay: *seconds*. With *versions*, the age of the last so many if that is less, but
    at least :data:`LEAST_SECONDS`."""
    if versions is None:
        return seconds
    log = TableLog(table)
    try:
        age = now - log.file(log.latest() - versions).stat().st_mtime
    except FileNotFoundError:  # there are fewer versions
        return seconds
    return min(seconds, max(age, LEAST_SECONDS))


def removed_since(path: AnyPath, table: DeltaTable, since: float, spared_from: float) -> set[str]:
    """Files that commits removed at *since* (seconds) or later, and that vacuum deletes all the same.

    Vacuum spares those removed after *spared_from*, but only while the table's state lists their removal."""
    interval = table.metadata().configuration.get(FILES_PROPERTY)
    listed_from = time.time() - (_FILES_SECONDS if interval is None else _seconds(FILES_PROPERTY, interval))
    until, removed = max(listed_from, spared_from), set[str]()
    if since < until:
        log = TableLog(path)
        for name, seen in store_of(log.folder).below(log.folder).items():
            for version in versions_of([name]) if since <= seen.st_mtime <= until else ():
                with contextlib.suppress(FileNotFoundError):  # the log was shortened meanwhile, so it is old enough
                    removed |= log.removed_paths(version)
    return removed


def write_promise(path: AnyPath, seconds: int) -> bool:
    """Promise by a commit to keep files for *seconds*. False if the table has this promise or another program's, or if
    other commits took each version that was tried."""
    opened = open_table(path)
    for _ in range(_TRIES):
        if not _needs_promise(opened, seconds):
            return False
        metadata = metadata_of(opened)
        metadata["configuration"] |= {FILES_PROPERTY: f"interval {seconds} seconds"}
        versions, lock = [opened.version() + 1], partial(shared_lock, path)
        operation = "SET TBLPROPERTIES"
        if commit(path, versions, [], {}, metadata=metadata, metadata_operation=operation, lock=lock) is not None:
            return True
        opened.update_incremental()
    return False


def _needs_promise(table: DeltaTable, seconds: int) -> bool:
    """Has the table no promise, or one of ours with another interval?"""
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
