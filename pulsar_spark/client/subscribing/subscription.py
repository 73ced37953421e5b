"""One consumer on one topic partition: deliveries in, permits and acknowledgements out.

A new *generation* drops what was queued. It starts with a seek, a redelivery of everything, a lost connection or turn
(Failover), and an earlier delivery on Exclusive and Failover (2.12). On Shared a redelivered entry replaces its queued
one (4.13). Messages above the limit of the dead letter policy are given back unseen (4.26).
"""

import threading
from collections.abc import Callable, Iterator

from pulsar_spark.client.acks.acknowledgement_tracker import AcknowledgementTracker
from pulsar_spark.client.model.enums import ConsumerType
from pulsar_spark.client.model.message import Message
from pulsar_spark.client.receiving.compacted_out import CompactedOut
from pulsar_spark.client.receiving.delivery import Delivery
from pulsar_spark.client.receiving.handing_out import HandingOut
from pulsar_spark.client.receiving.key_guard import KeyGuard
from pulsar_spark.client.receiving.key_order import KeyOrder, UnderWay
from pulsar_spark.client.receiving.queue_watch import QueueWatch
from pulsar_spark.client.receiving.ready import Ready
from pulsar_spark.client.subscribing.consumer_settings import ConsumerSettings
from pulsar_spark.client.subscribing.reconnection import Reconnection
from pulsar_spark.errors import AlreadyClosed, PulsarSparkError
from pulsar_spark.link.channel import Channel
from pulsar_spark.protocol.redelivery.letters import is_too_often
from pulsar_spark.protocol.subscriptions.permits import Permits
from pulsar_spark.storage.compaction.compacted_entries import CompactedEntries
from pulsar_spark.storage.topics.topics import Topic


class PartitionSubscription(HandingOut):
    """Made and owned by a consumer; its receiver takes the deliveries."""

    def __init__(
        self,
        consumer,
        topic: Topic,
        partition: int,
        queue_size: int,
        largest_queue: int,
        request: dict,
        settings: ConsumerSettings,
    ):
        self._consumer = consumer
        self._channel: Channel = consumer._channel.of(str(topic.name))
        self.request = request
        self.topic, self.partition = topic, partition
        self.topic_name = str(topic.name.partition(partition))
        self._permits = Permits(queue_size, largest_queue)
        self.schema, self.ledgers, self.entries = consumer._schema, consumer._ledgers.of(topic), consumer._entries
        self.chunks = consumer._client._entries
        """Reads chunks from the topic itself, because a message may have begun before a compaction."""
        is_read_compacted = isinstance(self.entries, CompactedEntries)
        self.compacted_out = CompactedOut(self, self.entries) if is_read_compacted else None
        self.generation = 0
        self.lock = threading.Lock()
        self.key_order = KeyOrder() if settings.keeps_key_order else None
        self._guard = None if self.key_order is None else KeyGuard(self, self.key_order)
        self.wants_due_first = not settings.keeps_key_order
        has_early_flow = self.key_order is not None or settings.consumer_type is ConsumerType.Shared
        early_rows = self._early_flow if has_early_flow else list
        self.tracker = AcknowledgementTracker(
            self._channel, self.lock, self.row, settings.grouping, early_rows, self.key_order
        )
        self._is_timed = consumer._unacked is not None
        if not self._is_timed and not settings.grouping.is_immediate:
            self.tracker.pending.owner = consumer
        self.is_single_active = settings.is_single_active
        self._max_redeliver_count = policy.max_redeliver_count if (policy := settings.dead_letter_policy) else 0
        self._reconnection, self._queue_watch = Reconnection(self), QueueWatch(self, self._permits)
        self.error: PulsarSparkError | None = None
        self.is_connected = self._was_disconnected = False
        self.is_active: bool | None = None
        self._queued = 0
        self._stale: UnderWay | None = None
        """The request after which deliveries of rounds that had not read it are dropped."""
        self.taken = -1, -1
        """The last round and place taken from the queue."""
        self._last_delivered = -1
        self._newest: dict[int, Delivery] = {}
        self._ready, self._looked_at_again = Ready([]), []
        self._start_after: tuple[int, int] | None = None
        self._next_start_after: tuple[int, int] | None = None

    def row(self, kind: str, **columns) -> dict:
        return self._channel.make(
            kind,
            consumer_id=self._consumer._consumer_id,
            topic=str(self.topic.name),
            partition=self.partition,
            subscription=self._consumer.subscription_name(),
            **columns,
        )

    def connected(self) -> None:
        """Request a queue full; from another broker if the topic changed its bundle."""
        self._reconnection.follow_topic()
        with self.lock:
            self.is_connected = True
            permits = self._permits.connect()
        self._flow(permits)

    def joined(self) -> None:
        """The broker accepted the first request."""
        if not self._was_disconnected:
            self.connected()

    def want_one(self) -> None:
        """A call waits for a message, and there is no queue (size 0)."""
        with self.lock:
            permits = 0 if self._queued else self._permits.want_one()
        self._flow(permits)

    def _flow(self, permits: int) -> None:
        """Request permits at once, lest the queue run empty."""
        if permits > 0:
            self._channel.submit([self.row("flow", permits=permits)], is_urgent=True)

    def _early_flow(self) -> list[dict]:
        """What was taken is requested with other rows, on Key_Shared only while entries are to come again: small
        deliveries cost more there."""
        with self.lock:
            permits = self._count_taken()
            if self.key_order is None:
                permits += self._permits.early_permits()
            elif self.key_order.is_guarding:
                permits += self._permits.used_permits()
        return [self.row("flow", permits=permits)] if permits > 0 else []

    def seek_row(self, properties: dict[str, str], start_after: tuple[int, int] | None) -> dict:
        """The request that moves the cursor. Indexes below ``start_after[1]`` of the entry at ``start_after[0]`` are
        hidden afterwards."""
        with self.lock:
            self._next_start_after = start_after
        return self.row("seek", properties=properties)

    def end_seek(self) -> None:
        with self.lock:
            self._next_start_after = None

    def redeliver_all(self) -> tuple[dict, Callable[[int], None]]:
        """The request, and the function to call with its version. What was to be given back in a moment comes at once,
        and once."""
        stale = UnderWay()
        with self.lock:
            self.tracker.forget_given_back()
        self._drop_queued(stale)
        return self.row("redeliver_all"), stale.committed

    def give_back(self, positions: set[int], delay_ms: int, message: Message | None = None) -> None:
        """Give back entries, or the entry of a *message*. Where order is kept, later ones of their keys wait."""
        if self.key_order is None:
            self.tracker.give_back(positions, delay_ms)
        else:
            sticky_hash, is_soon = None, not self._max_redeliver_count
            if message is not None:
                sticky_hash = message._sticky_hash()
                is_soon |= message.redelivery_count() < self._max_redeliver_count
            self.tracker.give_back(positions, delay_ms, sticky_hash, is_soon=is_soon)
            self.look_again()

    def _drop_queued(self, stale: UnderWay | None = None) -> None:
        with self.lock:
            self._stale = stale or self._stale
            permits = self._count_taken()
            dropped = self._queued
            self._forget_queued()
            permits += self._permits.drop(dropped)
        self._flow(permits)

    def _forget_queued(self) -> None:
        """Requires the lock."""
        self.generation += 1
        self._queued = 0
        self._newest.clear()
        self._ready.take_back()
        self._looked_at_again.clear()
        if self.key_order is not None:
            self.key_order.waiting.clear()

    def on_reset(self) -> None:
        with self.lock:
            self._forget_queued()
            self._last_delivered = -1
            self.tracker.forget()
            self._start_after, self._next_start_after = self._next_start_after, None
            permits = self._permits.connect()
        self._consumer._forget_unacked(self)
        self._flow(permits)

    def on_removed(self, text: str | None) -> None:
        if text in ("unsubscribed", "deleted"):
            self._consumer._membership.lose(
                self,
                AlreadyClosed(f"subscription {self._consumer.subscription_name()!r} of {self.topic_name!r} was {text}"),
            )
            return
        if text == "closed" and not self.is_connected:
            return  # removed by the channel during an outage: it resubscribes already
        with self.lock:
            acknowledged = self.tracker.take_acknowledgements()
            self.tracker.forget_given_back()
            self._forget_queued()
            self._last_delivered = -1
            self._stale = None
            self.is_connected, self._was_disconnected = False, True
        self._consumer._forget_unacked(self)
        self._reconnection.follow_topic()
        self._channel.submit(acknowledged)
        self._reconnection.begin(text)

    def on_active(self, is_active: bool) -> None:
        if self.is_active and not is_active:
            self._drop_queued()
        self.is_active = is_active

    def on_delivery(self, row: dict, requests_version: int) -> None:
        if not self.is_connected:
            return  # dealt before the broker disconnected it, and thereby returned
        if self.is_single_active and row["first"] <= self._last_delivered:
            self._drop_queued()
            self._consumer._forget_unacked(self)
        self._last_delivered = row["last"]
        most = 0 if self.is_single_active or self._permits.most == self._permits.least else self._permits.least
        for part in _parts_of(row, most):
            self._arrive(part, requests_version)
        self._queue_watch.start()

    def _arrive(self, row: dict, requests_version: int) -> None:
        with self.lock:
            delivery = Delivery(self, row, self.generation, -1 if self.key_order is None else requests_version)
            is_stale = self._stale is not None and self._stale.version > requests_version
            is_dead = not is_stale and is_too_often(delivery.redelivery_count, self._max_redeliver_count)
            is_shown = not (is_stale or is_dead)
            permits = self._count_taken()
            permits += self._permits.arrive(delivery.messages, round_number=row["delivery_round"], queued=self._queued)
            if is_shown:
                self._queued += delivery.messages
                if delivery.redelivery_count and not self.is_single_active:
                    if self._ready.may_hold(delivery.first, delivery.last):
                        self._look_again()
                    self._newest.update(dict.fromkeys(map(int, delivery.positions), delivery))
            else:
                permits += self._permits.refuse(delivery.messages)
        if is_shown:
            self._consumer._receiver.arrive(delivery)
        elif is_dead:
            self.tracker.give_back(set(map(int, delivery.positions)), 0, are_dead=True)
        self._flow(permits)

    def end(self, error: PulsarSparkError) -> None:
        """Drop queued messages; acknowledgements have no effect any more."""
        with self.lock:
            self.error = error
            self.is_connected = False
            self._forget_queued()
        self.tracker.end(error)

    def on_failure(self, error: PulsarSparkError) -> None:
        self.error = error
        self.is_connected = False
        self.tracker.fail(error)
        self._consumer._receiver.fail(error)


def _parts_of(row: dict, most: int) -> Iterator[dict]:
    """Split a delivery into parts of at most *most* messages, so that some can be given back. *most* 0, or separate
    entries: no split."""
    if not most or row["positions"] is not None or row["chunks"]:
        yield row
        return
    entries = max(1, most // (row["batch_size"] or 1))
    for first in range(row["first"], row["last"] + 1, entries):
        yield row | {"first": first, "last": min(first + entries - 1, row["last"])}
