"""Decide whether a run with *available_now* is done: everything published before it began has been handled.

A position is handled if it is acknowledged, pending at another consumer (or due to one, on Key_Shared), or given back
by this run. Delayed entries are left to a later run."""

from collections.abc import Iterable, Iterator
from dataclasses import replace

import numpy as np

from pulsar_spark.frames.deliveries.delivery import Delivery, left_of, without
from pulsar_spark.protocol.acknowledgement.cursor import ACKNOWLEDGED, PENDING, REPLAY, Range
from pulsar_spark.protocol.acknowledgement.positions import Positions, ranges_of
from pulsar_spark.protocol.entries.entry_codes import PART, WAITING
from pulsar_spark.protocol.keys.hash_ranges import NOBODY, Owners
from pulsar_spark.storage.clock import now_micros
from pulsar_spark.storage.cursor_ledger.cursor_ledger import CursorKey, LatestRows
from pulsar_spark.storage.delay_index.waiting import waiting_entries
from pulsar_spark.storage.delta.log import TableLog, last_append
from pulsar_spark.storage.delta.python_rows import uncollected
from pulsar_spark.storage.entries.key_hashes import hashes_of
from pulsar_spark.storage.entries.slices import PositionRange
from pulsar_spark.storage.layout import Layout
from pulsar_spark.storage.ledgers.ledger_index import LedgerIndex
from pulsar_spark.storage.topics.topics import Topic
from pulsar_spark.views.key_shared import KeyShared, read_key_shared

LOOK_ENTRIES = 1 << 16
"""The number of entries to look at between checks."""


class Backlog:
    """The backlog at the start of a run; create it before the consumer subscribes."""

    def __init__(self, layout: Layout, topic: Topic, partitions: list[int], subscription: str, ledgers: LedgerIndex):
        self._topic, self._partitions, self._subscription = topic, partitions, subscription
        self.follow(layout, ledgers)
        self._ends: dict[int, int] = {}
        """The end of each partition; empty until the broker has numbered what counts."""
        self._left: dict[int, list[tuple[int, int]]] = {}
        """What this run leaves to the next one, by partition."""
        self._version = last_append(TableLog(topic.path))  # a broker has numbered whatever is no longer in the log
        self._began = now_micros()

    def follow(self, layout: Layout, ledgers: LedgerIndex) -> None:
        """Switch to the rounds of the topic's new bundle."""
        self._layout, self._ledgers = layout, ledgers
        self._rounds = TableLog(layout.broker_table("cursor_ledger"))
        self._looked_at, self._state = -1, LatestRows()  # a look reads only later rounds

    def leave(self, partition: int, first: int, last: int) -> None:
        self._left.setdefault(partition, []).append((first, last))

    def leave_only(self, ranges: Iterable[PositionRange]) -> None:
        """Leave *ranges* to the next run, and nothing else."""
        self._left.clear()
        for range_ in ranges:
            self.leave(*range_[:3])

    def without_left(self, delivery: Delivery) -> Delivery:
        return replace(delivery, ranges=without(delivery.ranges, self._left))

    def is_handled(self, consumer_id: str) -> bool:
        """Whether nothing is left for *consumer_id*; it looks again only after another round."""
        latest_round = self._rounds.latest(max(self._looked_at, 0))
        if latest_round == self._looked_at:
            return False
        self._looked_at = latest_round
        state = self._state
        with uncollected():
            state.catch_up(self._layout.broker_table("cursor_ledger"))
        if not self._ends:
            numbered = {
                partition: state.topics.get((self._topic.topic_id, partition)) for partition in self._partitions
            }
            if self._version and max((row["ledger_id"] for row in numbered.values() if row), default=0) < self._version:
                return False
            self._ends = {partition: row["end_position"] if row else 0 for partition, row in numbered.items()}
        return all(self._is_partition_handled(state, partition, consumer_id) for partition in self._partitions)

    def _is_partition_handled(self, state: LatestRows, partition: int, consumer_id: str) -> bool:
        key, end = CursorKey(self._topic.topic_id, partition, self._subscription), self._ends[partition]
        cursor = state.cursors.get(key)
        if cursor is None:
            return end == 0
        if cursor["mark_delete_position"] >= end - 1:
            return True
        if self._has_more(state, key, end, consumer_id):
            return False
        if self._is_all_others(state, key, end, consumer_id):
            return True
        key_shared = read_key_shared(self._layout, self._topic.path, state, key)
        ranges = state.ranges(key)
        unread = []
        if cursor["read_position"] < end:
            known = Positions((each.first, each.last) for each in ranges)
            unread = list(known.gaps(cursor["read_position"], end - 1))
        waiting = waiting_entries(state, key, self._ledgers)
        if waiting is not None:
            came_due = [part.positions[part.positions < end] for part in waiting.due(self._began)]
            unread = sorted([*unread, *(span for part in came_due for span in ranges_of(np.sort(part)))])
        ranges = [range_ for range_ in ranges if range_.status not in (WAITING, PART)]
        if unread and (key_shared is None or self._owns_any(key_shared, partition, consumer_id, unread)):
            return False
        left = [each for each in ranges if self._is_left(each, end, partition, consumer_id)]
        if key_shared is not None:  # replays go to the key's owner; pending entries are here already
            spans = sorted((each.first, min(each.last, end - 1)) for each in left if each.status == REPLAY)
            left = [each for each in left if each.status != REPLAY]
            return not left and not self._owns_any(key_shared, partition, consumer_id, spans)
        return not left

    def _has_more(self, state: LatestRows, key: CursorKey, end: int, consumer_id: str) -> bool:
        """Whether more is pending at this consumer than it left to the next run."""
        ranges = _states_before(state, key, end)
        is_there = (range_ for range_ in ranges if range_.last < end)
        mine = sum(range_.size for range_ in is_there if range_.consumer_id == consumer_id)
        return mine > sum(last - first + 1 for first, last in self._left.get(key.partition, ()))

    def _is_all_others(self, state: LatestRows, key: CursorKey, end: int, consumer_id: str) -> bool:
        ranges = _states_before(state, key, end)
        are_others = (
            range_.last < end
            and (range_.status == ACKNOWLEDGED or (range_.status == PENDING and range_.consumer_id != consumer_id))
            for range_ in ranges
        )
        return all(are_others) and sum(range_.size for range_ in ranges) == (
            end - 1 - state.cursors[key]["mark_delete_position"]
        )

    def _owns_any(
        self, key_shared: KeyShared, partition: int, consumer_id: str, spans: Iterable[tuple[int, int]]
    ) -> bool:
        owners = Owners(key_shared.owned, key_shared.axis)
        return any(
            (owners.of(hashes) == owners.number(consumer_id)).any()
            for hashes in hashes_by_part(self._ledgers, self._topic, partition, spans)
            if owners.number(consumer_id) != NOBODY
        )

    def _is_left(self, range_: Range, end: int, partition: int, consumer_id: str) -> bool:
        if (
            range_.first >= end
            or range_.status == ACKNOWLEDGED
            or (range_.status == PENDING and range_.consumer_id != consumer_id)
            or (range_.status == REPLAY and (range_.due_time or 0) > self._began)
        ):
            return False
        known = PositionRange(partition, range_.first, min(range_.last, end - 1))
        return bool(left_of([known], self._left.get(partition, ())))


def _states_before(state: LatestRows, key: CursorKey, end: int) -> list[Range]:
    """The states of a cursor's entries; as ranges by position if any is known from *end* on."""
    return list(state.states(key)) if state.entries(key).last_known < end else state.ranges(key)


def hashes_by_part(
    ledgers: LedgerIndex, topic: Topic, partition: int, spans: Iterable[tuple[int, int]]
) -> Iterator[np.ndarray]:
    part, entries = [], 0
    for first, last in spans:
        for at in range(first, last + 1, LOOK_ENTRIES):
            part.append((at, min(at + LOOK_ENTRIES - 1, last)))
            entries += part[-1][1] - at + 1
            if entries >= LOOK_ENTRIES:
                yield hashes_of(ledgers, topic.path, topic.topic_id, partition, part)
                part, entries = [], 0
    if part:
        yield hashes_of(ledgers, topic.path, topic.topic_id, partition, part)
