"""Numbers that were lost: the rows of ``ledgers``, from the topics' logs. Only one outcome is possible."""

from collections.abc import Iterator
from pathlib import Path

from pulsar_spark.storage.cursor_ledger import read_latest
from pulsar_spark.storage.examination import tables_of
from pulsar_spark.storage.layout import Layout
from pulsar_spark.storage.ledgers import ledger_rows, read_ledgers, runs_of
from pulsar_spark.storage.log import TableLog
from pulsar_spark.storage.publishes import number_commit
from pulsar_spark.storage.tables import Definition, read_definition
from pulsar_spark.table_specs import LEDGERS


def missing_numbers(layout: Layout) -> list[dict]:
    """The rows that ``ledgers`` lacks of what brokers have numbered; none of topics whose first commits are gone from
    their log."""
    missing: list[dict] = []
    rows, _ = read_ledgers(layout.broker_table(LEDGERS.name))
    known = {(topic_id, partition, run.ledger_id, run.first_entry_id) for topic_id, partition, run in runs_of(rows)}
    latest = read_latest(layout, "topic")
    for name, table, topic in tables_of(layout):
        definition = read_definition(table) if topic else None
        until = latest.numbered_until(definition.table_id) if definition else 0
        if until and TableLog(table).earliest() == 0:
            missing += [
                row
                for row in _numbered(name, table, definition, until)
                if (row["topic_id"], row["partition"], row["ledger_id"], row["first_entry_id"]) not in known
            ]
    return missing


def _numbered(name: str, table: Path, definition: Definition, until: int) -> Iterator[dict]:
    ends: dict[int, int] = {}
    seen: set[str] = set()
    for commit in TableLog(table).commits(0, until):
        numbered = number_commit(table, commit, ends, seen, definition.properties.get("partitions"))
        for partition, runs in numbered.items():
            ends[partition] = runs[-1].last_position + 1 if runs else ends.get(partition, 0)
        yield from ledger_rows(name, definition.table_id, numbered)
