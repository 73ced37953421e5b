"""Chunked messages in deliveries: one row each, at the position of the last chunk.

The broker states where each message begins and ends. Spark finds its chunks (see chunk_groups), the driver checks their
sizes, and Python workers join the payloads (see chunk_payloads). A message with a deleted chunk is gone. If chunks
contradict each other or are too large, only their message is in error."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from operator import attrgetter
from typing import NamedTuple

import numpy as np
from pyspark.sql import DataFrame, SparkSession

from pulsar_spark.errors import MessagesLost, UnreadableMessage
from pulsar_spark.frames.deliveries.delivery import Delivery, between, without
from pulsar_spark.frames.deliveries.named_entries import exact
from pulsar_spark.frames.reading.chunk_groups import grouped_parts
from pulsar_spark.frames.reading.chunk_payloads import NOTHING, Parts, with_payloads
from pulsar_spark.frames.reading.payloads import plain_or_refused
from pulsar_spark.protocol.acknowledgement.positions import Positions, distinct, ranges_of
from pulsar_spark.protocol.chunks.chunking import wrong_size
from pulsar_spark.storage.chunks.chunk_rows import lost_messages
from pulsar_spark.storage.entries.slices import WIDE_GAP, PositionRange, find_pieces, read_pieces
from pulsar_spark.storage.ledgers.ledger_index import LedgerIndex
from pulsar_spark.storage.topics.topics import Topic
from pulsar_spark.transforms.chunks import MOST_BYTES, SIZE, TOO_LARGE, is_chunk


class ChunkedMessage(NamedTuple):
    partition: int
    first: int
    last: int
    redelivery_count: int = 0


def apart(delivery: Delivery) -> tuple[Delivery, list[ChunkedMessage]]:
    """A delivery without its chunked messages, and these."""
    ranges = exact(delivery.ranges)
    ends = {(partition, last): first for partition, first, last in delivery.chunked}
    lasts: dict[int, list[int]] = {}
    for partition, last in sorted(ends):
        lasts.setdefault(partition, []).append(last)
    found = [
        ChunkedMessage(range_.partition, ends[range_.partition, last], last, range_.redelivery_count)
        for range_ in ranges
        for last in between(lasts.get(range_.partition, []), range_.first, range_.last)
    ]
    holes: dict[int, list[tuple[int, int]]] = {}
    for each in found:
        holes.setdefault(each.partition, []).append((each.last, each.last))
    return replace(delivery, ranges=without(ranges, holes), chunked=()), found


def across(ranges: Iterable[PositionRange], parts: Iterable[Parts]) -> tuple[PositionRange, ...]:
    """*ranges* in order, joined where only chunks of *parts* lie between them: fewer ranges make a quicker filter."""
    chunks = {each.partition: Positions(ranges_of(distinct(each.positions))) for each in parts}

    def are_bridged(before: PositionRange, range_: PositionRange) -> bool:
        first, last = before.last + 1, range_.first - 1
        between = chunks.get(range_.partition, Positions()).gaps(first, last)
        return range_.ack_set is None and next(between, None) is None

    return tuple(_together(ranges, are_bridged))


def _together(
    ranges: Iterable[PositionRange], are_bridged: Callable[[PositionRange, PositionRange], bool]
) -> list[PositionRange]:
    """*ranges* in order; bridged neighbours become one if they differ only in their positions."""
    found: list[PositionRange] = []
    for range_ in sorted(ranges, key=attrgetter("partition", "first")):
        before = found[-1] if found else None
        is_alike = before is not None and before._replace(first=range_.first, last=range_.last) == range_
        if before is not None and is_alike and are_bridged(before, range_):
            found[-1] = before._replace(last=range_.last)
        else:
            found.append(range_)
    return found


class Usable(NamedTuple):
    """Chunks of messages, and the messages that cannot be delivered, by partition and last position: a chunk of the
    ``deleted`` ones was deleted, those in ``errors`` have lost or contradictory chunks."""

    parts: list[Parts]
    deleted: list[tuple[int, int]]
    errors: dict[tuple[int, int], MessagesLost | UnreadableMessage]


def find_parts(
    spark: SparkSession, topic: Topic, ledgers: LedgerIndex, messages: Iterable[ChunkedMessage]
) -> list[Parts]:
    units: dict[int, dict[int, int]] = {}
    for each in messages:
        units.setdefault(each.partition, {})[each.last] = each.first
    return grouped_parts(spark, topic, units, partial(partial, ledgers.spans_of, topic.topic_id), with_sizes=True)


def find_usable(spark: SparkSession, topic: Topic, ledgers: LedgerIndex, messages: Sequence[ChunkedMessage]) -> Usable:
    parts = find_parts(spark, topic, ledgers, messages)
    deleted: list[tuple[int, int]] = []
    errors: dict[tuple[int, int], MessagesLost | UnreadableMessage] = {}
    for found in parts:
        totals, here = _sizes(found), [each for each in messages if each.partition == found.partition]
        missing = {each.last: each.first for each in here if each.last not in totals}
        spans_of = partial(ledgers.spans_of, topic.topic_id, found.partition)
        lost = lost_messages(topic.path, spans_of, missing, ("uuid", "payload"))
        for each in here:
            place = each.partition, each.last
            if each.last in lost:
                errors[place] = lost[each.last]
            elif each.last in missing:
                deleted.append(place)
            elif wrong := _wrong(*totals[each.last]):
                errors[place] = _unreadable(topic, each, wrong)
    return Usable(parts, deleted, errors)


def _sizes(parts: Parts) -> dict[int, tuple[int, set[int | None]]]:
    """For each message, by its last position: payload bytes, and the least and greatest total that its chunks state.
    One that states none does not contradict."""
    begins, sizes = parts.begins, parts.sizes
    if not len(begins) or sizes is None:
        return {}
    totals = np.add.reduceat(sizes.payload_bytes, begins)
    counts = np.diff(np.append(begins, len(sizes.stated)))
    stated = np.where(sizes.stated == NOTHING, np.repeat(totals, counts), sizes.stated)
    bounds = (each.reduceat(stated, begins).tolist() for each in (np.minimum, np.maximum))
    return {
        last: (total, {least, most})
        for last, total, least, most in zip(parts.lasts[begins].tolist(), totals.tolist(), *bounds)
    }


def _wrong(total: int, stated_sizes: Iterable[int | None]) -> str | None:
    if wrong := wrong_size(total, stated_sizes):
        return wrong
    if total > MOST_BYTES:
        return TOO_LARGE % total
    return None


def _unreadable(topic: Topic, message: ChunkedMessage, wrong: str) -> UnreadableMessage:
    where = "" if message.partition < 0 else f" of partition {message.partition}"
    return UnreadableMessage(
        f"the message of topic {str(topic.name)!r} that ends at position {message.last}{where} cannot be put "
        f"together: {wrong}; it stays unacknowledged until you skip it"
    )


def read_chunked(
    spark: SparkSession,
    topic: Topic,
    ledgers: LedgerIndex,
    messages: Sequence[ChunkedMessage],
    parts: Sequence[Parts],
    columns: Sequence[str] | None,
) -> DataFrame:
    """*messages*, one row each, in the form of :func:`read_pieces`. *parts* have their chunks, and may have others."""
    lasts = {each.partition: [one.last for one in messages if one.partition == each.partition] for each in parts}
    found = [each.of_messages(lasts[each.partition]) for each in parts]

    def many() -> DataFrame:
        """The rows of last chunks, read by Spark."""
        ends = [PositionRange(each.partition, each.last, each.last, each.redelivery_count) for each in messages]
        around = _together(ends, lambda before, range_: range_.first - before.last <= WIDE_GAP)
        pieces, foreign = find_pieces(ledgers, topic, around), ledgers.foreign_files(topic.topic_id)
        names = columns if columns is None or SIZE in columns else [*columns, SIZE]
        return read_pieces(spark, topic, pieces, names, without=foreign, where=is_chunk())

    counts = {(each.partition, each.last): each.redelivery_count for each in messages}
    spans_of = partial(partial, ledgers.spans_of, topic.topic_id)
    return plain_or_refused(with_payloads(spark, topic, found, spans_of, columns, many, counts))
