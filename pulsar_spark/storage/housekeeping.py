"""Keeping the tables of a root as they were on their first day: what a broker does in the background, table by table
and a little at a time.

Of each table, in this order, as far as somebody does not need it still:

1. rows go that nobody needs and whose time as history is over: requests that a round has consumed, and rounds before
   the newest snapshot in which nothing was delivered that is out still;
2. small files are joined (see joining);
3. the oldest commits go out of the log (see shortening);
4. files go that left the table, or never came into it, before the time over which people may look back.

What is decided here stays right, whoever decides meanwhile: what is consumed stays consumed, and a snapshot is never
followed by an older one. So a broker that does not know yet that it was taken over does no harm, and a crash between
any two writes leaves what the next look finds and does again.
"""

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pyarrow.compute as pc
from deltalake import DeltaTable

from pulsar_spark.protocol.cursor import PENDING
from pulsar_spark.storage.committed_rounds import rows_of
from pulsar_spark.storage.cursor_ledger import LatestRows
from pulsar_spark.storage.joining import DataFile, can_be_joined, files_of, groups_of, join, remove_of
from pulsar_spark.storage.log import TableLog, read_actions
from pulsar_spark.storage.scan import open_table
from pulsar_spark.storage.shortening import shorten
from pulsar_spark.storage.tables import AppendTable
from pulsar_spark.storage.upkeep import remove_stale, unseen_files
from pulsar_spark.table_specs import CURSOR_LEDGER, DELAY_INDEX, LEDGERS, REQUESTS

FILES_A_STEP = 1000
ROWS_REMOVED, FILES_JOINED, LOG_SHORTENED, FILES_REMOVED = (
    "rows_removed",
    "files_joined",
    "log_shortened",
    "files_removed",
)
NOBODY = 1 << 62


class Done(NamedTuple):
    """What one step did to a table: which of the four, and to how many files or commits."""

    table: Path
    what: str
    count: int


class Needs(NamedTuple):
    """What of a table is needed: by those who follow its log, everything behind version *followed*; the files at
    *paths*, and in the table those written from *waiting* on (milliseconds); rows of rounds from *first_round* on.
    ``keeps_rows``: all of them."""

    followed: int
    waiting: int = NOBODY
    paths: frozenset[str] = frozenset()
    first_round: int = NOBODY
    keeps_rows: bool = True


def needs_of(table: Path, name: str, latest: LatestRows) -> Needs:
    """What is needed of a table of the broker's by *name*, given the *latest* round."""
    log = TableLog(table)
    if name == REQUESTS.name:
        return _behind(log, latest.requests_done)._replace(keeps_rows=False)
    if name == CURSOR_LEDGER.name:
        return _needs_of_rounds(table)
    if name == LEDGERS.name:
        return Needs(_last_appended(log))
    return Needs(log.latest(), waiting=0)


def needs_of_topic(table: Path, topic_id: str, latest: LatestRows) -> Needs:
    """The same of a topic's table: what is numbered is found wherever it lies."""
    return _behind(TableLog(table), latest.numbered_until(topic_id))


def _behind(log: TableLog, read_until: int) -> Needs:
    """Everything that was appended behind version *read_until*."""
    added = [add for version in range(read_until + 1, log.latest() + 1) for add in _added(log, version)]
    waiting = min((int(add["modificationTime"]) for add in added), default=NOBODY)
    return Needs(read_until, waiting, frozenset(add["path"] for add in added))


def _added(log: TableLog, version: int) -> list[dict]:
    """The ``add`` actions of a commit that appended; :class:`CorruptState` for one that cannot be read."""
    if not log.commit(version).added:
        return []
    adds = (action["add"] for action in read_actions(log.file(version)) if "add" in action)
    return [add for add in adds if add.get("dataChange")]


def _last_appended(log: TableLog) -> int:
    """The last version that appended rows; 0 where none is left in the log."""
    for version in range(log.latest(), max(log.earliest(), 1) - 1, -1):
        if log.commit(version).added:
            return version
    return 0


def _needs_of_rounds(table: Path) -> Needs:
    """The newest snapshot, its commit too, what comes behind it, and the rounds that delivered what is out still."""
    log = TableLog(table)
    for version in range(log.latest(), max(log.earliest(), 1) - 1, -1):
        commit = log.commit(version)
        if commit.added:
            rows = rows_of(table, commit, None, ["kind", "status", "round", "delivery_round", "is_snapshot"])
            if pc.any(rows["is_snapshot"]).as_py():
                out = rows.filter(pc.and_(pc.equal(rows["kind"], "range"), pc.equal(rows["status"], PENDING)))
                first = pc.min(out["delivery_round"]).as_py()
                number = rows["round"][0].as_py()
                needed = number if first is None else min(first, number)
                waiting = min(int(add["modificationTime"]) for add in _added(log, version))
                return Needs(version - 1, waiting, first_round=needed, keeps_rows=False)
    return Needs(0, waiting=0, first_round=0)


def keep_house(
    table: Path,
    needs: Callable[[], Needs],
    *,
    history_seconds: int,
    time_travel_seconds: int,
    now: Callable[[], float] = time.time,
) -> Iterator[Done]:
    """Do what there is to do for one table, a step at a time. *needs* is asked when the table is open, so that nothing
    is in it that nobody was asked about."""
    opened = open_table(table)
    needed = needs()
    files = [file for file in files_of(opened) if file.written < needed.waiting]
    if not needed.keeps_rows:
        old = _history(files, needed, 1000 * (now() - history_seconds))
        files = [file for file in files if file not in old]
        yield from _remove_rows(table, opened, sorted(old))
    if can_be_joined(opened):
        for group in groups_of(files):
            yield Done(table, FILES_JOINED, join(table, opened, group))
    for commits in shorten(table, needed.followed, now() - time_travel_seconds):
        yield Done(table, LOG_SHORTENED, commits)
    if table.name != DELAY_INDEX.name:  # which removes its files itself, as soon as it reads them no more
        yield from _remove_files(table, needed.paths, now() - time_travel_seconds)


def _history(files: list[DataFile], needs: Needs, before: float) -> set[DataFile]:
    """The files whose rows nobody needs any more, nor wants to see. Rounds go from the first on, because a later one
    may say that what an earlier one says is over."""
    old = {file for file in files if file.written < before}
    if needs.first_round == NOBODY:
        return old
    kept = min((file.first_round or 0 for file in files if file not in old), default=NOBODY)
    first = min(kept, needs.first_round)
    return {file for file in old if file.last_round is not None and file.last_round < first}


def _remove_rows(table: Path, opened: DeltaTable, files: list[DataFile]) -> Iterator[Done]:
    for first in range(0, len(files), FILES_A_STEP):
        doomed = files[first : first + FILES_A_STEP]
        version = AppendTable(table).replace_files([], [remove_of(file) for file in doomed], opened.version())
        yield Done(table, ROWS_REMOVED, 0 if version is None else len(doomed))


def _remove_files(table: Path, needed: frozenset[str], before: float) -> Iterator[Done]:
    """Those that nobody sees any more; what was listed is looked at again, because a file may have come in since."""
    yield Done(table, FILES_REMOVED, len(remove_stale(table, before)))
    doomed = sorted(set(unseen_files(table, before)) - needed)
    for first in range(0, len(doomed), FILES_A_STEP):
        some = sorted(set(doomed[first : first + FILES_A_STEP]).intersection(unseen_files(table, before)))
        for path in some:
            (table / path).unlink(missing_ok=True)
        yield Done(table, FILES_REMOVED, len(some))
