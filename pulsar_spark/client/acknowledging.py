"""The methods by which a consumer's application says what became of messages (see acknowledger).

Acknowledgements of messages that were received here are only noted, and made out by hundreds (``pending_acks``); all
else goes to the consumer's :class:`Acknowledger`.
"""

from typing import Any

from pulsar_spark.client.acknowledger import Acknowledger
from pulsar_spark.client.arguments import (
    check_kept_properties,
    check_type,
    check_type_or_none,
    interrupted,
    public_call,
)
from pulsar_spark.client.letters import LONGEST_DELAY_MS, Letters
from pulsar_spark.client.message import Message
from pulsar_spark.client.receiver import Receiver
from pulsar_spark.client.subscription import PartitionSubscription
from pulsar_spark.client.unacked import UnackedTracker
from pulsar_spark.errors import InvalidConfiguration
from pulsar_spark.link.channels import Channels
from pulsar_spark.protocol.message_id import MessageId
from pulsar_spark.storage import forks

UNACKED_TICK = 1.0
"""How many seconds lie between two looks for what was not acknowledged in time."""


class Acknowledging:
    """The part of :class:`~pulsar_spark.client.consumer.Consumer` that acknowledges, gives back and puts off."""

    _process: int
    _channel: Channels
    _receiver: Receiver
    _acknowledger: Acknowledger
    _letters: Letters | None
    _unacked: UnackedTracker | None
    _subscriptions: list[PartitionSubscription]
    subscription_name: Any

    def acknowledge(self, message: Message | MessageId | list, properties: dict | None = None) -> None:
        """Acknowledge one *message*, or a list of them; of a batch only that one, unless the id names the whole entry.

        With ``ack_receipt_enabled`` it returns when the broker has committed it, and raises what the broker refuses. An
        acknowledgement with *properties* is sent at once and they are kept with its request.
        """
        try:
            if type(message) is Message and properties is None and self._process == forks.generation:
                delivery = message._block.delivery
                if delivery is not None and (pending := delivery.pending_acks).owner is self:
                    pending.append(message)
                    if len(pending) >= pending.room:
                        self._receiver.check_open()
                        delivery.subscription.tracker.make_out()
                    return
        except KeyboardInterrupt:
            raise interrupted(self, "acknowledge") from None
        self._acknowledge(message, properties)

    @public_call
    def _acknowledge(self, message: Message | MessageId | list, properties: dict | None) -> None:
        self._receiver.check_open()
        if properties is None and type(message) is list and self._append(message):
            return
        self._acknowledger.acknowledge(message, properties)

    def _append(self, messages: list) -> bool:
        """Acknowledge *messages* as :meth:`acknowledge` does each, if all of them were received here."""
        deliveries = [type(each) is Message and each._block.delivery for each in messages]
        if not all(delivery and delivery.pending_acks.owner is self for delivery in deliveries):
            return False
        for message, delivery in zip(messages, deliveries):
            delivery.pending_acks.append(message)
        for subscription in {delivery.subscription for delivery in deliveries}:
            if len(subscription.tracker.pending) >= subscription.tracker.pending.room:
                subscription.tracker.make_out()
        return True

    @public_call
    def acknowledge_cumulative(self, message: Message | MessageId, properties: dict | None = None) -> None:
        """Acknowledge everything of the *message*'s partition up to and including it; not on Shared and Key_Shared.
        *properties* are kept with the request."""
        self._receiver.check_open()
        self._acknowledger.acknowledge_cumulative(message, properties)

    @public_call
    def negative_acknowledge(self, message: Message | MessageId) -> None:
        """Give a *message* back: its entry comes again after ``negative_ack_redelivery_delay_ms`` or the backoff's
        delay, as far as it is not acknowledged.

        On Key_Shared no later message of its key is handed out before that, unless the consumers allow deliveries out
        of order; on Exclusive and Failover everything behind it that is not acknowledged comes again with it, and
        until then what is in the queue is handed out. When it was given back as often as the dead letter policy allows,
        it goes to the dead letter topic instead.
        """
        self._receiver.check_open()
        self._acknowledger.negative_acknowledge(message)

    @public_call
    def reconsume_later(
        self, message: Message | list, delay_millis: int | None = None, properties: dict | None = None
    ) -> None:
        """Put a *message*, or a list of them, off: it is acknowledged, and a copy in the retry letter topic comes after
        *delay_millis*; needs ``retry_enable``.

        A message that was put off as often as the dead letter policy allows goes to the dead letter topic instead.
        *properties* are added to the copy's, but for names that the system alone writes (``RECONSUMETIMES``,
        ``REAL_...``, ``ORIGIN_...``); it counts what it wrote itself, so a letter that somebody published again starts
        its own count. It returns when the request is stored: then there will be one copy,
        whatever crashes when.
        """
        self._put_off(message, delay_millis, properties, is_cumulative=False)

    @public_call
    def reconsume_later_cumulative(
        self, message: Message, delay_millis: int | None = None, properties: dict | None = None
    ) -> None:
        """As :meth:`reconsume_later`, with its *delay_millis* and *properties*, but everything up to the *message* is
        acknowledged; only the message is copied. Not on Shared and Key_Shared."""
        self._receiver.check_open()
        self._acknowledger.check_cumulative()
        check_type(Message, message, "message")
        self._put_off(message, delay_millis, properties, is_cumulative=True)

    def _put_off(
        self, message: Message | list, delay_millis: int | None, properties: dict | None, *, is_cumulative: bool
    ) -> None:
        self._receiver.check_open()
        if self._letters is None:
            raise InvalidConfiguration(
                f"subscription {self.subscription_name()!r} has no retry letter topic: subscribe with retry_enable=True"
            )
        messages = message if isinstance(message, list) else [message]
        for each in messages:
            check_type(Message, each, "message")
        check_type_or_none(int, delay_millis, "delay_millis")
        check_kept_properties(properties)
        delay_ms = max(0, delay_millis or 0)
        if delay_ms > LONGEST_DELAY_MS:
            raise ValueError(f"argument delay_millis: {delay_millis} is above {LONGEST_DELAY_MS}")
        self._acknowledger.reconsume_later(
            messages,
            lambda each, place: self._letters.of(
                each, str(place.subscription.topic.name), delay_ms, properties, is_cumulative=is_cumulative
            ),
        )

    @public_call
    def redeliver_unacknowledged_messages(self) -> None:
        """Everything this consumer holds and has not acknowledged comes again, to whom the subscription's type says."""
        self._receiver.check_open()
        for subscription in self._subscriptions:
            self._forget_unacked(subscription)
            row, committed = subscription.redeliver_all()
            self._channel.submit([row], is_urgent=True, committed=committed)

    def _redeliver_expired(self) -> None:
        if not self._receiver.is_closed:
            self._acknowledger.give_back_expired()
            self._channel.call_later(UNACKED_TICK, self._redeliver_expired)

    def _forget_unacked_entry(self, subscription: PartitionSubscription, position: int) -> None:
        if self._unacked is not None:
            self._unacked.remove(subscription, position)

    def _forget_unacked(self, subscription: PartitionSubscription) -> None:
        if self._unacked is not None:
            self._unacked.forget(subscription)
