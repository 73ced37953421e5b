"""Order after a give-back: on Exclusive and Failover subscriptions nothing behind it is handled before it.

The broker rewinds: when what was given back is due, everything the consumer holds comes again, in order (semantics
2.12, 4.14). What it had sent meanwhile came too early and is dropped unseen, for it comes again behind it. What was
dropped has used permits, and without permits nothing comes again: they are asked for when the give-back is due, and not
before, or the rest of the topic would come and be dropped too.

What was given back need not come again: somebody may skip it, or it dies. Of the dead the consumer knows; where others
are acknowledged the cursor says so, some seconds after they were due, and the consumer begins again. On Shared
subscriptions there is no order, and nothing of this.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from pulsar_spark.frames.delivery import Delivery
from pulsar_spark.protocol.cursor import ACKNOWLEDGED
from pulsar_spark.protocol.letters import is_too_often
from pulsar_spark.storage.cursor_ledger import CursorKey, read_latest
from pulsar_spark.storage.layout import Layout
from pulsar_spark.storage.slices import PositionRange

PATIENCE_SECONDS = 5.0
"""How long after it is due, and from look to look, it is not asked what became of a give-back."""


@dataclass
class _Awaited:
    """The first position of a partition that was given back, when it is due, and the permits owed since."""

    first: int
    due: float
    look_at: float
    permits: int = 0


class Rewinding:
    """Of one consumer on an ordered subscription; *clock* counts seconds. ``is_awaiting`` tells whether anything given
    back has not come again."""

    def __init__(self, clock: Callable[[], float], max_redeliver_count: int):
        self._clock, self._most = clock, max_redeliver_count
        self._awaited: dict[int, _Awaited] = {}

    @property
    def is_awaiting(self) -> bool:
        return bool(self._awaited)

    def forget(self) -> None:
        """The consumer begins again: everything it held comes again."""
        self._awaited.clear()

    def given_back(self, held: PositionRange, delay_ms: int) -> None:
        """Await it, unless it dies by being given back."""
        if is_too_often(held.redelivery_count + 1, self._most):
            return
        due = self._clock() + delay_ms / 1000
        known = self._awaited.get(held.partition)
        if known is None:
            self._awaited[held.partition] = _Awaited(held.first, due, due + PATIENCE_SECONDS)
        else:
            known.first, known.due = min(known.first, held.first), min(known.due, due)

    def in_order(self, delivery: Delivery) -> tuple[Delivery, dict[int, int]]:
        """What of the delivery is to be handled, and the permits of what was dropped before it, by partition."""
        there, permits = [], {}
        for held in delivery.ranges:
            awaited = self._awaited.get(held.partition)
            if awaited is not None and held.first > awaited.first:
                awaited.permits += held.messages
                continue
            if awaited is not None:
                permits[held.partition] = self._awaited.pop(held.partition).permits
            there.append(held)
        return replace(delivery, ranges=tuple(there)), permits

    def due_permits(self) -> dict[int, int]:
        """The permits to ask for now that what was given back is due, by partition."""
        now, found = self._clock(), {}
        for partition, awaited in self._awaited.items():
            if awaited.permits and now >= awaited.due:
                found[partition], awaited.permits = awaited.permits, 0
        return found

    def is_over(self, layout: Layout, topic_id: str, subscription: str) -> bool:
        """Whether something awaited was acknowledged by others, so that it never comes; looks now and then only."""
        late = dict(self._late())
        if not late:
            return False
        latest = read_latest(layout)
        for partition, first in late.items():
            key = CursorKey(topic_id, partition, subscription)
            cursor = latest.cursors.get(key)
            if cursor is not None and (
                first <= cursor["mark_delete_position"]
                or any(held.status == ACKNOWLEDGED and held.first <= first <= held.last for held in latest.ranges(key))
            ):
                return True
        return False

    def _late(self) -> Iterator[tuple[int, int]]:
        now = self._clock()
        for partition, awaited in self._awaited.items():
            if now >= awaited.look_at:
                awaited.look_at = now + PATIENCE_SECONDS
                yield partition, awaited.first
