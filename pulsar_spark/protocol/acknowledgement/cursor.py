"""A cursor's state as ranges of positions, and the arithmetic of mark-delete.

Rules: ManagedCursorImpl; semantics 3.15-3.19, 3.26-3.28. Positions up to mark-delete are acknowledged. Above it, ranges
give the state of entries; entries in no range were never delivered. ``last`` is included, ``end`` is not."""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from pulsar_spark.errors import InvalidConfiguration
from pulsar_spark.protocol.acknowledgement import ack_set as ack_sets

ACKNOWLEDGED, PENDING, REPLAY = "acknowledged", "pending", "replay"
UNREAD = "unread"
"""Entries that were never delivered: rows of the plan, but in no range of a cursor."""
DEAD = "dead"
"""Within the plan: entries given back too often. The round orders their dead letters; then they are acknowledged."""
DELIVERY_ROUND = "delivery_round"
"""Property of an acknowledgement, the number of a round. Of the positions named, it acknowledges those that this round
delivered to the consumer and that are still pending; on Key_Shared, other consumers' entries lie between them."""

IS_UNSEEN = "is_unseen"
"""Property of a negative acknowledgement: "true" if the application saw none of its entries. They come again at once,
and their redelivery counts do not rise."""

UNSEEN = {IS_UNSEEN: "true"}
"""The properties of a request that has only :data:`IS_UNSEEN`."""

SINCE_ROUND = "since_round"
"""Property of a request to redeliver all, the number of a round. The request then covers what later rounds delivered,
and what this round delivered from position ``first`` on. The application saw none of it (see :data:`IS_UNSEEN`)."""


class Range(NamedTuple):
    """Entries first..last in one status; ``due_time`` in microseconds since 1970 (UTC). Attributes that do not apply
    are None. ``entries`` is set if only so many of the entries first..last are meant: they lie scattered."""

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
        return self.last - self.first + 1 if self.entries is None else self.entries

    @property
    def unacked_messages(self) -> int:
        if self.status == ACKNOWLEDGED:
            return 0
        return self.size * (ack_sets.count(self.ack_set) if self.ack_set is not None else self.batch_size or 0)


def initial_read_position(initial_position: str, *, first: int, end: int) -> int:
    """The read position of a new subscription: the *first* entry, or the *end* (3.15); :class:`InvalidConfiguration`
    for any word but Earliest or Latest.

    >>> initial_read_position("Earliest", first=3, end=9), initial_read_position("Latest", first=3, end=9)
    (3, 9)
    """
    found = {"Earliest": first, "Latest": end}.get(initial_position)
    if found is None:
        raise InvalidConfiguration(f"initial position {initial_position!r}: use Earliest or Latest")
    return found


def seek_position(position: int, *, first: int, end: int) -> int:
    """The read position of a seek to *position*, kept between *first* and *end* (3.26).

    >>> [seek_position(position, first=3, end=9) for position in (-1, 5, 20)]
    [3, 5, 9]
    """
    return max(min(position, end), first)


def unacknowledged(
    mark_delete: int, end: int, ranges: Iterable[Range]
) -> Iterator[tuple[int, int, tuple[int, ...] | None]]:
    """The backlog between *mark_delete* and *end*: (first, last, ack set of each entry). The ack set is None if no
    message is acknowledged. *ranges* are in order of position.

    >>> list(unacknowledged(0, 9, [Range(2, 3, "acknowledged"), Range(5, 5, "pending", ack_set=(2,), batch_size=2)]))
    [(1, 1, None), (4, 4, None), (5, 5, (2,)), (6, 8, None)]
    """
    at = mark_delete + 1
    for range_ in ranges:
        if range_.status != ACKNOWLEDGED and range_.ack_set is None:
            continue  # as in no range: none of their messages is acknowledged
        if at < range_.first:
            yield at, range_.first - 1, None
        if range_.status != ACKNOWLEDGED:
            yield range_.first, range_.last, range_.ack_set
        at = range_.last + 1
    if at < end:
        yield at, end - 1, None


def skip_unacked(mark_delete: int, end: int, acknowledged: Iterable[tuple[int, int]], entries: int) -> int:
    """The new mark-delete if the next *entries* unacknowledged entries are skipped, at most up to *end* (3.27).
    *acknowledged* ranges are ordered by first position and may overlap.

    >>> skip_unacked(-1, 10, [(1, 2)], 2)
    3
    """
    at = mark_delete
    for first, last in acknowledged:
        unacked = max(first - at - 1, 0)
        if entries <= unacked:
            break
        entries, at = entries - unacked, max(at, last)
    return min(at + entries, end - 1)
