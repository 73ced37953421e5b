"""Read rows of committed rounds from the table ``cursor_ledger``.

A round is found by its version, or by its number if OPTIMIZE moved its rows.
"""

from collections.abc import Callable, Collection, Iterator
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from pulsar_spark.errors import DOCTOR, CorruptState, LogShortened
from pulsar_spark.storage.delta.actions import AddedFile, Commit
from pulsar_spark.storage.delta.data_files import conform, read_parts
from pulsar_spark.storage.delta.log import TableLog, commits_left
from pulsar_spark.storage.delta.scan import dataset_of, reading
from pulsar_spark.storage.store.store import AnyPath, store_of
from pulsar_spark.table_specs import CURSOR_LEDGER

_FEW_ROWS = 10_000
SNAPSHOT = "snapshot"
"""The name by which a snapshot concerns readers that look for one (see cursor_ledger.concerned)."""


def read_round(path: AnyPath, version: int, kinds: Collection[str] | None = None) -> pa.Table:
    """The rows of one round, all or those of *kinds*."""
    return rows_of(path, TableLog(path).commit(version), kinds)


def version_of_round(path: AnyPath, round_number: int, *, after: int = -1) -> int | None:
    """The version, after *after*, that committed a round; None if the shortened log lacks it."""
    log = TableLog(path)
    for commit in commits_left(log, max(round_number - 1, after)):
        if any(file.max_values.get("round") == round_number for file in commit.added):
            return commit.version
    if log.earliest() > round_number:
        return None
    raise CorruptState(f"{str(path)!r}: round {round_number} is not in the log: {DOCTOR}")


def rows_of(path: AnyPath, commit: Commit, kinds: Collection[str] | None, columns: list[str] | None = None) -> pa.Table:
    """:func:`rows_by_part` as one table."""
    return pa.concat_tables(rows_by_part(path, commit, kinds, columns))


def rows_by_part(
    path: AnyPath, commit: Commit, kinds: Collection[str] | None, columns: list[str] | None = None
) -> Iterator[pa.Table]:
    """The rows of a round, of *kinds* in *columns*: first an empty table, then parts."""
    nothing = CURSOR_LEDGER.schema.empty_table()
    yield nothing if columns is None else nothing.select(columns)
    of_kinds = None if kinds is None else pc.field("kind").isin(pa.array(sorted(kinds), pa.string()))
    for file in commit.added:
        with reading(path):
            yield from _read_file_or_table(path, file, of_kinds, columns)


def _read_file_or_table(
    path: AnyPath, file: AddedFile, of_kinds: pc.Expression | None, columns: list[str] | None
) -> Iterator[pa.Table]:
    """The rows of *file*, or of its round if OPTIMIZE moved them."""
    try:
        if of_kinds is None or file.rows <= _FEW_ROWS:  # filtering while reading is slower for small files
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
    """A round's rows without ranges, and the ranges as the reader keeps them."""

    facts: pa.Table
    ranges: list


def since_snapshot(
    path: AnyPath, read: Callable[[Commit], Round], kinds: Collection[str] | None = None
) -> Iterator[tuple[int, Round]]:
    """Version and rows of the rounds since the newest snapshot that have facts of *kinds* (None: all), and of the
    newest round."""
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
    """Version and rows of the rounds after *version*; no rows (None) if a round has no facts of *kinds*.

    *read* must keep the round's own row. :class:`LogShortened` if rounds are gone from the log or the table.
    """
    for commit in TableLog(path).commits(version):
        if kinds is not None and not commit.may_concern(kinds):
            yield commit.version, None
            continue
        found = read(commit)
        if commit.added and not found.facts.num_rows:
            raise LogShortened(f"{str(path)!r}: the rows of version {commit.version} are no longer in the table")
        yield commit.version, found
