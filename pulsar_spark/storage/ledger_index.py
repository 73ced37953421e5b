"""Positions and message ids: what the ``ledgers`` table says of the topics a client consumes, kept in memory.

A run says that ``entries`` entries from ``first_entry_id`` on of publish commit ``ledger_id`` have the positions from
``first_position`` on, and in which file they lie. Runs of a partition are in the order of positions, which is the order
of (ledger id, entry id) too, so both lookups are a binary search. A topic's runs are loaded when it is first asked
about, and followed commit by commit from then on. The broker commits a round's ledgers before the round itself, so a
position that was delivered is always there after a refresh.
"""

import threading
from array import array
from bisect import bisect_right
from collections.abc import Iterator
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from pulsar_spark.errors import DOCTOR, CorruptState
from pulsar_spark.storage.layout import Layout
from pulsar_spark.storage.ledgers import NO_POSITION
from pulsar_spark.storage.log import TableLog
from pulsar_spark.storage.scan import dataset_of, open_table
from pulsar_spark.storage.tables import read_added
from pulsar_spark.table_specs import LEDGERS

_COLUMNS = [
    "topic_id",
    "partition",
    "ledger_id",
    "publish_id",
    "first_entry_id",
    "first_position",
    "entries",
    "batch_size",
    "path",
]


class Run(NamedTuple):
    """Entries of equal batch size in one file of a publish commit; positions and entry ids both count up by one."""

    ledger_id: int
    publish_id: str
    first_entry_id: int
    first_position: int
    entries: int
    batch_size: int
    path: str

    def part(self, first: int, last: int) -> "Run":
        """The entries of the run at positions *first*..*last*, as a run."""
        first = max(first, self.first_position)
        last = min(last, self.first_position + self.entries - 1)
        return self._replace(
            first_entry_id=self.first_entry_id + first - self.first_position,
            first_position=first,
            entries=last - first + 1,
        )


class _PartitionRuns:
    """The runs of one topic partition, in order, in columns: a run costs some 250 bytes."""

    def __init__(self):
        self._numbers = {
            name: array("q") for name in ("ledger_id", "first_entry_id", "first_position", "entries", "batch_size")
        }
        self._publish_ids: list[str] = []
        self._paths: list[str] = []

    @property
    def end(self) -> int:
        positions = self._numbers["first_position"]
        return positions[-1] + self._numbers["entries"][-1] if positions else 0

    @property
    def last_ledger_id(self) -> int:
        ledger_ids = self._numbers["ledger_id"]
        return ledger_ids[-1] if ledger_ids else -1

    def append(self, row: dict) -> None:
        """Take the next run; one already known (the broker writes again after a crash) is passed over."""
        if row["first_position"] < self.end:
            return
        for name, values in self._numbers.items():
            values.append(row[name])
        self._publish_ids.append(row["publish_id"])
        self._paths.append(row["path"])

    def __len__(self) -> int:
        return len(self._paths)

    def __getitem__(self, index: int) -> Run:
        numbers = self._numbers
        return Run(
            numbers["ledger_id"][index],
            self._publish_ids[index],
            numbers["first_entry_id"][index],
            numbers["first_position"][index],
            numbers["entries"][index],
            numbers["batch_size"][index],
            self._paths[index],
        )

    def at_position(self, position: int) -> int:
        """Index of the last run that starts at or before *position*, -1 for none."""
        return bisect_right(self._numbers["first_position"], position) - 1

    def at_entry(self, ledger_id: int, entry_id: int) -> int:
        """Index of the last run that starts at or before the entry, -1 for none."""
        ledger_ids, entry_ids = self._numbers["ledger_id"], self._numbers["first_entry_id"]
        low, high = 0, len(ledger_ids)
        while low < high:
            middle = (low + high) // 2
            if (ledger_ids[middle], entry_ids[middle]) <= (ledger_id, entry_id):
                low = middle + 1
            else:
                high = middle
        return low - 1


class LedgerIndex:
    """The runs of the topics a client asks about; shared by its consumers, safe for threads."""

    def __init__(self, layout: Layout):
        self._path = layout.broker_table(LEDGERS.name)
        self._log = TableLog(self._path)
        self._lock = threading.Lock()
        self._version: int | None = None
        self._topics: dict[str, dict[int, _PartitionRuns]] = {}
        self._foreign: dict[str, set[str]] = {}

    def runs(self, topic_id: str, partition: int, first: int, last: int) -> Iterator[Run]:
        """The runs, cut to size, of positions *first*..*last*, in order; :class:`CorruptState` for a position that is
        not numbered."""
        with self._lock:
            known = self._partition(topic_id, partition, until=last)
            if last >= known.end:
                raise CorruptState(
                    f"{str(self._path)!r}: position {last} of topic {topic_id}, partition {partition} was "
                    "delivered but has no ledger; "
                    f"{DOCTOR}"
                )
            index, found = known.at_position(first), []
            while index < len(known) and (index < 0 or known[index].first_position <= last):
                if index >= 0 and known[index].first_position + known[index].entries > first:
                    found.append(known[index].part(first, last))
                index += 1
        yield from found

    def foreign_files(self, topic_id: str) -> set[str]:
        """Files of the topic that hold rows which are no publish."""
        with self._lock:
            self._partition(topic_id, -1)
            self._refresh()
            return set(self._foreign.get(topic_id, ()))

    def find(self, topic_id: str, partition: int, ledger_id: int, entry_id: int) -> tuple[int, int] | None:
        """(position, batch size) of an entry; None for one that is not numbered, or no entry of this topic
        partition."""
        with self._lock:
            for is_refreshed in (False, True):
                known = self._partition(topic_id, partition)
                index = known.at_entry(ledger_id, entry_id)
                if index >= 0:
                    run = known[index]
                    if run.ledger_id == ledger_id and entry_id < run.first_entry_id + run.entries:
                        return run.first_position + entry_id - run.first_entry_id, run.batch_size
                if not is_refreshed:
                    self._refresh()
        return None

    def next_position(self, topic_id: str, partition: int, ledger_id: int, entry_id: int) -> int:
        """Position of the first numbered entry above the given one; the end when there is none."""
        with self._lock:
            self._refresh()
            known = self._partition(topic_id, partition)
            index = known.at_entry(ledger_id, entry_id) + 1
            return known[index].first_position if index < len(known) else known.end

    def end(self, topic_id: str, partition: int) -> int:
        """The position the next numbered entry of the partition gets."""
        with self._lock:
            self._refresh()
            return self._partition(topic_id, partition).end

    def last_ledger_id(self, topic_id: str, partition: int) -> int:
        """The last publish commit with numbered entries in the partition, -1 for none."""
        with self._lock:
            self._refresh()
            return self._partition(topic_id, partition).last_ledger_id

    def _partition(self, topic_id: str, partition: int, until: int = -1) -> _PartitionRuns:
        partitions = self._topics.get(topic_id)
        if partitions is None:
            partitions = self._load(topic_id)
        known = partitions.setdefault(partition, _PartitionRuns())
        if until >= known.end:
            self._refresh()
        return known

    def _load(self, topic_id: str) -> dict[int, _PartitionRuns]:
        self._refresh()
        version = self._log.latest() if self._version is None else self._version
        partitions: dict[int, _PartitionRuns] = {}
        if version > 0:
            dataset = dataset_of(open_table(self._path, version))
            self._append(
                topic_id, partitions, dataset.to_table(columns=_COLUMNS, filter=pc.field("topic_id") == topic_id)
            )
        self._version = version
        self._topics[topic_id] = partitions
        return partitions

    def _refresh(self) -> None:
        if self._version is None:
            return
        for commit in self._log.commits(after=self._version):
            rows = read_added(self._path, commit, LEDGERS.schema, _COLUMNS)
            for topic_id in pc.unique(rows.column("topic_id")).to_pylist():
                if topic_id in self._topics:
                    self._append(
                        topic_id, self._topics[topic_id], rows.filter(pc.equal(rows.column("topic_id"), topic_id))
                    )
            self._version = commit.version

    def _append(self, topic_id: str, partitions: dict[int, _PartitionRuns], rows: pa.Table) -> None:
        """Take in rows of a topic: runs, and notes of files that hold none (see storage.ledgers)."""
        for row in rows.sort_by([("partition", "ascending"), ("first_position", "ascending")]).to_pylist():
            if row["first_position"] != NO_POSITION:
                partitions.setdefault(row["partition"], _PartitionRuns()).append(row)
            elif row["path"]:
                self._foreign.setdefault(topic_id, set()).add(row["path"])
