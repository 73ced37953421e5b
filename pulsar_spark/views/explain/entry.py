"""The entry that a message id names: its position, what its producer said of it, and whether it is still in the
topic."""

from datetime import datetime
from functools import cached_property

import numpy as np

from pulsar_spark.errors import CorruptState, InvalidMessage
from pulsar_spark.protocol.delays.delays import whole_ms
from pulsar_spark.protocol.delays.instants import shown_time, to_micros
from pulsar_spark.protocol.topics.message_id import MessageId
from pulsar_spark.protocol.topics.numbering import Run
from pulsar_spark.storage.chunks.chunk_groups import chunks_of
from pulsar_spark.storage.delta.log import TableLog
from pulsar_spark.storage.entries.entries import EntryReader
from pulsar_spark.storage.entries.missing import Missing
from pulsar_spark.storage.entries.topic_files import trimmed_ledgers
from pulsar_spark.storage.ledgers.ledger_index import LedgerIndex
from pulsar_spark.storage.ledgers.ledgers import ledgers_until
from pulsar_spark.storage.topics.topics import Topic

_FACTS = (
    "producer_name sequence_id partition_key ordering_key publish_time event_time deliver_at_time "
    "chunk_id num_chunks_from_msg properties"
).split()
_SHOWN = {
    "producerName": "producer_name",
    "sequenceId": "sequence_id",
    "key": "partition_key",
    "orderingKey": "ordering_key",
    "publishTime": "publish_time",
    "eventTime": "event_time",
    "deliverAtTime": "deliver_at_time",
}
TRIMMED, DELETED, LOST = "trimmed", "deleted", "lost"


class Entry:
    """The entry of the topic partition that *message_id* names; :class:`InvalidMessage` without such an entry.

    ``position`` is None if no broker has numbered the entry. For a chunk of a complete message it is the position of
    the last chunk, as the message is delivered by that one.
    """

    def __init__(self, index: LedgerIndex, topic: Topic, partition: int, message_id: MessageId):
        self.topic, self.partition, self.message_id = topic, partition, message_id
        self._index = index
        self.name = str(topic.name.partition(partition)) if partition >= 0 else str(topic.name)
        place = message_id.ledger_id(), message_id.entry_id()
        found = index.find(topic.topic_id, partition, *place)
        self.is_numbered = found is not None
        if found is None:
            self._run = self._find_unnumbered(*place)
            return
        (self._run,) = index.runs(topic.topic_id, partition, found[0], found[0])

    def _find_unnumbered(self, ledger_id: int, entry_id: int) -> Run | None:
        """Its run after those that a broker numbered; None if the topic's log cannot be read so far."""
        runs = None
        if ledger_id <= TableLog(self.topic.path).latest():
            try:
                runs = ledgers_until(self._index.layout, self.topic, ledger_id).get(self.partition)
            except CorruptState:
                return None
        run = runs.run_of_entry(ledger_id, entry_id) if runs else None
        if run is None:
            raise InvalidMessage(f"topic {self.name!r} has no message {self.message_id}: give the id of one")
        return run.part(entry_id + run.to_position, entry_id + run.to_position)

    @property
    def is_stopped(self) -> bool:
        """Whether the topic's log cannot be read up to the entry."""
        return self._run is None

    @property
    def ledger_id(self) -> int:
        return self.message_id.ledger_id()

    @property
    def batch_size(self) -> int:
        return self._run.batch_size if self._run else 1

    @property
    def batch_index(self) -> int:
        """The message's place in the batch; -1 outside a batch, and for all of it."""
        return self.message_id.batch_index() if self.batch_size > 1 else -1

    @cached_property
    def _read(self) -> tuple[dict, str | None]:
        """Columns of its message, empty if that is gone; and why it is gone."""
        trimmed = trimmed_ledgers(self.topic.path, [self.partition])[self.partition]
        if self.ledger_id <= trimmed:
            return {}, TRIMMED
        missing = None
        for rows in EntryReader().read(self.topic.path, self._run, None, _FACTS) if self._run else ():
            if isinstance(rows, Missing):
                missing = LOST if rows.is_lost else DELETED
                continue
            for row in rows.to_pylist():
                if self.batch_index < 0 or row["batch_index"] == self.batch_index:
                    return row, None
        return {}, missing

    @property
    def row(self) -> dict:
        return self._read[0]

    @property
    def properties(self) -> dict[str, str]:
        return dict(self.row.get("properties") or ())

    @property
    def published(self) -> datetime | None:
        """Its publish time; if it is gone, that of the first message of its file."""
        return self.row.get("publish_time") or (self._run and self._run.min_publish_time)

    @property
    def missing(self) -> str | None:
        """``trimmed``, ``deleted`` or ``lost``; None if the message is there."""
        return self._read[1]

    @property
    def deliver_at(self) -> int:
        """Its deliver time in microseconds; 0 for none. The first message of a batch decides."""
        given = self.row.get("deliver_at_time")
        return 0 if given is None else int(whole_ms(np.array([to_micros(given)]))[0])

    @property
    def _own_position(self) -> int:
        return self._run.first_position if self._run else -1

    @cached_property
    def _group(self) -> tuple[int, int, int]:
        """First and last position of the chunked message that it is a chunk of, -1 where there is none; and how many of
        its chunks are there."""
        own, run = self._own_position, self._run
        groups = chunks_of(self._index.layout, self.topic, self.partition, [run] if run else [])
        first = groups.begins(np.array([own]))
        end = int(groups.ends(first)[0])
        before = self._index.end(self.topic.topic_id, self.partition) if end < 0 else end + 1
        there = len(groups.members(first, before)) if first[0] >= 0 else 1
        return int(first[0]), end, there

    @property
    def is_chunk(self) -> bool:
        return (self.row.get("num_chunks_from_msg") or 0) > 1

    @property
    def chunks(self) -> tuple[int, int]:
        """How many chunks of its message are there, and how many it has."""
        return self._group[2], self.row["num_chunks_from_msg"]

    @property
    def is_incomplete(self) -> bool:
        """Whether it is a chunk of a message that is not complete."""
        return self.is_chunk and self.is_numbered and self._group[1] < 0

    @property
    def position(self) -> int | None:
        if not self.is_numbered:
            return None
        is_of_whole = self.is_chunk and self._group[1] >= 0
        return self._group[1] if is_of_whole else self._own_position

    def facts(self) -> dict:
        """What is known of the message itself, by JSON names."""
        row = {**self.row, "publish_time": self.published}
        shown = {name: row.get(column) for name, column in _SHOWN.items()}
        for name, value in shown.items():
            shown[name] = shown_time(to_micros(value)) if isinstance(value, datetime) else value
        return {
            "messageId": str(self.message_id),
            "topic": self.name,
            "position": self.position,
            "batchIndex": self.batch_index,
            "batchSize": self.batch_size,
            **shown,
        }
