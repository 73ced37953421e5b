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
    log, layout = TableLog(topic.path), layout_of(layout, topic.name)
    partitions, publish_ids, numbered = _numbered_until(layout, topic, until)
    if numbered < until and not log.has(numbered + 1):  # commits without a publish, such as an OPTIMIZE, may be gone
        followed = read_latest(layout, "topic").numbered_until(topic.topic_id)
        partitions, publish_ids, numbered = _numbered_until(layout, topic, until)
        numbered = max(numbered, followed)
    if numbered < until and not log.has(numbered + 1):
        raise CorruptState(
            f"topic {str(topic.name)!r}: commit {numbered + 1} is missing from the log and not numbered: {DOCTOR}"
        )
    for commit in log.commits(numbered, until):
        ends = {partition: ledgers.end_position for partition, ledgers in partitions.items()}
        for partition, runs in number_commit(topic.path, commit, ends, publish_ids, topic.partitions).items():
            for run in runs:
                partitions.setdefault(partition, PartitionLedgers()).add(run)
    return partitions


def _numbered_until(layout: Layout, topic: Topic, until: int) -> tuple[dict[int, PartitionLedgers], set[str], int]:
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
