"""A DataFrame consumer's line to the broker of the bundle that its topic is in: it joins, follows the topic to another
bundle, and partitions that are added to it.

A topic may come into another bundle while it is consumed, because its bundle was split: who asks the old one is told
so, and asks the new one. What is numbered there is read there from then on.
"""

import logging
import threading
import time
import uuid
from collections.abc import Callable

from pyspark.sql import SparkSession

from pulsar_spark.errors import ServiceUnitNotReady, Timeout
from pulsar_spark.frames import split_reads
from pulsar_spark.frames.delivery import Delivery
from pulsar_spark.frames.membership import Failed, Lost, Membership, SubscribeOptions
from pulsar_spark.frames.running import Seat
from pulsar_spark.link.channel import Channel
from pulsar_spark.storage.bundles import LOOK_AGAIN_SECONDS, layout_of, look_again
from pulsar_spark.storage.layout import Layout
from pulsar_spark.storage.ledger_index import LedgerIndex
from pulsar_spark.storage.partitions import PartitionWatch
from pulsar_spark.storage.topics import Topic

log = logging.getLogger(__name__)


class Line:
    """Of a consumer of *partitions* of a topic, who asks for *max_messages* of all of them at a time, waits *timeout*
    seconds for an answer, and no longer once he is *stopping*. *tell* gets what Membership tells, *moved* is called
    when the topic was found in another bundle, of which :attr:`layout` and :attr:`ledgers` are then. Where it
    *follows*, and all partitions are consumed, those that are added are, too."""

    def __init__(
        self,
        spark: SparkSession,
        layout: Layout,
        topic: Topic,
        partitions: list[int],
        options: SubscribeOptions,
        ledgers: LedgerIndex,
        *,
        max_messages: int,
        timeout: float,
        stopping: threading.Event,
        tell: Callable[[Membership, Delivery | Lost | Failed], None],
        moved: Callable[[], None],
        follows: bool,
    ):
        self._spark, self.layout, self.topic, self.ledgers = spark, layout, topic, ledgers
        self.options, self._partitions = options, partitions
        self._max_messages, self._timeout, self._stopping = max_messages, timeout, stopping
        self._tell, self._moved = tell, moved
        self._hurries = 0
        self.channel = Channel(layout, uuid.uuid4().hex)
        self.membership: Membership | None = None
        is_whole = bool(topic.partitions) and len(partitions) == topic.partitions
        self._watch = PartitionWatch(topic) if is_whole and follows else None
        self._added: list[int] = []
        """Partitions that were added and are not joined yet."""

    def __str__(self) -> str:
        options = self.options
        return f"consumer {options.consumer_name!r} of subscription {options.subscription!r} of {self.topic.name}"

    @property
    def seat(self) -> Seat:
        """What the consumer is connected to."""
        return Seat(str(self.layout.root), str(self.topic.name), tuple(self._partitions), self.options.subscription)

    def join(self) -> None:
        """Subscribe, in the bundle that the topic is in by now: who asked another is refused there."""
        deadline = time.monotonic() + self._timeout
        while True:
            try:
                self._join_here()
                return
            except ServiceUnitNotReady:
                if time.monotonic() > deadline:
                    raise
            if self._stopping.wait(LOOK_AGAIN_SECONDS):
                return
            self._follow_topic()

    def join_anew(self) -> None:
        """The same under another consumer id: what the one before was dealt is not its any more."""
        self.membership.leave()
        self.join()

    def _follow_topic(self) -> None:
        """From now on ask, and read what is numbered by, the bundle that the topic is in."""
        look_again(self.layout)
        layout = layout_of(self.layout, self.topic.name)
        if layout.bundle == self.layout.bundle:
            return
        self.channel.stop(self._timeout)
        self.layout, self.channel = layout, Channel(layout, uuid.uuid4().hex)
        if self._hurries:
            self.channel.hurry(self._hurries)
        self.ledgers = self.ledgers.of(self.topic)
        self._moved()

    def _join_here(self) -> None:
        self.membership = Membership(self.channel, self.topic, self._partitions, self.options, self._tell)
        split_reads.enter(self.membership.consumer_id, self._spark)
        self.membership.join(self._timeout, self._share(self._partitions))

    def _share(self, partitions: list[int]) -> int:
        """Messages of each of the consumer's *partitions* in a delivery."""
        return max(1, self._max_messages // len(partitions))

    def follow_partitions(self) -> None:
        """Consume from partitions that were added to the topic, where all of it is consumed, from their first message
        on. While the broker does not answer it is asked again; a refusal ends the consumer, as at its start."""
        if self._watch is None:
            return
        if (found := self._watch.added()) is not None:
            self._added = [partition for partition in found.partition_indexes if partition not in self._partitions]
        if not self._added:
            return
        try:
            self.membership.join_added(self._added, self._timeout, self._share([*self._partitions, *self._added]))
        except (Timeout, ServiceUnitNotReady) as late:
            log.warning("%s: new partitions %s are not consumed yet: %s", self, self._added, late)
            return
        added, self._added = self._added, []
        self._partitions = [*self._partitions, *added]
        self.options = self.options._replace(initial_position="Earliest")
        log.info("%s also consumes the new partitions %s", self, added)

    def hurry(self, change: int) -> None:
        """Hear of what comes sooner, or as late as before; see ``Channel.hurry``."""
        self._hurries += change
        self.channel.hurry(change)

    def flow(self, wanted: dict[int, int]) -> None:
        """Ask for so many messages more, by partition."""
        rows = [self.membership.row("flow", partition, permits=count) for partition, count in wanted.items() if count]
        if rows:
            self.channel.submit(rows)

    def leave(self) -> None:
        """Give back what is not answered, and hang up."""
        self.membership.leave()
        self.hang_up()

    def hang_up(self) -> None:
        """Ask and hear nothing more, as one that could not join."""
        self.channel.stop(self._timeout)
