"""Find what of a delivery still exists in the topic's table, before the function is called.

Deleted messages are acknowledged for the consumer. Messages whose file was deleted by hand are lost: they stay
unacknowledged, with an error, until skipped (``pulsar-spark subscriptions skip-lost``) or restored. Chunked messages
with lost or contradictory chunks count as lost."""

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from pyspark.sql import SparkSession

from pulsar_spark.errors import MessagesLost, UnreadableMessage
from pulsar_spark.frames.deliveries.chunk_deliveries import apart, find_usable
from pulsar_spark.frames.deliveries.delivery import Delivery, without
from pulsar_spark.frames.deliveries.named_entries import Delivered, NamedEntries, exact_in
from pulsar_spark.frames.reading.chunk_payloads import Parts
from pulsar_spark.protocol.acknowledgement.positions import Positions
from pulsar_spark.storage.entries.lost import find_missing, is_as_published
from pulsar_spark.storage.entries.missing import lost_error
from pulsar_spark.storage.entries.slices import PositionRange, by_partition
from pulsar_spark.storage.ledgers.ledger_index import LedgerIndex
from pulsar_spark.storage.topics.topics import Topic


class Remaining(NamedTuple):
    """``ranges`` exist; ``deleted`` and ``lost`` are (partition, first, last). ``deleted_messages`` counts those in
    batches. ``parts`` are chunks."""

    ranges: tuple[Delivered, ...]
    deleted: list[tuple[int, int, int]]
    deleted_messages: int
    lost: list[tuple[int, int, int]]
    error: MessagesLost | UnreadableMessage | None
    parts: Sequence[Parts] = ()


def remaining(spark: SparkSession, topic: Topic, ledgers: LedgerIndex, delivery: Delivery) -> Remaining:
    """Check every range of a delivery; an unchanged file costs a few stats."""
    there = _not_gone(topic, ledgers, delivery.ranges)
    if not delivery.chunked or not there.ranges:
        return there
    found = find_usable(spark, topic, ledgers, apart(replace(delivery, ranges=there.ranges))[1])
    there = there._replace(parts=found.parts)
    holes: dict[int, list[tuple[int, int]]] = {}
    for partition, position in (*found.deleted, *found.errors):
        holes.setdefault(partition, []).append((position, position))
    if not holes:
        return there
    return there._replace(
        ranges=without(there.ranges, holes),
        deleted=[*there.deleted, *((partition, at, at) for partition, at in found.deleted)],
        deleted_messages=there.deleted_messages + len(found.deleted),
        lost=[*there.lost, *((partition, at, at) for partition, at in found.errors)],
        error=there.error or next(iter(found.errors.values()), None),
    )


def _not_gone(topic: Topic, ledgers: LedgerIndex, ranges: Sequence[Delivered]) -> Remaining:
    gone: dict[int, list[tuple[int, int]]] = {}
    deleted: list[tuple[int, int, int]] = []
    lost: list[tuple[int, int, int]] = []
    messages, error = 0, None
    ranges = exact_in(_changed_partitions(topic, ledgers, ranges), ranges)
    for partition, of_partition in by_partition(each for each in ranges if isinstance(each, PositionRange)).items():
        spans = ledgers.spans_of(topic.topic_id, partition, [(each.first, each.last) for each in of_partition])
        for run, parts in spans:
            missing = find_missing(topic.path, run, parts)
            if missing is None:
                continue
            positions = [  # of a batch in which some messages were deleted, the others exist
                (first + run.to_position, last + run.to_position)
                for first, last in (missing.entries if missing.is_lost else missing.whole)
            ]
            gone.setdefault(partition, []).extend(positions)
            (lost if missing.is_lost else deleted).extend((partition, first, last) for first, last in positions)
            if missing.is_lost:
                error = error or lost_error(topic.path, run, missing)
            else:
                messages += missing.messages
    return Remaining(without(ranges, gone), deleted, messages, lost, error)


def _changed_partitions(topic: Topic, ledgers: LedgerIndex, ranges: Sequence[Delivered]) -> set[int]:
    """Partitions with named entries where a file has changed, so that rows may be gone."""
    found: set[int] = set()
    for partition in {range_.partition for range_ in ranges if isinstance(range_, NamedEntries)}:
        spans = Positions((range_.first, range_.last) for range_ in ranges if range_.partition == partition)
        runs = (run for run, _ in ledgers.spans_of(topic.topic_id, partition, list(spans)))
        if not all(is_as_published(topic.path, run) for run in runs):
            found.add(partition)
    return found
