"""Read the ``requests`` table commit by commit; unreadable or missing commits come without rows, with the reason."""

from typing import NamedTuple

import pyarrow as pa

from pulsar_spark.errors import CorruptState
from pulsar_spark.storage.delta.data_files import read_added
from pulsar_spark.storage.delta.log import TableLog
from pulsar_spark.storage.store.faults import is_fault_of_disk
from pulsar_spark.storage.store.store import AnyPath
from pulsar_spark.table_specs import REQUESTS

MOST_COMMITS = 1000
MOST_ROWS = 20_000
"""Limits of one reading, in commits and in rows, so that rounds of a returning broker stay short."""


class RequestCommit(NamedTuple):
    """The rows of a commit, in order. ``failure`` says why versions up to ``until`` cannot be read."""

    version: int
    rows: pa.Table
    failure: Exception | None = None
    until: int | None = None

    @property
    def last_version(self) -> int:
        return self.version if self.until is None else self.until


def read_requests(path: AnyPath, *, after: int) -> list[RequestCommit]:
    """Whole commits above *after*, in order, within :data:`MOST_COMMITS` and :data:`MOST_ROWS`; at least one."""
    log, found, rows, version = TableLog(path), list[RequestCommit](), 0, after
    while len(found) < MOST_COMMITS and (not found or rows <= MOST_ROWS):
        if not log.has(version + 1):
            gap = _gap(log, version)
            if gap is None:
                break
            found.append(gap)
        else:
            found.append(read_request_commit(path, version + 1))
        rows += found[-1].rows.num_rows
        version = found[-1].last_version
    if len(found) > 1 and rows > MOST_ROWS:
        found.pop()
    return found


def read_request_commit(path: AnyPath, version: int) -> RequestCommit:
    """One existing commit; faults of the machine are raised."""
    try:
        return RequestCommit(version, read_added(path, TableLog(path).commit(version), REQUESTS.schema))
    except Exception as failure:  # files may contain anything: it is recorded for people
        if is_fault_of_disk(failure):
            raise
        return RequestCommit(version, REQUESTS.schema.empty_table(), failure)


def _gap(log: TableLog, version: int) -> RequestCommit | None:
    later = log.next_there(version + 2)
    if later is None or log.has(version + 1):
        return None
    failure = CorruptState(
        f"{str(log.folder.parent)!r}: commits {version + 1} to {later - 1} are missing from the log although "
        f"{later} exists: restore them if possible"
    )
    return RequestCommit(version + 1, REQUESTS.schema.empty_table(), failure, later - 1)
