"""The messages of a topic, straight from its log and files, for a reader."""

from collections.abc import Callable, Iterable, Iterator
from datetime import timedelta
from functools import partial
from itertools import islice
from typing import Any, TypeVar

import pyarrow as pa

from pulsar_spark.client.model.block import Block
from pulsar_spark.client.model.message import Message
from pulsar_spark.client.readers.log_chunks import LogChunks, Spans, chunk_runs_before
from pulsar_spark.client.readers.start import Start
from pulsar_spark.client.readers.topic_log import TopicLog, last_message_id
from pulsar_spark.client.receiving.joining import Joining
from pulsar_spark.client.schema.payloads import PayloadOpener
from pulsar_spark.errors import InvalidConfiguration, MessagesLost, UnreadableMessage
from pulsar_spark.protocol.delays.instants import EPOCH
from pulsar_spark.protocol.topics.message_id import MessageId
from pulsar_spark.protocol.topics.numbering import Run
from pulsar_spark.schema import Schema
from pulsar_spark.storage.compaction.compacted import CompactedView
from pulsar_spark.storage.delta.scan import MAY_PASS
from pulsar_spark.storage.store.away import is_away
from pulsar_spark.storage.topics.topics import Topic

_T = TypeVar("_T")
Read = Message | MessagesLost | UnreadableMessage
"""A message, or an error in its place."""


class _NotNow: ...


_NOT_NOW = _NotNow()


class LogMessages:
    """The messages of *partitions*, with *is_whole* also of partitions added later; for one thread at a time."""

    def __init__(
        self,
        client: Any,
        topic: Topic,
        partitions: list[int],
        schema: Schema,
        opener: PayloadOpener,
        *,
        is_whole: bool,
        is_read_compacted: bool,
    ):
        self._topic, self._partitions, self._schema, self._opener = topic, partitions, schema, opener
        self._entries, self._ledgers = client._entries, client._ledgers
        self._names = {partition: str(topic.name.partition(partition)) for partition in partitions}
        self._view = CompactedView(topic.path) if is_read_compacted else None
        self._log = TopicLog(topic, partitions, client._ledgers, is_whole=is_whole)
        self._messages: Iterator[Read | _NotNow] = iter(())

    def start_at(self, place: MessageId | int, *, is_inclusive: bool) -> None:
        """Continue after the message with id *place*, at it if *is_inclusive*, or at the first one published at or
        after a time in ms. :class:`InvalidConfiguration` for another partition's id."""
        if place == MessageId.latest and is_inclusive and len(self._partitions) == 1:
            place = last_message_id(self._topic, self._partitions[0], self._ledgers.of(self._topic))
        self._start = Start(self._topic)
        self._chunks = {partition: self._chunks_of(partition) for partition in self._partitions}
        if place == MessageId.latest:
            self._log.start_at_end()
            self._messages = self._read([])
            return
        if isinstance(place, int):
            self._start = Start(self._topic, time=EPOCH + timedelta(milliseconds=place), end=self._log.latest())
        elif place != MessageId.earliest:
            if place.partition() not in self._partitions:
                raise InvalidConfiguration(
                    f"message id {place} belongs to no partition that is read: read {self._names} "
                    "from the earliest or latest, or one partition by its name"
                )
            self._start = Start(self._topic, place, is_inclusive=is_inclusive)
        first = self._start.first_ledger
        if self._view is None:
            self._messages = self._read(self._log.start_at(first, published_since=self._start.time))
        else:
            self._messages = self._read_compacted(self._view, first)

    def next(self) -> Read | None:
        """The next message or error; None while there is none, or the root is away."""
        found = next(self._messages, None)
        if found is None and self._log.has_more():
            self._messages = self._read(self._log.next_runs())
            found = next(self._messages, None)
        return None if isinstance(found, _NotNow) else found

    def forget(self) -> None:
        """Drop what was read ahead, with its file."""
        self._messages = iter(())

    def _chunks_of(self, partition: int) -> LogChunks:
        earlier = partial(chunk_runs_before, self._topic, partition, self._ledgers.of(self._topic))
        return LogChunks(self._topic, self._entries, earlier)

    def _read(self, runs: Iterable[tuple[int, Run]]) -> Iterator[Read | _NotNow]:
        for partition, run in runs:
            if partition not in self._chunks:  # added since
                self._names[partition] = str(self._topic.name.partition(partition))
                self._chunks[partition] = self._chunks_of(partition)
            for wanted in self._when_there(partial(self._wanted, partition, run)):
                if isinstance(wanted, _NotNow):
                    yield wanted
                else:
                    yield from self._when_there(partial(self._of_run, partition, *wanted))

    def _wanted(self, partition: int, run: Run) -> Iterator[tuple[Run, Joining | None, int, Spans | None]]:
        joining, shift, others = self._chunks[partition].joining(run) if run.has_chunks else (None, 0, None)
        wanted = self._start.rest_of(partition, run)
        if wanted is not None:
            yield wanted, joining, shift, others

    def _of_run(
        self, partition: int, run: Run, chunked: Joining | None, to_position: int, others: Spans | None
    ) -> Iterator[Read]:
        part = self._start.from_message(partition, run)
        if part is None:
            return
        try:
            shift = part.to_position
            spans = None if others is None else [(first + shift, last + shift) for first, last in others]
            for rows in self._entries.rows_of(self._topic.path, part, spans):
                block = self._block(rows, partition, part.ledger_id)
                for index in range(len(block)):
                    message = Message(block, index)
                    if not self._start.is_reached(partition, message, part.ledger_id):
                        continue
                    if chunked is not None and message._is_chunk():
                        yield from self._shown(chunked.message(message, message._field("entry_id") + to_position))
                    else:
                        yield from self._shown(message)
        except MessagesLost as lost:
            yield lost

    def _shown(self, found: Message | MessagesLost | None) -> Iterator[Read]:
        """The message, or the error in its place; nothing for a message to discard."""
        if not isinstance(found, Message):
            yield from () if found is None else (found,)
            return
        error = found._open(self._opener)
        if error is None or not self._opener.discards(error):
            yield error or found

    def _block(self, rows: pa.Table, partition: int, ledger_id: int | None = None) -> Block:
        name, topic_id = self._names[partition], self._topic.topic_id
        return Block(rows, name, partition, ledger_id, schema=self._schema, topic_id=topic_id)

    def _read_compacted(self, view: CompactedView, first: int) -> Iterator[Read | _NotNow]:
        """The compacted messages from ledger *first* on, then those after the horizons."""
        passed: dict[int, int] = {}
        begins, positions = dict.fromkeys(self._partitions, first), dict.fromkeys(self._partitions, -1)
        while True:
            try:
                view.look()
                compacted = [each for each in self._partitions if begins[each] <= view.horizon(each)]
                if not compacted:
                    break
                partition = compacted[0]
                passed[partition] = view.horizon(partition)
                for rows in view.rows_after(partition, begins[partition], positions[partition]):
                    yield from self._compacted(self._block(rows, partition), partition)
                    positions[partition] = rows["position"][-1].as_py()
                begins[partition] = passed[partition] + 1
            except MAY_PASS as error:
                if is_away(self._topic.path):
                    yield _NOT_NOW
                elif not isinstance(error, FileNotFoundError) or not view.look():
                    raise  # otherwise the file left the view, and there is a newer one
        first_uncompacted = min([max(first, passed.get(partition, 0) + 1) for partition in self._partitions])
        for runs in self._when_there(lambda: iter([self._log.start_at(first_uncompacted, passed, self._start.time)])):
            if isinstance(runs, _NotNow):
                yield runs
            else:
                yield from self._read(runs)

    def _compacted(self, block: Block, partition: int) -> Iterator[Read]:
        for index in range(self._start.first_of(partition, block), len(block)):
            message = Message(block, index)
            if self._start.is_reached(partition, message, message._field("ledger_id")):
                yield from self._shown(message)

    def _when_there(self, read: Callable[[], Iterator[_T]]) -> Iterator[_T | _NotNow]:
        """The items of *read*, and ``_NOT_NOW`` while the root is away, then the rest."""
        given = 0
        while True:
            try:
                for each in islice(read(), given, None):
                    given += 1
                    yield each
                return
            except MAY_PASS:
                if not is_away(self._topic.path):
                    raise
            yield _NOT_NOW
