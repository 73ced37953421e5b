"""Cut ranges of positions into slices: what one task reads, as files and ranges of entries in them."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from pyspark.sql.datasource import InputPartition

from pulsar_spark.frames.source.followed_topic import FollowedTopic
from pulsar_spark.protocol.topics.numbering import Run
from pulsar_spark.storage.delta.data_files import ROW_GROUP_ROWS
from pulsar_spark.storage.entries.entries import are_as_published
from pulsar_spark.storage.entries.slices import PositionRange
from pulsar_spark.storage.ledgers.partition_ledgers import PartitionLedgers

SLICE_BYTES, SLICE_RUNS = 64 << 20, 4096
"""The most bytes and runs of a slice, unless one entry has more."""


@dataclass(frozen=True)
class MessageSlice(InputPartition):
    """Entries of *partition* of the topic with the table *table*: *runs*, cut to the positions to read, in order.

    ``as_published`` says by run that no commit has removed its rows. ``chunk_runs`` are the whole runs with the chunks
    of messages that end here. What a broker delivered has more: ``named`` are the packed stretches of positions to read
    of each run, None for all, and ``units`` the first and last positions of the chunked messages. With ``skips_lost``
    lost messages are left out."""

    topic: str
    table: str
    partition: int
    runs: tuple[Run, ...]
    as_published: tuple[bool, ...]
    chunk_runs: tuple[Run, ...] = ()
    named: tuple[bytes | None, ...] = ()
    units: tuple[tuple[int, int], ...] | None = None
    skips_lost: bool = False


def slices_of(topic: FollowedTopic, ranges: Iterable[PositionRange]) -> list[MessageSlice]:
    """The slices of *ranges*, in order, without what was trimmed."""
    found = []
    for range_ in ranges:
        known = topic.ledgers(range_.partition)
        first = max(range_.first, topic.first_position(range_.partition))
        if first <= range_.last:
            runs = split(known.parts(first, range_.last))
            found += [_slice(topic, range_.partition, known, each) for each in together(runs)]
    return found


def split(runs: Iterable[Run]) -> Iterator[Run]:
    """*runs*, those of large files cut at the rows where their row groups mostly end."""
    for run in runs:
        entries = max(1, run.entries * SLICE_BYTES // max(1, run.bytes))
        step = entries // ROW_GROUP_ROWS * ROW_GROUP_ROWS or entries
        if run.bytes <= SLICE_BYTES or run.entries <= step:
            yield run
            continue
        for first in range(run.first_position, run.last_position + 1, step):
            part = run.part(first, first + step - 1)
            yield part._replace(bytes=run.bytes * part.entries // run.entries)


def together(runs: Iterable[Run]) -> Iterator[list[Run]]:
    """*runs*, those of a slice in a list."""
    found: list[Run] = []
    size = 0
    for run in runs:
        if found and (size + run.bytes > SLICE_BYTES or len(found) == SLICE_RUNS):
            yield found
            found, size = [], 0
        found.append(run)
        size += run.bytes
    if found:
        yield found


def _slice(topic: FollowedTopic, partition: int, known: PartitionLedgers, runs: list[Run]) -> MessageSlice:
    table, name = topic.topic.path, str(topic.topic.name)
    published = tuple(are_as_published(table, runs))
    return MessageSlice(name, str(table), partition, tuple(runs), published, tuple(_chunk_runs(known, runs)))


def _chunk_runs(known: PartitionLedgers, runs: list[Run]) -> Iterator[Run]:
    """The runs, from the first that may have a chunk of a message that ends in *runs*, to the last."""
    first = next((run for run in runs if run.may_have_chunks), None)
    if first is None:
        return
    for run in known.chunk_runs(first.chunks_from or 0):
        if run.first_position > runs[-1].last_position:
            return
        yield run
