"""When a round has something to do without being asked."""

from pulsar_spark.broker.bundle import Bundle
from pulsar_spark.broker.clock import Instant


def next_due(bundle: Bundle, now: int) -> int | None:
    """The earliest instant after *now* at which a round has something to do without being asked; None when nothing
    waits. For clocks that agree."""
    return min((due for due in next_dues(bundle, Instant(now, now)) if due is not None), default=None)


def next_dues(bundle: Bundle, now: Instant) -> tuple[int | None, int | None]:
    """The same by each of the two clocks: what waits by the broker's own, and by the machine's."""
    served = [cursor for cursor in bundle.cursors.values() if not bundle.is_set_aside(cursor)]
    own = [due for cursor in served for due in cursor.returns_at() if due > now.own]
    own += [cursor.reads_after for cursor in served if cursor.reads_after > now.own]
    own += bundle.leases.values()
    own += [instant for instant in [bundle.waiting_letters.next_due()] if instant is not None]
    own += [] if bundle.maintenance_due is None else [bundle.maintenance_due]
    wall = [due for cursor in served if (due := cursor.next_replay(now.wall)) is not None]
    return min(own, default=None), min(wall, default=None)
