"""The ``ledgers`` table: where every entry of a topic lies, in memory by partition (see storage.ledgers.publishes)."""

from collections.abc import Iterable, Iterator
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable

from pulsar_spark.errors import DOCTOR, CorruptState
from pulsar_spark.protocol.topics.numbering import NO_POSITION, Run
from pulsar_spark.storage.cursor_ledger.cursor_ledger import read_latest
from pulsar_spark.storage.delta.log import TableLog
from pulsar_spark.storage.delta.scan import open_table
from pulsar_spark.storage.delta.table_parts import Term, read_parts, term
from pulsar_spark.storage.entries.topic_files import trimmed_ledgers
from pulsar_spark.storage.layout import Layout
from pulsar_spark.storage.ledgers.partition_ledgers import PartitionLedgers
from pulsar_spark.storage.ledgers.publishes import number_commit
from pulsar_spark.storage.store.store import AnyPath
from pulsar_spark.storage.topics.bundles import layout_of
from pulsar_spark.storage.topics.topics import Topic
from pulsar_spark.table_specs import LEDGERS


def read_ledgers(path: AnyPath, *, topic_id: str | None = None) -> tuple[pa.Table, int]:
    """All rows of the table, or of one topic, and the table's version."""
    table = open_table(path)
    wanted = [term("topic_id", "==", topic_id)] if topic_id else []
    return stored_rows(table, LEDGERS.schema.names, wanted), table.version()


def stored_rows(table: DeltaTable, columns: Iterable[str], wanted: Iterable[Term] = ()) -> pa.Table:
    """*columns* of the *wanted* rows; a column that the table lacks is null."""
    schema = pa.schema([LEDGERS.schema.field(name) for name in columns])
    return pa.concat_tables([schema.empty_table(), *read_parts(table, LEDGERS.schema, schema.names, wanted)])


def ledgers_of_topic(layout: Layout, topic_id: str) -> dict[int, PartitionLedgers]:
    """The runs of each partition of a topic, as numbered so far."""
    found: dict[int, PartitionLedgers] = {}
    rows, _ = read_ledgers(layout.broker_table(LEDGERS.name), topic_id=topic_id)
    for _, partition, runs in by_partition(rows):
        found.setdefault(partition, PartitionLedgers()).extend(runs)
    return found


def ledgers_until(layout: Layout, topic: Topic, until: int) -> dict[int, PartitionLedgers]:
    """Runs by partition up to version *until*, numbered or not; :class:`CorruptState` if some can be found nowhere."""
    found = FollowedLedgers(layout, topic)
    found.follow(until)
    return found.partitions


class FollowedLedgers:
    """The runs of a topic by partition up to ``version`` of its table, for readers that follow its log."""

    def __init__(self, layout: Layout, topic: Topic):
        self._layout, self._topic, self._log = layout, topic, TableLog(topic.path)
        self.partitions: dict[int, PartitionLedgers] = {}
        self.version = -1
        self._publish_ids: set[str] = set()
        self._trimmed: dict[int, int] | None = None

    def follow(self, until: int) -> None:
        """Add the runs of later commits, up to version *until*; errors as of :func:`ledgers_until`."""
        if self.version < 0 or (self.version < until and not self._log.has(self.version + 1)):
            self._load(until)
        for commit in self._log.commits(self.version, until):
            ends = {partition: ledgers.end_position for partition, ledgers in self.partitions.items()}
            numbered = number_commit(self._topic.path, commit, ends, self._publish_ids, self._topic.partitions)
            for partition, runs in numbered.items():
                for run in runs:
                    self.partitions.setdefault(partition, PartitionLedgers()).add(run)
            if self._trimmed is not None:
                self._trimmed.update(commit.trimmed)
            self.version = commit.version

    def first_position(self, partition: int) -> int:
        """The first position of *partition* that was not trimmed."""
        if self._trimmed is None:
            self._trimmed = trimmed_ledgers(self._topic.path, self.partitions)
        known, last = self.partitions.get(partition), self._trimmed.get(partition, 0)
        return known.first_after(last) if known is not None and last else 0

    def _load(self, until: int) -> None:
        topic, layout = self._topic, layout_of(self._layout, self._topic.name)
        numbered = self._load_numbered(layout, until)
        if numbered < until and not self._log.has(numbered + 1):  # commits without a publish may be gone
            followed = read_latest(layout, "topic").numbered_until(topic.topic_id)
            numbered = max(self._load_numbered(layout, until), followed)
        if numbered < until and not self._log.has(numbered + 1):
            raise CorruptState(
                f"topic {str(topic.name)!r}: commit {numbered + 1} is missing from the log and not numbered: {DOCTOR}"
            )
        self.version, self._trimmed = min(numbered, until), None

    def _load_numbered(self, layout: Layout, until: int) -> int:
        rows, _ = read_ledgers(layout.broker_table(LEDGERS.name), topic_id=self._topic.topic_id)
        self.partitions, self._publish_ids, numbered = {}, set(), 0
        for _, partition, run in runs_of(rows):
            if run.ledger_id <= until:
                self.partitions.setdefault(partition, PartitionLedgers()).add(run)
                self._publish_ids.add(run.publish_id)
            numbered = max(numbered, run.ledger_id)
        return numbered


def by_partition(rows: pa.Table) -> Iterator[tuple[str, int, pa.Table]]:
    """(topic id, partition, rows) of each topic partition's runs, without notes, in no order."""
    for topic_id, of_topic in groups(rows.filter(pc.greater(rows["first_position"], NO_POSITION)), "topic_id"):
        for partition, runs in groups(of_topic, "partition"):
            yield topic_id, partition, runs


def groups(rows: pa.Table, name: str) -> Iterator[tuple[Any, pa.Table]]:
    """(value, rows) of every value of a column without nulls."""
    least, most = pc.min_max(rows[name]).as_py().values()
    if least == most:
        yield from [(least, rows)] if rows.num_rows else []
        return
    rows = rows.sort_by(name)
    values = pc.run_end_encode(rows[name].combine_chunks())
    ends = values.run_ends.to_pylist()
    for value, first, end in zip(values.values.to_pylist(), [0, *ends], ends):
        yield value, rows.slice(first, end - first)


def runs_of(rows: pa.Table) -> Iterator[tuple[str, int, Run]]:
    """(topic id, partition, run) of every run, in order of position."""
    rows = rows.filter(pc.greater(rows["first_position"], NO_POSITION))
    columns = [rows.column(name).to_pylist() for name in ("topic_id", "partition", *Run._fields)]
    for topic_id, partition, *fields in sorted(zip(*columns), key=lambda row: (row[0], row[1], row[2])):
        yield topic_id, partition, Run._make(fields)
