"""A DataFrame consumer's connection to the broker: it joins, and follows added partitions and moves to other
bundles."""

import logging
import threading
import time
import uuid
from collections.abc import Callable

from pulsar_spark.errors import ServiceUnitNotReady, Timeout
from pulsar_spark.frames.consuming.membership import Failed, Joined, Lost, Membership, SubscribeOptions
from pulsar_spark.frames.consuming.running import Seat
from pulsar_spark.frames.deliveries.delivery import Delivery
from pulsar_spark.link.channel import Channel
from pulsar_spark.storage.layout import Layout
from pulsar_spark.storage.ledgers.ledger_index import LedgerIndex
from pulsar_spark.storage.topics.bundles import LOOK_AGAIN_SECONDS, layout_of, look_again
from pulsar_spark.storage.topics.partitions import PartitionWatch
from pulsar_spark.storage.topics.topics import Topic

log = logging.getLogger(__name__)


class BrokerConnection:
    """The connection of a consumer of *partitions* of a topic.

    It requests *max_messages* over all partitions at a time and waits *timeout* seconds for replies, less if *stopping*
    is set. *notify* is Membership's callback; *moved* is called after a move to another bundle. If it *follows* and has
    all partitions, it also consumes added ones. With *consumer_id* another process can go on as this consumer, if it
    *outlives* this one: then it stays until its lease ends."""

    def __init__(
        self,
        layout: Layout,
        topic: Topic,
        partitions: list[int],
        options: SubscribeOptions,
        ledgers: LedgerIndex,
        *,
        max_messages: int,
        timeout: float,
        stopping: threading.Event,
        notify: Callable[[Membership, Delivery | Lost | Failed], None],
        moved: Callable[[], None],
        follows: bool,
        consumer_id: str | None = None,
        outlives: bool = False,
    ):
        self.layout, self.topic, self.ledgers = layout, topic, ledgers
        self.options, self._partitions = options, partitions
        self._max_messages, self._timeout, self._stopping = max_messages, timeout, stopping
        self._notify, self._moved = notify, moved
        self._hurries, self._consumer_id, self.outlives = 0, consumer_id, outlives
        self.channel = self._new_channel()
        self.membership = self._new_membership()
        is_whole = bool(topic.partitions) and len(partitions) == topic.partitions
        self._watch = PartitionWatch(topic) if is_whole and follows else None
        self._added: list[int] = []
        """Partitions that were added and are not joined yet."""

    def __str__(self) -> str:
        options = self.options
        return f"consumer {options.consumer_name!r} of subscription {options.subscription!r} of {self.topic.name}"

    @property
    def seat(self) -> Seat:
        return Seat(str(self.layout.root), str(self.topic.name), tuple(self._partitions), self.options.subscription)

    def join(self, *, with_permits: bool = True) -> Joined:
        """Subscribe in the topic's current bundle; a broker of another bundle refuses."""
        deadline = time.monotonic() + self._timeout
        while True:
            try:
                return self.membership.join(self._timeout, self._share(self._partitions) if with_permits else 0)
            except ServiceUnitNotReady:
                if time.monotonic() > deadline:
                    raise
            if self._stopping.wait(LOOK_AGAIN_SECONDS):
                return Joined(-1, was_there=False)
            self._follow_topic()
            self.membership = self._new_membership()

    def join_anew(self, *, with_permits: bool = True) -> Joined:
        """Join again, under another consumer id if none was given; messages delivered before are no longer its own."""
        self.membership.leave()
        self.membership = self._new_membership()
        return self.join(with_permits=with_permits)

    def _new_membership(self) -> Membership:
        return Membership(self.channel, self.topic, self._partitions, self.options, self._notify, self._consumer_id)

    def _new_channel(self) -> Channel:
        return Channel(self.layout, uuid.uuid4().hex, lease_ms=self.options.lease_ms, is_watched=not self.outlives)

    def outlive_process(self) -> None:
        if not self.outlives:
            self.outlives = True
            self.channel.call_later(0, self.channel.end_presence)

    def _follow_topic(self) -> None:
        look_again(self.layout)
        layout = layout_of(self.layout, self.topic.name)
        if layout.bundle == self.layout.bundle:
            return
        self.channel.stop(self._timeout)
        self.layout = layout
        self.channel = self._new_channel()
        if self._hurries:
            self.channel.hurry(self._hurries)
        self.ledgers = self.ledgers.of(self.topic)
        self._moved()

    def _share(self, partitions: list[int]) -> int:
        return max(1, self._max_messages // len(partitions))

    def follow_partitions(self, *, with_permits: bool = True) -> list[int]:
        """Consume partitions that were added to the topic, from their first message on; without a reply, try again
        later. Returns all that are consumed."""
        self._follow_partitions(with_permits)
        return self._partitions

    def _follow_partitions(self, with_permits: bool) -> None:
        if self._watch is None:
            return
        if (found := self._watch.added()) is not None:
            self._added = [partition for partition in found.partition_indexes if partition not in self._partitions]
        if not self._added:
            return
        try:
            permits = self._share([*self._partitions, *self._added]) if with_permits else 0
            self.membership.join_added(self._added, self._timeout, permits)
        except (Timeout, ServiceUnitNotReady) as late:
            log.warning("%s: new partitions %s are not consumed yet: %s", self, self._added, late)
            return
        added, self._added = self._added, []
        self._partitions = [*self._partitions, *added]
        self.options = self.options._replace(initial_position="Earliest")
        log.info("%s also consumes the new partitions %s", self, added)

    def hurry(self, change: int) -> None:
        """Change how soon new messages are noticed, as ``Channel.hurry`` does."""
        self._hurries += change
        self.channel.hurry(change)

    def flow(self, wanted: dict[int, int]) -> None:
        rows = [self.membership.row("flow", partition, permits=count) for partition, count in wanted.items() if count]
        if rows:
            self.channel.submit(rows)

    def leave(self) -> None:
        self.membership.leave()
        self.disconnect()

    def disconnect(self) -> None:
        self.channel.stop(self._timeout)
