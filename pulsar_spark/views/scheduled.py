"""Entries that wait for their deliver time, and for which subscriptions, by (deliver time, position).

An entry that a subscription moved is listed at its new time for it. Exclusive and Failover subscriptions with consumers
wait for nothing (2.6). Entries come in parts of limited size."""

from collections.abc import Callable, Collection, Iterable, Iterator
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from pulsar_spark.protocol.acknowledgement.cursor import REPLAY
from pulsar_spark.protocol.acknowledgement.positions import ranges_of
from pulsar_spark.protocol.entries.entry_codes import WAITING
from pulsar_spark.protocol.subscriptions.membership import SINGLE_ACTIVE
from pulsar_spark.protocol.topics.message_id import MAX_LONG
from pulsar_spark.storage.clock import now_micros
from pulsar_spark.storage.cursor_ledger.cursor_ledger import CursorKey, LatestRows, read_latest
from pulsar_spark.storage.delay_index.delayed import Due, in_order
from pulsar_spark.storage.delay_index.waiting import Delayed
from pulsar_spark.storage.layout import Layout
from pulsar_spark.storage.ledgers.ledger_index import LedgerIndex
from pulsar_spark.storage.topics.bundles import layout_of, layouts_of
from pulsar_spark.storage.topics.topics import Topic
from pulsar_spark.views.task_rows import topics_there
from pulsar_spark.views.view_specs import SCHEDULED


class Window(NamedTuple):
    """Deliver times after *after*, up to and including *until* (microseconds since 1970)."""

    after: int
    until: int = MAX_LONG


class Scheduled(NamedTuple):
    """Waiting entries of a topic partition, in order: positions, times (microseconds), and which of them each
    subscription waits for."""

    partition: int
    positions: np.ndarray
    times: np.ndarray
    waits: dict[str, np.ndarray]

    def __len__(self) -> int:
        return len(self.positions)

    def part(self, places: slice | np.ndarray) -> "Scheduled":
        waits = {subscription: flags[places] for subscription, flags in self.waits.items()}
        return Scheduled(self.partition, self.positions[places], self.times[places], waits)


def read_scheduled(
    latest: LatestRows,
    index: LedgerIndex,
    topic: Topic,
    partition: int,
    window: Window,
    *,
    subscription: str | None = None,
    positions: Collection[int] | None = None,
) -> Iterator[Scheduled]:
    """The waiting entries of a topic partition, in parts; optionally of one *subscription*, or only *positions*."""
    delayed = Delayed(index, topic, partition)
    waiters = [_Waiter(latest, key, index, topic) for key in _waiting_keys(latest, topic, partition, subscription)]
    moved = sorted(
        each for waiter in waiters for each in waiter.moved(window) if positions is None or each[1] in positions
    )
    parts: Iterable[Due]
    if positions is None:
        parts = delayed.between(*window)
    else:
        found = in_order(delayed.by_position(position, position) for position in sorted(positions))
        parts = [found.part((found.times > window.after) & (found.times <= window.until))]
    names = [waiter.subscription for waiter in waiters]
    for part in parts:
        waits = {waiter.subscription: waiter.waits_for(part) for waiter in waiters}
        at = int(np.searchsorted([due for due, *_ in moved], part.times[-1], "right")) if len(part) else 0
        here, moved = moved[:at], moved[at:]
        yield from _found(partition, names, part.positions, part.times, waits, here)
    nothing = np.empty(0, np.int64)
    yield from _found(partition, names, nothing, nothing, {}, moved)


def _waiting_keys(latest: LatestRows, topic: Topic, partition: int, subscription: str | None) -> list[CursorKey]:
    return sorted(
        key
        for key, cursor in latest.cursors.items()
        if (key.topic_id, key.partition) == (topic.topic_id, partition)
        and subscription in (None, key.subscription)
        and cursor["subscription_type"] not in SINGLE_ACTIVE
    )


def _found(
    partition: int,
    names: list[str],
    positions: np.ndarray,
    times: np.ndarray,
    waits: dict[str, np.ndarray],
    moved: list[tuple[int, int, str]],
) -> Iterator[Scheduled]:
    """Merge entries with those *moved* (deliver time, position, subscription); those that nobody waits for are left
    out."""
    places = {place: len(positions) + at for at, place in enumerate(dict.fromkeys(each[:2] for each in moved))}
    added = np.array([*places], np.int64).reshape(-1, 2).T
    flags = {}
    for name in names:
        flags[name] = np.concatenate([waits.get(name, np.zeros(len(positions), bool)), np.zeros(len(places), bool)])
    for due, position, name in moved:
        flags[name][places[due, position]] = True
    found = Scheduled(partition, np.concatenate([positions, added[1]]), np.concatenate([times, added[0]]), flags)
    is_waiting = np.logical_or.reduce([*flags.values(), np.zeros(len(found), bool)])
    order = np.lexsort((found.positions, found.times))
    found = found.part(order[is_waiting[order]])
    if len(found):
        yield found


class _Waiter:
    def __init__(self, latest: LatestRows, key: CursorKey, index: LedgerIndex, topic: Topic):
        self.subscription = key.subscription
        self._mark_delete = latest.cursors[key]["mark_delete_position"]
        self._ranges = [range_ for range_ in latest.ranges(key) if range_.status != WAITING]

    def waits_for(self, entries: Due) -> np.ndarray:
        """Which of these delayed entries wait for it until their own deliver time."""
        firsts, lasts = np.array([range_[:2] for range_ in self._ranges], np.int64).reshape(-1, 2).T
        at = np.searchsorted(firsts, entries.positions, "right") - 1
        has_range = (at >= 0) & (entries.positions <= np.append(lasts, -1)[at])
        return ~has_range & (entries.positions > self._mark_delete)

    def moved(self, window: Window) -> Iterator[tuple[int, int, str]]:
        """Entries that wait for it until another time, or that its rows name singly: deliver time, position,
        subscription."""
        for range_ in self._ranges:
            due = range_.due_time or 0
            if range_.status == REPLAY and window.after < due <= window.until:
                for position in range(range_.first, range_.last + 1):
                    yield due, position, self.subscription


class Places(NamedTuple):
    """The places of entries in their topic's table, an item each."""

    ledger_ids: np.ndarray
    entry_ids: np.ndarray
    publish_ids: list[str]


def places_of(index: LedgerIndex, topic: Topic, partition: int, positions: np.ndarray) -> Places:
    order = np.argsort(positions)
    ledger_ids, entry_ids = np.empty((2, len(positions)), np.int64)
    publish_ids, at = [""] * len(positions), 0
    for run, spans in index.spans_of(topic.topic_id, partition, ranges_of(positions[order])):
        here = order[at : at + sum(last - first + 1 for first, last in spans)]
        ledger_ids[here], entry_ids[here] = run.ledger_id, positions[here] - run.to_position
        for place in here.tolist():
            publish_ids[place] = run.publish_id
        at += len(here)
    return Places(ledger_ids, entry_ids, publish_ids)


def all_scheduled(root: str) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """A function for Spark tasks: from topic partitions of *root* (topic, topic_id, partition) to rows of the view
    ``scheduled``; none for a deleted or recreated topic."""

    def read(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        layout, window = Layout(root), Window(now_micros())
        states = {bundle.bundle: read_latest(bundle) for bundle in layouts_of(layout)}
        every = LedgerIndex(layout)
        for topic, row in topics_there(layout, batches):
            latest, index = states[layout_of(layout, topic.name).bundle], every.of(topic)
            for found in read_scheduled(latest, index, topic, row["partition"], window):
                yield _rows_of(index, topic, found)

    return read


def _rows_of(index: LedgerIndex, topic: Topic, found: Scheduled) -> pa.RecordBatch:
    places = places_of(index, topic, found.partition, found.positions)
    matrix, codes = np.unique(np.array([*found.waits.values()]).T, axis=0, return_inverse=True)
    names = [[name for name, waits in zip(found.waits, row) if waits] for row in matrix.tolist()]
    columns = {
        "topic": [str(topic.name)] * len(found),
        "partition": np.full(len(found), found.partition, np.int32),
        "position": found.positions,
        "ledger_id": places.ledger_ids,
        "entry_id": places.entry_ids,
        "publish_id": places.publish_ids,
        "due_time": pa.array(found.times).cast(SCHEDULED.schema.field("due_time").type),
        "subscriptions": pa.array(names, pa.list_(pa.string())).take(pa.array(codes.reshape(-1))),
    }
    return pa.RecordBatch.from_pydict(columns, SCHEDULED.schema)
