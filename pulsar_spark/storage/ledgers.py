"""The ``ledgers`` table: where every entry of a topic lies, in memory by partition.

A projection of ``messages``: any reader of the log comes to the same rows (see storage.publishes), so a crash between
writing them and the round that uses them is repaired by reading them back.
"""

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable

from pulsar_spark.errors import DOCTOR, CorruptState
from pulsar_spark.protocol.numbering import NO_POSITION, Run
from pulsar_spark.storage.cursor_ledger import read_latest
from pulsar_spark.storage.data_files import conform
from pulsar_spark.storage.layout import Layout
from pulsar_spark.storage.log import TableLog
from pulsar_spark.storage.packed_columns import Column, Flags, Instants, Optional, Texts, numbers
from pulsar_spark.storage.publishes import number_commit
from pulsar_spark.storage.scan import dataset_of, open_table
from pulsar_spark.storage.topics import Topic
from pulsar_spark.table_specs import LEDGERS

_OTHERS = dict.fromkeys(("publish_id", "path"), Texts)
_OTHERS |= dict.fromkeys(("min_publish_time", "max_publish_time"), Instants)
_OTHERS |= dict.fromkeys(("has_delayed", "has_chunks", "has_keys", "has_encoded"), Flags)
_OTHERS |= dict.fromkeys(("delayed_after", "chunks_from"), Optional)
"""Fields of a run beside its numbers, and in what they are kept."""


class PartitionLedgers:
    """The runs of one topic partition in order of position, with the sums that turn positions into messages: the one
    index of where entries lie. In packed columns, because there are many: a run costs some 230 bytes.

    Order of positions is that of (ledger id, entry id) too, so whatever is looked up costs a binary search.
    """

    def __init__(self):
        self._numbers = {name: array("q") for name in ("first_position", "entries", "batch_size", "ledger_id")}
        self._numbers |= {name: array("q") for name in ("first_entry_id", "bytes", "messages_before")}
        self._others: dict[str, Column] = {name: made() for name, made in _OTHERS.items()}
        self._firsts, self._ledger_ids = self._numbers["first_position"], self._numbers["ledger_id"]
        self._columns = [self._numbers[name] if name in self._numbers else self._others[name] for name in Run._fields]
        self.last_delayed_position = -1
        """Behind it there are no entries that wait for their deliver time (protocol.delays)."""
        self._chunk_runs = array("q")
        """Indexes of the runs that may have chunks."""

    def __len__(self) -> int:
        return len(self._firsts)

    def __getitem__(self, index: int) -> Run:
        return Run(*(column[index] for column in self._columns))

    @property
    def runs(self) -> Sequence[Run]:
        """All of them, in order."""
        return _Runs(self)

    @property
    def end_position(self) -> int:
        """Position the next entry gets."""
        return self._firsts[-1] + self._numbers["entries"][-1] if self._firsts else 0

    @property
    def last_ledger_id(self) -> int:
        """The last publish commit with entries here, -1 for none."""
        return self._ledger_ids[-1] if self._firsts else -1

    def add(self, run: Run) -> None:
        """Append the next run; one already known is passed over."""
        if run.first_position < self.end_position:
            return
        if run.first_position > self.end_position:
            raise CorruptState(
                f"ledger {run.ledger_id}: positions {self.end_position} to {run.first_position - 1} are missing: "
                "rebuild the ledgers table"
            )
        self._numbers["messages_before"].append(self.messages_before(run.first_position))
        for column, value in zip(self._columns, run):
            column.append(value or 0 if type(column) is array else value)
        if run.delayed_after is not None:
            self.last_delayed_position = run.last_position
        if run.may_have_chunks:
            self._chunk_runs.append(len(self) - 1)

    def extend(self, rows: pa.Table) -> None:
        """Append the runs of rows of the table that are of this partition; as :meth:`add`, but all at once where they
        are the first, and none is missing or twice."""
        rows = rows.sort_by("first_position")
        columns = {name: rows.column(name).combine_chunks() for name in Run._fields}
        known = {name: numbers(columns[name]) for name in self._numbers if name in columns}
        ends = known["first_position"] + known["entries"]
        if len(self) or (known["first_position"] != np.concatenate([[0], ends[:-1]])).any():
            for run in _runs(rows):
                self.add(run)
            return
        messages = known["entries"] * known["batch_size"]
        known["messages_before"] = np.cumsum(messages) - messages
        for name, column in self._numbers.items():
            column.frombytes(known[name].astype(np.int64).tobytes())
        for name, column in self._others.items():
            column.extend(columns[name])
        delayed = np.flatnonzero(columns["delayed_after"].is_valid().to_numpy(zero_copy_only=False))
        if len(delayed):
            self.last_delayed_position = int(ends[delayed[-1]]) - 1
        may_have_chunks = pc.fill_null(columns["has_chunks"], False).to_numpy(zero_copy_only=False)
        self._chunk_runs.extend(np.flatnonzero(may_have_chunks & (known["batch_size"] == 1)).tolist())

    @property
    def last_chunk_position(self) -> int:
        """Behind it there are no chunks (protocol.chunking); -1 where there are none at all."""
        return self[self._chunk_runs[-1]].last_position if self._chunk_runs else -1

    def chunk_runs(self, first: int) -> Iterator[Run]:
        """The runs with positions from *first* on that may have chunks, whole."""
        at = bisect_left(self._chunk_runs, max(self.index_of(first), 0))
        if at < len(self._chunk_runs) and self[self._chunk_runs[at]].last_position < first:
            at += 1
        return (self[index] for index in self._chunk_runs[at:])

    def index_of(self, position: int) -> int:
        """Index of the run that holds *position*, or of the last run before it; -1 before the first."""
        return bisect_right(self._firsts, position) - 1

    def index_of_entry(self, ledger_id: int, entry_id: int) -> int:
        """The same for the entry, or the last before it."""
        first, last = bisect_left(self._ledger_ids, ledger_id), bisect_right(self._ledger_ids, ledger_id)
        return bisect_right(self._numbers["first_entry_id"], entry_id, first, last) - 1

    def first_behind(self, ledger_id: int) -> int:
        """Position of the first entry of a later ledger; the end position when there is none."""
        index = bisect_right(self._ledger_ids, ledger_id)
        return self._firsts[index] if index < len(self) else self.end_position

    def overlapping(self, first: int, last: int) -> Iterator[Run]:
        """The runs that hold positions *first*..*last*."""
        for index in range(max(self.index_of(first), 0), len(self)):
            if self._firsts[index] > last:
                return
            yield self[index]

    def parts(self, first: int, last: int) -> Iterator[Run]:
        """The same, cut to those positions; :class:`CorruptState` for one that is not numbered."""
        if first < 0 or last >= self.end_position:
            missing = first if first < 0 or first >= self.end_position else self.end_position
            raise CorruptState(f"position {missing} is in no ledger: {DOCTOR}")
        return (run.part(first, last) for run in self.overlapping(first, last))

    def spans_of(self, spans: Iterable[tuple[int, int]]) -> Iterator[tuple[Run, list[tuple[int, int]]]]:
        """The runs that hold positions of *spans* (first, last), in order and none overlapping the next, each with its
        parts of them."""
        run, until, end, parts = None, -1, self.end_position - 1, []
        for first, last in spans:
            last = min(last, end)
            while first <= last:
                if run is None or first > until:
                    if parts:
                        yield run, parts
                    run, parts = next(self.overlapping(first, first)), []
                    until = run.last_position
                parts.append((first, min(last, until)))
                first = until + 1
        if parts:
            yield run, parts

    def batch_sizes(self, positions: np.ndarray) -> np.ndarray:
        """The messages of each of the entries at *positions*, which are numbered, in any order."""
        indexes = np.searchsorted(np.frombuffer(self._firsts, np.int64), positions, "right") - 1
        return np.frombuffer(self._numbers["batch_size"], np.int64)[indexes]

    def messages_before(self, position: int) -> int:
        """Messages of all entries below *position*."""
        index = self.index_of(position - 1)
        if index < 0:
            return 0
        entries = min(position - self._firsts[index], self._numbers["entries"][index])
        return self._numbers["messages_before"][index] + entries * self._numbers["batch_size"][index]


class _Runs(Sequence):
    """The runs of a partition, each made when it is asked for."""

    def __init__(self, ledgers: PartitionLedgers):
        self._ledgers = ledgers

    def __len__(self) -> int:
        return len(self._ledgers)

    def __getitem__(self, index: int | slice) -> Run | list[Run]:
        if isinstance(index, slice):
            return [self._ledgers[at] for at in range(*index.indices(len(self)))]
        return self._ledgers[index]


def read_ledgers(path: Path, *, topic_id: str | None = None) -> tuple[pa.Table, int]:
    """All rows of the table (of one topic), and the version they were read at."""
    table = open_table(path)
    wanted = pc.field("topic_id") == topic_id if topic_id else None
    return stored_rows(table, LEDGERS.schema.names, wanted), table.version()


def stored_rows(table: DeltaTable, columns: list[str], wanted: pc.Expression | None = None) -> pa.Table:
    """Some columns of the rows that are *wanted*; one that the table does not have yet is null."""
    dataset = dataset_of(table)
    there = [name for name in columns if name in dataset.schema.names]
    rows = dataset.to_table(columns=there, filter=wanted)
    return conform(rows, pa.schema([LEDGERS.schema.field(name) for name in columns]))


def ledgers_of_topic(layout: Layout, topic_id: str) -> dict[int, PartitionLedgers]:
    """The runs of each partition of a topic, as numbered so far."""
    found: dict[int, PartitionLedgers] = {}
    rows, _ = read_ledgers(layout.broker_table(LEDGERS.name), topic_id=topic_id)
    for _, partition, runs in by_partition(rows):
        found.setdefault(partition, PartitionLedgers()).extend(runs)
    return found


def ledgers_until(layout: Layout, topic: Topic, until: int) -> dict[int, PartitionLedgers]:
    """The runs of each partition that were published up to version *until*, whether or not a broker has numbered them
    yet: what it will write later is the same. :class:`CorruptState` when log and ``ledgers`` both lack some."""
    log = TableLog(topic.path)
    partitions, publish_ids, numbered = _numbered_until(layout, topic, until)
    if numbered < until and not log.has(numbered + 1):  # what a broker has followed may be gone, such as an OPTIMIZE
        followed = read_latest(layout, "topic").numbered_until(topic.topic_id)
        partitions, publish_ids, numbered = _numbered_until(layout, topic, until)
        numbered = max(numbered, followed)
    if numbered < until and not log.has(numbered + 1):
        raise CorruptState(
            f"topic {str(topic.name)!r}: commit {numbered + 1} is neither in the log nor numbered: {DOCTOR}"
        )
    for commit in log.commits(numbered, until):
        ends = {partition: ledgers.end_position for partition, ledgers in partitions.items()}
        for partition, runs in number_commit(topic.path, commit, ends, publish_ids, topic.partitions).items():
            for run in runs:
                partitions.setdefault(partition, PartitionLedgers()).add(run)
    return partitions


def _numbered_until(layout: Layout, topic: Topic, until: int) -> tuple[dict[int, PartitionLedgers], set[str], int]:
    """The runs up to version *until* that are numbered; the publish ids of all, and the last version that has some."""
    rows, _ = read_ledgers(layout.broker_table(LEDGERS.name), topic_id=topic.topic_id)
    partitions: dict[int, PartitionLedgers] = {}
    numbered, publish_ids = 0, set()
    for _, partition, run in runs_of(rows):
        if run.ledger_id <= until:
            partitions.setdefault(partition, PartitionLedgers()).add(run)
        publish_ids.add(run.publish_id)
        numbered = max(numbered, run.ledger_id)
    return partitions, publish_ids, numbered


def by_partition(rows: pa.Table) -> Iterator[tuple[str, int, pa.Table]]:
    """(topic id, partition, rows) of every topic partition that has runs: without notes, in no order."""
    rows = rows.filter(pc.greater(rows["first_position"], NO_POSITION)).sort_by("topic_id")
    for topic_id, first, last in stretches(rows["topic_id"]):
        of_topic = rows.slice(first, last - first).sort_by("partition")
        for partition, begin, end in stretches(of_topic["partition"]):
            yield topic_id, partition, of_topic.slice(begin, end - begin)


def stretches(values: pa.ChunkedArray) -> Iterator[tuple[object, int, int]]:
    """(value, first, end) of each stretch of equal *values*, which are in order."""
    found = pc.run_end_encode(values.combine_chunks()) if len(values) else None
    ends = [] if found is None else found.run_ends.to_pylist()
    yield from zip([] if found is None else found.values.to_pylist(), [0, *ends], ends)


def _runs(rows: pa.Table) -> Iterator[Run]:
    yield from (Run(*fields) for fields in zip(*(rows.column(name).to_pylist() for name in Run._fields)))


def runs_of(rows: pa.Table) -> Iterator[tuple[str, int, Run]]:
    """(topic id, partition, run) of every run, in order of position."""
    rows = rows.filter(pc.greater(rows["first_position"], NO_POSITION))
    columns = [rows.column(name).to_pylist() for name in ("topic_id", "partition", *Run._fields)]
    for topic_id, partition, *fields in sorted(zip(*columns), key=lambda row: (row[0], row[1], row[2])):
        yield topic_id, partition, Run(*fields)
