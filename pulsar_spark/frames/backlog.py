"""Whether a run with *available_now* is done: everything published before it began has been handled.

"Published before" is fixed by the topic's log at the start; where that is in positions is known as soon as the broker
has numbered it. Handled is a position that is acknowledged, that another consumer holds, or that this run gave back: a
message is handled at most once per run.
"""

from collections.abc import Callable, Mapping

from pulsar_spark.protocol.cursor import ACKNOWLEDGED, PENDING, Range
from pulsar_spark.storage.cursor_ledger import CursorKey, read_latest
from pulsar_spark.storage.lane_ranges import exact, page_ranges, read_held
from pulsar_spark.storage.layout import Layout
from pulsar_spark.storage.ledger_index import LedgerIndex
from pulsar_spark.storage.log import TableLog
from pulsar_spark.storage.slices import PositionRange
from pulsar_spark.storage.topics import Topic


class Backlog:
    """Made before the consumer subscribes. *subtract* takes holes out of a range."""

    def __init__(
        self,
        layout: Layout,
        topic: Topic,
        partitions: list[int],
        subscription: str,
        subtract: Callable[[PositionRange, list[tuple[int, int]]], list[PositionRange]],
    ):
        self._layout, self._topic, self._partitions, self._subscription, self._subtract = (
            layout,
            topic,
            partitions,
            subscription,
            subtract,
        )
        self._rounds = TableLog(layout.broker_table("cursor_ledger"))
        self._looked_at = -1
        self._ends: dict[int, int] | None = None
        self._version = _last_publish(TableLog(topic.path))

    def is_handled(self, consumer_id: str, given_back: Mapping[int, list[tuple[int, int]]]) -> bool:
        """Whether nothing is left for *consumer_id*; looks again only after another round."""
        latest_round = self._rounds.latest(max(self._looked_at, 0))
        if latest_round == self._looked_at:
            return False
        self._looked_at = latest_round
        state = read_latest(self._layout)
        if self._ends is None:
            numbered = {
                partition: state.topics.get((self._topic.topic_id, partition)) for partition in self._partitions
            }
            if self._version and max((row["ledger_id"] for row in numbered.values() if row), default=0) < self._version:
                return False
            self._ends = {partition: row["end_position"] if row else 0 for partition, row in numbered.items()}
        return all(
            self._is_partition_handled(state, partition, consumer_id, given_back.get(partition, []))
            for partition in self._partitions
        )

    def _is_partition_handled(self, state, partition: int, consumer_id: str, given_back: list[tuple[int, int]]) -> bool:
        key, end = CursorKey(self._topic.topic_id, partition, self._subscription), self._ends[partition]
        cursor = state.cursors.get(key)
        if cursor is None:
            return end == 0
        if cursor["mark_delete_position"] >= end - 1:
            return True
        if cursor["read_position"] < end:
            return False
        ranges = [one for one in page_ranges(state, key) if self._may_be_left(one.held, end, consumer_id)]
        if sum(held.size for _, held in ranges if held.last < end) > sum(
            last - first + 1 for first, last in given_back
        ):
            return False
        found = (held for _, held in ranges)
        if state.lanes[key]:
            found = exact(list(found), read_held(state, key, LedgerIndex(self._layout), self._topic.path, ranges))
        return not any(self._is_left(held, end, partition, given_back) for held in found)

    def _may_be_left(self, held: Range, end: int, consumer_id: str) -> bool:
        is_anothers = held.status == PENDING and held.consumer_id != consumer_id
        return held.first < end and held.status != ACKNOWLEDGED and not is_anothers

    def _is_left(self, held: Range, end: int, partition: int, given_back: list[tuple[int, int]]) -> bool:
        return held.first < end and bool(
            self._subtract(PositionRange(partition, held.first, min(held.last, end - 1)), given_back)
        )


def _last_publish(log: TableLog) -> int:
    """The last version that added rows, 0 for none."""
    for version in range(log.latest(), 0, -1):
        commit = log.commit(version)
        if commit.added and not commit.removed:
            return version
    return 0
