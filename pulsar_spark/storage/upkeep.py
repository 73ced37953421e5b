"""Keeping tables quick to open and to scan: fewer, larger files, no files nobody can see any more, and checkpoints of
the log. For schedulers, not for brokers.

OPTIMIZE and vacuum change no data, so whoever follows versions passes their commits over (design 3.4, rules 6 and 9).
What may still name a file by its path finds the rows by their publish id or round when vacuum has taken it; two things
do not: a client that follows the broker's tables looks at a commit's file within seconds, and a broker reads requests
when it comes to them. Hence the guard of :func:`vacuum`: files stay for an hour at least, and those of requests while
any wait for a broker.
"""

import shutil
import time
from pathlib import Path
from typing import NamedTuple

from deltalake import DeltaTable

from pulsar_spark.errors import NotAllowedError
from pulsar_spark.storage.actions import KNOWN_FEATURES, READER_VERSION
from pulsar_spark.storage.compaction import join_files
from pulsar_spark.storage.cursor_ledger import read_latest
from pulsar_spark.storage.data_files import staging_folder
from pulsar_spark.storage.layout import Layout
from pulsar_spark.storage.log import TableLog
from pulsar_spark.storage.scan import open_table
from pulsar_spark.table_specs import BROKER_TABLES, REQUESTS

LEAST_HOURS = 1


class Optimized(NamedTuple):
    """Files before and after."""

    files_removed: int
    files_added: int


def broker_tables(layout: Layout) -> dict[str, Path]:
    """The bundle's tables by name."""
    return {spec.name: layout.broker_table(spec.name) for spec in BROKER_TABLES}


def optimize(table: Path, *, dry_run: bool = False) -> Optimized:
    """Join small files to larger ones, partition by partition; of messages here (see compaction), unless the table asks
    for what only ``deltalake`` knows. A dry run only counts the files there are."""
    delta = open_table(table)
    if dry_run:
        return Optimized(len(delta.file_uris()), 0)
    if _has_payloads(delta) and _is_known(delta):
        return Optimized(*join_files(table, delta))
    metrics = delta.optimize.compact()
    return Optimized(metrics["numFilesRemoved"], metrics["numFilesAdded"])


def _has_payloads(delta: DeltaTable) -> bool:
    return any(field.name == "payload" for field in delta.schema().fields)


def _is_known(delta: DeltaTable) -> bool:
    protocol = delta.protocol()
    features = {*(protocol.reader_features or ()), *(protocol.writer_features or ())}
    return protocol.min_reader_version <= READER_VERSION and features <= KNOWN_FEATURES


def vacuum(layout: Layout, table: Path, *, hours: int, dry_run: bool = False) -> list[str]:
    """Delete files that left the table, or were staged for it and given up, more than *hours* ago; their paths.
    :class:`NotAllowedError` when somebody may still read them."""
    if hours < LEAST_HOURS:
        raise NotAllowedError(
            f"vacuum of {str(table)!r} after {hours} hours: clients may still read files that left the table; "
            f"keep them for {LEAST_HOURS} hour at least"
        )
    if table == layout.broker_table(REQUESTS.name) and _has_waiting_requests(layout, table):
        raise NotAllowedError(
            f"vacuum of {str(table)!r}: requests wait for a broker, which would not find them; start one first"
        )
    stale = _remove_stale(table, time.time() - 3600 * hours, dry_run)
    return stale + open_table(table).vacuum(retention_hours=hours, dry_run=dry_run, enforce_retention_duration=False)


def _remove_stale(table: Path, before: float, dry_run: bool) -> list[str]:
    """Remove what was staged by writers that have ended without it: nothing in its folder has changed since
    *before*."""
    stale = [
        folder
        for folder in staging_folder(table).glob("*")
        if max(path.lstat().st_mtime for path in (folder, *folder.rglob("*"))) < before
    ]
    if not dry_run:
        for folder in stale:
            shutil.rmtree(folder)
    return [str(folder) for folder in stale]


def checkpoint(table: Path) -> int:
    """Write a checkpoint of the log, from which the table opens; its version."""
    delta = open_table(table)
    delta.create_checkpoint()
    return delta.version()


def _has_waiting_requests(layout: Layout, table: Path) -> bool:
    row = read_latest(layout, "round").round_row
    return any(commit.added for commit in TableLog(table).commits(row["requests_version"] if row else 0))
