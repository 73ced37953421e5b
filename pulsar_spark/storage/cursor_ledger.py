"""The ``cursor_ledger`` table: one commit per round; the latest row of each fact is the state.

Rounds lie one behind the other in the log, at most commits that change no data between them, so a reader follows them
by version. Every so many rounds a round is a snapshot that holds every latest row again: whoever starts from nothing
walks back to the newest snapshot and forward from there. What replaces what is said in schemas.CURSOR_LEDGER.
"""

import contextlib
import gc
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, groupby
from operator import attrgetter, itemgetter
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from pulsar_spark.errors import DOCTOR, CorruptState
from pulsar_spark.protocol.cursor import Range
from pulsar_spark.storage.actions import AddedFile
from pulsar_spark.storage.layout import Layout
from pulsar_spark.storage.log import TableLog
from pulsar_spark.storage.scan import dataset_of
from pulsar_spark.storage.set_aside import REQUEST, SetAside, set_aside_of
from pulsar_spark.storage.tables import conform
from pulsar_spark.table_specs import CURSOR_LEDGER

_BLOCK_ROWS = 65_536
_FIRST, _LAST = -62_135_596_800_000_000, 253_402_300_799_999_999
"""Python's calendar, in microseconds."""


class CursorKey(NamedTuple):
    """Names a cursor: a subscription on one partition of one life of a topic."""

    topic_id: str
    partition: int
    subscription: str


class WaitingKey(NamedTuple):
    """Names a waiting letter: the round behind which it was tried first, and its number among those."""

    round: int
    number: int

    def __str__(self) -> str:
        return f"{self.round}-{self.number}"


class PageRows(NamedTuple):
    """The ranges of a page of a cursor, by position: a row each in the table."""

    key: CursorKey
    topic: str
    page: int
    ranges: Sequence[Range]


@contextlib.contextmanager
def uncollected() -> Iterator[None]:
    """No garbage collection inside: making millions of ranges, none of which is garbage, takes twice as long with
    it."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


_PAGE_COLUMNS = [*Range._fields, *CursorKey._fields, "page"]


class LatestRows:
    """The latest row of every fact up to a round; feed it rounds in order."""

    def __init__(self):
        self.round = self.version = 0
        self.round_row: dict | None = None
        self.topics: dict[tuple[str, int], dict] = {}
        self.cursors: dict[CursorKey, dict] = {}
        self.consumers: dict[CursorKey, dict[str, dict]] = {}
        self.pages: dict[CursorKey, dict[int, list[Range]]] = {}
        self.policies: dict[tuple[str, str], str] = {}
        self.owners: dict[str, str] = {}
        """Ids of the topics with policies, by name."""
        self.set_aside: dict[str, SetAside] = {}
        self.letters: list[dict] = []
        """Letters the latest round asks for; they may not be written yet."""
        self.waiting_letters: dict[WaitingKey, dict] = {}
        self.letterless: dict[CursorKey, dict] = {}

    def apply(self, rows: pa.Table) -> None:
        """Take in the rows of the next round."""
        is_range = pc.equal(rows["kind"], "range")
        self.letters = []
        for row in python_rows(rows.filter(pc.invert(is_range))):
            self._apply_row(row)
        for key, page, ranges in pages_of(rows.select(_PAGE_COLUMNS).filter(is_range)):
            if key in self.cursors:
                self.pages[key].setdefault(page, []).extend(ranges)

    def numbered_until(self, topic_id: str) -> int:
        """The last version of a topic's table that a broker has followed; 0 for none."""
        return min((row["ledger_id"] for (known, _), row in self.topics.items() if known == topic_id), default=0)

    def _apply_row(self, row: dict) -> None:
        kind = row["kind"]
        key = CursorKey(row["topic_id"], row["partition"], row["subscription"])
        if kind == "round":
            self.round, self.round_row = row["round"], row
        elif kind == "topic":
            if row["is_removed"]:
                self._remove_topic(row["topic_id"])
            else:
                self.topics[row["topic_id"], row["partition"]] = row
        elif kind == "cursor":
            if row["is_removed"]:
                for facts in (self.cursors, self.consumers, self.pages, self.letterless):
                    facts.pop(key, None)
            else:
                self.cursors[key] = row
                self.consumers.setdefault(key, {})
                self.pages.setdefault(key, {})
        elif kind == "consumer" and key in self.consumers:
            if row["is_removed"]:
                self.consumers[key].pop(row["consumer_id"], None)
            else:
                self.consumers[key][row["consumer_id"]] = row
        elif kind == "page" and key in self.pages:
            self.pages[key].pop(row["page"], None)
            if not row["is_removed"]:
                self.pages[key][row["page"]] = []
        elif kind == "letter":
            self.letters.append(row)
        elif kind == "waiting_letter":
            self._replace(self.waiting_letters, WaitingKey(row["delivery_round"], row["join_order"]), row)
        elif kind == "letterless":
            self.letterless[key] = row
        elif kind == "policy":
            for name, value in row["properties"]:
                self.policies.pop((row["topic"], name), None)
                if not row["is_removed"]:
                    self.policies[row["topic"], name] = value
            if row["topic_id"]:
                self.owners[row["topic"]] = row["topic_id"]
        elif kind == "set_aside":
            entry = set_aside_of(row)
            self.set_aside.pop(entry.id, None)
            if not row["is_removed"]:
                self.set_aside[entry.id] = entry

    def _replace(self, facts: dict, key: tuple, row: dict) -> None:
        facts.pop(key, None)
        if not row["is_removed"]:
            facts[key] = row

    def _remove_topic(self, topic_id: str) -> None:
        self.topics = {key: row for key, row in self.topics.items() if key[0] != topic_id}
        for facts in (self.cursors, self.consumers, self.pages, self.letterless):
            for key in [key for key in facts if key.topic_id == topic_id]:
                del facts[key]
        self.set_aside = {
            name: entry
            for name, entry in self.set_aside.items()
            if entry.status == REQUEST or entry.topic_id != topic_id
        }


def python_rows(rows: pa.Table) -> list[dict]:
    """*rows* as dicts. An instant beyond Python's calendar, which an earlier release let through, is the last one it
    knows."""
    try:
        return rows.to_pylist()
    except (OverflowError, ValueError):
        for number, field in enumerate(rows.schema):
            if pa.types.is_timestamp(field.type):
                micros = pc.min_element_wise(
                    pc.max_element_wise(rows.column(number).cast(pa.int64()), _FIRST, skip_nulls=False),
                    _LAST,
                    skip_nulls=False,
                )
                rows = rows.set_column(number, field, micros.cast(field.type))
        return rows.to_pylist()


def pages_of(rows: pa.Table) -> Iterator[tuple[CursorKey, int, list[Range]]]:
    """Cursor, page and ranges (by position) of rows of kind ``range``."""
    columns = [
        rows.column(name).cast(pa.int64()).to_pylist() if name == "due_time" else rows.column(name).to_pylist()
        for name in Range._fields
    ]
    ranges = list(map(Range._make, zip(*columns)))
    if rows.column("ack_set").null_count < rows.num_rows:
        ranges = [held if held.ack_set is None else held._replace(ack_set=tuple(held.ack_set)) for held in ranges]
    places = zip(*(rows.column(name).to_pylist() for name in (*CursorKey._fields, "page")))
    for (topic_id, partition, subscription, page), same in groupby(zip(places, ranges), key=itemgetter(0)):
        yield CursorKey(topic_id, partition, subscription), page, [held for _, held in same]


@uncollected()
def rows_of_round(round_number: int, facts: list[dict], pages: Iterable[PageRows]) -> pa.Table:
    """The Arrow rows of one round: *facts* as dicts of columns, and ranges, which may be millions."""
    table = CURSOR_LEDGER.rows([dict(fact, round=round_number) for fact in facts])
    pages = [page for page in pages if page.ranges]
    if not pages:
        return table
    ranges = list(chain.from_iterable(page.ranges for page in pages))
    counts = [len(page.ranges) for page in pages]
    of_pages = {
        "topic": [page.topic for page in pages],
        **dict(zip(CursorKey._fields, zip(*(page.key for page in pages)))),
    }
    same = {"round": round_number, "kind": "range"}

    def column(field: pa.Field) -> pa.Array | pa.ChunkedArray:
        if field.name in Range._fields:
            return pa.array(list(map(attrgetter(field.name), ranges)), field.type)
        if field.name == "page":
            return pa.array(np.repeat([page.page for page in pages], counts), field.type)
        if field.name in of_pages:
            return _repeated(of_pages[field.name], counts, field.type)
        return _repeated([same.get(field.name)], [len(ranges)], field.type)

    return pa.concat_tables(
        [table, pa.Table.from_arrays([column(field) for field in CURSOR_LEDGER.schema], schema=CURSOR_LEDGER.schema)]
    )


def _repeated(values: Sequence, counts: list[int], kind: pa.DataType) -> pa.ChunkedArray:
    """Each value as often as its count says, in slices of one array per value: a million rows of the same take no
    memory."""
    slices = []
    for value, same in groupby(zip(values, counts), key=itemgetter(0)):
        left = sum(count for _, count in same)
        block = pa.repeat(pa.scalar(value, kind), min(left, _BLOCK_ROWS))
        while left:
            slices.append(block.slice(0, min(left, _BLOCK_ROWS)))
            left -= len(slices[-1])
    return pa.chunked_array(slices, kind)


def read_round(path: Path, version: int, kind: str | None = None) -> pa.Table:
    """All rows of one round, or those of one kind, for which the millions of ranges of a large snapshot are passed
    over."""
    tables = [_read_file(path, file, kind) for file in TableLog(path).commit(version).added]
    return pa.concat_tables(tables) if tables else CURSOR_LEDGER.schema.empty_table()


def version_of_round(path: Path, round_number: int, *, after: int = -1) -> int:
    """The version that committed a round, looked for behind version *after*: the round's number and what OPTIMIZE and
    vacuum added to the log before it."""
    for commit in TableLog(path).commits(max(round_number - 1, after)):
        if any(file.max_values.get("round") == round_number for file in commit.added):
            return commit.version
    raise CorruptState(f"{str(path)!r}: round {round_number} is not in the log: {DOCTOR}")


def _read_file(path: Path, file: AddedFile, kind: str | None) -> pa.Table:
    """The rows (of *kind*) that were committed in *file*; found by their round where OPTIMIZE has moved them and the
    file is gone."""
    of_kind = None if kind is None else pc.field("kind") == kind
    try:
        return pq.read_table(f"{path}/{file.path}", schema=CURSOR_LEDGER.schema, partitioning=None, filters=of_kind)
    except FileNotFoundError:
        of_round = pc.field("round") == file.min_values["round"]
        rows = dataset_of(path).to_table(filter=of_round if of_kind is None else of_round & of_kind)
        return conform(rows, CURSOR_LEDGER.schema)


@uncollected()
def read_latest(layout: Layout) -> LatestRows:
    """The state after the latest committed round: walk back to the newest snapshot, then forward. Empty for a bundle
    without rounds."""
    path = layout.broker_table("cursor_ledger")
    log = TableLog(path)
    latest, state = LatestRows(), []
    for version in range(log.latest(), 0, -1):
        if not log.has(version):
            raise CorruptState(
                f"{str(path)!r}: round {version} is gone and no snapshot comes after it: restore the table's log"
            )
        rows = read_round(path, version)
        state.append((version, rows))
        if pc.any(rows["is_snapshot"]).as_py():
            break
    for version, rows in reversed(state):
        latest.apply(rows)
        latest.version = version if rows.num_rows else latest.version
    return latest
