"""Letters of a DataFrame consumer: its dead letter policy, and the messages that its function puts off.

The consumer makes the letters, by client.subscribing.letters; the broker acknowledges and writes them in one commit.
Another run consumes the retry letter topic, under the same subscription."""

from collections.abc import Callable, Iterable, Iterator

from pulsar_spark.client.model.block import Block
from pulsar_spark.client.model.message import Message
from pulsar_spark.client.model.policies import ConsumerDeadLetterPolicy
from pulsar_spark.client.subscribing.letters import Letters, check_letter_topics, letter_topics
from pulsar_spark.frames.deliveries.delivery import PutOff
from pulsar_spark.frames.letters.retry_subscription import prepare_retry_topic
from pulsar_spark.protocol.acknowledgement import ack_set as ack_sets
from pulsar_spark.protocol.acknowledgement.positions import Positions
from pulsar_spark.protocol.redelivery.letters import DEFAULT_MAX_REDELIVER_COUNT, RETRY_SUFFIX
from pulsar_spark.storage.entries.entries import CACHED_BYTES, EntryReader
from pulsar_spark.storage.layout import Layout
from pulsar_spark.storage.ledgers.ledger_index import LedgerIndex
from pulsar_spark.storage.topics.bundles import layout_of
from pulsar_spark.storage.topics.topics import Topic


class FrameLetters:
    """The letters of one consumer. Without *policy* a message dies after it was put off 16 times."""

    def __init__(
        self,
        layout: Layout,
        topic: Topic,
        subscription: str,
        consumer_name: str,
        policy: ConsumerDeadLetterPolicy | None,
        *,
        retry_enable: bool,
    ):
        self._layout, self._topic, self._subscription = layout, topic, subscription
        self._policy = policy or ConsumerDeadLetterPolicy(DEFAULT_MAX_REDELIVER_COUNT)
        origin = str(topic.name).removesuffix(f"-{subscription}{RETRY_SUFFIX}")
        check_letter_topics(layout, [origin], subscription, self._policy, retry_enable=retry_enable)
        self._topics = letter_topics(layout, [origin], subscription, self._policy, retry_enable=retry_enable)
        self._letters = Letters(self._topics, subscription, consumer_name)
        self._ledgers, self._entries = LedgerIndex(layout_of(layout, topic.name)), EntryReader(CACHED_BYTES)
        self.is_retry_enabled = retry_enable

    @property
    def max_redeliver_count(self) -> int:
        return self._policy.max_redeliver_count

    def request_properties(self) -> dict[str, str]:
        return self._policy.request_properties() | {"dead_letter_topic": self._topics.dead}

    def prepare(self, timeout: float) -> None:
        if self.is_retry_enabled:
            prepare_retry_topic(self._layout, self._topics.retry, self._subscription, timeout)

    def rows(self, put_off: Iterable[PutOff], make: Callable[..., dict]) -> list[dict]:
        """Requests that put messages off, in order of position; ``make(kind, partition, **columns)`` makes a row."""
        delays = {(each.partition, each.position, each.batch_index): each.delay_ms for each in put_off}
        rows = []
        for partition in sorted({partition for partition, _, _ in delays}):
            spans = Positions((position, position) for at, position, _ in delays if at == partition)
            for message in self._messages(partition, spans):
                batch_index, batch_size = message._field("batch_index"), message._field("batch_size") or 1
                delay_ms = delays.get((partition, message._position, batch_index if batch_size > 1 else None))
                if delay_ms is None:
                    continue
                letter = self._letters.of(message, str(self._topic.name), max(0, delay_ms), None, is_cumulative=False)
                left = list(ack_sets.clear(ack_sets.full(batch_size), batch_index)) if batch_size > 1 else None
                rows.append(
                    make(
                        "reconsume_later",
                        partition,
                        first=message._position,
                        last=message._position,
                        ack_set=left,
                        properties=letter.request_properties(),
                    )
                )
        return rows

    def _messages(self, partition: int, spans: Positions) -> Iterator[Message]:
        name = str(self._topic.name.partition(partition))
        for first, last in spans:
            for run in self._ledgers.of(self._topic).runs(self._topic.topic_id, partition, first, last):
                for rows in self._entries.rows_of(self._topic.path, run):
                    block = Block(rows, name, partition, run.ledger_id)
                    for index, position in enumerate(block.column("position")):
                        yield Message(block, index, position)
