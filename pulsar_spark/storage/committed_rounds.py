"""The rows of rounds, read from the table ``cursor_ledger``: of one round, or of all behind another, in order.

A round is found by its version; where OPTIMIZE has moved its rows and its file is gone, by its number.
"""

from collections.abc import Callable, Collection, Iterator
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from pulsar_spark.errors import DOCTOR, CorruptState, LogShortened
from pulsar_spark.storage.actions import AddedFile, Commit
from pulsar_spark.storage.data_files import conform, read_parts
from pulsar_spark.storage.log import TableLog
from pulsar_spark.storage.scan import dataset_of, reading
from pulsar_spark.storage.store import AnyPath, store_of
from pulsar_spark.table_specs import CURSOR_LEDGER

_FEW_ROWS = 10_000
SNAPSHOT = "snapshot"
"""Whom a round that is a snapshot concerns, besides: see storage.cursor_ledger.concerned."""


def read_round(path: AnyPath, version: int, kinds: Collection[str] | None = None) -> pa.Table:
    """All rows of one round, or those of *kinds*, for which the millions of ranges of a large snapshot are passed
    over."""
    return rows_of(path, TableLog(path).commit(version), kinds)


def version_of_round(path: AnyPath, round_number: int, *, after: int = -1) -> int | None:
    """The version that committed a round, looked for behind version *after*: the round's number and what OPTIMIZE and
    vacuum added to the log before it. None where the log was shortened and no longer has it."""
    log = TableLog(path)
    for commit in log.commits_left(max(round_number - 1, after)):
        if any(file.max_values.get("round") == round_number for file in commit.added):
            return commit.version
    if log.earliest() > round_number:
        return None
    raise CorruptState(f"{str(path)!r}: round {round_number} is not in the log: {DOCTOR}")


def rows_of(path: AnyPath, commit: Commit, kinds: Collection[str] | None, columns: list[str] | None = None) -> pa.Table:
    return pa.concat_tables(rows_by_part(path, commit, kinds, columns))


def rows_by_part(
    path: AnyPath, commit: Commit, kinds: Collection[str] | None, columns: list[str] | None = None
) -> Iterator[pa.Table]:
    """The rows of a round, of *kinds*, in *columns*, of very many some row groups at a time; none first, so that there
    is a table."""
    nothing = CURSOR_LEDGER.schema.empty_table()
    yield nothing if columns is None else nothing.select(columns)
    for file in commit.added:
        yield from _read_file(path, file, kinds, columns)


def _read_file(
    path: AnyPath, file: AddedFile, kinds: Collection[str] | None, columns: list[str] | None
) -> Iterator[pa.Table]:
    """The rows (of *kinds*, in *columns*) that were committed in *file*; found by their round where OPTIMIZE has moved
    them and the file is gone."""
    of_kinds = None if kinds is None else pc.field("kind").isin(pa.array(sorted(kinds), pa.string()))
    with reading(path):
        yield from _read_file_or_table(path, file, of_kinds, columns)


def _read_file_or_table(
    path: AnyPath, file: AddedFile, of_kinds: pc.Expression | None, columns: list[str] | None
) -> Iterator[pa.Table]:
    try:
        if of_kinds is None or file.rows <= _FEW_ROWS:  # a filter while reading costs a small file three times as much
            for rows in read_parts(path, file, CURSOR_LEDGER.schema, columns):
                yield rows if of_kinds is None else rows.filter(of_kinds)
            return
        source = store_of(path).parquet(f"{path}/{file.path}")
        rows = pq.read_table(source, schema=CURSOR_LEDGER.schema, partitioning=None, filters=of_kinds)
    except FileNotFoundError:
        of_round = pc.field("round") == file.min_values["round"]
        rows = dataset_of(path).to_table(filter=of_round if of_kinds is None else of_round & of_kinds)
        rows = conform(rows, CURSOR_LEDGER.schema)
    yield rows if columns is None else rows.select(columns)


class Round(NamedTuple):
    """A round's rows but for its ranges, and these, as who reads the round keeps them."""

    facts: pa.Table
    ranges: list


def since_snapshot(
    path: AnyPath, read: Callable[[Commit], Round], kinds: Collection[str] | None = None
) -> Iterator[tuple[int, Round]]:
    """Version and rows of the rounds from the newest snapshot on; with *kinds* of those alone that may have such facts,
    and of the newest."""
    log, rounds, has_newest = TableLog(path), [], False
    for version in range(log.latest(), 0, -1):
        if not log.has(version):
            raise CorruptState(f"{str(path)!r}: round {version} is missing and no later snapshot exists: {DOCTOR}")
        commit = log.commit(version)
        if kinds is not None and has_newest and not commit.may_concern({SNAPSHOT, *kinds}):
            continue
        rounds.append((version, read(commit)))
        facts = rounds[-1][1].facts
        has_newest |= facts.num_rows > 0
        if pc.any(facts["is_snapshot"]).as_py():
            break
    yield from reversed(rounds)


def since(
    path: AnyPath, read: Callable[[Commit], Round], version: int, kinds: Collection[str] | None = None
) -> Iterator[tuple[int, Round | None]]:
    """Version and rows of the rounds behind *version*, None for rows of one that says it has no facts of *kinds*;
    :class:`LogShortened` where the next ones are gone from the log, or their rows from the table. *read* keeps the row
    of the round itself."""
    for commit in TableLog(path).commits(version):
        if kinds is not None and not commit.may_concern(kinds):
            yield commit.version, None
            continue
        found = read(commit)
        if commit.added and not found.facts.num_rows:
            raise LogShortened(f"{str(path)!r}: the rows of version {commit.version} are no longer in the table")
        yield commit.version, found
