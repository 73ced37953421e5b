"""Permits: how many messages a consumer asks the broker for on one topic partition, and when.

Rule: ConsumerImpl.increaseAvailablePermits, semantics 4.1, 4.3 and 0.7. On connecting the client asks for a queue full;
from then on for what has left the queue, whenever that is half the queue size or more. A message that is dropped unseen
leaves it too. Without a queue (size 0) there is one permit a call that waits, and a message that is not shown to it
gives its permit back.
"""


class Permits:
    """The count of one consumer on one topic partition; every method gives the permits to ask for now.

    >>> permits = Permits(queue_size=4)
    >>> permits.connect(), permits.take(1), permits.take(1), permits.take(3)
    (4, 0, 2, 3)
    >>> alone = Permits(queue_size=0)
    >>> alone.connect(), alone.want_one(), alone.want_one()
    (0, 1, 0)
    >>> alone.hand_out(is_shown=False), alone.hand_out(is_shown=True)
    (1, 0)
    """

    def __init__(self, queue_size: int):
        self.queue_size, self._at_least = queue_size, max(1, queue_size // 2)
        self._used = self._wanted = 0

    def connect(self) -> int:
        """The broker counts from nothing: the consumer is new to it, or its cursor was moved."""
        self._used = 0
        return self.queue_size or self._wanted

    def want_one(self) -> int:
        """A call waits; with a queue it was asked for already."""
        if self.queue_size or self._wanted:
            return 0
        self._wanted = 1
        return 1

    def hand_out(self, *, is_shown: bool) -> int:
        """One message leaves the queue, and is shown to the application or not."""
        if not self.queue_size and is_shown and self._wanted:
            self._wanted = 0
            return 0
        return self.take(1)

    def take(self, messages: int) -> int:
        """So many leave the queue unseen."""
        if not self.queue_size:
            return messages
        self._used += messages
        if self._used < self._at_least:
            return 0
        permits, self._used = self._used, 0
        return permits

    def drop(self, messages: int) -> int:
        """So many are dropped from the queue and will be sent again."""
        return messages if self.queue_size else 0

    def refuse(self, messages: int) -> int:
        """So many were sent and never queued."""
        return messages if self.queue_size else self._wanted
