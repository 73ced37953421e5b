"""Reader: reads a topic from a place on, straight from its table, without broker or subscription."""

import threading
import time
from collections.abc import Callable, Iterable, Iterator
from datetime import timedelta
from functools import partial
from itertools import islice
from typing import Any, TypeVar

import pyarrow as pa
from deltalake.exceptions import DeltaError

from pulsar_spark.client.arguments import check_type, public_call
from pulsar_spark.client.model.block import Block
from pulsar_spark.client.model.message import Message
from pulsar_spark.client.readers.log_chunks import LogChunks, Spans, chunk_runs_before
from pulsar_spark.client.readers.start import Start
from pulsar_spark.client.readers.topic_log import TopicLog, last_message_id
from pulsar_spark.client.receiving.joining import Joining
from pulsar_spark.client.schema.payloads import PayloadOpener
from pulsar_spark.client.subscribing.listener import Listener
from pulsar_spark.client.subscribing.seeking import check_target
from pulsar_spark.described import Described
from pulsar_spark.errors import (
    AlreadyClosed,
    InvalidConfiguration,
    MessagesLost,
    PulsarSparkError,
    Timeout,
    UnreadableMessage,
)
from pulsar_spark.link import interrupts
from pulsar_spark.protocol.delays.instants import EPOCH
from pulsar_spark.protocol.topics.message_id import MessageId
from pulsar_spark.protocol.topics.numbering import Run
from pulsar_spark.schema import Schema
from pulsar_spark.storage.compaction.compacted import CompactedView
from pulsar_spark.storage.store.away import is_away, root_away
from pulsar_spark.storage.topics.topics import Topic

FIRST_WAIT, LONGEST_WAIT = 0.005, 0.05
_T = TypeVar("_T")
_Read = Message | MessagesLost | UnreadableMessage
"""A message, or an error in its place."""
_FAILED = PulsarSparkError, OSError, DeltaError
"""Errors of reading, also while the root is away."""


class _NotNow:
    """Stands for a message while the root is away."""


_NOT_NOW = _NotNow()


class Reader(Described):
    """Reads one topic; made by ``Client.create_reader``. Use a reader in one thread at a time."""

    def __init__(
        self,
        client: Any,
        topic: Topic,
        partitions: list[int],
        topic_name: str,
        start: MessageId,
        is_inclusive: bool,
        schema: Schema,
        listener: Callable[["Reader", Message], Any] | None,
        opener: PayloadOpener,
        is_read_compacted: bool = False,
    ):
        self._client, self._process = client, client._process
        self._entries = client._entries
        self._topic = topic
        self._partitions = partitions
        self._topic_name = topic_name
        self._names = {partition: str(topic.name.partition(partition)) for partition in partitions}
        self._opener, self._schema = opener, schema
        self._is_inclusive = is_inclusive
        self._view = CompactedView(topic.path) if is_read_compacted else None
        is_whole = bool(topic.partitions) and topic.name.partition_index < 0 and topic_name == str(topic.name)
        self._log = TopicLog(topic, partitions, client._ledgers, is_whole=is_whole)
        self._closing = threading.Event()
        self._lock = threading.RLock()
        self._is_away = False
        self._listener = None if listener is None else Listener(self, listener, self._take, topic_name)
        self.seek(start)
        client._logger.debug("%s: reader opened", topic_name)
        if self._listener is not None:
            self._listener.start()

    def _facts(self) -> dict[str, object]:
        return {"topic": self._topic_name, "state": "closed" if self._closing.is_set() else "open"}

    def topic(self) -> str:
        """Full name of the topic, with the partition if one was named."""
        return self._topic_name

    def is_connected(self) -> bool:
        """Whether the reader can read. It needs no broker for that."""
        return not self._closing.is_set()

    @public_call
    def seek(self, messageid: MessageId | int) -> None:
        """Continue after the message *messageid* (at it with ``start_message_id_inclusive``), or at the first message
        published at or after a time in ms.
        """
        self._check_open()
        check_target(messageid)
        with self._lock:
            if messageid == MessageId.latest and self._is_inclusive and len(self._partitions) == 1:
                messageid = last_message_id(self._topic, self._partitions[0], self._client._ledgers.of(self._topic))
            self._next: _Read | None = None
            self._start = Start(self._topic)
            self._chunks = {partition: self._chunks_of(partition) for partition in self._partitions}
            if messageid == MessageId.latest:
                self._log.start_at_end()
                self._messages = self._read([])
                return
            if isinstance(messageid, int):
                self._start = Start(self._topic, time=EPOCH + timedelta(milliseconds=messageid), end=self._log.latest())
            elif messageid != MessageId.earliest:
                if messageid.partition() not in self._partitions:
                    raise InvalidConfiguration(
                        f"message id {messageid} belongs to no partition that is read: read {self._names} "
                        "from the earliest or latest, or one partition by its name"
                    )
                self._start = Start(self._topic, messageid, is_inclusive=self._is_inclusive)
            first = self._start.first_ledger
            if self._view is None:
                self._messages = self._read(self._log.start_at(first, published_since=self._start.time))
            else:
                self._messages = self._read_compacted(self._view, first)

    @public_call
    def read_next(self, timeout_millis: int | None = None) -> Message:
        """Return the next message. Waits for one, and raises :class:`Timeout` after *timeout_millis*.

        :class:`MessagesLost` if someone deleted a file of the topic; :class:`UnreadableMessage` if a message cannot be
        decrypted or decompressed. Each is raised once, and the next call continues after it.
        """
        if timeout_millis is not None:
            check_type(int, timeout_millis, "timeout_millis")
        if self._listener is not None:
            raise InvalidConfiguration("a reader with a listener passes messages only to that")
        message = self._take(None if timeout_millis is None else timeout_millis / 1000)
        if message is None:
            raise Timeout(f"no message within {timeout_millis} ms")
        return message

    @public_call
    def has_message_available(self) -> bool:
        """Whether :meth:`read_next` would return a message at once."""
        self._check_open()
        with self._lock:
            return self._peek() is not None

    @public_call
    def close(self) -> None:
        """Stop reading. A second call raises :class:`AlreadyClosed`."""
        self._check_open()
        self._shutdown()
        self._client._forget(self)

    def _shutdown(self) -> None:
        """Close, and drop what was read ahead, with its file, unless a call is running."""
        self._closing.set()
        self._client._logger.debug("%s: reader closed", self._topic_name)
        if self._lock.acquire(blocking=False):
            self._messages, self._next = iter(()), None
            self._lock.release()

    def _take(self, timeout: float | None) -> Message | None:
        deadline = None if timeout is None else time.monotonic() + timeout
        wait, since = FIRST_WAIT, interrupts.seen()
        while True:
            self._check_open()
            with self._lock:
                message = self._peek()
                self._next = None
            if message is not None and not isinstance(message, Message):
                raise message
            left = None if deadline is None else deadline - time.monotonic()
            if message is not None or (left is not None and left <= 0):
                return message
            was_away, self._is_away = self._is_away, is_away(self._topic.path)
            if self._is_away and not was_away:
                self._client._logger.warning("reader of %r waits: %s", self._topic_name, root_away(self._topic.path))
            interrupts.pause(self._closing.wait, wait if left is None else min(wait, left), since)
            wait = min(2 * wait, LONGEST_WAIT)

    def _peek(self) -> _Read | None:
        if self._next is None:
            found = next(self._messages, None)
            if found is None and self._log.has_more():
                self._messages = self._read(self._log.next_runs())
                found = next(self._messages, None)
            self._next = None if isinstance(found, _NotNow) else found
        return self._next

    def _chunks_of(self, partition: int) -> LogChunks:
        earlier = partial(chunk_runs_before, self._topic, partition, self._client._ledgers.of(self._topic))
        return LogChunks(self._topic, self._entries, earlier)

    def _read(self, runs: Iterable[tuple[int, Run]]) -> Iterator[_Read | _NotNow]:
        for partition, run in runs:
            if partition not in self._chunks:  # added since
                self._names[partition] = str(self._topic.name.partition(partition))
                self._chunks[partition] = self._chunks_of(partition)
            for wanted in _when_there(self._topic, partial(self._wanted, partition, run)):
                if isinstance(wanted, _NotNow):
                    yield wanted
                else:
                    yield from _when_there(self._topic, partial(self._of_run, partition, *wanted))

    def _wanted(self, partition: int, run: Run) -> Iterator[tuple[Run, Joining | None, int, Spans | None]]:
        """The arguments of :meth:`_of_run` for *run*; nothing if none of it is wanted."""
        joining, shift, others = self._chunks[partition].joining(run) if run.has_chunks else (None, 0, None)
        wanted = self._start.rest_of(partition, run)
        if wanted is not None:
            yield wanted, joining, shift, others

    def _of_run(
        self, partition: int, run: Run, chunked: Joining | None, to_position: int, others: Spans | None
    ) -> Iterator[_Read]:
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

    def _shown(self, found: Message | MessagesLost | None) -> Iterator[_Read]:
        """The message, decoded, or the error in its place; nothing for a message to discard."""
        if not isinstance(found, Message):
            yield from () if found is None else (found,)
            return
        error = found._open(self._opener)
        if error is None or not self._opener.discards(error):
            yield error or found

    def _block(self, rows: pa.Table, partition: int, ledger_id: int | None = None) -> Block:
        name, topic_id = self._names[partition], self._topic.topic_id
        return Block(rows, name, partition, ledger_id, schema=self._schema, topic_id=topic_id)

    def _read_compacted(self, view: CompactedView, first: int) -> Iterator[_Read | _NotNow]:
        """The compacted messages from ledger *first* on, then those after the horizons; of a new view if the topic is
        compacted meanwhile."""
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
            except _FAILED as error:
                if is_away(self._topic.path):
                    yield _NOT_NOW
                elif not isinstance(error, FileNotFoundError) or not view.look():
                    raise  # otherwise the file left the view, and there is a newer one
        first_uncompacted = min([max(first, passed.get(partition, 0) + 1) for partition in self._partitions])
        for runs in _when_there(
            self._topic, lambda: iter([self._log.start_at(first_uncompacted, passed, self._start.time)])
        ):
            if isinstance(runs, _NotNow):
                yield runs
            else:
                yield from self._read(runs)

    def _compacted(self, block: Block, partition: int) -> Iterator[_Read]:
        for index in range(self._start.first_of(partition, block), len(block)):
            message = Message(block, index)
            if self._start.is_reached(partition, message, message._field("ledger_id")):
                yield from self._shown(message)

    def _check_open(self) -> None:
        if self._closing.is_set():
            raise AlreadyClosed(f"the reader of {self._topic_name!r} is closed")


def _when_there(topic: Topic, read: Callable[[], Iterator[_T]]) -> Iterator[_T | _NotNow]:
    """The items of *read*, and ``_NOT_NOW`` while the root is away; then it reads again from the same place."""
    given = 0
    while True:
        try:
            for each in islice(read(), given, None):
                given += 1
                yield each
            return
        except _FAILED:
            if not is_away(topic.path):
                raise
        yield _NOT_NOW
