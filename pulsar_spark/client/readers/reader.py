"""Reader: reads a topic straight from its table, without broker or subscription."""

import threading
import time
from collections.abc import Callable
from typing import Any

from pulsar_spark.client.arguments import check_type, public_call
from pulsar_spark.client.model.message import Message
from pulsar_spark.client.readers.log_messages import LogMessages, Read
from pulsar_spark.client.schema.payloads import PayloadOpener
from pulsar_spark.client.subscribing.listener import Listener
from pulsar_spark.client.subscribing.seeking import check_target
from pulsar_spark.described import Described
from pulsar_spark.errors import AlreadyClosed, InvalidConfiguration, Timeout
from pulsar_spark.link import interrupts
from pulsar_spark.protocol.topics.message_id import MessageId
from pulsar_spark.schema import Schema
from pulsar_spark.storage.store.away import is_away, root_away
from pulsar_spark.storage.topics.topics import Topic

FIRST_WAIT, LONGEST_WAIT = 0.005, 0.05


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
        self._path, self._topic_name, self._is_inclusive = topic.path, topic_name, is_inclusive
        is_whole = bool(topic.partitions) and topic.name.partition_index < 0 and topic_name == str(topic.name)
        self._messages = LogMessages(
            client, topic, partitions, schema, opener, is_whole=is_whole, is_read_compacted=is_read_compacted
        )
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
        """Whether the reader is open. It needs no broker."""
        return not self._closing.is_set()

    @public_call
    def seek(self, messageid: MessageId | int) -> None:
        """Continue after the message *messageid* (at it with ``start_message_id_inclusive``), or at the first message
        published at or after a time in ms."""
        self._check_open()
        check_target(messageid)
        with self._lock:
            self._next: Read | None = None
            self._messages.start_at(messageid, is_inclusive=self._is_inclusive)

    @public_call
    def read_next(self, timeout_millis: int | None = None) -> Message:
        """Return the next message. Waits for one, and raises :class:`Timeout` after *timeout_millis*.

        :class:`MessagesLost` if a file of the topic is gone; :class:`UnreadableMessage` if a message cannot be
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
        """Close, and drop what was read ahead unless a call is running."""
        self._closing.set()
        self._client._logger.debug("%s: reader closed", self._topic_name)
        if self._lock.acquire(blocking=False):
            self._messages.forget()
            self._next = None
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
            was_away, self._is_away = self._is_away, is_away(self._path)
            if self._is_away and not was_away:
                self._client._logger.warning("reader of %r waits: %s", self._topic_name, root_away(self._path))
            interrupts.pause(self._closing.wait, wait if left is None else min(wait, left), since)
            wait = min(2 * wait, LONGEST_WAIT)

    def _peek(self) -> Read | None:
        if self._next is None:
            self._next = self._messages.next()
        return self._next

    def _check_open(self) -> None:
        if self._closing.is_set():
            raise AlreadyClosed(f"the reader of {self._topic_name!r} is closed")
