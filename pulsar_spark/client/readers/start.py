"""Where a reader begins: after a message, at it, or at the first one published at or after a time."""

from datetime import datetime

from pulsar_spark.client.model.block import Block
from pulsar_spark.client.model.message import Message
from pulsar_spark.protocol.topics.message_id import MessageId
from pulsar_spark.protocol.topics.numbering import Run
from pulsar_spark.storage.ledgers.publish_times import first_of_run_published_at
from pulsar_spark.storage.topics.topics import Topic


class Start:
    """*message_id* limits only its own partition; *time* is compared up to publish commit *end*."""

    def __init__(
        self,
        topic: Topic,
        message_id: MessageId | None = None,
        time: datetime | None = None,
        end: int = -1,
        *,
        is_inclusive: bool = False,
    ):
        self._topic, self._message_id, self._is_inclusive = topic, message_id, is_inclusive
        self.time, self._end = time, end
        self._begun: set[int] = set()

    @property
    def first_ledger(self) -> int:
        return 1 if self._message_id is None else self._message_id.ledger_id()

    def rest_of(self, partition: int, run: Run) -> Run | None:
        """The part of *run* from the time on; None without one."""
        if self.time is None or partition in self._begun or run.ledger_id > self._end:
            return run
        by_entry = run._replace(first_position=run.first_entry_id)  # it may not be numbered yet
        first = first_of_run_published_at(self._topic.path, by_entry, self.time)
        if first is None:
            return None
        self._begun.add(partition)
        return run.from_entry(first)

    def first_of(self, partition: int, compacted: Block) -> int:
        """The index of the first of *compacted* messages of or after the time."""
        if self.time is None or partition in self._begun:
            return 0
        ledger_ids, positions = compacted.column("ledger_id"), compacted.column("position")
        for index, published in enumerate(compacted.column("publish_time")):
            if published >= self.time or ledger_ids[index] > self._end:
                self._begun.add(partition)
                return positions.index(positions[index])
        return len(compacted)

    def from_message(self, partition: int, run: Run) -> Run | None:
        """The part of *run* from the message's entry on; None without one."""
        start = self._message_id
        if start is None or (partition, run.ledger_id) != (start.partition(), start.ledger_id()):
            return run
        return run.from_entry(start.entry_id())

    def is_reached(self, partition: int, message: Message, ledger_id: int) -> bool:
        """Whether *message* is to be read; messages come in order."""
        start = self._message_id
        if start is None or partition != start.partition():
            return True
        if ledger_id > start.ledger_id():
            self._message_id = None
            return True
        here, there = message._field("entry_id"), start.entry_id()
        batch_index = message._field("batch_index")
        if here == there and batch_index is not None and start.batch_index() >= 0:
            here, there = batch_index, start.batch_index()
        return here > there or (self._is_inclusive and here == there)
