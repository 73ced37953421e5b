"""Key_Shared: whether a round has anything to hand out, without gathering it.

Entries that wait for others would be looked for in vain in every round; so a round that finds nothing notes how things
stood, and none looks again before something changed.
"""

from collections.abc import Collection

from pulsar_spark.broker.bundle import Bundle
from pulsar_spark.broker.keyed import LOOK_AHEAD
from pulsar_spark.broker.state import Consumer, Cursor


def has_candidates(bundle: Bundle, cursor: Cursor, takers: Collection[Consumer], wall: int) -> bool:
    """May there be anything for the consumers that take part? Once a round has looked in vain, not before something
    changed."""
    known = cursor.looked_in_vain
    if known is None or known[0] != _state(bundle, cursor, takers) or (known[1] is not None and known[1] <= wall):
        topic = bundle.topics[cursor.topic]
        return any(due <= wall for due in cursor.replays_at()) or (
            cursor.read_position < topic.end_position(cursor.key.partition)
            and not (cursor.is_blocked or cursor.is_blocked_by_broker)
        )
    return False


def note_in_vain(bundle: Bundle, cursor: Cursor, takers: Collection[Consumer], wall: int) -> None:
    """Nothing was found for these consumers, as things stand."""
    cursor.looked_in_vain = _state(bundle, cursor, takers), cursor.next_replay(wall)


def _state(bundle: Bundle, cursor: Cursor, takers: Collection[Consumer]) -> tuple:
    """What decides whether there is anything to hand out, and is cheap to compare."""
    return (
        bundle.topics[cursor.topic].end_position(cursor.key.partition),
        cursor.mark_delete,
        cursor.changes,
        cursor.selector,
        cursor.is_blocked,
        cursor.is_blocked_by_broker,
        tuple(cursor.recently_joined.items()),
        cursor.key_shared,
        frozenset(taker.consumer_id for taker in takers if not taker.is_blocked),
        *(bundle.policy(cursor.topic, name) for name in LOOK_AHEAD),
    )
