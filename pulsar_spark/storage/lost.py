"""Which messages of a topic are lost: published, never taken out of its table, and their file is gone from
the disk, or is not whole."""

from typing import NamedTuple

from pulsar_spark.protocol.numbering import Run
from pulsar_spark.storage.layout import Layout
from pulsar_spark.storage.ledgers import ledgers_of_topic
from pulsar_spark.storage.published import find_missing
from pulsar_spark.storage.topic_files import is_there, live_files
from pulsar_spark.storage.topics import Topic


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


def lost_entries_of(layout: Layout, topic: Topic, partitions: list[int]) -> list[LostEntries]:
    """What is lost of some partitions, as far as a broker has numbered it, in order of position."""
    live = set(live_files(topic.path))
    if all(is_there(f"{topic.path}/{path}") for path in live):
        return []
    ledgers = ledgers_of_topic(layout, topic.topic_id)
    found = []
    for partition in partitions:
        for run in ledgers[partition].runs if partition in ledgers else ():
            if run.path not in live or not is_there(f"{topic.path}/{run.path}"):
                found += _lost_of(topic, partition, run)
    return found


def _lost_of(topic: Topic, partition: int, run: Run) -> list[LostEntries]:
    missing = find_missing(topic.path, partition, run)
    if missing is None or not missing.is_lost:
        return []
    to_position = run.first_position - run.first_entry_id
    ranges = missing.whole + [(entry_id, entry_id) for entry_id in missing.parts]
    return [
        LostEntries(
            partition,
            first + to_position,
            last + to_position,
            run.ledger_id,
            first,
            last,
            (last - first + 1) * run.batch_size,
            missing.lost,
        )
        for first, last in sorted(ranges)
    ]
