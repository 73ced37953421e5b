"""The broker's limit of unacknowledged messages, looked at behind each round.

What is unacknowledged is summed from the cursors. Whether the broker is blocked is a fact among the policies, whether a
subscription is held back stands in its cursor's row: both end at other numbers than they begin, so what is out does not
tell. Subscriptions with a consumer that knows no limits (DataFrame consumers) neither count nor are held back: one
delivery of theirs is more than any limit that would suit the others. Rules: semantics 4.5 (see protocol.unacked_limit).
"""

from pulsar_spark.broker.bundle import Bundle
from pulsar_spark.broker.state import Cursor
from pulsar_spark.protocol.policies import BROKER, BROKER_BLOCKED
from pulsar_spark.protocol.unacked_limit import BrokerLimit


def hold_back(bundle: Bundle, messages: int) -> tuple[list[Cursor], list[dict]]:
    """Decide whether the broker is blocked, and which cursors are held back for it; the cursors for which this changed,
    and the row where it did for the broker. The limit is so many *messages*, 0 for none."""
    limit = BrokerLimit(messages)
    was_blocked = bundle.policies.get((BROKER, BROKER_BLOCKED)) == "true"
    unacked = sum(
        cursor.unacked.total() for cursor in bundle.cursors.values() if cursor.unacked and cursor.has_unacked_limits
    )
    is_blocked = limit.blocks_broker(unacked, was_blocked)
    facts, changed = [], []
    if is_blocked != was_blocked:
        facts.append(bundle.set_policy(BROKER, BROKER_BLOCKED, "true" if is_blocked else "false"))
    for cursor in bundle.cursors.values() if is_blocked or was_blocked else []:
        is_held = (
            is_blocked
            and cursor.has_unacked_limits
            and limit.blocks_subscription(cursor.unacked.total(), cursor.is_blocked_by_broker)
        )
        if is_held != cursor.is_blocked_by_broker:
            cursor.is_blocked_by_broker = is_held
            changed.append(cursor)
    return changed, facts
