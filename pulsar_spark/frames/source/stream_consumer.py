"""The consumer of one topic in a stream: which micro-batches have what was delivered to it.

It has one id for as long as its checkpoint. Once this names it, it stays connected when its process ends, until its
lease ends: nobody else gets what it has, and the stream goes on from there. What a crash leaves:

- Before Spark has written an offset, what was delivered: the next offset has it.
- Before the micro-batch is committed, its offset: its rounds still say what it has.
- Before the micro-batch is acknowledged, its offset: it is acknowledged when the stream goes on. If the consumer's
  lease has ended by then, its entries are acknowledged by name, whoever has them now."""

import threading
from collections.abc import Iterator

from pulsar_spark.errors import MessagesLost
from pulsar_spark.frames.consuming.backlog import Backlog
from pulsar_spark.frames.consuming.membership import Joined, SubscribeOptions
from pulsar_spark.frames.deliveries.delivery import Acknowledged, Answer, Delivery
from pulsar_spark.frames.deliveries.delivery_rows import ConsumerHistory, read_history
from pulsar_spark.frames.deliveries.named_entries import exact
from pulsar_spark.frames.source.stream_receiver import StreamReceiver
from pulsar_spark.frames.source.subscription_offsets import TopicOffset, check_topic
from pulsar_spark.protocol.acknowledgement.cursor import PENDING
from pulsar_spark.storage.cursor_ledger.cursor_ledger import CursorKey, read_latest
from pulsar_spark.storage.layout import Layout
from pulsar_spark.storage.ledgers.ledger_index import LedgerIndex
from pulsar_spark.storage.topics.bundles import layout_of
from pulsar_spark.storage.topics.topics import Topic

CLOSED = "closed"
"""Why a consumer was removed that closed itself, which it does only once all is acknowledged."""


class StreamConsumer:
    """The consumer *consumer_id* of *partitions* of *topic*; *changed* is notified when it has news.

    It goes on from the offset *known*, None in a new stream. If it *ends*, :meth:`is_done` says when all that was
    published before is done."""

    def __init__(
        self,
        layout: Layout,
        topic: Topic,
        partitions: list[int],
        options: SubscribeOptions,
        consumer_id: str,
        known: TopicOffset | None,
        changed: threading.Condition,
        *,
        timeout: float,
        ends: bool,
    ):
        check_topic(str(topic.name), topic.topic_id, known)
        layout = layout_of(layout, topic.name)
        self.topic, self.subscription, self._timeout = topic, options.subscription, timeout
        self._planned = known
        self._acknowledged: TopicOffset | None = None
        self._taken: list[Delivery] = []
        """What the planned micro-batch has, if this process planned it."""
        self._next: dict[int, int] = {}
        """The position after the last that was taken, by partition."""
        self._backlog = Backlog(layout, topic, partitions, self.subscription, LedgerIndex(layout)) if ends else None
        self.receiver = StreamReceiver(
            layout,
            topic,
            partitions,
            options,
            consumer_id,
            changed,
            self._moved,
            timeout=timeout,
            follows=not ends,
            outlives=known is not None,
        )
        self.connection = self.receiver.connection
        is_joined = False
        try:
            self._begin(self.receiver.join(), known)
            is_joined = True
        finally:
            if not is_joined:
                self.connection.disconnect()

    @property
    def ledgers(self) -> LedgerIndex:
        return self.connection.ledgers

    def _moved(self) -> None:
        if self._backlog is not None:
            self._backlog.follow(self.connection.layout, self.ledgers)

    def _begin(self, joined: Joined, known: TopicOffset | None) -> None:
        """Go on where the process before ended, if the consumer still has what it had then."""
        if not joined.was_there:
            return
        if known is None or known.bundle != self.connection.layout.bundle:
            self.receiver.join(is_anew=True)
            return
        history = self._history(known.bundle, known.after)
        # a process that ends may connect a consumer again whose lease has ended: what it had is gone all the same
        self.receiver.since = 1 + (known.after if history.removal is None else history.removal.round)
        pending = self._pending_rounds()
        self.receiver.waiting = [
            each for each in history.deliveries if each.round in pending and known.round < each.round < joined.round
        ]

    def _pending_rounds(self) -> set[int | None]:
        """The rounds with deliveries of which something is still this consumer's."""
        latest, consumer_id = read_latest(self.connection.layout, "range"), self.receiver.consumer_id
        keys = (CursorKey(self.topic.topic_id, each, self.subscription) for each in self.receiver.partitions)
        states = (state for key in keys if key in latest.cursors for state in latest.states(key))
        return {state.delivery_round for state in states if (state.status, state.consumer_id) == (PENDING, consumer_id)}

    def _history(self, bundle: str, after: int) -> ConsumerHistory:
        layout = Layout(self.connection.layout.root, bundle)
        return read_history(layout, self.topic, self.subscription, self.receiver.consumer_id, after)

    def take(self, most: int) -> TopicOffset | None:
        """The offset of a micro-batch of what was delivered since the last, up to *most* messages, in whole rounds;
        None for nothing."""
        taken = self.receiver.take(most)
        if not taken:
            return None
        self._taken = taken
        self._next.update((range_.partition, range_.last + 1) for each in taken for range_ in each.ranges)
        self._planned = TopicOffset(
            self.topic.topic_id,
            self.connection.layout.bundle,
            self.receiver.consumer_id,
            taken[0].round - 1,
            taken[-1].round,
            sum(each.messages for each in taken),
        )
        return self._planned

    def deliveries(self, offset: TopicOffset, *, is_strict: bool) -> list[Delivery]:
        """The deliveries of *offset*, which is in the checkpoint; if it *is_strict*, :class:`MessagesLost` if the
        rounds no longer say them."""
        self.connection.outlive_process()
        if offset == self._planned and self._taken:
            return self._taken
        there = self._history(offset.bundle, offset.after).deliveries
        found = [each for each in there if each.round <= offset.round]
        messages = sum(each.messages for each in found)
        if is_strict and messages != offset.messages:
            raise MessagesLost(
                f"the micro-batch of the checkpoint had {offset.messages} messages of topic {str(self.topic.name)!r}, "
                f"but the rounds that delivered them say {messages}: they were acknowledged by others, or expired, so "
                "long ago that the history is gone. Give a new checkpointLocation, or failOnDataLoss 'false' to go on"
            )
        return found

    def acknowledge(self, offset: TopicOffset) -> None:
        """Acknowledge what a committed micro-batch has, nothing the second time. The broker has it in writing then:
        no crash leaves the next offset without it."""
        if offset == self._acknowledged:
            return
        self.receiver.take_in()
        rows = self.connection.membership.answer_rows(Answer(list(self._done(offset)), []), [])
        self.connection.channel.post(rows, self._timeout)
        self._acknowledged = offset
        if offset == self._planned:
            self._taken = []

    def _done(self, offset: TopicOffset) -> Iterator[Acknowledged]:
        if offset.after + 1 >= self.receiver.since:
            for each in self.deliveries(offset, is_strict=False):
                yield from _of_round(each)
            return
        lost = self.receiver.lost
        if lost is not None and lost.text is None and self._taken:
            return  # the cursor was moved: whoever did so decided what comes again
        if not self._taken:
            removal = self._history(offset.bundle, offset.round).removal
            if removal is not None and removal.text == CLOSED:
                return
        for each in self.deliveries(offset, is_strict=False):
            yield from (Acknowledged(range_.partition, range_.first, range_.last) for range_ in exact(each.ranges))

    def is_done(self) -> bool:
        """Whether all that was published before is acknowledged, or somebody else's."""
        self.receiver.take_in()
        return not self.receiver.waiting and self._is_handled()

    def is_all_there(self) -> bool:
        """Whether all that was published before is delivered, or somebody else's."""
        self.receiver.take_in()
        if self._backlog is not None:
            self._backlog.leave_only(exact(range_ for each in self.receiver.waiting for range_ in each.ranges))
        return self._is_handled()

    def _is_handled(self) -> bool:
        return self._backlog is not None and self._backlog.is_handled(self.receiver.consumer_id)

    def next_message_bytes(self) -> float | None:
        """About the stored bytes of each message that comes next; None if nothing was published."""
        found: list[float] = []
        for partition in self.receiver.partitions:
            end = self.ledgers.end(self.topic.topic_id, partition)
            at = min(self._next.get(partition, end), end - 1)
            for run, _ in self.ledgers.spans_of(self.topic.topic_id, partition, [(at, at)] if end else []):
                found.append(run.bytes / (run.entries * run.batch_size))
        return max(found, default=None)

    def close(self) -> None:
        """End the connection. While a micro-batch is not acknowledged, the consumer keeps it until its lease ends."""
        self.receiver.close(keeps=self._planned != self._acknowledged and self.connection.outlives)


def _of_round(delivery: Delivery) -> Iterator[Acknowledged]:
    """What acknowledges a whole delivery: a request for each partition."""
    ends: dict[int, tuple[int, int]] = {}
    for range_ in delivery.ranges:
        first, last = ends.get(range_.partition, (range_.first, range_.last))
        ends[range_.partition] = min(first, range_.first), max(last, range_.last)
    for partition, (first, last) in ends.items():
        yield Acknowledged(partition, first, last, None, delivery.round)
