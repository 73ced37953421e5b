"""The consumers of all topics of a stream, and the micro-batches that Spark plans of what they get."""

import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace

from pulsar_spark.client.model.policies import ConsumerDeadLetterPolicy
from pulsar_spark.errors import InvalidConfiguration
from pulsar_spark.frames.consuming.membership import MAX_MESSAGES, SubscribeOptions
from pulsar_spark.frames.source.delivered_slices import DeliveredSlice, slices_of_deliveries
from pulsar_spark.frames.source.followed_topic import topic_names
from pulsar_spark.frames.source.options import SourceOptions
from pulsar_spark.frames.source.stream_consumer import StreamConsumer
from pulsar_spark.frames.source.stream_progress import StreamProgress
from pulsar_spark.frames.source.subscription_offsets import TopicOffset
from pulsar_spark.link.requests import no_answer
from pulsar_spark.storage.clock import monotonic
from pulsar_spark.storage.layout import Layout
from pulsar_spark.storage.topics.topics import Topic, existing_topic, prepare_root, resolve_topic

WAIT_SECONDS = 0.1
"""How long a question for news waits for some; Spark asks again at once."""
END_LOOK_SECONDS = 0.02
"""How often a stream that ends looks whether all is done."""
_ALL = 1 << 30
"""Messages of a micro-batch without a limit."""
Offsets = dict[str, TopicOffset]


class StreamConsumers:
    """They go on from the offsets *known*. If the stream *ends*, it has what was published before."""

    def __init__(self, options: SourceOptions, checked: SubscribeOptions, known: Mapping[str, TopicOffset], ends: bool):
        self._options, self._checked, self._ends = options, checked, ends
        self._layout, self._changed = Layout(options.root), threading.Condition()
        self._progress, self._is_over, self._next_discovery = StreamProgress(), False, 0.0
        self._consumers: dict[str, StreamConsumer] = {}
        is_open = False
        try:
            if options.create and options.topics_pattern is None:
                prepare_root(self._layout)
            self._discover(known)
            if others := sorted(known.keys() - self._consumers.keys()):
                raise InvalidConfiguration(
                    f"the checkpoint is of topic {others[0]!r}, which the options do not name: give a new "
                    "checkpointLocation, or this topic"
                )
            is_open = True
        finally:
            if not is_open:
                self.close()

    def _discover(self, known: Mapping[str, TopicOffset]) -> None:
        creates = self._options.create and self._options.topics_pattern is None
        for name in topic_names(self._options, self._layout):
            if creates:
                topic, partitions = resolve_topic(self._layout, name, create=True)
            else:
                topic, partitions = existing_topic(self._layout, name, "option create 'true'")
            is_whole = partitions == list(topic.partition_indexes)
            full = str(topic.name if is_whole else topic.name.partition(partitions[0]))
            if full not in self._consumers:
                self._consumers[full] = self._consumer(topic, partitions, known.get(full))
        self._next_discovery = monotonic() + self._options.pattern_auto_discovery_period

    def _consumer(self, topic: Topic, partitions: list[int], known: TopicOffset | None) -> StreamConsumer:
        consumer_id = uuid.uuid4().hex if known is None else known.consumer_id
        checked = self._checked
        if self._options.consumer_name is None:  # the same after a restart
            checked = checked._replace(consumer_name=consumer_id[:10])
        if self._options.max_redeliver_count is not None:
            from pulsar_spark.frames.consuming.letters import FrameLetters  # reads messages, as clients do

            policy = ConsumerDeadLetterPolicy(
                self._options.max_redeliver_count,
                self._options.dead_letter_topic,
                self._options.initial_subscription_name,
            )
            letters = FrameLetters(
                self._layout, topic, checked.subscription, checked.consumer_name, policy, retry_enable=False
            )
            checked = checked._replace(letters=letters)
        return StreamConsumer(
            self._layout,
            topic,
            partitions,
            checked,
            consumer_id,
            known,
            self._changed,
            timeout=self._options.operation_timeout_seconds,
            ends=self._ends,
        )

    def acknowledge(self, done: Mapping[str, TopicOffset]) -> None:
        for name, offset in done.items():
            if name in self._consumers:
                self._consumers[name].acknowledge(offset)

    def plan(self, known: Mapping[str, TopicOffset], *, is_all: bool) -> Offsets | None:
        """Acknowledge what ended at *known*, and return the offsets of topics with news; None without any. With
        *is_all*, all that was published before is in one micro-batch."""
        if self._is_over:
            return None
        if self._options.topics_pattern is not None and monotonic() >= self._next_discovery:
            self._discover(known)
        self.acknowledge(known)
        most = {name: _ALL if is_all else self._most(each) for name, each in self._consumers.items()}
        self._go_on(most)
        if is_all:
            self._wait_until(lambda: all(each.is_all_there() for each in self._consumers.values()), most)
        elif self._ends:
            self._wait_until(lambda: self._has_deliveries() or self._are_done(), most)
        else:
            self._wait(WAIT_SECONDS)
        taken = {name: each.take(most[name]) for name, each in self._consumers.items()}
        planned = {name: offset for name, offset in taken.items() if offset is not None}
        if self._ends and not planned:
            self.close()
        return planned or None

    def _most(self, consumer: StreamConsumer) -> int:
        most, most_bytes = self._options.max_messages_per_trigger, self._options.max_bytes_per_trigger
        if most_bytes is not None and (size := consumer.next_message_bytes()):
            most = min(most or MAX_MESSAGES, max(1, int(most_bytes / size)))
        return max(1, (most or MAX_MESSAGES) // len(self._consumers))

    def _go_on(self, most: Mapping[str, int]) -> None:
        for name, each in self._consumers.items():
            each.receiver.go_on(most[name])

    def _has_deliveries(self) -> bool:
        return any(each.receiver.has_deliveries() for each in self._consumers.values())

    def _are_done(self) -> bool:
        return all(each.is_done() for each in self._consumers.values())

    def _wait(self, seconds: float) -> None:
        with self._changed:
            if not any(each.receiver.has_news for each in self._consumers.values()):
                self._changed.wait(seconds)

    def _wait_until(self, is_so: Callable[[], bool], most: Mapping[str, int]) -> None:
        """Raises :class:`Timeout` if no broker serves for too long meanwhile."""
        served = time.monotonic()
        while not is_so():
            if all(each.connection.channel.has_broker() for each in self._consumers.values()):
                served = time.monotonic()
            elif time.monotonic() > served + self._options.operation_timeout_seconds:
                raise no_answer(self._layout.root, self._options.operation_timeout_seconds)
            self._wait(END_LOOK_SECONDS)
            self._go_on(most)

    def slices(self, wanted: Mapping[str, TopicOffset]) -> list[DeliveredSlice]:
        """What tasks read of the micro-batch that ends at the offsets *wanted*."""
        return [each for name, offset in wanted.items() for each in self._slices(self._consumers[name], offset)]

    def _slices(self, consumer: StreamConsumer, offset: TopicOffset) -> Iterator[DeliveredSlice]:
        is_strict = self._options.fail_on_data_loss
        deliveries = consumer.deliveries(offset, is_strict=is_strict)
        for each in slices_of_deliveries(consumer.topic, consumer.ledgers, deliveries):
            yield replace(each, skips_lost=not is_strict)

    def backlogs(self) -> dict[str, dict]:
        """Unacknowledged and delayed entries by topic."""
        return self._progress.backlogs(self._consumers.values())

    def close(self) -> None:
        self._is_over = True
        for each in self._consumers.values():
            each.close()
        self._consumers.clear()
