"""Keep the order after a give-back: on Exclusive and Failover subscriptions no later message is handled first.

When the give-back is due, everything the consumer holds comes again, in order (semantics 2.12, 4.14). What arrives
before is dropped unseen; its permits are granted again only then. If others acknowledge the message, it never comes:
some seconds after the due time the consumer checks the cursor, and subscribes again."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from pulsar_spark.frames.deliveries.delivery import Delivery
from pulsar_spark.protocol.acknowledgement.cursor import ACKNOWLEDGED
from pulsar_spark.protocol.redelivery.letters import is_too_often
from pulsar_spark.storage.cursor_ledger.cursor_ledger import CursorKey, read_latest
from pulsar_spark.storage.entries.slices import PositionRange
from pulsar_spark.storage.layout import Layout

PATIENCE_SECONDS = 5.0
"""Seconds from the due time to the first look at the cursor, and between looks."""


@dataclass
class _Awaited:
    """The first position given back in a partition, when it is due, and the permits owed."""

    first: int
    due: float
    look_at: float
    permits: int = 0


class Rewinding:
    """The give-backs of one consumer on an ordered subscription; *clock* counts seconds. ``is_awaiting``: some have not
    come again."""

    def __init__(self, clock: Callable[[], float], max_redeliver_count: int):
        self._clock, self._most = clock, max_redeliver_count
        self._awaited: dict[int, _Awaited] = {}

    @property
    def is_awaiting(self) -> bool:
        return bool(self._awaited)

    def forget(self) -> None:
        self._awaited.clear()

    def given_back(self, range_: PositionRange, delay_ms: int) -> None:
        if is_too_often(range_.redelivery_count + 1, self._most):
            return
        due = self._clock() + delay_ms / 1000
        known = self._awaited.get(range_.partition)
        if known is None:
            self._awaited[range_.partition] = _Awaited(range_.first, due, due + PATIENCE_SECONDS)
        else:
            known.first, known.due = min(known.first, range_.first), min(known.due, due)

    def in_order(self, delivery: Delivery) -> tuple[Delivery, dict[int, int]]:
        """The part of the delivery to handle now, and the permits of earlier dropped messages, by partition."""
        there, permits = [], {}
        for range_ in delivery.ranges:
            awaited = self._awaited.get(range_.partition)
            if awaited is not None and range_.first > awaited.first:
                awaited.permits += range_.messages
                continue
            if awaited is not None:
                permits[range_.partition] = self._awaited.pop(range_.partition).permits
            there.append(range_)
        return replace(delivery, ranges=tuple(there)), permits

    def due_permits(self) -> dict[int, int]:
        now, found = self._clock(), {}
        for partition, awaited in self._awaited.items():
            if awaited.permits and now >= awaited.due:
                found[partition], awaited.permits = awaited.permits, 0
        return found

    def is_over(self, layout: Layout, topic_id: str, subscription: str) -> bool:
        """Whether others acknowledged an awaited message, so that it never comes; looks every few seconds."""
        late = dict(self._late())
        if not late:
            return False
        latest = read_latest(layout)
        for partition, first in late.items():
            key = CursorKey(topic_id, partition, subscription)
            cursor = latest.cursors.get(key)
            if cursor is not None and (
                first <= cursor["mark_delete_position"]
                or any(
                    range_.status == ACKNOWLEDGED and range_.first <= first <= range_.last
                    for range_ in latest.ranges(key)
                )
            ):
                return True
        return False

    def _late(self) -> Iterator[tuple[int, int]]:
        now = self._clock()
        for partition, awaited in self._awaited.items():
            if now >= awaited.look_at:
                awaited.look_at = now + PATIENCE_SECONDS
                yield partition, awaited.first
