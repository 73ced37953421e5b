"""Find the messages of a delivery whose payload cannot be read, before the function is called.

With FAIL such a message stays unacknowledged, with an error that names it. With DISCARD it is acknowledged if only the
keys are missing. Other messages of its batch are passed on."""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import NamedTuple

import pyarrow.compute as pc
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from pulsar_spark.client.model.enums import ConsumerCryptoFailureAction
from pulsar_spark.errors import CryptoError, PulsarSparkError, named
from pulsar_spark.frames.deliveries.delivery import Acknowledged, Answer, Delivery, without
from pulsar_spark.frames.deliveries.named_entries import exact
from pulsar_spark.frames.reading.payloads import Decoding
from pulsar_spark.payloads.encoding import PAYLOAD_ERROR
from pulsar_spark.protocol.acknowledgement import ack_set as ack_sets
from pulsar_spark.protocol.topics.numbering import Run
from pulsar_spark.storage.entries.entries import EntryReader
from pulsar_spark.storage.entries.slices import PositionRange
from pulsar_spark.storage.ledgers.ledger_index import LedgerIndex
from pulsar_spark.storage.topics.topics import Topic

Places = dict[tuple[int, int], frozenset[int]]
"""Batch indexes by partition and position; index 0 outside a batch."""


class Unreadable(NamedTuple):
    """Messages that are ``kept`` unacknowledged, the error that names them, and those that are ``discarded``."""

    kept: Places
    error: PulsarSparkError | None
    discarded: Places

    @property
    def places(self) -> Places:
        both = {place: self.kept.get(place, frozenset()) for place in (*self.kept, *self.discarded)}
        return {place: indexes | self.discarded.get(place, frozenset()) for place, indexes in both.items()}


NOTHING = Unreadable({}, None, {})
_ROWS_AT_ONCE = 1 << 17


def has_encoded(topic: Topic, ledgers: LedgerIndex, delivery: Delivery) -> bool:
    return any(run.has_encoded for run in _runs(topic, ledgers, delivery))


def stored_bytes(topic: Topic, ledgers: LedgerIndex, delivery: Delivery) -> int:
    return sum({run.path: run.bytes for run in _runs(topic, ledgers, delivery)}.values())


def uncompressed_bytes(topic: Topic, ledgers: LedgerIndex, delivery: Delivery) -> tuple[int, int]:
    """The sum and the maximum of the uncompressed sizes that messages in the delivery's span state; each chunk states
    its message's."""
    total, largest, reader = 0, 0, EntryReader(block_rows=_ROWS_AT_ONCE)
    for run in _runs(topic, ledgers, delivery):
        for rows in reader.there(topic.path, run, ("uncompressed_size",)) if run.has_encoded else ():
            sizes = rows["uncompressed_size"]
            total += pc.sum(sizes).as_py() or 0
            largest = max(largest, pc.max(sizes).as_py() or 0)
    return total, largest


def _runs(topic: Topic, ledgers: LedgerIndex, delivery: Delivery) -> Iterator[Run]:
    ends: dict[int, tuple[int, int]] = {}
    whole = ((range_.partition, range_.first, range_.last) for range_ in delivery.ranges)
    for partition, first, last in (*whole, *delivery.chunked):
        low, high = ends.get(partition, (first, last))
        ends[partition] = min(low, first), max(high, last)
    for partition, (first, last) in ends.items():
        yield from ledgers.runs(topic.topic_id, partition, first, last)


def find_unreadable(decoded: DataFrame, decoding: Decoding, topic: Topic) -> Unreadable:
    """The messages in *decoded* that cannot be read; *decoded* has ``partition``, ``position`` and ``batch_index``."""
    rows = decoded.filter(F.col(PAYLOAD_ERROR).isNotNull())
    found = rows.select("partition", "position", "batch_index", PAYLOAD_ERROR).toArrow().to_pylist()
    kept: dict[tuple[int, int], frozenset[int]] = {}
    discarded: dict[tuple[int, int], frozenset[int]] = {}
    errors: dict[tuple[str, int], tuple[str, int]] = {}
    for row in found:
        kind, _, text = row[PAYLOAD_ERROR].partition(": ")
        is_discarded = kind == CryptoError.__name__ and decoding.action is ConsumerCryptoFailureAction.DISCARD
        places = discarded if is_discarded else kept
        place = row["partition"], row["position"]
        places[place] = places.get(place, frozenset()) | {row["batch_index"] or 0}
        if not is_discarded and text:
            errors[kind, row["position"]] = text, row["partition"]
    return Unreadable(kept, _error(errors, topic, len(kept)) if kept else None, discarded)


def _error(errors: dict[tuple[str, int], tuple[str, int]], topic: Topic, entries: int) -> PulsarSparkError:
    (kind, position), (text, partition) = min(errors.items(), key=lambda each: each[0][1])
    where = "" if partition < 0 else f" of partition {partition}"
    others = "" if entries == 1 else f", the first of {entries} such entries,"
    return named(kind)(
        f"the message of topic {str(topic.name)!r} at position {position}{where}{others} cannot be read: "
        f"{text}; it is not passed to the function and stays unacknowledged: correct this and consume again, or skip it"
    )


def readable(delivery: Delivery, unreadable: Unreadable) -> Delivery:
    ranges = exact(delivery.ranges)
    holes: dict[int, list[tuple[int, int]]] = {}
    for partition, position in unreadable.places:
        holes.setdefault(partition, []).append((position, position))
    parts = [part for range_ in ranges for part in _parts(range_, unreadable.places)]
    return replace(delivery, ranges=(*without(ranges, holes), *parts))


def _parts(range_: PositionRange, places: Places) -> Iterator[PositionRange]:
    """The readable messages of partly unreadable batches in a range."""
    for (partition, position), indexes in places.items() if range_.batch_size > 1 else ():
        if partition == range_.partition and range_.first <= position <= range_.last:
            left = set(ack_sets.indexes(range_.ack_set or ack_sets.full(range_.batch_size))) - indexes
            if left:
                yield range_._replace(first=position, last=position, ack_set=ack_sets.of_indexes(left))


def answered(answer: Answer, unreadable: Unreadable, handed_over: Delivery) -> Answer:
    """The reply to the broker: the function's *answer* about what was *handed_over*, with discarded messages
    acknowledged, those of partly passed batches together with the rest."""
    acknowledged = [part for each in answer.acknowledged for part in _keeping(each, unreadable.kept)]
    batches = {(range_.partition, range_.first) for range_ in handed_over.ranges if range_.first == range_.last}
    for place in unreadable.discarded.keys() - batches:
        kept = unreadable.kept.get(place)
        acknowledged.append(Acknowledged(*place, place[1], None if kept is None else ack_sets.of_indexes(kept)))
    return answer._replace(acknowledged=acknowledged)


def _keeping(acknowledged: Acknowledged, kept: Places) -> Iterable[Acknowledged]:
    first = acknowledged.first
    for (partition, position), indexes in sorted(kept.items()):
        if partition == acknowledged.partition and first <= position <= acknowledged.last:
            if first < position:
                yield acknowledged._replace(first=first, last=position - 1)
            others = () if acknowledged.ack_set is None else ack_sets.indexes(acknowledged.ack_set)
            yield acknowledged._replace(first=position, last=position, ack_set=ack_sets.of_indexes({*indexes, *others}))
            first = position + 1
    if first <= acknowledged.last:
        yield acknowledged._replace(first=first)
