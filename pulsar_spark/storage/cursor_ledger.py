"""The ``cursor_ledger`` table: one commit per round; the latest row of each fact is the state.

Rounds lie one behind the other in the log, at most commits that change no data between them, so a reader follows them by version. Every so many rounds a round is a snapshot that holds every
latest row again: whoever starts from nothing walks back to the newest snapshot and forward from there. What replaces what is said in schemas.CURSOR_LEDGER.
"""
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from deltalake import DeltaTable

from pulsar_spark.errors import CorruptState
from pulsar_spark.protocol.cursor import Range
from pulsar_spark.schemas import CURSOR_LEDGER
from pulsar_spark.storage.layout import Layout
from pulsar_spark.storage.log import AddedFile, TableLog


class CursorKey(NamedTuple):
    """Names a cursor: a subscription on one partition of one life of a topic."""

    topic_id: str
    partition: int
    subscription: str


class RangeRow(NamedTuple):
    """A range on its way into the table."""

    key: CursorKey
    topic: str
    page: int
    held: Range


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

    def apply(self, rows: pa.Table) -> None:
        """Take in the rows of the next round."""
        is_range = pc.equal(rows["kind"], "range")
        for row in rows.filter(pc.invert(is_range)).to_pylist():
            self._apply_row(row)
        for key, page, held in ranges_of(rows.filter(is_range)):
            if key in self.cursors:
                self.pages[key].setdefault(page, []).append(held)

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
                for facts in (self.cursors, self.consumers, self.pages):
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
        elif kind == "policy":
            for name, value in row["properties"]:
                self.policies.pop((row["topic"], name), None)
                if not row["is_removed"]:
                    self.policies[row["topic"], name] = value

    def _remove_topic(self, topic_id: str) -> None:
        self.topics = {key: row for key, row in self.topics.items() if key[0] != topic_id}
        for facts in (self.cursors, self.consumers, self.pages):
            for key in [key for key in facts if key.topic_id == topic_id]:
                del facts[key]


def ranges_of(rows: pa.Table) -> Iterator[tuple[CursorKey, int, Range]]:
    """Cursor, page and range of each row of kind ``range``, by position within a page."""
    names = ("topic_id", "partition", "subscription", "page", *Range._fields)
    columns = [rows.column(name).cast(pa.int64()).to_pylist() if name == "due_time" else rows.column(name).to_pylist() for name in names]
    for topic_id, partition, subscription, page, *fields in zip(*columns):
        held = Range(*fields)
        yield CursorKey(topic_id, partition, subscription), page, held if held.ack_set is None else held._replace(ack_set=tuple(held.ack_set))


def rows_of_round(round_number: int, facts: list[dict], ranges: Iterable[RangeRow]) -> pa.Table:
    """The Arrow rows of one round: *facts* as dicts of columns, and ranges, which may be many."""
    table = CURSOR_LEDGER.rows([dict(fact, round=round_number) for fact in facts])
    ranges = list(ranges)
    if not ranges:
        return table
    values = {"round": [round_number] * len(ranges), "kind": ["range"] * len(ranges), "topic": [row.topic for row in ranges],
              "topic_id": [row.key.topic_id for row in ranges], "partition": [row.key.partition for row in ranges],
              "subscription": [row.key.subscription for row in ranges], "page": [row.page for row in ranges],
              **{name: [row.held[index] for row in ranges] for index, name in enumerate(Range._fields)}}
    arrays = [pa.array(values[field.name], field.type) if field.name in values else pa.nulls(len(ranges), field.type) for field in CURSOR_LEDGER.schema]
    return pa.concat_tables([table, pa.Table.from_arrays(arrays, schema=CURSOR_LEDGER.schema)])


def read_round(path: Path, version: int) -> pa.Table:
    """All rows of one round."""
    commit = TableLog(path).commit(version)
    tables = [_read_file(path, file) for file in commit.added]
    return pa.concat_tables(tables) if tables else CURSOR_LEDGER.schema.empty_table()


def version_of_round(path: Path, round_number: int, *, after: int = -1) -> int:
    """The version that committed a round, looked for behind version *after*: the round's number and what OPTIMIZE and vacuum added to the log before it."""
    for commit in TableLog(path).commits(max(round_number - 1, after)):
        if any(file.max_values.get("round") == round_number for file in commit.added):
            return commit.version
    raise CorruptState(f"{str(path)!r}: round {round_number} is not in the log: run doctor on the root")


def _read_file(path: Path, file: AddedFile) -> pa.Table:
    """The rows that were committed in *file*; found by their round where OPTIMIZE has moved them and the file is gone."""
    try:
        return pq.read_table(f"{path}/{file.path}", schema=CURSOR_LEDGER.schema, partitioning=None)
    except FileNotFoundError:
        rows = DeltaTable(str(path)).to_pyarrow_dataset().to_table(filter=pc.field("round") == file.min_values["round"])
        return rows.select(CURSOR_LEDGER.schema.names).cast(CURSOR_LEDGER.schema)


def read_latest(layout: Layout) -> LatestRows:
    """The state after the latest committed round: walk back to the newest snapshot, then forward. Empty for a bundle without rounds."""
    path = layout.broker_table("cursor_ledger")
    log = TableLog(path)
    latest, state = LatestRows(), []
    for version in range(log.latest(), 0, -1):
        if not log.has(version):
            raise CorruptState(f"{str(path)!r}: round {version} is gone and no snapshot comes after it: restore the table's log")
        rows = read_round(path, version)
        state.append((version, rows))
        if pc.any(rows["is_snapshot"]).as_py():
            break
    for version, rows in reversed(state):
        latest.apply(rows)
        latest.version = version if rows.num_rows else latest.version
    return latest
