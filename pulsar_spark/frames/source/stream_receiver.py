"""What a stream's consumer of one topic receives, and how much it lets come."""

import logging
import math
import threading
from collections import Counter, deque
from collections.abc import Callable
from contextlib import suppress

from pulsar_spark.errors import AlreadyClosed, PulsarSparkError
from pulsar_spark.frames.consuming.broker_connection import BrokerConnection
from pulsar_spark.frames.consuming.membership import GONE, Failed, Joined, Lost, Membership, SubscribeOptions
from pulsar_spark.frames.deliveries.delivery import Delivery, messages_by_partition
from pulsar_spark.storage.layout import Layout
from pulsar_spark.storage.ledgers.ledger_index import LedgerIndex
from pulsar_spark.storage.topics.topics import Topic

log = logging.getLogger(__name__)


class StreamReceiver:
    """The connection of the consumer *consumer_id*; *changed* is notified when it has news.

    Deliveries are ``waiting`` until a micro-batch takes them. ``since`` is the first round whose deliveries the
    consumer still has. ``lost`` says why it has none any more. The consumer *outlives* its process if a checkpoint
    names it."""

    def __init__(
        self,
        layout: Layout,
        topic: Topic,
        partitions: list[int],
        options: SubscribeOptions,
        consumer_id: str,
        changed: threading.Condition,
        moved: Callable[[], None],
        *,
        timeout: float,
        follows: bool,
        outlives: bool,
    ):
        self.consumer_id, self.partitions, self._changed = consumer_id, partitions, changed
        self._events: deque[tuple[Membership, Delivery | Lost | Failed]] = deque()
        self.waiting: list[Delivery] = []
        self.since: float = math.inf
        self.lost: Lost | None = None
        self._permits: Counter[int] = Counter()
        self._is_hurried = False
        self.connection = BrokerConnection(
            layout,
            topic,
            partitions,
            options,
            LedgerIndex(layout),
            max_messages=1,
            timeout=timeout,
            stopping=threading.Event(),
            notify=self._note,
            moved=moved,
            follows=follows,
            consumer_id=consumer_id,
            outlives=outlives,
        )

    @property
    def has_news(self) -> bool:
        return bool(self.waiting or self._events)

    def _note(self, membership: Membership, event: Delivery | Lost | Failed) -> None:
        with self._changed:
            self._events.append((membership, event))
            self._changed.notify_all()

    def join(self, *, is_anew: bool = False) -> Joined:
        """Subscribe, after a close if *is_anew*; nothing comes yet. What came before is dropped: deliveries of earlier
        rounds, perhaps to the process before, and the news of the close."""
        join = self.connection.join_anew if is_anew else self.connection.join
        joined = join(with_permits=False)
        self.lost, self.since, self._permits = None, joined.round, Counter()
        with self._changed:
            events, self._events = self._events, deque()
            for membership, event in events:
                is_before = event.round < joined.round if isinstance(event, Delivery) else is_anew
                if not is_before:
                    self._events.append((membership, event))
        return joined

    def take_in(self) -> None:
        """Take in what happened since; raises what ended the consumer."""
        while self._events:
            membership, event = self._events.popleft()
            if membership is not self.connection.membership:
                continue
            if isinstance(event, Delivery):
                self.waiting.append(event)
                self._permits.subtract(messages_by_partition(event.ranges))
            elif isinstance(event, Failed):
                raise event.error
            else:
                self.lost, self.waiting, self.since = event, [], math.inf
                if event.text in GONE:
                    subscription, name = self.connection.options.subscription, str(self.connection.topic.name)
                    raise AlreadyClosed(f"subscription {subscription!r} of {name!r} was {event.text}")

    def has_deliveries(self) -> bool:
        self.take_in()
        return bool(self.waiting)

    def go_on(self, most: int) -> None:
        """Let up to *most* messages come. If the broker removed the consumer or moved the cursor, subscribe again."""
        self.take_in()
        if self.lost is not None:
            log.warning("%s lost its messages (%s)", self.connection, self.lost.text or "the cursor was moved")
            self.join()
        self.partitions = self.connection.follow_partitions(with_permits=False)
        waiting = messages_by_partition(range_ for each in self.waiting for range_ in each.ranges)
        share, wanted = max(1, most // len(self.partitions)), {}
        for partition in self.partitions:
            there = self._permits[partition] + waiting[partition]
            if there <= share // 2:
                wanted[partition] = share - there
        self.connection.flow(wanted)
        self._permits.update(wanted)
        self._hurry(True)

    def _hurry(self, is_hurried: bool) -> None:
        if is_hurried != self._is_hurried:
            self._is_hurried = is_hurried
            self.connection.hurry(1 if is_hurried else -1)

    def take(self, most: int) -> list[Delivery]:
        """The oldest waiting deliveries, with up to *most* messages, at least one if there is any."""
        self.take_in()
        messages, rounds = 0, 0
        for each in self.waiting:
            if rounds and messages + each.messages > most:
                break
            messages, rounds = messages + each.messages, rounds + 1
        taken, self.waiting = self.waiting[:rounds], self.waiting[rounds:]
        if taken:
            self._hurry(False)
        return taken

    def close(self, *, keeps: bool) -> None:
        """End the connection. If the consumer *keeps* what it has, it stays until its lease ends; nothing comes to it
        meanwhile."""
        with suppress(PulsarSparkError):  # the connection has failed
            if not keeps:
                self.connection.membership.leave()
            elif self.lost is None:
                self.connection.membership.take_permits_back()
        self.connection.disconnect()
