"""Keep tables quick to open and to scan: OPTIMIZE and vacuum, which change no data (design 3.4, rules 6 and 9)."""

import contextlib
import time
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from pulsar_spark.errors import NotAllowedError
from pulsar_spark.storage.cursor_ledger.cursor_ledger import read_latest
from pulsar_spark.storage.delta.log import TableLog, read_actions
from pulsar_spark.storage.delta.scan import open_table, sizes_of
from pulsar_spark.storage.delta.staged_files import staged_folders
from pulsar_spark.storage.layout import Layout
from pulsar_spark.storage.store.store import AnyPath, store_of
from pulsar_spark.storage.topics.bundles import layouts_of
from pulsar_spark.storage.upkeep.joining import can_be_joined, files_of, join, large_groups_of
from pulsar_spark.storage.upkeep.retention import removed_since
from pulsar_spark.table_specs import BROKER_TABLES, REQUESTS

LEAST_HOURS = 1
FILES_A_STEP = 1000
NEW_HOURS = 24
"""For so long a file that no commit names may belong to a commit under way."""
SECONDS_AN_HOUR = 60 * 60


class Optimized(NamedTuple):
    files_removed: int
    files_added: int


def broker_tables(layout: Layout) -> dict[str, AnyPath]:
    return {spec.name: layout.broker_table(spec.name) for spec in BROKER_TABLES}


def optimize(table: AnyPath, *, dry_run: bool = False) -> Optimized:
    """Join small files, by partition. A dry run only counts files; ``deltalake`` does it for unknown features."""
    delta = open_table(table)
    if dry_run:
        return Optimized(len(delta.file_uris()), 0)
    if not can_be_joined(delta):
        metrics = delta.optimize.compact()
        return Optimized(metrics["numFilesRemoved"], metrics["numFilesAdded"])
    joined = [size for step in join(table, delta, large_groups_of(files_of(delta))) for size in step]
    return Optimized(sum(joined), len(joined))


def vacuum(layout: Layout, table: AnyPath, *, hours: int, dry_run: bool = False) -> list[str]:
    """Delete files that left the table, or never entered it, more than *hours* ago; their paths.

    Requests that wait keep theirs. :class:`NotAllowedError` if clients may read the files.
    """
    if hours < LEAST_HOURS:
        raise NotAllowedError(
            f"vacuum of {str(table)!r} after {hours} hours: clients may still read files that left the table; "
            f"keep them for at least {LEAST_HOURS} hour"
        )
    before = time.time() - SECONDS_AN_HOUR * hours
    of_requests = [bundle for bundle in layouts_of(layout) if table == bundle.broker_table(REQUESTS.name)]
    needed = _waiting_requests(of_requests[0], table) if of_requests else frozenset()
    stale = remove_stale(table, before, dry_run=dry_run)
    if dry_run:
        return stale + [path for path in unseen_files(table, before) if path not in needed]
    return stale + [path for some in remove_unseen(table, before, needed) for path in some]


def remove_unseen(table: AnyPath, before: float, needed: frozenset[str]) -> Iterator[list[str]]:
    """Delete :func:`unseen_files` except *needed*, in steps, and yield their paths; each step looks again."""
    doomed = sorted(set(unseen_files(table, before)) - needed)
    for first in range(0, len(doomed), FILES_A_STEP):
        some = sorted(set(doomed[first : first + FILES_A_STEP]).intersection(unseen_files(table, before)))
        store_of(table).remove(table / path for path in some)
        yield some


def unseen_files(table: AnyPath, before: float) -> list[str]:
    """Files that left the table before an instant (seconds), or never entered it although older than
    :data:`NEW_HOURS`.
    """
    hours, opened = max(0, int((time.time() - before) // SECONDS_AN_HOUR)), open_table(table)
    old = _old_files(table, before)
    if not old.difference(sizes_of(opened)):
        return []

    def found(hours: int, *, is_full: bool) -> list[str]:
        paths = opened.vacuum(retention_hours=hours, dry_run=True, enforce_retention_duration=False, full=is_full)
        return [path for path in paths if path in old]

    doomed = dict.fromkeys(found(hours, is_full=False) + found(max(hours, NEW_HOURS), is_full=True))
    spared_from = time.time() - hours * SECONDS_AN_HOUR
    removed_lately = removed_since(table, opened, before, spared_from) if doomed else ()
    return [path for path in doomed if path not in removed_lately]


def remove_left(path: AnyPath, versions: range) -> int:
    """Delete files that commits of *versions* removed, unless the table or later commits have them again; how many."""
    log = TableLog(path)
    left = _taken_out(log, versions)
    if not left:
        return 0
    left &= _old_files(path, float("inf"))
    left = left.difference(sizes_of(open_table(path))) if left else left
    left -= _taken_out(log, (each for each in log.versions() if each >= versions.stop)) if left else set()
    store_of(path).remove(path / name for name in left)
    return len(left)


def _taken_out(log: TableLog, versions: Iterable[int]) -> set[str]:
    found: set[str] = set()
    for version in versions:
        with contextlib.suppress(FileNotFoundError):
            found |= log.removed_paths(version)
    return found


def _old_files(table: AnyPath, before: float) -> set[str]:
    found = store_of(table).below(table, without="_")
    return {name for name, seen in found.items() if name.endswith(".parquet") and seen.st_mtime < before}


def remove_stale(table: AnyPath, before: float, *, dry_run: bool = False) -> list[str]:
    """Remove staging folders unchanged since *before*, whose writers have ended; returns them."""
    stale = [folder for folder, changed in staged_folders(table).items() if changed < before]
    if not dry_run:
        for folder in stale:
            store_of(table).remove_folder(folder)
    return [str(folder) for folder in stale]


def _waiting_requests(layout: Layout, table: AnyPath) -> frozenset[str]:
    log = TableLog(table)
    versions = range(read_latest(layout, "waiting_request").requests_done + 1, log.latest() + 1)
    return frozenset(add["path"] for add in appended(log, versions))


def appended(log: TableLog, versions: Iterable[int]) -> list[dict]:
    """The ``add`` actions of those of *versions* that appended; :class:`CorruptState` for an unreadable one."""
    actions = (
        action for version in versions if log.commit(version).added for action in read_actions(log.file(version))
    )
    return [action["add"] for action in actions if "add" in action and action["add"].get("dataChange")]
