"""Acknowledgements, negative acknowledgements and reconsume-later requests of one consumer.

Rules: semantics 3.1-3.10, 4.11, 4.14-4.18, 4.23.
"""

from collections.abc import Callable

from pulsar_spark.client.acks.receipts import Receipt
from pulsar_spark.client.acks.unacked import UnackedTracker
from pulsar_spark.client.arguments import check_kept_properties
from pulsar_spark.client.model.message import Message
from pulsar_spark.client.receiving.places import Place, Places
from pulsar_spark.client.subscribing.consumer_settings import ConsumerSettings
from pulsar_spark.errors import CumulativeAcknowledgementNotAllowedError, UnreadableMessage
from pulsar_spark.link.channels import Channels
from pulsar_spark.protocol.redelivery.letters import ReconsumeLater
from pulsar_spark.protocol.topics.message_id import MessageId

MIN_NEGATIVE_ACK_MS = 100


class Acknowledger:
    """``unacked`` is None without an acknowledgement timeout; *timeout* limits waits, in seconds."""

    def __init__(
        self,
        channel: Channels,
        places: Places,
        settings: ConsumerSettings,
        unacked: UnackedTracker | None,
        timeout: float,
    ):
        self._channel = channel
        self._places = places
        self._settings = settings
        self._unacked = unacked
        self._timeout = timeout

    def acknowledge(self, message: Message | MessageId | list, properties: dict[str, str] | None) -> None:
        """Acknowledge a message, or each of a list; none if one of them is invalid."""
        check_kept_properties(properties)
        if isinstance(message, list):
            places = [self._places.find(one) for one in message]
            receipts = [self._acknowledge(place, properties) for place in places]
            self._look_again(message, places)
            self._wait(receipts)
        else:
            place = self._places.find(message)
            receipt = self._acknowledge(place, properties)
            self._look_again([message], [place])
            if receipt is not None:
                receipt.wait(self._timeout)

    @staticmethod
    def _look_again(messages: list[Message | MessageId], places: list[Place]) -> None:
        for message, place in zip(messages, places, strict=True):
            delivery = message._delivery if isinstance(message, Message) else None
            if delivery is None or delivery.subscription is not place.subscription:
                place.subscription.look_again()

    def _acknowledge(self, place: Place, properties: dict[str, str] | None) -> Receipt | None:
        subscription, position, batch_index, bits = place
        is_done, receipt = subscription.tracker.acknowledge(position, batch_index, bits, properties)
        if is_done and self._unacked is not None:
            self._unacked.remove(subscription, position)
        return receipt

    def discard(self, message: Message, error: UnreadableMessage) -> None:
        """Acknowledge an unreadable message."""
        self._channel.logger.warning("a message is discarded: %s", error)
        self._acknowledge(self._places.find(message), None)

    def acknowledge_cumulative(self, message: Message | MessageId, properties: dict[str, str] | None) -> None:
        self.check_cumulative()
        check_kept_properties(properties)
        place = self._places.find(message)
        subscription, position, batch_index, bits = place
        last, receipt = subscription.tracker.acknowledge(position, batch_index, bits, properties, is_cumulative=True)
        self._look_again([message], [place])
        if self._unacked is not None:
            self._unacked.remove_up_to(subscription, last)
        self._wait([receipt])

    def check_cumulative(self) -> None:
        """:class:`CumulativeAcknowledgementNotAllowedError` if messages are shared."""
        if not self._settings.is_single_active:
            raise CumulativeAcknowledgementNotAllowedError(
                f"subscription {self._settings.subscription_name!r} is {self._settings.consumer_type.name}: "
                "acknowledge its messages one by one"
            )

    def negative_acknowledge(self, message: Message | MessageId) -> None:
        """A backoff uses the message's redelivery count, for an id 0."""
        subscription, position, _, _ = self._places.find(message)
        backoff = self._settings.negative_ack_redelivery_backoff
        if backoff is None:
            delay_ms = max(MIN_NEGATIVE_ACK_MS, self._settings.negative_ack_redelivery_delay_ms)
        else:
            delay_ms = backoff.delay_ms(message.redelivery_count() if isinstance(message, Message) else 0)
        received = message if isinstance(message, Message) and message._delivery is not None else None
        subscription.give_back({position}, delay_ms, received)
        if self._unacked is not None:
            self._unacked.remove(subscription, position)

    def reconsume_later(self, messages: list[Message], letter_of: Callable[[Message, Place], ReconsumeLater]) -> None:
        """Acknowledge messages, each in the request for its letter, in one commit; none if one is invalid."""
        if not messages:
            return
        places = [self._places.find(message) for message in messages]
        letters = [letter_of(message, place) for message, place in zip(messages, places, strict=True)]
        earlier, letter_rows = [], []
        for (subscription, position, batch_index, bits), letter in zip(places, letters, strict=True):
            result, rows = subscription.tracker.reconsume_later(position, batch_index, bits, letter)
            earlier += rows[:-1]
            letter_rows.append(rows[-1])
            if self._unacked is None:
                continue
            if letter.is_cumulative:
                self._unacked.remove_up_to(subscription, result)
            elif result:
                self._unacked.remove(subscription, position)
        if not self._settings.grouping.has_receipts:
            self._channel.post(earlier + letter_rows, self._timeout)
            return
        self._channel.submit(earlier)
        for reply in self._channel.ask(letter_rows, self._timeout):
            if reply.error is not None:
                raise reply.error

    def _wait(self, receipts: list[Receipt | None]) -> None:
        for receipt in {id(receipt): receipt for receipt in receipts if receipt is not None}.values():
            receipt.wait(self._timeout)
