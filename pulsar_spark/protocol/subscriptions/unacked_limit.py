"""The broker's limit of unacknowledged messages, and which subscriptions it blocks.

Rules: BrokerService.checkUnAckMessageDispatching, addUnAckedMessages, blockDispatchersWithLargeUnAckMessages; semantics
4.5. Blocked subscriptions get redeliveries only. Each round measures for the next one; Pulsar does so every 30 s."""

from typing import NamedTuple

SHARE = 0.16
"""maxUnackedMessagesPerSubscriptionOnBrokerBlocked, not configurable here."""

BLOCKED_BY_BROKER = "blocked_by_broker"
"""The status of a cursor that the limit blocks."""


class BrokerLimit(NamedTuple):
    """The limit in messages; 0 = no limit."""

    messages: int

    @property
    def share(self) -> int:
        """How many unacknowledged messages a subscription may have while the broker is blocked."""
        return int(self.messages * SHARE)

    def blocks_broker(self, unacked: int, is_blocked: bool) -> bool:
        """Whether a broker with *unacked* messages is blocked, given whether it was.

        >>> limit = BrokerLimit(40)
        >>> [limit.blocks_broker(unacked, was) for unacked, was in [(40, False), (39, False), (20, True), (19, True)]]
        [True, False, True, False]
        """
        return self.messages > 0 and (unacked >= self.messages or (is_blocked and _is_half(unacked, self.messages)))

    def blocks_subscription(self, unacked: int, is_blocked: bool) -> bool:
        """Whether a blocked broker blocks a subscription with *unacked* messages, given whether it was blocked.

        >>> limit = BrokerLimit(40)
        >>> [limit.blocks_subscription(unacked, was) for unacked, was in [(7, False), (6, False), (3, True), (2, True)]]
        [True, False, True, False]
        """
        return unacked > self.share or (is_blocked and _is_half(unacked, self.share))


def _is_half(unacked: int, limit: int) -> bool:
    return unacked > 0 and unacked >= limit // 2
