"""The rows of rounds that can concern one entry, found by the statistics of their files.

A file is left out if the topic lies outside its bounds, no range in it reaches the entry, and no mark-delete position
in it can have passed the entry since the files before. Once the entry is acknowledged, files with news of the topic
itself are read only for mark-delete positions."""

from collections.abc import Collection, Iterator
from itertools import groupby
from operator import itemgetter
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable

from pulsar_spark.storage.delta.data_files import read_file
from pulsar_spark.storage.delta.scan import folder_of, reading
from pulsar_spark.table_specs import CURSOR_LEDGER

_COLUMNS = (
    "round kind topic_id partition subscription first last status consumer_id delivery_round redelivery_count due_time "
    "ack_set batch_size is_removed consumer_name mark_delete_position request_id text round_time properties positions"
).split()
_OF_CURSORS = ("range", "letter", "cursor", "consumer", "reset")
_CLOCKS_DIFFER_MS = 60 * 60 * 1000
"""How far the clocks of a producer and of the machine that writes files may be apart."""


class _File(NamedTuple):
    path: str
    first_round: int | None
    last_kind: str | None
    topics: tuple[str | None, str | None]
    subscriptions: tuple[str | None, str | None]
    first: int | None
    last: int | None
    marks: tuple[int | None, int | None]


class RoundsAbout:
    """The rounds about the entry at *position* of a topic partition on *subscriptions*, oldest first.

    *published_ms* is its publish time: earlier files are not read.
    """

    def __init__(
        self,
        opened: DeltaTable,
        topic: str,
        topic_id: str,
        partition: int,
        position: int,
        subscriptions: Collection[str],
        published_ms: int,
    ):
        self._opened, self._topic, self._position = opened, topic, position
        self._topic_id, self._partition, self._subscriptions = topic_id, partition, sorted(subscriptions)
        self._published_ms = published_ms
        self._passed = dict.fromkeys(self._subscriptions, False)
        self.done = dict.fromkeys(self._subscriptions, False)
        """On which subscriptions the entry is acknowledged so far, as the reader of the rounds notes it."""
        self.files_read = 0

    def __iter__(self) -> Iterator[tuple[int, list[dict]]]:
        """Number and rows of each round: its own, and those of the cursors that the entry may depend on."""
        folder = folder_of(self._opened)
        for file in self._files():
            if not self._may_concern(file):
                continue
            self.files_read += 1
            with reading(folder):
                rows = self._wanted(read_file(folder, file.path, CURSOR_LEDGER.schema, _COLUMNS))
            for number, of_round in groupby(sorted(rows, key=itemgetter("round")), itemgetter("round")):
                yield number, self._noted(list(of_round))

    def _files(self) -> list[_File]:
        actions = pa.table(self._opened.get_add_actions(flatten=True))
        if "min.topic" not in actions.column_names:
            return []
        known = {name: actions[name] for name in actions.column_names}
        is_later = pc.greater_equal(known["modification_time"], self._published_ms - _CLOCKS_DIFFER_MS)
        has_topic = pc.and_(
            pc.less_equal(known["min.topic"], self._topic), pc.greater_equal(known["max.topic"], self._topic)
        )
        has_none = pc.fill_null(pc.equal(known["null_count.topic"], known["num_records"]), False)
        has_topic = pc.coalesce(has_topic, pc.invert(has_none))
        actions = actions.filter(pc.and_(is_later, has_topic))

        def column(name: str) -> list:
            return actions[name].to_pylist() if name in actions.column_names else [None] * actions.num_rows

        def both(name: str) -> list[tuple]:
            return list(zip(column(f"min.{name}"), column(f"max.{name}")))

        found = map(
            _File,
            column("path"),
            column("min.round"),
            column("max.kind"),
            both("topic"),
            both("subscription"),
            column("min.first"),
            column("max.last"),
            both("mark_delete_position"),
        )
        return sorted(found, key=lambda file: file.first_round or 0)

    def _may_concern(self, file: _File) -> bool:
        if file.topics == (None, None):
            return True  # without statistics
        (low, high), (least, greatest) = file.marks, file.subscriptions
        if file.first is not None and file.last is not None and file.first <= self._position <= file.last:
            # A row of a topic has the first position that was not trimmed, so its file reaches nearly all entries.
            if (file.last_kind or "") < "topic" or least is None or greatest is None:
                return True
            if not all(self.done[name] for name in self._subscriptions if least <= name <= greatest):
                return True
        if low is None or high is None or least is None or greatest is None:
            return False
        passed = [self._passed[name] for name in self._subscriptions if least <= name <= greatest]
        if low >= self._position:
            return not all(passed)
        return any(passed) if high < self._position else bool(passed)

    def _wanted(self, rows: pa.Table) -> list[dict]:
        is_here = pc.and_(pc.equal(rows["topic_id"], self._topic_id), pc.equal(rows["partition"], self._partition))
        is_here = pc.and_(is_here, pc.is_in(rows["subscription"], pa.array(self._subscriptions, pa.string())))
        is_here = pc.and_(is_here, pc.is_in(rows["kind"], pa.array(_OF_CURSORS)))
        reaches = pc.and_(pc.less_equal(rows["first"], self._position), pc.greater_equal(rows["last"], self._position))
        is_about = pc.or_(
            pc.invert(pc.is_in(rows["kind"], pa.array(["range", "letter"]))), pc.fill_null(reaches, False)
        )
        about = rows.filter(pc.and_(pc.fill_null(is_here, False), is_about)).to_pylist()
        found = [row for row in about if row["positions"] is None or self._position in row["positions"]]
        numbers = pa.array({row["round"] for row in found}, pa.int64())
        own = rows.filter(pc.and_(pc.equal(rows["kind"], "round"), pc.is_in(rows["round"], numbers)))
        return [*own.to_pylist(), *found]

    def _noted(self, rows: list[dict]) -> list[dict]:
        for row in rows:
            if row["kind"] == "cursor" and row["mark_delete_position"] is not None:
                self._passed[row["subscription"]] = row["mark_delete_position"] >= self._position
        return rows
