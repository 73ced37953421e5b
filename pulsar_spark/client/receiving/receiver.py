"""The deliveries a consumer has received, in order of arrival, until the application takes their messages.

One thread at a time takes and reads; the channel's thread never reads or waits for a file.
"""

import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from itertools import islice

from deltalake.exceptions import DeltaError

from pulsar_spark.client.model.message import Message
from pulsar_spark.client.model.policies import ConsumerBatchReceivePolicy
from pulsar_spark.client.receiving.delivery import Delivery, tail_of
from pulsar_spark.client.receiving.reading import Read
from pulsar_spark.client.schema.payloads import PayloadOpener
from pulsar_spark.client.subscribing.subscription import PartitionSubscription
from pulsar_spark.errors import AlreadyClosed, MessagesLost, PulsarSparkError, TopicNotFound, UnreadableMessage
from pulsar_spark.link import interrupts
from pulsar_spark.link.channels import Channels
from pulsar_spark.storage.store.away import is_away

JOINED_ENTRIES = 1000
"""Deliveries are read together up to about this many entries."""
ROOT_SECONDS = 0.5
"""Seconds between tries to read from a root that is away."""


def _nothing() -> None:
    """Default for no callback."""


class Receiver:
    """One per consumer. ``handed_out`` gets subscription, position and redelivery count of each message, readable or
    not; ``discard`` acknowledges an unreadable one unseen.
    """

    def __init__(
        self,
        channel: Channels,
        name: str,
        handed_out: Callable[[PartitionSubscription, int, int], None] | None,
        opener: PayloadOpener,
        discard: Callable[[Message, UnreadableMessage], None],
    ):
        self._channel = channel
        self.name = name
        self._handed_out, self._opener, self._discard = handed_out, opener, discard
        self._condition = threading.Condition()
        self._taking = threading.Lock()
        self._arrived: deque[Delivery] = deque()
        self._current: tuple[Delivery, Iterator[Read]] | None = None
        self._read: list[Message] = []
        self._taken = 0
        self.ready: Iterator[Message] = iter(())
        """Messages that can be taken at once; after the last there may be others."""
        self._without_queue: PartitionSubscription | None = None
        self._error: PulsarSparkError | None = None
        self._postponed: MessagesLost | UnreadableMessage | None = None
        self.is_closed = self._is_paused = self._is_root_away = False
        self.on_arrival: Callable[[], None] = _nothing
        """Is called when it may be worth to try :meth:`take_ready` again, from any thread."""

    def set_without_queue(self, subscription: PartitionSubscription) -> None:
        """Request messages of *subscription* one by one, for queue size 0."""
        self._without_queue = subscription

    def arrive(self, delivery: Delivery) -> None:
        """Queue a delivery."""
        with self._condition:
            self._arrived.append(delivery)
            self._condition.notify()
        self.on_arrival()

    def take_back(self, subscription: PartitionSubscription, messages: int) -> list[Delivery]:
        """Remove the tail of *subscription*'s waiting deliveries (see :func:`tail_of`)."""
        with self._condition:
            tail = tail_of([each for each in self._arrived if each.subscription is subscription], messages)
            gone = set(tail)
            self._arrived = deque(delivery for delivery in self._arrived if delivery not in gone)
        return tail

    def pause(self) -> None:
        """Hand out nothing until :meth:`resume`: arriving messages fill the queue, and no permits are requested."""
        with self._condition:
            self._is_paused = True
            self._look_again()

    def resume(self) -> None:
        """Continue after :meth:`pause`."""
        with self._condition:
            self._is_paused = False
            self._condition.notify_all()
        self.on_arrival()

    def until_resumed(self) -> bool:
        """Wait while paused; False if closed meanwhile."""
        with self._condition:
            while self._is_paused and not self.is_closed:
                self._condition.wait()
            return not self.is_closed

    def close(self) -> None:
        """Make every call raise :class:`AlreadyClosed`, and drop what was read ahead with its file, now or when a
        running call ends.
        """
        with self._condition:
            self.is_closed = True
            self._look_again()
            self._condition.notify_all()
        if self._taking.acquire(blocking=False):
            self._end_taking()
        self.on_arrival()

    def fail(self, error: PulsarSparkError) -> None:
        """Make every call raise *error*."""
        with self._condition:
            self._error = self._error or error
            self._look_again()
            self._condition.notify_all()
        self.on_arrival()

    @property
    def has_failed(self) -> bool:
        """Whether an error ended it."""
        return self._error is not None

    def check_closed(self) -> None:
        """:class:`AlreadyClosed` after :meth:`close`; other errors are ignored."""
        if self.is_closed:
            raise AlreadyClosed(f"the consumer of {self.name} is closed")

    def check_open(self) -> None:
        """Raise the error that ended the consumer, if any."""
        self.check_closed()
        if self._error is not None:
            raise self._error

    def take(self, timeout: float | None) -> Message | None:
        """The next message, None after *timeout* seconds."""
        for message in self.ready:
            return message
        deadline = None if timeout is None else time.monotonic() + timeout
        since = interrupts.seen()
        if not self._taking.acquire(blocking=False) and not interrupts.until(
            lambda seconds: self._taking.acquire(timeout=-1 if seconds is None else max(0.0, seconds)), timeout, since
        ):
            return None
        try:
            return self._next() or self._wait_for_next(deadline, since)
        except KeyboardInterrupt:
            self._read_again()
            raise
        finally:
            self._end_taking()

    def _end_taking(self) -> None:
        if self.is_closed and self._current is not None:
            delivery, _ = self._current
            delivery.subscription.take_looked_at_again()
            self._current, self._read = None, []
        self._taking.release()

    def take_ready(self, most: int) -> list[Message]:
        """At most *most* messages that are ready, without waiting; without a queue it requests one."""
        messages: list[Message] = []
        self._taking.acquire()
        try:
            while len(messages) < most and (message := self._next()) is not None:
                messages.append(message)
            if not messages and self._without_queue is not None:
                self._without_queue.want_one()
        except (MessagesLost, UnreadableMessage) as error:
            if not messages:
                raise
            self._postponed = error
        finally:
            self._end_taking()
        return messages

    def take_batch(self, policy: ConsumerBatchReceivePolicy) -> list[Message]:
        """The messages of one batch receive policy: until its count, size or time."""
        messages: list[Message] = []
        size = 0
        deadline = None if policy.timeout_ms <= 0 else time.monotonic() + policy.timeout_ms / 1000
        while not 0 < policy.max_num_message <= len(messages) and not 0 < policy.max_num_bytes <= size:
            try:
                message = self.take(None if deadline is None else max(0.0, deadline - time.monotonic()))
            except (MessagesLost, UnreadableMessage) as error:
                if not messages:
                    raise
                self._postponed = error
                break
            if message is None:
                break
            messages.append(message)
            if policy.max_num_bytes > 0:
                size += message.length()
            else:  # also take the other ready ones
                messages += islice(self.ready, max(0, policy.max_num_message - len(messages)))
        return messages

    def _wait_for_next(self, deadline: float | None, since: int) -> Message | None:
        self._channel.hurry(1)
        try:
            while True:
                if self._without_queue is not None:
                    self._without_queue.want_one()
                with self._condition:
                    while self._is_paused or self._is_root_away or not (self._arrived or self._current):
                        self.check_open()
                        left = None if deadline is None else deadline - time.monotonic()
                        if left is not None and left <= 0:
                            return None
                        interrupts.pause(self._condition.wait, left, since)
                message = self._next()
                if message is not None:
                    return message
        finally:
            self._channel.hurry(-1)

    def _wait_for_root(self) -> None:
        """Read again a little later, because the root is away."""
        self._read_again()
        self._is_root_away = True
        self._channel.call_later(ROOT_SECONDS, self._try_again)

    def _try_again(self) -> None:
        with self._condition:
            self._is_root_away = False
            self._condition.notify_all()
        self.on_arrival()

    def _read_again(self) -> None:
        """Restart reading the current delivery after the messages taken, because Ctrl-C may have ended its reading."""
        if self._current is not None:
            delivery, _ = self._current
            self._current = delivery, _after(self._taken, delivery.subscription.read(delivery))

    def _next(self) -> Message | None:
        """The next arrived message. A lost or unreadable one raises once; the next call continues after it."""
        for message in self.ready:
            return message
        self.check_open()
        if self._is_paused or self._is_root_away:
            return None
        if self._postponed is not None:
            postponed, self._postponed = self._postponed, None
            raise postponed
        while True:
            if self._current is None:
                delivery = self._take_first()
                if delivery is None:
                    return None
                if delivery.generation != delivery.subscription.generation:
                    continue
                if delivery.can_be_joined and (others := self._take_joinable(delivery)):
                    delivery.subscription.join(delivery, others)
                self._current, self._taken = (delivery, delivery.subscription.read(delivery)), 0
            try:
                found = self._next_of_current()
            except TopicNotFound:  # deleted; the broker will say so for all its deliveries
                found = None
            except (PulsarSparkError, OSError, DeltaError) as error:
                if self._current is not None and is_away(self._current[0].subscription.topic.path):
                    self._wait_for_root()
                    return None
                if isinstance(error, PulsarSparkError):
                    self.fail(error)
                raise
            if found is None:
                self._current, self._read = None, []
            elif isinstance(found, Message):
                return found
            else:
                raise found

    def _take_first(self) -> Delivery | None:
        """Take the first delivery from the queue; None without one."""
        with self._condition:
            if not self._arrived:
                return None
            delivery = self._arrived.popleft()
            delivery.is_taken()
            return delivery

    def _take_joinable(self, delivery: Delivery) -> list[Delivery]:
        """Take the following deliveries that can be read with *delivery*, because reading few takes as long as reading
        many.
        """
        found, last, entries = [], delivery, delivery.entries
        with self._condition:
            while self._arrived and entries < JOINED_ENTRIES:
                each = self._arrived[0]
                if not each.can_be_joined or not last.is_followed_by(each):
                    break
                found.append(self._arrived.popleft())
                each.is_taken()
                last, entries = each, entries + each.entries
        return found

    def _next_of_current(self) -> Message | MessagesLost | UnreadableMessage | None:
        """The next message of the current delivery, or an error in its place; None after the last."""
        if self._current is None:
            return None
        delivery, reads = self._current
        subscription = delivery.subscription
        while True:
            self._read[:0] = subscription.take_looked_at_again()
            if not self._read:
                read = next(reads, None)
                if not isinstance(read, list):
                    self._taken += 1
                    return read
                self._read, self._taken = read, self._taken + len(read)
            ready = subscription.hand_out(self._read)
            if ready is None:
                return None
            message = next(ready.messages, None)
            self._make_ready(ready.messages)
            if message is None:
                continue
            refused = message._open(self._opener)
            if refused is not None and self._opener.discards(refused):
                self._discard(message, refused)
                continue
            if self._handed_out is not None:
                self._handed_out(subscription, message._position, delivery.redelivery_count)
            return message if refused is None else refused

    def _make_ready(self, messages: Iterator[Message]) -> None:
        """Set the ready messages."""
        with self._condition:
            self.ready = messages
            if self._is_paused or self.is_closed or self._error is not None:
                self._look_again()

    def _look_again(self) -> None:
        """Recheck the ready messages after a change. The caller holds the condition."""
        if self._current is not None:
            delivery, _ = self._current
            delivery.subscription.look_again()


def _after(messages: int, reads: Iterable[Read]) -> Iterator[Read]:
    """Skip the first *messages* (or errors in their place) of *reads*."""
    for read in reads:
        if messages <= 0:
            yield read
        elif not isinstance(read, list):
            messages -= 1
        else:
            if read[messages:]:
                yield read[messages:]
            messages -= len(read)
