"""A cursor's state as ranges of positions, and the arithmetic of mark-delete.

Rules: ManagedCursorImpl; semantics 3.15-3.19, 3.26-3.28. Positions up to mark-delete are acknowledged; ranges above it
give the state of entries. Positions from the read position on, outside ranges, were never delivered."""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from pulsar_spark.errors import InvalidConfiguration
from pulsar_spark.protocol.acknowledgement import ack_set as ack_sets

ACKNOWLEDGED, PENDING, REPLAY = "acknowledged", "pending", "replay"
UNREAD = "unread"
"""Entries never delivered, which no range includes."""
DEAD = "dead"
"""Entries given back too often, in the plan; once their letters are due they count as acknowledged."""
DELIVERY_ROUND = "delivery_round"
"""Property of an acknowledgement: it includes only the positions that this round delivered to the consumer and that are
still pending there. Deliveries of Key_Shared need it, because others' entries lie between."""

IS_UNSEEN = "is_unseen"
"""Property of a negative acknowledgement: "true" if the application saw none of its entries, as they came too early for
the order of a key. They come again at once, uncounted."""

UNSEEN = {IS_UNSEEN: "true"}
"""The properties of a request with :data:`IS_UNSEEN` alone."""

SINCE_ROUND = "since_round"
"""Property of a request to redeliver all: only deliveries of this round from the request's ``first`` place on, and of
later rounds, none of which the application saw (see :data:`IS_UNSEEN`)."""


class Range(NamedTuple):
    """Entries first..last in one status; ``due_time`` in microseconds since 1970 (UTC). Attributes that do not apply
    are None. ``entries`` counts those it means, if not all."""

    first: int
    last: int
    status: str
    consumer_id: str | None = None
    delivery_round: int | None = None
    redelivery_count: int | None = None
    due_time: int | None = None
    ack_set: tuple[int, ...] | None = None
    batch_size: int | None = None
    entries: int | None = None

    @property
    def size(self) -> int:
        """The number of its entries."""
        return self.last - self.first + 1 if self.entries is None else self.entries

    @property
    def unacked_messages(self) -> int:
        """The number of unacknowledged messages in all its entries."""
        if self.status == ACKNOWLEDGED:
            return 0
        return self.size * (ack_sets.count(self.ack_set) if self.ack_set is not None else self.batch_size or 0)


def initial_read_position(initial_position: str, *, first: int, end: int) -> int:
    """Where a new subscription begins: at the *first* entry, or after the last (3.15); :class:`InvalidConfiguration`
    for any other word.

    >>> initial_read_position("Earliest", first=3, end=9), initial_read_position("Latest", first=3, end=9)
    (3, 9)
    """
    found = {"Earliest": first, "Latest": end}.get(initial_position)
    if found is None:
        raise InvalidConfiguration(f"initial position {initial_position!r}: use Earliest or Latest")
    return found


def seek_position(position: int, *, first: int, end: int) -> int:
    """The read position of a seek to *position*: not before the *first* entry, not beyond *end* (3.26).

    >>> [seek_position(position, first=3, end=9) for position in (-1, 5, 20)]
    [3, 5, 9]
    """
    return max(min(position, end), first)


def unacknowledged(
    mark_delete: int, end: int, ranges: Iterable[Range]
) -> Iterator[tuple[int, int, tuple[int, ...] | None]]:
    """The backlog between *mark_delete* and *end* under *ranges* (by position): first, last and the ack set of each
    entry, None = all.

    >>> list(unacknowledged(0, 9, [Range(2, 3, "acknowledged"), Range(5, 5, "pending", ack_set=(2,), batch_size=2)]))
    [(1, 1, None), (4, 4, None), (5, 5, (2,)), (6, 8, None)]
    """
    at = mark_delete + 1
    for range_ in ranges:
        if range_.status != ACKNOWLEDGED and range_.ack_set is None:
            continue
        if at < range_.first:
            yield at, range_.first - 1, None
        if range_.status != ACKNOWLEDGED:
            yield range_.first, range_.last, range_.ack_set
        at = range_.last + 1
    if at < end:
        yield at, end - 1, None


def skip_unacked(mark_delete: int, end: int, acknowledged: Iterable[tuple[int, int]], entries: int) -> int:
    """Mark-delete after *entries* unacknowledged entries are skipped, at most the last position before *end* (3.27).

    *acknowledged* are ranges by first position, which may overlap.

    >>> skip_unacked(-1, 10, [(1, 2)], 2)
    3
    """
    at = mark_delete
    for first, last in acknowledged:
        free = max(first - at - 1, 0)
        if entries <= free:
            break
        entries, at = entries - free, max(at, last)
    return min(at + entries, end - 1)
