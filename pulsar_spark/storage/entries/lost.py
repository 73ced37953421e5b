"""Lost messages of a topic: never removed from its table, but their file is missing, incomplete or damaged."""

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import NamedTuple

from pulsar_spark.protocol.topics.numbering import Run
from pulsar_spark.storage.entries.entries import EntryReader
from pulsar_spark.storage.entries.message_files import is_sound
from pulsar_spark.storage.entries.missing import Missing
from pulsar_spark.storage.entries.topic_files import files_of, is_there, live_files
from pulsar_spark.storage.layout import Layout
from pulsar_spark.storage.ledgers.needed_runs import passed_paths, runs_from
from pulsar_spark.storage.store.store import StrPath
from pulsar_spark.storage.topics.bundles import layout_of
from pulsar_spark.storage.topics.topics import Topic
from pulsar_spark.table_specs import LEDGERS


class LostEntries(NamedTuple):
    """A stretch of lost entries, by position and by entry ids of their commit."""

    partition: int
    first_position: int
    last_position: int
    ledger_id: int
    first_entry_id: int
    last_entry_id: int
    messages: int
    path: str


def find_missing(table: StrPath, run: Run, spans: Iterable[tuple[int, int]] | None = None) -> Missing | None:
    """The missing messages of *run*, or of its ordered *spans*; reads them unless the file is as published."""
    return None if is_as_published(table, run) else _missing(table, run, (), spans)


def is_as_published(table: StrPath, run: Run) -> bool:
    holders = files_of(table).holders(run.path, run.publish_id, run.ledger_id)
    return holders == [run.path] and is_there(f"{table}/{run.path}")


def _missing(
    table: StrPath, run: Run, columns: tuple[str, ...] | None, spans: Iterable[tuple[int, int]] | None = None
) -> Missing | None:
    found = EntryReader().read(table, run, spans, columns)
    return next((rows for rows in found if isinstance(rows, Missing)), None)


def lost_entries_of(
    layout: Layout, topic: Topic, partitions: list[int], since: Mapping[int, int] = MappingProxyType({})
) -> list[LostEntries]:
    """Lost numbered entries of *partitions*, by position, after *since* if given. Reads the files."""
    path = layout_of(layout, topic.name).broker_table(LEDGERS.name)
    firsts = {each: since.get(each, -1) + 1 for each in partitions}
    live = set(live_files(topic.path))
    if since:
        live -= passed_paths(path, topic.topic_id, firsts, live)
    sound = {each for each in live if is_sound(f"{topic.path}/{each}")}
    if live == sound:
        return []
    return [
        lost
        for partition, first in firsts.items()
        for run in runs_from(path, topic.topic_id, partition, first).runs
        if run.path not in sound
        for lost in _lost_of(topic, partition, run)
    ]


def _lost_of(topic: Topic, partition: int, run: Run) -> list[LostEntries]:
    missing = _missing(topic.path, run, None)
    if missing is None or missing.lost is None:
        return []
    found = []
    for first, last in missing.entries:
        positions, messages = (first + run.to_position, last + run.to_position), (last - first + 1) * run.batch_size
        found.append(LostEntries(partition, *positions, run.ledger_id, first, last, messages, missing.lost))
    return found
