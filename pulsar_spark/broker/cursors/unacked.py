"""The broker's limit of unacknowledged messages, checked after each round (semantics 4.5).

Rows keep what is blocked, because blocks begin and end at different counts. Subscriptions with a DataFrame consumer
neither count nor are blocked.
"""

from pulsar_spark.broker.bundle.bundle import Bundle
from pulsar_spark.broker.cursors.state import Cursor
from pulsar_spark.protocol.policies.policies import BROKER, BROKER_BLOCKED
from pulsar_spark.protocol.subscriptions.unacked_limit import BrokerLimit


def limit_unacked(bundle: Bundle, messages: int) -> tuple[list[Cursor], list[dict]]:
    """Apply the broker's limit of *messages* (0 for none): block or unblock the broker, and cursors. Returns cursors
    that changed, and rows."""
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
        is_limited = (
            is_blocked
            and cursor.has_unacked_limits
            and limit.blocks_subscription(cursor.unacked.total(), cursor.is_blocked_by_broker)
        )
        if is_limited != cursor.is_blocked_by_broker:
            cursor.is_blocked_by_broker = is_limited
            changed.append(cursor)
    return changed, facts
