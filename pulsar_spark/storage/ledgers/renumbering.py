"""Restore lost rows of ``ledgers`` from topics' logs; a shortened log is numbered back from the latest round's end."""

from collections import Counter, defaultdict
from collections.abc import Iterator

from pulsar_spark.protocol.topics.numbering import Run
from pulsar_spark.protocol.topics.topic_name import TopicName
from pulsar_spark.storage.cursor_ledger.cursor_ledger import LatestRows, read_latest
from pulsar_spark.storage.delta.definitions import read_definition
from pulsar_spark.storage.delta.log import TableLog
from pulsar_spark.storage.layout import Layout
from pulsar_spark.storage.ledgers.ledger_rows import ledger_rows
from pulsar_spark.storage.ledgers.ledgers import read_ledgers, runs_of
from pulsar_spark.storage.ledgers.publishes import number_commit
from pulsar_spark.storage.repair.examination import tables_of
from pulsar_spark.storage.store.store import AnyPath
from pulsar_spark.storage.topics.bundles import layout_of
from pulsar_spark.table_specs import LEDGERS

Numbered = list[tuple[int, Run]]


def missing_numbers(layout: Layout) -> tuple[list[dict], list[str]]:
    """Rows that ``ledgers`` lacks for all topics of a bundle, and reports of what is lost."""
    missing, lost, known = list[dict](), list[str](), defaultdict[str, Numbered](list)
    rows, _ = read_ledgers(layout.broker_table(LEDGERS.name))
    for topic_id, partition, run in runs_of(rows):
        known[topic_id].append((partition, run))
    latest = read_latest(layout, "topic")
    for name, table, topic in tables_of(layout):
        if topic is not None and layout_of(layout, topic).bundle == layout.bundle:
            topic_id = read_definition(table).table_id
            again = _lacking(table, topic_id, latest, known[topic_id])
            for partition, run in again:
                missing.extend(ledger_rows(name, topic_id, {partition: [run]}))
            lost.extend(_gaps(topic, [*known[topic_id], *again]))
    return missing, lost


def _lacking(table: AnyPath, topic_id: str, latest: LatestRows, known: Numbered) -> Numbered:
    """Runs of the topic's log that are not *known*; none if contradictory."""
    begins, until = max(TableLog(table).earliest(), 1), latest.numbered_until(topic_id)
    if not until:
        return []
    numbered = _numbered(table, begins, until, {run.publish_id for _, run in known if run.ledger_id < begins})
    if begins > 1:
        entries = Counter[int]()
        for partition, run in numbered:
            entries[partition] += run.entries
        firsts = {
            partition: row["end_position"] - entries[partition]
            for (of, partition), row in latest.topics.items()
            if of == topic_id
        }
        numbered = [
            (partition, run._replace(first_position=run.first_position + firsts[partition]))
            for partition, run in numbered
        ]
    places = {(partition, run.ledger_id, run.first_entry_id): run.first_position for partition, run in known}
    found = [
        (places.get((partition, run.ledger_id, run.first_entry_id)), partition, run) for partition, run in numbered
    ]
    if any(place not in (None, run.first_position) for place, _, run in found):
        return []
    return [(partition, run) for place, partition, run in found if place is None]


def _numbered(table: AnyPath, begins: int, until: int, seen: set[str]) -> Numbered:
    ends, found = dict[int, int](), Numbered()
    partitions = read_definition(table).properties.get("partitions")
    for commit in TableLog(table).commits(begins - 1, until):
        for partition, runs in number_commit(table, commit, ends, seen, partitions).items():
            ends[partition] = runs[-1].last_position + 1 if runs else ends.get(partition, 0)
            found += [(partition, run) for run in runs]
    return found


def _gaps(topic: TopicName, numbered: Numbered) -> Iterator[str]:
    ends = Counter[int]()
    for partition, run in sorted(numbered, key=lambda each: (each[0], each[1].first_position)):
        if run.first_position > ends[partition]:
            yield (
                f"positions {ends[partition]} to {run.first_position - 1} of {str(topic.partition(partition))!r} were "
                "numbered in commits that are missing from the topic's log: restore the table from a backup"
            )
        ends[partition] = max(ends[partition], run.last_position + 1)
