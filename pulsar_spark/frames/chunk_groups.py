"""Which chunks of a topic make up messages, found by Spark: their rows, without payloads, grouped by uuid.

Where messages begin and end is known before (storage.chunk_groups, or the broker says it with a delivery), so no more
is read than what lies between, and of the groups' messages those are taken that begin and end there. One of which a
chunk was deleted, or is lost, is none of them, whatever older chunks of its uuid would make of it with the rest.

That is a job of its own, once a frame or a delivery, whatever the size of payloads. Reading 32 messages of 6 MB took
2.5 s on two very busy cores (medians of four in turns), 0.9 s of it this job, and 3.4 s where it shuffled; 1.8 s where
the driver read the same columns and grouped them itself.
"""

from collections.abc import Callable, Collection, Iterator, Mapping

import numpy as np
from pyspark.sql import DataFrame, SparkSession

from pulsar_spark.frames.chunk_payloads import Parts
from pulsar_spark.frames.delivery import without
from pulsar_spark.protocol.positions import Positions
from pulsar_spark.storage.chunks import SpansOf
from pulsar_spark.storage.lost import find_missing
from pulsar_spark.storage.slices import WIDE_GAP, Piece, PositionRange, pieces_of, read_pieces
from pulsar_spark.storage.topics import Topic
from pulsar_spark.transforms.chunks import GROUPED, group_chunks, is_chunk

_FEW = 1 << 16
"""Entries up to which one task reads and groups all: a shuffle would take longer."""

Units = Mapping[int, Mapping[int, int]]
"""By partition and the position of the last chunk of each message that of its first."""


def grouped_parts(
    spark: SparkSession,
    topic: Topic,
    units: Units,
    spans_of: Callable[[int], SpansOf],
    *,
    version: int | None = None,
    foreign: Collection[str] = (),
) -> list[Parts]:
    """The chunks of the messages *units*, as of *version* of the topic's table; of one that is not whole none.
    *spans_of* tells the runs of a partition, *foreign* are files whose rows are copies."""
    pieces = [piece for partition in units for piece in _pieces(topic, partition, units[partition], spans_of)]
    chunks = read_pieces(spark, topic, pieces, GROUPED, version=version, without=foreign, where=is_chunk())
    if sum(piece.last_entry_id - piece.first_entry_id + 1 for piece in pieces) <= _FEW:
        chunks = chunks.coalesce(1)
    found: dict[int, dict[int, np.ndarray]] = {partition: {} for partition in units}
    for partition, first, last, parts in _messages(group_chunks(chunks)) if pieces else ():
        if units[partition].get(last) == first:
            found[partition][last] = parts
    return [Parts.of(partition, found[partition]) for partition in sorted(found)]


def _messages(grouped: DataFrame) -> Iterator[tuple[int, int, int, np.ndarray]]:
    """Partition, first and last position, and parts of each message."""
    rows = grouped.select("partition", "first", "last", "parts").toArrow().sort_by("last").combine_chunks()
    ends = np.append(0, np.cumsum(rows["parts"].combine_chunks().value_lengths().to_numpy()))
    parts = np.split(rows["parts"].combine_chunks().flatten().to_numpy(), ends[1:-1])
    yield from zip(*(rows[name].to_pylist() for name in ("partition", "first", "last")), parts)


def _pieces(
    topic: Topic, partition: int, ends: Mapping[int, int], spans_of: Callable[[int], SpansOf]
) -> Iterator[Piece]:
    """Where the chunks of messages may lie, but for what is lost: few pieces, with what lies between two that are
    near each other."""
    spans = np.array(list(Positions((first, last) for last, first in ends.items())), np.int64).reshape(-1, 2)
    begins = np.flatnonzero(np.append(True, spans[1:, 0] - spans[:-1, 1] > WIDE_GAP)) if len(spans) else []
    near = [(int(each[0, 0]), int(each[-1, 1])) for each in np.split(spans, begins[1:]) if len(each)]
    for run, held in spans_of(partition)(near):
        if not run.may_have_chunks:
            continue
        missing, ranges = find_missing(topic.path, run, held), [PositionRange(partition, *each) for each in held]
        if missing is not None and missing.is_lost:
            shift = run.to_position
            ranges = without(ranges, {partition: [(first + shift, last + shift) for first, last in missing.entries]})
        yield from (piece for each in ranges for piece in pieces_of(each, [run]))
