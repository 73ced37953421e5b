"""Receivers of a send's outcome: a waiting call, a message's chunks, or an application's callback."""

import threading
from collections.abc import Callable
from typing import Any

from pulsar_spark.client.model.enums import Result, result_of
from pulsar_spark.errors import AlreadyClosed, PulsarSparkError, Timeout, UnknownError
from pulsar_spark.link import interrupts
from pulsar_spark.protocol.topics.message_id import MessageId

_OK = Result.Ok
"""Cached, for speed."""


class Answered:
    """Gets the outcome of a send: the error, or the message id."""

    __slots__ = ()

    def __call__(self, error: PulsarSparkError | None, message_id: MessageId | None) -> None:
        raise NotImplementedError


Done = Answered | Callable[..., Any]
"""A receiver of this package, or an application's callback."""


def answer(done: Done | None, error: PulsarSparkError | None, message_id: MessageId | None) -> None:
    """Pass the outcome to *done*, to a callback with the ``pulsar`` package's arguments."""
    if isinstance(done, Answered):
        done(error, message_id)
    elif done is not None:
        done(_OK if error is None else result_of(error), message_id)


class Outcome(Answered):
    """The outcome of a blocking send."""

    __slots__ = ("_event", "_error", "_message_id")

    def __init__(self) -> None:
        self._event = threading.Event()
        self._error: PulsarSparkError | None = None
        self._message_id: MessageId | None = None

    def __call__(self, error: PulsarSparkError | None, message_id: MessageId | None) -> None:
        self._error, self._message_id = error, message_id
        self._event.set()

    def result(self, timeout: float) -> MessageId:
        """The id of the message, or its error; :class:`Timeout` a second after *timeout* seconds."""
        if not interrupts.until(self._event.wait, min(timeout + 1, threading.TIMEOUT_MAX)):
            raise Timeout("the message was not published within the send timeout; it may still be")
        if isinstance(self._error, AlreadyClosed):
            interrupts.stay_to_the_end()
        if self._message_id is None:
            raise self._error or UnknownError("the message was neither published nor refused")
        return self._message_id


class ChunkedSend(Answered):
    """The outcome of a message's *chunks*: calls *done* once, at the first error or after the last chunk (1.7)."""

    __slots__ = ("_done", "_left", "_first", "_lock", "error")

    def __init__(self, done: Done | None, chunks: int):
        self._done, self._left = done, chunks
        self._first: MessageId | None = None
        self._lock = threading.Lock()
        self.error: PulsarSparkError | None = None

    def __call__(self, error: PulsarSparkError | None, message_id: MessageId | None) -> None:
        with self._lock:
            if self.error is not None or not self._left:
                return
            self.error = error
            self._first = self._first or message_id
            self._left -= 1
            if error is None and self._left:
                return
        first, whole_id = self._first, None if error is not None else message_id
        if whole_id is not None and first is not None and whole_id.ledger_id() >= 0:  # else it is a duplicate
            whole_id = whole_id.of_chunks(first)
        answer(self._done, error, whole_id)

    def give_up(self) -> None:
        """Send no more chunks, and call nobody: Ctrl-C interrupted the queueing."""
        with self._lock:
            self.error = self.error or AlreadyClosed("Ctrl-C stopped the send before the whole message was queued")
