"""A consumer's methods to acknowledge, give back and put off messages."""

from collections.abc import Callable

from pulsar_spark.client.acks.acknowledger import Acknowledger
from pulsar_spark.client.acks.unacked import UNACKED_TICK, UnackedTracker
from pulsar_spark.client.arguments import check_kept_properties, check_type, interrupted, public_call
from pulsar_spark.client.model.message import Message
from pulsar_spark.client.receiving.receiver import Receiver
from pulsar_spark.client.subscribing.letters import LONGEST_DELAY_MS, Letters
from pulsar_spark.client.subscribing.membership import Membership
from pulsar_spark.client.subscribing.subscription import PartitionSubscription
from pulsar_spark.errors import InvalidConfiguration
from pulsar_spark.link.channels import Channels
from pulsar_spark.protocol.topics.message_id import MessageId
from pulsar_spark.storage.processes import forks


class Acknowledging:
    """The part of :class:`~pulsar_spark.client.subscribing.consumer.Consumer` that acknowledges, gives back and puts
    off."""

    _process: int
    _channel: Channels
    _receiver: Receiver
    _acknowledger: Acknowledger
    _letters: Letters | None
    _unacked: UnackedTracker | None
    _membership: Membership
    subscription_name: Callable[[], str]

    @property
    def _subscriptions(self) -> list[PartitionSubscription]:
        return self._membership.subscriptions

    def acknowledge(self, message: Message | MessageId | list, properties: dict | None = None) -> None:
        """Acknowledge one *message* or a list. Of a batch only that message is acknowledged, unless an id names the
        whole entry.

        With ``ack_receipt_enabled`` the call returns after the broker's commit, and raises its refusal. With
        *properties* it is sent at once; the request keeps them.
        """
        try:
            if type(message) is Message and properties is None and self._process == forks.generation:
                delivery = message._block.delivery
                if delivery is not None and (pending := delivery.pending_acks).owner is self:
                    pending.append(message)
                    if len(pending) >= pending.room:
                        self._receiver.check_open()
                        delivery.subscription.tracker.process_pending()
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
        """:meth:`acknowledge` all *messages* at once, if all were received here."""
        deliveries = [each._block.delivery for each in messages if type(each) is Message]
        if len(deliveries) < len(messages) or not all(each and each.pending_acks.owner is self for each in deliveries):
            return False
        for message, delivery in zip(messages, deliveries):
            delivery.pending_acks.append(message)
        for subscription in {delivery.subscription for delivery in deliveries}:
            if len(subscription.tracker.pending) >= subscription.tracker.pending.room:
                subscription.tracker.process_pending()
        return True

    @public_call
    def acknowledge_cumulative(self, message: Message | MessageId, properties: dict | None = None) -> None:
        """Acknowledge all messages of the *message*'s partition up to and including it; not on Shared and Key_Shared.
        The request keeps *properties*."""
        self._receiver.check_open()
        self._acknowledger.acknowledge_cumulative(message, properties)

    @public_call
    def negative_acknowledge(self, message: Message | MessageId) -> None:
        """Give a *message* back: the unacknowledged part of its entry comes again after
        ``negative_ack_redelivery_delay_ms``, or the delay of the backoff.

        On Key_Shared no later message of its key is delivered first, unless the policy allows out of order delivery. On
        Exclusive and Failover every unacknowledged message after it comes again too; queued messages are still
        delivered. A message given back as often as the dead letter policy allows goes to the dead letter topic instead.
        """
        self._receiver.check_open()
        self._acknowledger.negative_acknowledge(message)

    @public_call
    def reconsume_later(
        self, message: Message | list, delay_millis: int | None = None, properties: dict | None = None
    ) -> None:
        """Put a *message*, or a list of messages, off: it is acknowledged, and a copy comes from the retry letter topic
        after *delay_millis*. Needs ``retry_enable``.

        A message put off as often as the dead letter policy allows goes to the dead letter topic instead. *properties*
        are added to the copy, except names that only the system writes (``RECONSUMETIMES``, ``REAL_...``,
        ``ORIGIN_...``). The call returns when the request is stored; from then on a crash cannot prevent or double the
        copy.
        """
        self._put_off(message, delay_millis, properties, is_cumulative=False)

    @public_call
    def reconsume_later_cumulative(
        self, message: Message, delay_millis: int | None = None, properties: dict | None = None
    ) -> None:
        """Put a *message* off as :meth:`reconsume_later` does, and acknowledge all messages up to it; only this one is
        copied. *delay_millis* and *properties* are as there. Not on Shared and Key_Shared."""
        self._receiver.check_open()
        self._acknowledger.check_cumulative()
        check_type(Message, message, "message")
        self._put_off(message, delay_millis, properties, is_cumulative=True)

    def _put_off(
        self, message: Message | list, delay_millis: int | None, properties: dict | None, *, is_cumulative: bool
    ) -> None:
        self._receiver.check_open()
        letters = self._letters
        if letters is None:
            raise InvalidConfiguration(
                f"subscription {self.subscription_name()!r} has no retry letter topic: subscribe with retry_enable=True"
            )
        messages = message if isinstance(message, list) else [message]
        for each in messages:
            check_type(Message, each, "message")
        check_type(int | None, delay_millis, "delay_millis")
        check_kept_properties(properties)
        delay_ms = max(0, delay_millis or 0)
        if delay_ms > LONGEST_DELAY_MS:
            raise ValueError(f"argument delay_millis: {delay_millis} is above {LONGEST_DELAY_MS}")
        self._acknowledger.reconsume_later(
            messages,
            lambda each, place: letters.of(
                each, str(place.subscription.topic.name), delay_ms, properties, is_cumulative=is_cumulative
            ),
        )

    @public_call
    def redeliver_unacknowledged_messages(self) -> None:
        """Give back every message that this consumer received and did not acknowledge."""
        self._receiver.check_open()
        for subscription in self._subscriptions:
            self._forget_unacked(subscription)
            row, committed = subscription.redeliver_all()
            self._channel.submit([row], is_urgent=True, committed=committed)

    def _redeliver_expired(self) -> None:
        if not self._receiver.is_closed and self._unacked is not None:
            for subscription, positions in self._unacked.take_expired().items():
                subscription.give_back(positions, 0)
            self._channel.call_later(UNACKED_TICK, self._redeliver_expired)

    def _forget_unacked_entry(self, subscription: PartitionSubscription, position: int) -> None:
        if self._unacked is not None:
            self._unacked.remove(subscription, position)

    def _forget_unacked(self, subscription: PartitionSubscription) -> None:
        if self._unacked is not None:
            self._unacked.forget(subscription)
