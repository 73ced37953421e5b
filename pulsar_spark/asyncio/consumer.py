"""A consumer whose messages are awaited."""

import asyncio
from collections import deque
from collections.abc import Callable

from pulsar_spark.asyncio.futures import Files, answered, exception_of, on_loop, raises_exceptions
from pulsar_spark.client.model.message import Message
from pulsar_spark.client.subscribing import consumer as blocking
from pulsar_spark.described import Described
from pulsar_spark.errors import AlreadyClosed, PulsarSparkError, Timeout
from pulsar_spark.link.inbox import Reply
from pulsar_spark.protocol.delays.durations import shown_seconds
from pulsar_spark.protocol.topics.message_id import MessageId


class Consumer(Described):
    """A consumer of one subscription; made by ``Client.subscribe``. Use it on one event loop."""

    def __init__(self, consumer: blocking.Consumer, files: Files):
        self._consumer, self._files = consumer, files
        self._loop = asyncio.get_running_loop()
        self._waiting: deque[asyncio.Future] = deque()
        self._kept: deque[Message] = deque()
        self._is_taking = self._is_to_take = False
        consumer._receiver.on_arrival = self._on_arrival

    def _facts(self) -> dict[str, object]:
        return self._consumer._facts()

    async def _connect(self) -> None:
        consumer = self._consumer
        try:
            replies = await self._replies_to(consumer._membership.attach())
        except BaseException:
            consumer._membership.leave()
            raise
        consumer._membership.joined(replies)

    async def _replies_to(self, rows: list[dict]) -> list[Reply]:
        consumer, future = self._consumer, self._loop.create_future()
        consumer._channel.ask_then(
            rows, consumer._client._timeout, lambda replies, error: answered(future, replies, error)
        )
        return await future

    @raises_exceptions
    async def receive(self) -> Message:
        """Return the next message."""
        while self._kept:
            message = self._kept.popleft()
            delivery = message._delivery
            if delivery is None or delivery.subscription.may_still_be_handed_out(message):
                return message
        future = self._loop.create_future()
        self._waiting.append(future)
        self._consumer._channel.hurry(1)
        try:
            self._take()
            return await future
        except asyncio.CancelledError:
            if future.done() and not future.cancelled() and future.exception() is None:
                self._kept.appendleft(future.result())
            raise
        finally:
            self._consumer._channel.hurry(-1)
            if future in self._waiting:
                self._waiting.remove(future)

    def _on_arrival(self) -> None:
        """Called by any thread."""
        if self._waiting:
            on_loop(self._loop, self._take)

    def _take(self) -> None:
        """One thread at a time."""
        self._is_to_take = self._is_taking
        if self._is_taking or not self._waiting:
            return
        try:
            taken = self._files.submit(self._consumer._receiver.take_ready, len(self._waiting))
        except AlreadyClosed as closed:
            self._refuse(closed)
            return
        self._is_taking = True
        taken.add_done_callback(self._hand_out)

    def _hand_out(self, taken: asyncio.Future) -> None:
        self._is_taking = False
        error = taken.exception()
        if error is not None:
            self._refuse(error)
            return
        for message in taken.result():
            waiting = _next_of(self._waiting)
            if waiting is None:
                self._kept.append(message)
            else:
                waiting.set_result(message)
        if self._is_to_take or taken.result():
            self._take()

    def _refuse(self, error: BaseException) -> None:
        """Raise *error* in one call if it concerns a message, in all if it ended the consumer."""
        receiver = self._consumer._receiver
        is_over = receiver.is_closed or not isinstance(error, PulsarSparkError) or receiver.error is not None
        while (waiting := _next_of(self._waiting)) is not None:
            waiting.set_exception(exception_of(error) if isinstance(error, PulsarSparkError) else error)
            if not is_over:
                self._take()
                return

    @raises_exceptions
    async def acknowledge(self, message: Message | MessageId) -> None:
        """Acknowledge a *message* or a message id, shortly after, together with others."""
        await _name(message, self._consumer.acknowledge, self._files)

    @raises_exceptions
    async def acknowledge_cumulative(self, message: Message | MessageId) -> None:
        """Acknowledge all messages of the partition up to and including the *message*; not on Shared and Key_Shared."""
        await _name(message, self._consumer.acknowledge_cumulative, self._files)

    @raises_exceptions
    async def negative_acknowledge(self, message: Message | MessageId) -> None:
        """Give a *message* back: it comes again after ``negative_ack_redelivery_delay_ms``, on Key_Shared before later
        messages of its key."""
        await _name(message, self._consumer.negative_acknowledge, self._files)

    def redeliver_unacknowledged_messages(self) -> None:
        """Give back every message that this consumer received and did not acknowledge."""
        self._kept.clear()
        self._consumer.redeliver_unacknowledged_messages()

    @raises_exceptions
    async def seek(self, messageid: MessageId | int) -> None:
        """Move the cursor after the message *messageid* (to it with ``start_message_id_inclusive``), or to the first
        message published at or after a time in ms."""
        await self._files.submit(self._consumer.seek, messageid)

    @raises_exceptions
    async def get_last_message_id(self) -> MessageId:
        """The id of the topic's last message. Only for a consumer of one partition."""
        return await self._files.submit(self._consumer.get_last_message_id)

    @raises_exceptions
    async def unsubscribe(self) -> None:
        """Delete the subscription and close the consumer; refused while other consumers are connected."""
        self._consumer._unsubscribed(await self._replies_to(self._consumer._unsubscribe_rows()))

    @raises_exceptions
    async def close(self) -> None:
        """Send pending acknowledgements, then leave the subscription. A second call raises ``AlreadyClosed``."""
        consumer, future = self._consumer, self._loop.create_future()
        consumer._channel.submit(
            consumer._leave_orderly(), is_urgent=True, committed=lambda version: answered(future, version, None)
        )
        timeout = consumer._client._timeout
        try:
            version = await asyncio.wait_for(future, timeout)
        except TimeoutError:
            raise Timeout(
                f"the root could not be written within {shown_seconds(timeout)}: the consumer ends with its lease"
            ) from None
        if version < 0 and (failure := consumer._channel.failure) is not None:
            raise failure

    def topic(self) -> str:
        """The topic; several topics are separated by commas."""
        return self._consumer.topic()

    def subscription_name(self) -> str:
        """The subscription's name."""
        return self._consumer.subscription_name()

    def consumer_name(self) -> str:
        """The given name, or the generated one."""
        return self._consumer.consumer_name()


def _next_of(waiting: deque[asyncio.Future]) -> asyncio.Future | None:
    while waiting:
        future = waiting.popleft()
        if not future.done():
            return future
    return None


async def _name(message: Message | MessageId, call: Callable, files: Files) -> None:
    """Run *call*; in a file thread for a message id."""
    if isinstance(message, Message):
        call(message)
    else:
        await files.submit(call, message)
