"""Keep the tables of a root small, in the background, table by table, in small steps.

1. Remove rows that nobody needs and whose time as history is over; fold samples of activity.
2. Join small files, and write into a broker's table how long files stay.
3. Shorten the log, each old commit after the files that it removed.
4. Remove files that are not part of the table, before the time travel limit.

After a crash the next look continues.
"""

import time
from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import NamedTuple

import pyarrow.compute as pc
from deltalake import DeltaTable

from pulsar_spark.storage.cursor_ledger.committed_rounds import rows_of
from pulsar_spark.storage.cursor_ledger.cursor_ledger import CursorKey, LatestRows
from pulsar_spark.storage.delta.definitions import read_definition
from pulsar_spark.storage.delta.log import TableLog, last_append
from pulsar_spark.storage.delta.scan import open_table
from pulsar_spark.storage.delta.tables import AppendTable
from pulsar_spark.storage.store.faults import is_fault_of_disk
from pulsar_spark.storage.store.store import AnyPath
from pulsar_spark.storage.upkeep.folding import fold
from pulsar_spark.storage.upkeep.joining import DataFile, can_be_joined, files_of, groups_of, join, remove_of
from pulsar_spark.storage.upkeep.kept_rounds import NEVER, first_kept_round, mark_deletes
from pulsar_spark.storage.upkeep.retention import LEAST_SECONDS, kept_seconds, promised_seconds, write_promise
from pulsar_spark.storage.upkeep.shortening import shorten
from pulsar_spark.storage.upkeep.upkeep import FILES_A_STEP, appended, remove_left, remove_stale, remove_unseen
from pulsar_spark.table_specs import ACTIVITY, CURSOR_LEDGER, DELAY_INDEX, LEDGERS, REQUESTS

_OF_CURSORS = [*CursorKey._fields, "kind", "round", "mark_delete_position", "is_removed", "is_snapshot"]
ROWS_REMOVED, FILES_JOINED = "rows_removed", "files_joined"
LOG_SHORTENED, FILES_REMOVED = "log_shortened", "files_removed"


class Done(NamedTuple):
    """What one step did to a table, and to how many files or commits."""

    table: AnyPath
    what: str
    number: int


class Needs(NamedTuple):
    """The needs of a table's readers: commits after *followed*, and files at *paths* or written since *waiting* (ms).

    Of rounds, those from *first_round* or the first that delivered above *mark_delete* on. ``keeps_rows``: all rows.
    """

    followed: int
    waiting: int = NEVER
    paths: frozenset[str] = frozenset()
    first_round: int = NEVER
    mark_delete: Mapping[CursorKey, int] = MappingProxyType({})
    keeps_rows: bool = True


def needs_of(table: AnyPath, name: str, latest: LatestRows) -> Needs:
    """The needs of a broker's table by *name*, given the *latest* round."""
    log = TableLog(table)
    if name == REQUESTS.name:
        return _needs_after(log, latest.requests_done)._replace(keeps_rows=False)
    if name == CURSOR_LEDGER.name:
        return _needs_of_rounds(table)
    if name in (LEDGERS.name, ACTIVITY.name):
        return Needs(last_append(log))
    return Needs(log.latest(), waiting=0)


def needs_of_topic(table: AnyPath, topic_id: str, latest: LatestRows) -> Needs:
    """The needs of a topic's table: what is not numbered. FileNotFoundError if it was deleted and created again."""
    if read_definition(table).table_id != topic_id:
        raise FileNotFoundError(f"the topic at {str(table)!r} was deleted and created again")
    return _needs_after(TableLog(table), latest.numbered_until(topic_id))


def _needs_after(log: TableLog, read_until: int) -> Needs:
    added = appended(log, range(read_until + 1, log.latest() + 1))
    waiting = min((int(add["modificationTime"]) for add in added), default=NEVER)
    return Needs(read_until, waiting, frozenset(add["path"] for add in added))


def _needs_of_rounds(table: AnyPath) -> Needs:
    """The need for the newest snapshot, later rounds, and rounds that are kept."""
    log = TableLog(table)
    for commit in log.commits_from_the_end():
        if commit.added:
            rows = rows_of(table, commit, ["round", "cursor"], _OF_CURSORS)
            if pc.any(rows["is_snapshot"]).as_py():
                waiting = min(int(add["modificationTime"]) for add in appended(log, [commit.version]))
                needs = Needs(commit.version - 1, waiting, keeps_rows=False)
                return needs._replace(first_round=rows["round"][0].as_py(), mark_delete=mark_deletes(rows))
    return Needs(0, waiting=0, first_round=0)


def keep_house(
    table: AnyPath,
    needs: Callable[[], Needs],
    *,
    history_seconds: int,
    time_travel_seconds: int,
    promises: bool = False,
    versions: int | None = None,
    now: Callable[[], float] = time.time,
) -> Iterator[Done]:
    """Do one table's housekeeping, a step at a time; *needs* is called once the table is open.

    Its own properties may promise more than *time_travel_seconds*; *promises* writes the promise into them. With
    *versions*, that number of versions and some minutes are enough (see retention).
    """
    opened = open_table(table)
    needed, full = needs(), None
    try:
        if table.name == ACTIVITY.name == read_definition(table).table:  # a topic may have this name
            yield Done(table, ROWS_REMOVED, fold(table, opened, now()))
            opened = open_table(table)
        yield from _make_small(table, opened, needed, 1000 * (now() - history_seconds))
        if promises:
            write_promise(table, time_travel_seconds if versions is None else min(time_travel_seconds, LEAST_SECONDS))
    except OSError as fault:
        if not is_fault_of_disk(fault):
            raise
        full = fault  # deleting needs no space, and frees some
    kept = kept_seconds(table, time_travel_seconds, versions, now())
    yield from _make_room(table, needed, now() - max(kept, promised_seconds(opened)))
    if full is not None:
        raise full


def _make_small(table: AnyPath, opened: DeltaTable, needed: Needs, history: float) -> Iterator[Done]:
    """Remove unneeded rows older than *history* (milliseconds), and join files."""
    files = [file for file in files_of(opened) if file.written < needed.waiting]
    if not needed.keeps_rows:
        old = _history(table, files, needed, history)
        files = [file for file in files if file not in old]
        yield from _remove_rows(table, opened, sorted(old))
    if can_be_joined(opened):
        for sizes in join(table, opened, groups_of(files)):
            yield Done(table, FILES_JOINED, sum(sizes))


def _make_room(table: AnyPath, needed: Needs, before: float) -> Iterator[Done]:
    """Delete commits and files that only versions before *before* (seconds) need; none of the delay index's files."""
    left = 0
    clears = table.name != DELAY_INDEX.name

    def clear(doomed: range) -> None:
        nonlocal left
        left += remove_left(table, doomed) if clears else 0

    for commits in shorten(table, needed.followed, before, clear):
        yield Done(table, LOG_SHORTENED, commits)
    if clears:
        yield Done(table, FILES_REMOVED, left + len(remove_stale(table, before)))
        for paths in remove_unseen(table, before, needed.paths):
            yield Done(table, FILES_REMOVED, len(paths))


def _history(table: AnyPath, files: list[DataFile], needs: Needs, before: float) -> set[DataFile]:
    """The files whose rows nobody needs; of rounds the first ones, because a later round may end what they say."""
    old = {file for file in files if file.written < before}
    if needs.first_round == NEVER:
        return old
    kept = min((file.first_round or 0 for file in files if file not in old), default=NEVER)
    first = min(kept, needs.first_round)
    before_first = {file: file.last_round for file in old if file.last_round is not None and file.last_round < first}
    first = first_kept_round(table, before_first, needs.mark_delete)
    return {file for file, last_round in before_first.items() if last_round < first}


def _remove_rows(table: AnyPath, opened: DeltaTable, files: list[DataFile]) -> Iterator[Done]:
    for first in range(0, len(files), FILES_A_STEP):
        doomed = files[first : first + FILES_A_STEP]
        version = AppendTable(table).replace_files([], [remove_of(file) for file in doomed], opened.version())
        yield Done(table, ROWS_REMOVED, 0 if version is None else len(doomed))
