"""Permits: how many messages a consumer requests on one topic partition, and when.

Rule: ConsumerImpl.increaseAvailablePermits, semantics 4.1, 4.3 and 0.7. The client first requests a queue full, then
what left the queue, once that is half of it. With queue size 0, each waiting call has one permit.

A round brings at most one queue, so the queue grows fourfold, up to ``most``, if a round finds it empty and brings at
least half of it; again once a queue full was taken. It shrinks to two seconds' worth of messages
(:meth:`Permits.too_many`). Source: PIP-74 and ConsumerBase.expectMoreIncomingMessages, which double and shrink by
memory."""

GROWTH = 4
"""The factor by which a queue grows; each step costs a round."""

IDLE_LOOKS = 10
"""After so many looks at an empty and unused queue, it is too large."""


class Permits:
    """The permits of one consumer on one partition; methods return the permits to request now. *queue_size* is the
    least and *most* the greatest size; without *most* the queue does not grow.

    >>> permits = Permits(queue_size=4)
    >>> permits.connect(), permits.take(1), permits.take(1), permits.take(3)
    (4, 0, 2, 3)
    >>> alone = Permits(queue_size=0)
    >>> alone.connect(), alone.want_one(), alone.want_one()
    (0, 1, 0)
    >>> alone.hand_out(is_shown=False), alone.hand_out(is_shown=True)
    (1, 0)
    >>> growing = Permits(queue_size=4, most=16)
    >>> growing.connect(), growing.arrive(4, round_number=1, queued=0), growing.take(4)
    (4, 0, 4)
    >>> growing.arrive(4, round_number=2, queued=0), growing.queue_size
    (12, 16)
    """

    def __init__(self, queue_size: int, most: int = 0):
        self.queue_size, self.least, self.most = queue_size, queue_size, max(queue_size, most)
        self._used = self._kept = self._wanted = 0
        self._debt = 0
        """Messages that a queue above its new size must lose before it requests more."""
        self._taken = self._lately = 0
        """Messages that left the queue since it grew, and since the last :meth:`too_many`."""
        self._has_waiting, self._idle_looks = False, 0
        """Whether messages waited at the last :meth:`too_many`, and how often nothing has happened since."""
        self._round, self._brought, self._was_empty = -1, 0, False

    @property
    def until_request(self) -> int:
        """How many more messages must leave the queue before permits are requested."""
        return max(1, self.queue_size // 2 - self._used)

    @property
    def may_shrink(self) -> bool:
        """Whether the queue is, or may become, longer than the requested size."""
        return self.queue_size > self.least or self._debt > 0

    def connect(self) -> int:
        """Start anew: the broker does not know the consumer yet, or its cursor was moved."""
        self.queue_size = self.least
        self._used = self._kept = self._debt = self._taken = self._lately = 0
        return self.queue_size or self._wanted

    def want_one(self) -> int:
        """A call waits for a message."""
        if self.queue_size or self._wanted:
            return 0
        self._wanted = 1
        return 1

    def arrive(self, messages: int, *, round_number: int, queued: int) -> int:
        """*messages* of a round arrived while *queued* waited; a round may arrive in parts."""
        if round_number != self._round:
            self._round, self._brought, self._was_empty = round_number, 0, queued == 0
        self._brought += messages
        is_too_small = self._was_empty and 2 * self._brought >= self.queue_size
        if not is_too_small or self._taken < self.queue_size or self.queue_size >= self.most:
            return 0
        before, self.queue_size = self.queue_size, min(GROWTH * self.queue_size, self.most)
        self._taken = 0
        return self._paid(self.queue_size - before)

    def hand_out(self, *, is_shown: bool) -> int:
        """One message leaves the queue, shown to the application or not."""
        if not self.queue_size and is_shown and self._wanted:
            self._wanted = 0
            return 0
        return self.take(1)

    def take(self, messages: int) -> int:
        """These messages leave the queue unseen."""
        if not self.queue_size:
            return messages
        self._used += messages
        self._taken += messages
        self._lately += messages
        return self._due_permits()

    def keep(self, messages: int) -> None:
        """Of the messages taken so far, keep the permits of this many.

        >>> permits = Permits(queue_size=4)
        >>> permits.take(1), permits.keep(2), permits.take(1), permits.used_permits()
        (0, None, 0, 0)
        >>> permits.keep(0), permits.used_permits()
        (None, 2)
        """
        self._used -= messages - self._kept
        self._kept = messages

    def early_permits(self) -> int:
        """Permits to add to a request that is about to be sent.

        >>> permits = Permits(queue_size=4, most=16)
        >>> permits.queue_size = 16
        >>> permits.take(3), permits.early_permits(), permits.early_permits()
        (0, 3, 0)
        """
        return 0 if self.queue_size < self.most or self.most == self.least else self.used_permits()

    def used_permits(self) -> int:
        """Permits of the messages taken so far, also if they are few."""
        used, self._used = max(0, self._used), min(0, self._used)
        return self._paid(used)

    def drop(self, messages: int) -> int:
        """These messages are dropped from the queue and will be sent again."""
        return self._paid(messages) if self.queue_size else 0

    def refuse(self, messages: int) -> int:
        """These messages were sent but not queued."""
        return self._paid(messages) if self.queue_size else self._wanted

    def too_many(self, queued: int) -> int:
        """How many of the *queued* messages to give back because the queue shrinks; call it once a second."""
        self._idle_looks = 0 if queued or self._lately else self._idle_looks + 1
        had_some, self._has_waiting = self._has_waiting, queued > 0
        enough, self._lately = max(self.least, 2 * self._lately), 0
        is_judged = (had_some and queued) or self._idle_looks >= IDLE_LOOKS
        if is_judged and enough < self.queue_size:
            self._debt += self.queue_size - enough
            self.queue_size, self._taken = enough, 0
        return self._debt

    def give_back(self, messages: int) -> int:
        """These waiting messages (possibly none) were given back."""
        return self._paid(messages) + self._due_permits()

    def _due_permits(self) -> int:
        if self._used < max(1, self.queue_size // 2):
            return 0
        used, self._used = self._used, 0
        return self._paid(used)

    def _paid(self, messages: int) -> int:
        """The permits to request for *messages*, less the debt."""
        paid = min(self._debt, messages)
        self._debt -= paid
        return messages - paid
