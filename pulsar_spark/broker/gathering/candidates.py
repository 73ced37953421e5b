"""Which cursors have work in a round, and when the next one will.

A round that finds nothing to deliver on a Key_Shared cursor notes the cursor's state. No later round looks there again
before that state changes.
"""

from collections.abc import Collection, Iterable, Iterator

from pulsar_spark.broker.bundle.bundle import Bundle
from pulsar_spark.broker.bundle.clock import Instant
from pulsar_spark.broker.cursors.consumer import Consumer
from pulsar_spark.broker.cursors.cursors import NEVER
from pulsar_spark.broker.cursors.state import Cursor
from pulsar_spark.broker.key_shared.keyed import LOOK_AHEAD
from pulsar_spark.broker.requests.drafts import RoundDraft
from pulsar_spark.protocol.policies.policies import DELAYED_DELIVERY_TICK_MS
from pulsar_spark.storage.delta.python_rows import uncollected


def next_dues(bundle: Bundle, now: Instant) -> tuple[int | None, int | None]:
    """The earliest instants after *now* at which there is work without a request: by the broker's own clock, and by the
    machine's; None without."""
    cursors = bundle.cursors_at_work()
    own = [due for cursor in cursors for due in cursor.returns_at() if due > now.own]
    own += [cursor.reads_after for cursor in cursors if cursor.reads_after > now.own]
    own += bundle.leases.values()
    own += [instant for instant in [bundle.waiting_letters.next_due()] if instant is not None]
    own += [] if bundle.maintenance_due is None else [bundle.maintenance_due]
    wall = [due for cursor in cursors if (due := cursor.next_replay(now.wall)) is not None]
    wall += [due for cursor in cursors if cursor.chunked and (due := cursor.chunked.next_expiry()) is not None]
    wall += _next_looks(bundle, cursors, now)
    at_rest_own, at_rest_wall = bundle.cursors.next_due()
    own += [] if at_rest_own is None else [at_rest_own]
    wall += [] if at_rest_wall is None else [at_rest_wall]
    return min(own, default=None), min(wall, default=None)


def _next_looks(bundle: Bundle, cursors: Iterable[Cursor], now: Instant) -> Iterator[int]:
    """When to look next for entries whose deliver time comes, on cursors with consumers that can take them."""
    for cursor in cursors:
        if cursor.dues is not None and takers_of(cursor, now.own) and _may_take(cursor):
            tick = 1000 * bundle.policy(cursor.topic, DELAYED_DELIVERY_TICK_MS)
            due = cursor.dues.next_look(now.wall, tick)
            if due is not None:
                yield due


def has_work(bundle: Bundle, draft: RoundDraft) -> bool:
    """Does any cursor take part in the round?"""
    return any(takes_part(bundle, draft, cursor, takers_of(cursor, draft.now)) for cursor in bundle.cursors_at_work())


def takers_of(cursor: Cursor, now: int) -> list[Consumer]:
    """Consumers with permits, if the cursor may deliver now; some of them may be blocked (see :func:`_may_take`)."""
    if cursor.reads_after > now:
        return []
    if cursor.is_single_active:
        return [cursor.active] if cursor.active and cursor.active.permits > 0 else []
    return [consumer for consumer in cursor.consumers.values() if consumer.permits > 0]


def takes_part(bundle: Bundle, draft: RoundDraft, cursor: Cursor, takers: Collection[Consumer]) -> bool:
    """Does the cursor have work: requests, entries that come back, or entries that *takers* may receive?"""
    changes = draft.cursors.get(cursor.key)
    if changes is not None and changes.is_about_entries:
        return True
    return any(due <= draft.now for due in cursor.returns_at()) or (
        bool(takers) and _has_candidates(bundle, cursor, takers, draft.wall)
    )


def _has_candidates(bundle: Bundle, cursor: Cursor, takers: Collection[Consumer], wall: int) -> bool:
    topic = bundle.topics.get(cursor.topic)
    if topic is None:
        return False
    if cursor.consumers and not cursor.is_single_active and not _may_take(cursor):
        return False
    if cursor.is_key_shared:
        if _found_nothing(bundle, cursor, takers, wall):
            return False
        replays = any(due <= wall for due in cursor.replays_at())
    else:
        until = NEVER - 1 if cursor.is_single_active else wall  # Exclusive and Failover ignore deliver times (2.6)
        replays = any(due <= until for due in cursor.replays_at())
    if cursor.dues and cursor.dues.is_due(wall):
        return True
    return replays or (
        cursor.read_position < topic.end_position(cursor.key.partition)
        and not (cursor.is_blocked or cursor.is_blocked_by_broker)
    )


def let_rest(bundle: Bundle, now: Instant, cursor: Cursor, takers: Collection[Consumer]) -> None:
    """Let a cursor without work rest, unless it could get work without being woken."""
    if cursor.dues is None and cursor.chunked is None and not cursor.recently_joined:
        own = [*cursor.returns_at(), *([cursor.reads_after] if cursor.reads_after > now.own else [])]
        bundle.cursors.rest(
            cursor, min(own, default=None), cursor.next_replay(now.wall), waits_for_entries=bool(takers)
        )


@uncollected()
def let_all_rest(bundle: Bundle, now: Instant) -> None:
    """Let all cursors rest that would take no part in a round."""
    draft = RoundDraft(0, now.own, now.wall)
    for cursor in bundle.cursors_at_work():
        takers = takers_of(cursor, now.own)
        if not takes_part(bundle, draft, cursor, takers):
            let_rest(bundle, now, cursor, takers)


def _may_take(cursor: Cursor) -> bool:
    """Does any consumer have permits, and is not blocked?"""
    return any(consumer.permits > 0 and not consumer.is_blocked for consumer in cursor.consumers.values())


def _found_nothing(bundle: Bundle, cursor: Cursor, takers: Collection[Consumer], wall: int) -> bool:
    """Did an earlier round note that it found nothing, and is all as it was then?"""
    known = cursor.nothing_found_at
    return known is not None and known[0] == _state(bundle, cursor, takers) and (known[1] is None or known[1] > wall)


def nothing_found(bundle: Bundle, cursor: Cursor, takers: Collection[Consumer], wall: int) -> tuple:
    """What to note of a cursor in which nothing was found for these consumers: its state, and until when that holds."""
    dues = [cursor.next_replay(wall), None if cursor.dues is None else cursor.dues.next_due(wall)]
    return _state(bundle, cursor, takers), min((due for due in dues if due is not None), default=None)


def _state(bundle: Bundle, cursor: Cursor, takers: Collection[Consumer]) -> tuple:
    """What decides whether there is anything to deliver, for comparison."""
    return (
        bundle.topics[cursor.topic].end_position(cursor.key.partition),
        cursor.mark_delete,
        cursor.map_version,
        cursor.selector,
        cursor.is_blocked,
        cursor.is_blocked_by_broker,
        tuple(cursor.recently_joined.items()),
        cursor.key_shared,
        frozenset(taker.consumer_id for taker in takers if not taker.is_blocked),
        *(bundle.policy(cursor.topic, name) for name in LOOK_AHEAD),
    )
