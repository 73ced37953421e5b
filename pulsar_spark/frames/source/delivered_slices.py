"""Cut deliveries into slices: what each task reads of a micro-batch."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from pulsar_spark.frames.deliveries.delivery import Delivery
from pulsar_spark.frames.deliveries.named_entries import NamedEntries
from pulsar_spark.frames.source.message_slices import MessageSlice, split, together
from pulsar_spark.protocol.acknowledgement.ack_set import AckSet, indexes
from pulsar_spark.protocol.acknowledgement.packing import packed_pairs
from pulsar_spark.protocol.topics.numbering import Run
from pulsar_spark.storage.entries.entries import are_as_published
from pulsar_spark.storage.ledgers.ledger_index import LedgerIndex
from pulsar_spark.storage.topics.topics import Topic

_WIDE_GAP = 1 << 17
"""Positions between entries from which the runs between them are not looked for."""


@dataclass(frozen=True)
class DeliveredSlice(MessageSlice):
    """Entries with one ``redelivery_count``; of those with ``ack_sets``, by position, the messages in the set."""

    redelivery_count: int = 0
    ack_sets: tuple[tuple[int, AckSet], ...] = ()

    def left(self, rows: pa.Table) -> pa.Table:
        """*rows*, which have ``batch_index``, without messages that were acknowledged before."""
        if not self.ack_sets:
            return rows
        positions, places = rows["position"].to_numpy(), rows["batch_index"].to_pylist()
        is_left = np.ones(len(positions), bool)
        for position, left in self.ack_sets:
            for at in range(*np.searchsorted(positions, [position, position + 1])):
                is_left[at] = (places[at] or 0) in set(indexes(left))
        return rows.filter(pa.array(is_left))


class _Stretches(NamedTuple):
    """Ascending, disjoint stretches of positions, and the ack sets of some."""

    firsts: np.ndarray
    lasts: np.ndarray
    ack_sets: dict[int, AckSet]

    def near(self) -> Iterator[tuple[int, int]]:
        """First and last position of stretches without wide gaps between them."""
        starts = np.flatnonzero(np.append(True, self.firsts[1:] - self.lasts[:-1] > _WIDE_GAP))
        ends = np.append(starts[1:], len(self.firsts)) - 1
        yield from zip(self.firsts[starts].tolist(), self.lasts[ends].tolist())

    def inside(self, first: int, last: int) -> tuple[np.ndarray, np.ndarray]:
        begin, end = np.searchsorted(self.lasts, first), np.searchsorted(self.firsts, last, "right")
        return np.maximum(self.firsts[begin:end], first), np.minimum(self.lasts[begin:end], last)


def slices_of_deliveries(topic: Topic, ledgers: LedgerIndex, deliveries: Sequence[Delivery]) -> list[DeliveredSlice]:
    """The slices of *deliveries* of *topic*, by partition and position."""
    firsts_of: dict[int, dict[int, int]] = {}
    for each in deliveries:
        for partition, first, last in each.chunked:
            firsts_of.setdefault(partition, {})[last] = first
    found = []
    for (partition, count), stretches in sorted(_alike(deliveries).items()):
        units = firsts_of.get(partition, {})
        for runs in together(split(_runs(topic, ledgers, partition, stretches))):
            found.append(_slice(topic, ledgers, partition, count, stretches, runs, units))
    return found


def _alike(deliveries: Iterable[Delivery]) -> dict[tuple[int, int], _Stretches]:
    """What was delivered, by partition and redelivery count."""
    parts: dict[tuple[int, int], list[np.ndarray]] = {}
    sets: dict[tuple[int, int], dict[int, AckSet]] = {}
    for range_ in (range_ for each in deliveries for range_ in each.ranges):
        known = range_.position_range if isinstance(range_, NamedEntries) else range_
        key = range_.partition, known.redelivery_count
        positions = range_.positions if isinstance(range_, NamedEntries) else np.array([range_.first])
        lasts = positions if isinstance(range_, NamedEntries) else np.array([range_.last])
        parts.setdefault(key, []).append(np.stack([positions, lasts]))
        if known.ack_set is not None:
            at = positions if isinstance(range_, NamedEntries) else np.arange(range_.first, range_.last + 1)
            sets.setdefault(key, {}).update(dict.fromkeys(at.tolist(), known.ack_set))
    return {key: _joined(np.concatenate(each, axis=1), sets.get(key, {})) for key, each in parts.items()}


def _joined(ends: np.ndarray, sets: dict[int, AckSet]) -> _Stretches:
    firsts, lasts = ends[:, np.argsort(ends[0], kind="stable")]
    starts = np.flatnonzero(np.append(True, firsts[1:] > lasts[:-1] + 1))
    return _Stretches(firsts[starts], np.maximum.accumulate(lasts)[np.append(starts[1:], len(lasts)) - 1], sets)


def _runs(topic: Topic, ledgers: LedgerIndex, partition: int, stretches: _Stretches) -> Iterator[Run]:
    for run, spans in ledgers.spans_of(topic.topic_id, partition, list(stretches.near())):
        for first, last in spans:
            firsts, lasts = stretches.inside(first, last)
            if len(firsts):
                part = run.part(int(firsts[0]), int(lasts[-1]))
                yield part._replace(bytes=run.bytes * part.entries // run.entries)


def _slice(
    topic: Topic,
    ledgers: LedgerIndex,
    partition: int,
    count: int,
    stretches: _Stretches,
    runs: list[Run],
    units: dict[int, int],
) -> DeliveredSlice:
    first, last = runs[0].first_position, runs[-1].last_position
    here = tuple(sorted((units[each], each) for each in units if first <= each <= last))
    chunk_runs: list[Run] = []
    if here:
        around = ledgers.spans_of(topic.topic_id, partition, [(here[0][0], max(each for _, each in here))])
        chunk_runs = [run for run, _ in around if run.may_have_chunks]
    named = tuple(_named(stretches.inside(run.first_position, run.last_position), run) for run in runs)
    return DeliveredSlice(
        topic=str(topic.name),
        table=str(topic.path),
        partition=partition,
        runs=tuple(runs),
        as_published=tuple(are_as_published(topic.path, runs)),
        chunk_runs=tuple(chunk_runs),
        named=named,
        units=here,
        redelivery_count=count,
        ack_sets=tuple(sorted((at, left) for at, left in stretches.ack_sets.items() if first <= at <= last)),
    )


def _named(stretches: tuple[np.ndarray, np.ndarray], run: Run) -> bytes | None:
    firsts, lasts = stretches
    is_whole = len(firsts) == 1 and (firsts[0], lasts[0]) == (run.first_position, run.last_position)
    return None if is_whole and not run.may_have_chunks else packed_pairs(firsts, lasts)
