"""Gives the application the messages that a consumer has received.

One thread at a time takes and reads; the channel's thread never reads a file.
"""

import threading
import time
from collections.abc import Callable, Iterator
from itertools import islice

from pulsar_spark.client.model.message import Message
from pulsar_spark.client.model.policies import ConsumerBatchReceivePolicy
from pulsar_spark.client.receiving.delivery import Delivery
from pulsar_spark.client.receiving.delivery_queue import DeliveryQueue
from pulsar_spark.client.receiving.reading import DeliveryReading
from pulsar_spark.client.schema.payloads import PayloadOpener
from pulsar_spark.client.subscribing.subscription import PartitionSubscription
from pulsar_spark.errors import AlreadyClosed, MessagesLost, PulsarSparkError, TopicNotFound, UnreadableMessage
from pulsar_spark.link import interrupts
from pulsar_spark.link.channels import Channels
from pulsar_spark.storage.delta.scan import MAY_PASS
from pulsar_spark.storage.store.away import is_away

ROOT_SECONDS = 0.5
"""Seconds between tries to read from a root that is away."""


class Receiver:
    """One per consumer. ``handed_out`` gets subscription, position and redelivery count of each message; ``discard``
    acknowledges unreadable ones."""

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
        self._arrived = DeliveryQueue()
        self._current: DeliveryReading | None = None
        self.ready: Iterator[Message] = iter(())
        """Messages that can be taken at once."""
        self.without_queue: PartitionSubscription | None = None
        """With queue size 0: the subscription whose messages are requested one by one."""
        self.error: PulsarSparkError | None = None
        """What ended it."""
        self._postponed: MessagesLost | UnreadableMessage | None = None
        self.is_closed = self._is_paused = self._is_root_away = False
        self.on_arrival: Callable[[], None] = lambda: None
        """Called, from any thread, when :meth:`take_ready` may find more."""

    def arrive(self, delivery: Delivery) -> None:
        with self._condition:
            self._arrived.put(delivery)
            self._condition.notify()
        self.on_arrival()

    def take_back(self, subscription: PartitionSubscription, messages: int) -> list[Delivery]:
        with self._condition:
            return self._arrived.take_tail(subscription, messages)

    def pause(self) -> None:
        """Hand out nothing until :meth:`resume`, and request no permits."""
        with self._condition:
            self._is_paused = True
            self._look_again()

    def resume(self) -> None:
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
        """Make every call raise :class:`AlreadyClosed`, and drop what was read ahead."""
        with self._condition:
            self.is_closed = True
            self._look_again()
            self._condition.notify_all()
        if self._taking.acquire(blocking=False):
            self._end_taking()
        self.on_arrival()

    def fail(self, error: PulsarSparkError) -> None:
        with self._condition:
            self.error = self.error or error
            self._look_again()
            self._condition.notify_all()
        self.on_arrival()

    def check_closed(self) -> None:
        """:class:`AlreadyClosed` after :meth:`close`; other errors are ignored."""
        if self.is_closed:
            raise AlreadyClosed(f"the consumer of {self.name} is closed")

    def check_open(self) -> None:
        """Raise the error that ended the consumer, if any."""
        self.check_closed()
        if self.error is not None:
            raise self.error

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
            if self._current is not None:
                self._current.restart()
            raise
        finally:
            self._end_taking()

    def _end_taking(self) -> None:
        if self.is_closed and self._current is not None:
            self._current.subscription.take_looked_at_again()
            self._current = None
        self._taking.release()

    def take_ready(self, most: int) -> list[Message]:
        """At most *most* messages, without waiting; without a queue it requests one."""
        messages: list[Message] = []
        self._taking.acquire()
        try:
            while len(messages) < most and (message := self._next()) is not None:
                messages.append(message)
            if not messages and self.without_queue is not None:
                self.without_queue.want_one()
        except (MessagesLost, UnreadableMessage) as error:
            if not messages:
                raise
            self._postponed = error
        finally:
            self._end_taking()
        return messages

    def take_batch(self, policy: ConsumerBatchReceivePolicy) -> list[Message]:
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
                if self.without_queue is not None:
                    self.without_queue.want_one()
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

    def _try_again(self) -> None:
        with self._condition:
            self._is_root_away = False
            self._condition.notify_all()
        self.on_arrival()

    def _next(self) -> Message | None:
        """A lost or unreadable message raises once."""
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
                delivery = self._take_delivery()
                if delivery is None:
                    return None
                self._current = DeliveryReading(delivery)
            try:
                found = self._next_of(self._current)
            except TopicNotFound:  # deleted; the broker will say so for all its deliveries
                found = None
            except MAY_PASS as error:
                if is_away(self._current.subscription.topic.path):
                    self._current.restart()
                    self._is_root_away = True
                    self._channel.call_later(ROOT_SECONDS, self._try_again)
                    return None
                if isinstance(error, PulsarSparkError):
                    self.fail(error)
                raise
            if found is None:
                self._current = None
            elif isinstance(found, Message):
                return found
            else:
                raise found

    def _take_delivery(self) -> Delivery | None:
        with self._condition:
            found = self._arrived.take()
        if len(found) > 1:
            found[0].subscription.join(found[0], found[1:])
        return found[0] if found else None

    def _next_of(self, current: DeliveryReading) -> Message | MessagesLost | UnreadableMessage | None:
        """The next message, or an error in its place; None after the last."""
        subscription = current.subscription
        while True:
            read = current.read_on()
            if not isinstance(read, list):
                return read
            ready = subscription.hand_out(read)
            if ready is None:
                return None
            message = next(ready.messages, None)
            with self._condition:
                self.ready = ready.messages
                if self._is_paused or self.is_closed or self.error is not None:
                    self._look_again()
            if message is None:
                continue
            refused = message._open(self._opener)
            if refused is not None and self._opener.discards(refused):
                self._discard(message, refused)
                continue
            if self._handed_out is not None:
                self._handed_out(subscription, message._position, current.delivery.redelivery_count)
            return message if refused is None else refused

    def _look_again(self) -> None:
        """Requires the condition."""
        if self._current is not None:
            self._current.subscription.look_again()
