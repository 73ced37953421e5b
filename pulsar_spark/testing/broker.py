"""The broker of an application's tests: what became of messages, and assertions about them."""

import os
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from typing import Any, cast

from pulsar_spark.broker.requests.drafts import RoundResult
from pulsar_spark.broker.service.stream import Stream
from pulsar_spark.client.client import Client
from pulsar_spark.client.model.message import Message
from pulsar_spark.errors import InvalidMessage, TopicNotFound
from pulsar_spark.protocol.redelivery.letters import ORIGIN_MESSAGE_ID, REAL_TOPIC, dead_letters_to
from pulsar_spark.protocol.topics.message_id import MessageId
from pulsar_spark.protocol.topics.topic_name import parse_topic_name
from pulsar_spark.schema import BytesSchema, Schema
from pulsar_spark.storage.topics.topics import read_topic
from pulsar_spark.testing.clock import Clock
from pulsar_spark.testing.event_stream import EventStream
from pulsar_spark.testing.plain_broker import PlainBroker
from pulsar_spark.testing.whereabouts import Whereabouts, backlog_of, cursors_of, find

LOOK_SECONDS = 0.01
Named = Message | MessageId
"""A received message, its id, or the id that a producer's send returned."""


class Broker(PlainBroker):
    """A broker in this process, without Java; it serves the folder *root* in its ``with`` block.

    Methods about messages first :meth:`settle`: rounds run and clients hear of them until nothing is left to do without
    time passing. ``message`` is a received message, or an id that knows its topic. Assertions raise AssertionError,
    which says where the message is. If other threads consume, give the seconds to wait for them: *within*.
    """

    def __init__(self, root: str | os.PathLike, *, clock: Clock | None = None, **options: Any):
        super().__init__(root, on_round=self._note_redeliveries, **options)
        if clock is not None:
            self._stream = cast(Stream, EventStream(self._batches, self._run_rounds, self._stopping, self._fail, clock))
        self.service_url = f"delta:{self.layout.root}"
        self._clock = clock
        self._redeliveries: Counter[tuple[str, str, int, int]] = Counter()
        self._client: Client | None = None

    def start(self, standby_seconds: float | None = None) -> bool:
        is_serving = super().start(standby_seconds)
        if self._clock is not None:
            self._clock.brokers.append(self)
        return is_serving

    def close(self) -> None:
        if self._clock is not None and self in self._clock.brokers:
            self._clock.brokers.remove(self)
        if self._client is not None:
            self._client.shutdown()
        super().close()

    def published(self, topic: str, schema: Schema = BytesSchema()) -> list[Message]:
        """All messages of *topic* in order, acknowledged or not; none without the topic. ``value()`` decodes by
        *schema*."""
        with suppress(TopicNotFound):
            read_topic(self.layout, parse_topic_name(topic).partitioned_topic)
            if self._client is None:
                self._client = Client(self.service_url)
            reader, found = self._client.create_reader(topic, MessageId.earliest, schema), []
            while reader.has_message_available():
                found.append(reader.read_next())
            reader.close()
            return found
        return []

    def backlog(self, topic: str, subscription: str) -> int:
        """How many messages *subscription* has not acknowledged, delayed ones too."""
        return len(self._left(topic, subscription))

    def dead_letters(self, topic: str, subscription: str, schema: Schema = BytesSchema()) -> list[Message]:
        """The messages in the dead letter topic of a subscription of *topic*."""
        self.settle()
        return self.published(self._dead_letter_topic(topic, subscription), schema)

    def redelivery_count(self, message: Named, subscription: str) -> int:
        """How often a *message* came back on *subscription*, by negative acknowledgements and timeouts."""
        self.settle()
        cursor, position, _ = self._find(message, subscription)
        return self._redeliveries[cursor.topic, subscription, cursor.key.partition, position]

    def where_is(self, message: Named, subscription: str) -> str:
        """Where a *message* is on *subscription*, in words."""
        self.settle()
        if self._is_dead(message, subscription):
            return f"it is dead: its letter is in {self._dead_letter_topic(_topic_of(message), subscription)!r}"
        return self._find(message, subscription).in_words(self.rounds.bundle)

    def assert_acknowledged(self, message: Named | str, subscription: str, *, within: float = 0.0) -> None:
        """The *message*, or each message of the topic that it names, is acknowledged on *subscription*."""
        __tracebackhide__ = True
        if not isinstance(message, str):
            self._assert(
                lambda: self._find(message, subscription).is_acknowledged,
                lambda: (
                    f"{_shown(message)} is not acknowledged on {subscription!r}: "
                    + self.where_is(message, subscription)
                ),
                within,
            )
            return
        self._assert(
            lambda: not self._left(message, subscription), lambda: self._not_acknowledged(message, subscription), within
        )

    def assert_dead(self, message: Named, subscription: str, *, within: float = 0.0) -> None:
        """The *message* is in the dead letter topic of *subscription*."""
        __tracebackhide__ = True
        self._assert(
            lambda: self._is_dead(message, subscription),
            lambda: f"{_shown(message)} is not dead on {subscription!r}: {self.where_is(message, subscription)}",
            within,
        )

    def assert_redelivered(self, message: Named, subscription: str, times: int, *, within: float = 0.0) -> None:
        """The *message* came back so many *times* on *subscription*."""
        __tracebackhide__ = True
        self._assert(
            lambda: self.redelivery_count(message, subscription) == times,
            lambda: (
                f"{_shown(message)} was redelivered {self.redelivery_count(message, subscription)} times on "
                f"{subscription!r}, not {times}: {self.where_is(message, subscription)}"
            ),
            within,
        )

    def _assert(self, is_so: Callable[[], bool], wrong: Callable[[], str], within: float) -> None:
        __tracebackhide__ = True
        until = time.monotonic() + within
        self.settle()
        while not is_so():
            if time.monotonic() >= until:
                raise AssertionError(wrong())
            self._stopping.wait(LOOK_SECONDS)
            self.settle()

    def _note_redeliveries(self, result: RoundResult, seconds: float) -> None:
        for cursor in self.rounds.bundle.cursors.values():
            for range_ in cursor.ranges() if cursor.unacked else ():
                for position in range(range_.first, range_.last + 1) if range_.redelivery_count else ():
                    place = cursor.topic, cursor.key.subscription, cursor.key.partition, position
                    self._redeliveries[place] = max(self._redeliveries[place], range_.redelivery_count or 0)

    def _left(self, topic: str, subscription: str) -> list[Whereabouts]:
        self.settle()
        bundle = self.rounds.bundle
        return [each for cursor in cursors_of(bundle, topic, subscription) for each in backlog_of(bundle, cursor)]

    def _not_acknowledged(self, topic: str, subscription: str) -> str:
        left, bundle = self._left(topic, subscription), self.rounds.bundle
        shown = [f"{each.message_id(bundle)}: {each.in_words(bundle)}" for each in left[:3]]
        more = "; ..." if len(left) > len(shown) else ""
        return f"{len(left)} messages of {topic!r} are not acknowledged on {subscription!r}: {'; '.join(shown)}{more}"

    def _find(self, message: Named, subscription: str) -> Whereabouts:
        return find(self.rounds.bundle, _topic_of(message), subscription, _id_of(message))

    def _is_dead(self, message: Named, subscription: str) -> bool:
        properties = message.properties() if isinstance(message, Message) else {}
        origin = properties.get(ORIGIN_MESSAGE_ID) or str(_id_of(message))
        letters = self.dead_letters(properties.get(REAL_TOPIC) or _topic_of(message), subscription)
        return any(letter.properties().get(ORIGIN_MESSAGE_ID) == origin for letter in letters)

    def _dead_letter_topic(self, topic: str, subscription: str) -> str:
        (cursor, *_) = cursors_of(self.rounds.bundle, topic, subscription)
        return dead_letters_to(cursor.dead_letters, cursor.topic, subscription)


def _id_of(message: Named) -> MessageId:
    return message.message_id() if isinstance(message, Message) else message


def _topic_of(message: Named) -> str:
    if not isinstance(message, Message | MessageId):
        raise InvalidMessage(f"{type(message).__name__} {message!r} is no message: give a received one, or its id")
    topic = message.topic_name()
    if topic is None:
        raise InvalidMessage(f"message id {message} does not name its topic: give message_id.of_topic(topic)")
    return topic


def _shown(message: Named) -> str:
    return f"message {_id_of(message)} of {_topic_of(message)!r}"
