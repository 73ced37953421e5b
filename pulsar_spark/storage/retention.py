"""How long a table's own properties promise that files stay which left it, and which left it lately.

A table's state forgets who left it when ``delta.deletedFileRetentionDuration`` is over; who promises more finds it in
the commits. Source: the Delta protocol, "Remove File and Add Deletion Vector", "Metadata Cleanup"; the properties'
values are intervals of Spark.

Delta's default of that is a week, and each checkpoint repeats who left the table for so long: of the broker's own
tables, which lose files with every few rounds, that would be nearly all that it holds. So these are told how long their
files stay at least (:func:`tell_promise`), which is minutes (see kept_tables). Under many rounds they make versions
faster than anybody looks back to, so there so many versions are enough (:func:`looked_back`).
"""

import re
import time
from functools import partial
from urllib.parse import unquote

from deltalake import DeltaTable

from pulsar_spark.errors import InvalidConfiguration
from pulsar_spark.storage.commits import commit
from pulsar_spark.storage.log import TableLog
from pulsar_spark.storage.scan import metadata_of, open_table
from pulsar_spark.storage.store import AnyPath
from pulsar_spark.storage.table_lock import shared_lock

FILES_PROPERTY, LOG_PROPERTY = "delta.deletedFileRetentionDuration", "delta.logRetentionDuration"
_FILES_SECONDS = 7 * 24 * 60 * 60
"""Delta's default of the first."""
_SECONDS = {"microsecond": 1e-6, "millisecond": 1e-3, "second": 1, "minute": 60, "hour": 3600, "day": 86_400}
_SECONDS["week"] = 7 * _SECONDS["day"]
LEAST_SECONDS = 5 * 60
"""So long files and versions stay at least where so many versions are enough: longer than a reader takes from opening a
table to reading it, and than clients are away whose leases are of the usual length."""
_TRIES = 10
_TOLD = re.compile(r"interval \d+ seconds")
"""How :func:`tell_promise` says it; what is said otherwise somebody else has said."""
_PART = re.compile(rf"(\d+)\s+({'|'.join(_SECONDS)})s?(?:\s+|$)")


def promised_seconds(table: DeltaTable) -> float:
    """How long the table's properties say that files and commits stay, 0 where they say nothing;
    :class:`InvalidConfiguration` for what is no interval."""
    said = table.metadata().configuration
    return max((_seconds(name, said[name]) for name in (FILES_PROPERTY, LOG_PROPERTY) if name in said), default=0)


def looked_back(table: AnyPath, seconds: float, versions: int | None, now: float) -> float:
    """For how many seconds before *now* versions of the table stay: so many *seconds*, or where *versions* are enough
    and were made within these, as long as these took, but :data:`LEAST_SECONDS`."""
    if versions is None:
        return seconds
    log = TableLog(table)
    try:
        made = now - log.file(log.latest() - versions).stat().st_mtime
    except FileNotFoundError:  # there never were so many, or the log begins later
        return seconds
    return min(seconds, max(made, LEAST_SECONDS))


def left_since(path: AnyPath, table: DeltaTable, before: float, told: float) -> set[str]:
    """Paths of the files that left the *table* at *path* after the instant *before* (in seconds), but so long ago that
    its state may not say so, or before the instant *told*."""
    said = table.metadata().configuration
    known = time.time() - (_seconds(FILES_PROPERTY, said[FILES_PROPERTY]) if FILES_PROPERTY in said else _FILES_SECONDS)
    known = max(known, told)
    log, left = TableLog(path), set()
    for version, written in log.written().items() if before < known else ():
        try:
            if before <= written <= known and log.may_remove(version):
                left.update(each for path in log.removed_paths(version) for each in (path, unquote(path)))
        except FileNotFoundError:  # the log was shortened meanwhile: it is older than anybody asked for
            continue
    return left


def tell_promise(path: AnyPath, seconds: int) -> bool:
    """Let the property of the table at *path* say that files stay for so many *seconds*, by a commit to its log that
    changes no data, unless it does or somebody else has said how long. Was it said now? Not where others append so
    quickly that no version was free.

    A crash leaves the table as it was, or told."""
    opened = open_table(path)
    for _ in range(_TRIES):
        if not _is_untold(opened, seconds):
            return False
        metadata = metadata_of(opened)
        metadata["configuration"] |= {FILES_PROPERTY: f"interval {seconds} seconds"}
        versions, held = [opened.version() + 1], partial(shared_lock, path)
        if (
            commit(path, versions, [], {}, metadata=metadata, metadata_operation="SET TBLPROPERTIES", held=held)
            is not None
        ):
            return True
        opened.update_incremental()
    return False


def _is_untold(table: DeltaTable, seconds: int) -> bool:
    said = table.metadata().configuration.get(FILES_PROPERTY)
    return said is None or (_TOLD.fullmatch(said) is not None and said != f"interval {seconds} seconds")


def _seconds(name: str, interval: str) -> float:
    text = interval.strip().lower().removeprefix("interval").strip()
    parts = _PART.findall(text)
    if not parts or _PART.sub("", text):
        raise InvalidConfiguration(
            f"table property {name} {interval!r}: give an interval of weeks, days, hours, minutes and seconds, such as "
            "'interval 30 days'"
        )
    return sum(int(number) * _SECONDS[unit] for number, unit in parts)
