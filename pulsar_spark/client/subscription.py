"""One consumer on one topic partition: deliveries in, permits and acknowledgements out.

Deliveries are ranges of positions; messages are read from the topic's files only when the application asks for the next one. Permits (semantics 4.1):
on connecting the queue size is asked for, then what was handed to the application since, whenever that is half the queue size or more. A delivery
belongs to a generation; a seek, a redelivery of everything, a lost connection or turn (Failover) starts a new one, and what was queued before is dropped.
"""
import threading
from collections.abc import Callable, Iterator

from pulsar_spark.client.acknowledgements import GROUP_SIZE, GROUP_TIME, AckGroup, Acknowledgement, ranges
from pulsar_spark.client.channel import Channel, Reply
from pulsar_spark.client.message import Block, Message
from pulsar_spark.errors import AlreadyClosed, PulsarSparkError
from pulsar_spark.storage.topics import Topic

_RECONNECT_SECONDS = 1.0


class Delivery:
    """Positions the broker sent in one round; ``bits`` are the batch indexes not yet acknowledged, None for all."""

    __slots__ = ("subscription", "generation", "first", "last", "batch_size", "redelivery_count", "bits")

    def __init__(self, subscription: "PartitionSubscription", row: dict, generation: int):
        self.subscription = subscription
        self.generation = generation
        self.first, self.last = row["first"], row["last"]
        self.batch_size = row["batch_size"] or 1
        self.redelivery_count = row["redelivery_count"] or 0
        self.bits = None if row["ack_set"] is None else sum((word & 0xFFFFFFFFFFFFFFFF) << (64 * index) for index, word in enumerate(row["ack_set"]))

    @property
    def unacked_bits(self) -> int:
        return (1 << self.batch_size) - 1 if self.bits is None else self.bits

    @property
    def messages(self) -> int:
        """Messages the application is to see of it, which is what it cost in permits."""
        return (self.last - self.first + 1) * (self.batch_size if self.bits is None else self.bits.bit_count())


class PartitionSubscription:
    """Made and owned by a consumer; its receiver takes the deliveries."""

    def __init__(self, consumer, topic: Topic, partition: int, queue_size: int, request: dict, is_batch_index: bool):
        self._consumer = consumer
        self._channel: Channel = consumer._channel
        self._request = request
        self.topic = topic
        self.partition = partition
        self.topic_name = str(topic.name.partition(partition))
        self.queue_size = queue_size
        self.generation = 0
        self.lock = threading.Lock()
        self.acks = AckGroup(is_batch_index)
        self.error: PulsarSparkError | None = None
        self.is_connected = False
        self.is_active: bool | None = None
        self._negative: dict[int, set[int]] = {}
        self._is_gathering = False
        self._used = 0
        self._wanted = 0
        self._queued = 0
        self._stale_until = -1
        self._start_after: tuple[int, int] | None = None
        self._next_start_after: tuple[int, int] | None = None

    # Requests.

    def row(self, kind: str, **columns) -> dict:
        """A request row about this consumer here."""
        return self._channel.make(kind, consumer_id=self._consumer._consumer_id, topic=str(self.topic.name), partition=self.partition,
                                  subscription=self._consumer.subscription_name(), **columns)

    def subscribe_row(self) -> dict:
        """The request that connects it."""
        return self.row("subscribe", properties=self._request)

    def connected(self) -> None:
        """The broker knows the consumer now: ask for a queue full."""
        with self.lock:
            self.is_connected = True
            self._used = 0
            permits = self.queue_size or self._wanted
        self._flow(permits)

    def want_one(self) -> None:
        """Somebody waits for a message and there is no queue to have asked for it (queue size 0)."""
        with self.lock:
            if self.queue_size or self._queued or self._wanted:
                return
            self._wanted = 1
        self._flow(1)

    def _flow(self, permits: int) -> None:
        if permits > 0:
            self._channel.submit([self.row("flow", permits=permits)])

    def seek_row(self, properties: dict[str, str], start_after: tuple[int, int] | None) -> dict:
        """The request that moves the cursor; of the entry at ``start_after[0]`` the indexes below ``start_after[1]`` are left out afterwards."""
        with self.lock:
            self._next_start_after = start_after
        return self.row("seek", properties=properties)

    def end_seek(self) -> None:
        """The seek was answered or given up: a cursor that is moved from now on is moved by somebody else."""
        with self.lock:
            self._next_start_after = None

    def redeliver_all(self) -> tuple[dict, Callable[[int], None]]:
        """The request to send everything unacknowledged again, and what to call with the version it was committed as."""
        self._drop_queued()
        return self.row("redeliver_all"), self._redelivering

    def _redelivering(self, version: int) -> None:
        self._stale_until = version
        self._drop_queued()

    def _drop_queued(self) -> None:
        with self.lock:
            dropped, self._queued = self._queued, 0
            self.generation += 1
        self._flow(dropped if self.queue_size else 0)

    # From the channel's thread.

    def on_reset(self) -> None:
        with self.lock:
            self._restart()
            self._start_after, self._next_start_after = self._next_start_after, None
            permits = self.queue_size or self._wanted
        self._consumer._forget_unacked(self)
        self._flow(permits)

    def _restart(self) -> None:
        self.generation += 1
        self._queued = self._used = 0
        self.acks.clear()
        self._negative.clear()

    def on_removed(self, text: str | None) -> None:
        if text in ("unsubscribed", "deleted"):
            self.on_failure(AlreadyClosed(f"subscription {self._consumer.subscription_name()!r} of {self.topic_name!r} was {text}"))
            return
        with self.lock:
            acknowledged = self.acks.take()
            self._restart()
            self.is_connected = False
        self._consumer._forget_unacked(self)
        self._channel.submit(self._ack_rows(acknowledged))
        self._reconnect()

    def _reconnect(self) -> None:
        if self._consumer._receiver.is_closed:
            return
        row = self.subscribe_row()
        self._channel.submit([row], replied={row["request_id"]: self._reconnected})

    def _reconnected(self, reply: Reply) -> None:
        if reply.error is None:
            self.connected()
        elif not self._consumer._receiver.is_closed and self.error is None:
            self._channel.call_later(_RECONNECT_SECONDS, self._reconnect)

    def on_active(self, is_active: bool) -> None:
        if self.is_active and not is_active:
            self._drop_queued()
        self.is_active = is_active

    def on_delivery(self, row: dict, requests_version: int) -> None:
        with self.lock:
            delivery = Delivery(self, row, self.generation)
            is_stale = requests_version < self._stale_until
            if not is_stale:
                self._queued += delivery.messages
        if is_stale:
            self._flow(delivery.messages if self.queue_size else 0)
        else:
            self._consumer._receiver.arrive(delivery)

    def on_failure(self, error: PulsarSparkError) -> None:
        self.error = error
        self.is_connected = False
        self._consumer._receiver.fail(error)

    # Handing out.

    def read(self, delivery: Delivery) -> Iterator[Message]:
        """The delivery's messages in order, without those whose batch index is acknowledged already."""
        consumer = self._consumer
        schema, bits = consumer._schema, delivery.bits
        for run in consumer._ledgers.runs(self.topic.topic_id, self.partition, delivery.first, delivery.last):
            offset = run.first_position - run.first_entry_id
            for rows in consumer._files.read(self.topic.path, self.partition, run):
                block = Block(rows, self.topic_name, self.partition, run.ledger_id)
                for index, entry_id in enumerate(block.column("entry_id")):
                    if bits is None or bits >> block.column("batch_index")[index] & 1:
                        yield Message(block, index, schema, entry_id + offset, delivery)

    def hand_out(self, message: Message) -> bool:
        """Count a message as leaving the queue; False when it is not to be shown: out of date, or acknowledged already."""
        delivery, position = message._delivery, message._position
        is_batch = delivery.batch_size > 1
        batch_index = message._field("batch_index") if is_batch else -1
        with self.lock:
            if delivery.generation != self.generation:
                return False
            self._queued -= 1
            is_shown = True
            if is_batch:
                first_bit = delivery.unacked_bits & -delivery.unacked_bits
                if 1 << batch_index == first_bit:
                    self.acks.deliver(position, delivery.unacked_bits)
                    if self._start_after is not None and position == self._start_after[0]:
                        self.acks.skip(position, delivery.unacked_bits, self._start_after[1])
                is_shown = self._start_after is None or (position, batch_index) >= self._start_after
            if is_shown:
                is_shown = not self.acks.is_duplicate(position, batch_index)
            permits = self._permits_for_one(is_shown)
        self._flow(permits)
        return is_shown

    def _permits_for_one(self, is_shown: bool) -> int:
        """The permits to give back now that one message has left the queue."""
        if not self.queue_size:
            if is_shown and self._wanted:
                self._wanted = 0
                return 0
            return 1
        self._used += 1
        if self._used < max(1, self.queue_size // 2):
            return 0
        permits, self._used = self._used, 0
        return permits

    # Acknowledging.

    def acknowledge(self, position: int, batch_index: int, bits: int) -> bool:
        """Acknowledge one message, or an entry with batch index -1; True when nothing of the entry is left."""
        with self.lock:
            is_done = self.acks.acknowledge(position, batch_index, bits)
            waiting = len(self.acks)
            is_first = waiting > 0 and not self._is_gathering
            self._is_gathering |= is_first
        if is_first or waiting == GROUP_SIZE:
            self._channel.gather(self.take_rows, 0 if waiting >= GROUP_SIZE else GROUP_TIME)
        return is_done

    def acknowledge_cumulative(self, position: int, batch_index: int, bits: int) -> int:
        """Acknowledge up to and including a message; the last position nothing of which is left."""
        with self.lock:
            last = self.acks.acknowledge_cumulative(position, batch_index, bits)
            is_first = len(self.acks) > 0 and not self._is_gathering
            self._is_gathering |= is_first
        if is_first:
            self._channel.gather(self.take_rows, GROUP_TIME)
        return last

    def negative_acknowledge(self, positions: set[int], delay_ms: int) -> None:
        """Give entries back after a delay."""
        with self.lock:
            self._negative.setdefault(delay_ms, set()).update(positions)
        self._channel.gather(self.take_rows, 0)

    def take_rows(self) -> list[dict]:
        """The rows of what was acknowledged or given back since they were last taken."""
        with self.lock:
            self._is_gathering = False
            acknowledged, negative, self._negative = self.acks.take(), self._negative, {}
        return self._ack_rows(acknowledged) + [self.row("negative_ack", first=first, last=last, delay_ms=delay_ms)
                                               for delay_ms, positions in negative.items() for first, last in ranges(positions)]

    def _ack_rows(self, acknowledged: list[Acknowledgement]) -> list[dict]:
        return [self.row(ack.kind, first=ack.first, last=ack.last, ack_set=ack.ack_set) for ack in acknowledged]
