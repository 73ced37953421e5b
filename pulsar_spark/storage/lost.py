"""Which messages of a topic are lost: published, never taken out of its table, and their file is gone from the disk, is
not whole, or has bytes in it that are no longer what was written."""

import os
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import NamedTuple

from pulsar_spark.protocol.numbering import Run
from pulsar_spark.storage.bundles import layout_of
from pulsar_spark.storage.entries import EntryReader
from pulsar_spark.storage.layout import Layout
from pulsar_spark.storage.message_files import is_sound
from pulsar_spark.storage.missing import Missing
from pulsar_spark.storage.needed_runs import passed_paths, runs_from
from pulsar_spark.storage.topic_files import files_of, is_there, live_files
from pulsar_spark.storage.topics import Topic
from pulsar_spark.table_specs import LEDGERS


class LostEntries(NamedTuple):
    """A stretch of lost entries, by position and by the entry ids of their publish commit."""

    partition: int
    first_position: int
    last_position: int
    ledger_id: int
    first_entry_id: int
    last_entry_id: int
    messages: int
    path: str


def find_missing(table: str | os.PathLike, run: Run, spans: Iterable[tuple[int, int]] | None = None) -> Missing | None:
    """What is not in the table any more of the entries of *run*, or of its positions first..last of each of *spans* (in
    order, none overlaps the next), without reading them where its file is still the table's and ends as a Parquet file
    does."""
    return None if is_as_published(table, run) else _missing(table, run, (), spans)


def is_as_published(table: str | os.PathLike, run: Run) -> bool:
    """Is the file of *run* still the table's, and does it end as a Parquet file does?"""
    holders = files_of(table).holders(run.path, run.publish_id, run.ledger_id)
    return holders == [run.path] and is_there(f"{table}/{run.path}")


def _missing(
    table: str | os.PathLike, run: Run, columns: tuple[str, ...] | None, spans: Iterable[tuple[int, int]] | None = None
) -> Missing | None:
    found = EntryReader().read(table, run, spans, columns)
    return next((rows for rows in found if isinstance(rows, Missing)), None)


def lost_entries_of(
    layout: Layout, topic: Topic, partitions: list[int], since: Mapping[int, int] = MappingProxyType({})
) -> list[LostEntries]:
    """What is lost of some partitions, as far as a broker has numbered it, in order of position; of a partition in
    *since* the runs that reach behind that position. Their files are read, because damage inside one shows only then;
    where all are sound no run is.
    """
    path, firsts = (
        layout_of(layout, topic.name).broker_table(LEDGERS.name),
        {each: since.get(each, -1) + 1 for each in partitions},
    )
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
    if missing is None or not missing.is_lost:
        return []
    return [
        LostEntries(
            partition,
            first + run.to_position,
            last + run.to_position,
            run.ledger_id,
            first,
            last,
            (last - first + 1) * run.batch_size,
            missing.lost,
        )
        for first, last in missing.entries
    ]
