"""The ``cursor_ledger`` table: one commit per round; the latest row of each fact is the state.

A snapshot is a round that holds every latest row again; a new reader starts at the newest.
"""

from collections.abc import Collection, Iterable, Iterator, Sequence
from functools import partial
from itertools import groupby
from operator import itemgetter
from typing import NamedTuple, cast

import pyarrow as pa
import pyarrow.compute as pc

from pulsar_spark.errors import LogShortened
from pulsar_spark.protocol.acknowledgement.cursor import Range
from pulsar_spark.protocol.entries.entry_map import EntryMap
from pulsar_spark.protocol.entries.entry_ranges import (
    ScatteredRange,
    known_ranges,
    pass_to,
    put_ranges,
    put_scattered,
    states_of,
)
from pulsar_spark.storage.cursor_ledger.committed_rounds import SNAPSHOT, Round, rows_by_part, since, since_snapshot
from pulsar_spark.storage.cursor_ledger.range_rows import facts_and_ranges, ranges_by_place, scattered_ranges
from pulsar_spark.storage.cursor_ledger.set_aside import REQUEST, SetAside
from pulsar_spark.storage.delta.actions import Commit
from pulsar_spark.storage.delta.python_rows import python_rows, uncollected
from pulsar_spark.storage.layout import Layout
from pulsar_spark.storage.store.store import AnyPath


class CursorKey(NamedTuple):
    """A cursor: a subscription on one partition of a topic, by the topic's id."""

    topic_id: str
    partition: int
    subscription: str


class WaitingKey(NamedTuple):
    """A waiting letter: the round after which it was first tried, and its number there."""

    round: int
    number: int

    def __str__(self) -> str:
        return f"{self.round}-{self.number}"


CURSOR_COUNTERS = ("msg_out_counter", "msg_redeliver_counter", "msg_ack_counter", "msg_dead_counter")
"""Columns of a cursor's row that only grow, until it is made again."""
MOST_IDS, MOST_CONCERNED = 10_000, 256
"""A round that concerns more clients names none, and everybody reads it."""
_CURSOR = CursorKey._fields
KEYS: dict[str, tuple[str, ...]] = {
    "round": (),
    "topic": ("topic_id", "partition"),
    "cursor": _CURSOR,
    "consumer": (*_CURSOR, "consumer_id"),
    "policy": ("topic", "properties"),
    "letterless": _CURSOR,
    "waiting_letter": ("delivery_round", "join_order"),
    "waiting_request": ("requests_version", "first"),
    "set_aside": ("status", "requests_version", "first", "last", "request_id", "topic", "partition", "subscription"),
}
"""The columns that identify a fact of each kind; its latest row wins.

A consumer's row without hash ranges keeps the previous ones. Of a policy's properties only the name counts. SetAside.id
identifies entries that are set aside.
"""

OF_ONE_ROUND = ("letter", "reply", "housekeeping", "reset")
"""Kinds of rows that say what a round did, and are no part of the state after it.

A reset ends the ranges that earlier rounds wrote for its cursor. An entry has the state of the latest range that
contains it.
"""

HANGS_ON: dict[str, tuple[str, ...]] = {
    "round": (),
    "topic": (),
    "cursor": ("topic",),
    "consumer": ("cursor", "topic"),
    "range": ("reset", "cursor", "topic"),
    "policy": (),
    "letter": (),
    "letterless": ("cursor", "topic"),
    "waiting_letter": (),
    "waiting_request": (),
    "set_aside": ("topic",),
}
"""For each kind, the kinds whose removal removes its facts too; they are read with it."""


class LatestRows:
    """The latest row of every fact up to a round; rounds are applied in order.

    *kinds* limits it to facts of these kinds and those that :data:`HANGS_ON` adds. Its ``round`` is then the newest at
    the first reading, and later the last one with such facts.
    """

    def __init__(self, *kinds: str):
        self.kinds = None if not kinds else {"round", *kinds, *(name for kind in kinds for name in HANGS_ON[kind])}
        self._begin()

    def _begin(self) -> None:
        self.round = self.version = 0
        self.round_row: dict | None = None
        self.topics: dict[tuple[str, int], dict] = {}
        self.cursors: dict[CursorKey, dict] = {}
        self.consumers: dict[CursorKey, dict[str, dict]] = {}
        self.maps: dict[CursorKey, EntryMap] = {}
        """The maps of cursors whose entries have rows."""
        self.policies: dict[tuple[str, str], str] = {}
        self.owners: dict[str, str] = {}
        """Ids of the topics with policies, by name."""
        self.set_aside: dict[str, SetAside] = {}
        self.letters: list[dict] = []
        """Letters the latest round asks for; they may not be written yet."""
        self.waiting_letters: dict[WaitingKey, dict] = {}
        self.waiting_requests: dict[tuple[int, int], dict] = {}
        """By the version of the requests table that holds each, and its row there."""
        self.letterless: dict[CursorKey, dict] = {}

    def catch_up(self, path: AnyPath, columns: list[str] | None = None) -> None:
        """Apply the table's next rounds, from the newest snapshot if necessary; *columns* limits the read."""
        read = partial(_read_round, path, kinds=self.kinds, columns=columns)
        wanted = self.kinds and self.kinds - {"round"}
        if self.version:
            try:
                self._take_in(since(path, read, self.version, wanted))
                return
            except LogShortened:
                self._begin()
        self._take_in(since_snapshot(path, read, wanted))

    def _take_in(self, rounds: Iterable[tuple[int, Round | None]]) -> None:
        for version, found in rounds:
            if found is None:
                self.version, self.letters = version, []
            elif found.facts.num_rows:
                self._apply_round(found)
                self.version = version

    def apply(self, rows: pa.Table) -> None:
        self._apply_round(_round_of([rows]))

    def _apply_round(self, found: Round) -> None:
        self.letters = []
        facts = python_rows(found.facts)
        for row in sorted(facts, key=lambda row: row["kind"] not in ("topic", "cursor")):  # others depend on these
            self._apply_row(row)
        changed: set[CursorKey] = set()
        for key, ranges in found.ranges:
            if key in self.cursors:
                changed.add(key)
                entries = self.maps[key] = self.entries(key)
                if isinstance(ranges[0], ScatteredRange):
                    put_scattered(entries, cast(Sequence[ScatteredRange], ranges))
                else:
                    put_ranges(entries, cast(Sequence[Range], ranges))
        for key in changed:
            pass_to(self.maps[key], self.cursors[key]["mark_delete_position"])

    def numbered_until(self, topic_id: str) -> int:
        """The last version of a topic's table that a broker has followed; 0 for none."""
        return min((row["ledger_id"] for (known, _), row in self.topics.items() if known == topic_id), default=0)

    @property
    def requests_done(self) -> int:
        """The version of the requests table up to which all are done; 0 for none."""
        consumed = self.round_row["requests_version"] if self.round_row else 0
        return min([consumed, *(version - 1 for version, _ in self.waiting_requests)])

    def ranges(self, key: CursorKey) -> list[Range]:
        """The state of a cursor's entries above mark-delete, as ranges by position."""
        return list(known_ranges(self.entries(key)))

    def entries(self, key: CursorKey) -> EntryMap:
        """The map of a cursor's entries; without rows, all after mark-delete are unread."""
        return self.maps[key] if key in self.maps else EntryMap(self.cursors[key]["mark_delete_position"])

    def states(self, key: CursorKey) -> Iterator[Range]:
        """The states of a cursor's entries (entry_ranges.states_of)."""
        return states_of(self.entries(key))

    def _apply_row(self, row: dict) -> None:
        kind = row["kind"]
        if kind == "round":
            self.round, self.round_row = row["round"], row
        elif kind == "letter":
            self.letters.append(row)
        elif kind == "policy":
            for name, value in row["properties"]:
                _replace(self.policies, (row["topic"], name), row, value)
            if row["topic_id"]:
                self.owners[row["topic"]] = row["topic_id"]
        elif kind == "set_aside":
            entry = SetAside(**{name: row[name] for name in SetAside._fields})
            _replace(self.set_aside, entry.id, row, entry)
        elif kind == "reset":
            self.maps.pop(CursorKey(*(row[name] for name in _CURSOR)), None)
        elif kind in KEYS:
            self._apply_fact(kind, row, tuple(row[name] for name in KEYS[kind]))

    def _apply_fact(self, kind: str, row: dict, key: tuple) -> None:
        if kind == "topic":
            _replace(self.topics, key, row, row)
            if row["is_removed"]:
                self._remove_topic(row["topic_id"])
        elif kind == "waiting_letter":
            _replace(self.waiting_letters, WaitingKey(*key), row, row)
        elif kind == "waiting_request":
            _replace(self.waiting_requests, key, row, row)
        else:
            self._apply_fact_of_cursor(kind, row, CursorKey(*key[:3]), key[3:])

    def _apply_fact_of_cursor(self, kind: str, row: dict, cursor: CursorKey, key: tuple) -> None:
        if kind == "letterless":
            self.letterless[cursor] = row
        elif kind == "cursor" and row["is_removed"]:
            for facts in (self.cursors, self.consumers, self.maps, self.letterless):
                facts.pop(cursor, None)
        elif kind == "cursor":
            self.cursors[cursor] = row
            self.consumers.setdefault(cursor, {})
            if cursor in self.maps:
                pass_to(self.maps[cursor], row["mark_delete_position"])
        elif cursor in self.cursors:
            before = self.consumers[cursor].get(key[0])
            if before and row.get("hash_ranges") is None:
                row["hash_ranges"] = before.get("hash_ranges")
            _replace(self.consumers[cursor], key[0], row, row)

    def _remove_topic(self, topic_id: str) -> None:
        self.topics = {key: row for key, row in self.topics.items() if key[0] != topic_id}
        for facts in (self.cursors, self.consumers, self.maps, self.letterless):
            for key in [key for key in facts if key.topic_id == topic_id]:
                del facts[key]
        self.set_aside = {
            name: entry
            for name, entry in self.set_aside.items()
            if entry.status == REQUEST or entry.topic_id != topic_id
        }


def _replace(facts: dict, key: object, row: dict, fact: object) -> None:
    facts.pop(key, None)
    if not row["is_removed"]:
        facts[key] = fact


def concerned(rows: pa.Table, of_clients: pa.Table) -> list[str] | None:
    """Names that one round's *rows* concern: clients, by the rows *of_clients* among them, kinds of facts, and
    ``snapshot``; None if there are too many."""
    ids = [*of_clients["consumer_id"].chunks, *of_clients["request_id"].chunks]
    found = pc.unique(pa.chunked_array(ids, pa.string()).drop_null())
    if len(found) > MOST_IDS:
        return None
    names = set(map(concerned_name, found.to_pylist()))
    if len(names) > MOST_CONCERNED:
        return None
    kinds = [*pc.unique(rows["kind"]).to_pylist(), *([SNAPSHOT] if pc.any(rows["is_snapshot"]).as_py() else ())]
    return sorted(names.union(kinds))


def concerned_name(name: str) -> str:
    """The client in a consumer's or request's id: the text before the last hyphen, or all of it."""
    return name.rpartition("-")[0] or name


def _read_round(path: AnyPath, commit: Commit, kinds: Collection[str] | None, columns: list[str] | None) -> Round:
    return _round_of(rows_by_part(path, commit, kinds, columns))


def _round_of(tables: Iterable[pa.Table]) -> Round:
    facts: list[pa.Table] = []
    ranges: list[tuple[CursorKey, Sequence[Range] | Sequence[ScatteredRange]]] = []
    for rows in tables:
        of_part, of_ranges = facts_and_ranges(rows)
        facts.append(of_part)
        ranges += _changes_in(of_ranges)
    return Round(pa.concat_tables(facts), ranges)


def _changes_in(rows: pa.Table) -> Iterator[tuple[CursorKey, Sequence[Range] | Sequence[ScatteredRange]]]:
    if "positions" in rows.column_names and rows["positions"].null_count < rows.num_rows:
        is_scattered = pc.is_valid(rows["positions"])
        for key, same in groupby(scattered_ranges(rows.filter(is_scattered), _CURSOR), itemgetter(0)):
            yield CursorKey(*key), [range_ for _, range_ in same]
        rows = rows.filter(pc.invert(is_scattered))
    yield from ranges_by_cursor(rows)


def ranges_by_cursor(rows: pa.Table) -> Iterator[tuple[CursorKey, Sequence[Range]]]:
    """Cursor and ranges from rows of kind ``range``; packed if they are many."""
    for key, ranges in ranges_by_place(rows, _CURSOR):
        yield CursorKey(*key), ranges


@uncollected()
def read_latest(layout: Layout, *kinds: str) -> LatestRows:
    """The state after the latest round, all or only *kinds*; empty without rounds."""
    latest = LatestRows(*kinds)
    latest.catch_up(layout.broker_table("cursor_ledger"))
    return latest
