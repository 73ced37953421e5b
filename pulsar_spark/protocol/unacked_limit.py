"""The broker's limit of unacknowledged messages, and which subscriptions it holds back.

Rules: BrokerService.checkUnAckMessageDispatching, addUnAckedMessages, blockDispatchersWithLargeUnAckMessages; semantics
4.5. When all that Shared subscriptions have unacknowledged reaches the limit, the broker is blocked: those that hold
more than their share of the limit get no new entries, only what comes again. One of them goes on when it falls below
half of its share, all go on when the sum falls below half of the limit.

Left out: Pulsar's timer of 30 s, because a round looks at what it leaves behind; what it finds holds from the next
round on.
"""

from typing import NamedTuple

SHARE = 0.16
"""maxUnackedMessagesPerSubscriptionOnBrokerBlocked, which is no option here."""

BLOCKED_BY_BROKER = "blocked_by_broker"
"""What the row of a cursor says that is held back."""


class BrokerLimit(NamedTuple):
    """So many messages; 0 = no limit."""

    messages: int

    @property
    def share(self) -> int:
        """What a subscription may hold while the broker is blocked, in whole messages.

        >>> BrokerLimit(40).share, BrokerLimit(5).share
        (6, 0)
        """
        return int(self.messages * SHARE)

    def blocks_broker(self, unacked: int, is_blocked: bool) -> bool:
        """Is the broker blocked that has so many messages unacknowledged, when it was blocked or not?

        >>> limit = BrokerLimit(40)
        >>> [limit.blocks_broker(unacked, was) for unacked, was in [(40, False), (39, False), (20, True), (19, True)]]
        [True, False, True, False]
        """
        return self.messages > 0 and (unacked >= self.messages or (is_blocked and _is_half(unacked, self.messages)))

    def blocks_subscription(self, unacked: int, is_blocked: bool) -> bool:
        """Is a subscription of a blocked broker held back, when it was or not? Never one that has nothing
        unacknowledged.

        >>> limit = BrokerLimit(40)
        >>> [limit.blocks_subscription(unacked, was) for unacked, was in [(7, False), (6, False), (3, True), (2, True)]]
        [True, False, True, False]
        """
        return unacked > self.share or (is_blocked and _is_half(unacked, self.share))


def _is_half(unacked: int, limit: int) -> bool:
    return unacked > 0 and unacked >= limit // 2
