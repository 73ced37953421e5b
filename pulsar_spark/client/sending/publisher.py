"""Group commit: one thread per producer commits what arrived during its last commit.

A caller that waits for its send usually sends again at once. So the thread waits for the messages of the callers it has
just answered, at most half as long as the commit took. All threads of a program then share each commit.

While an outcome is unclear, the same rows are written under the same publish id (see storage.delta.sure_append). A
crash loses only messages whose callback was not called. If a callback raises, a new thread continues.
"""

import logging
import secrets
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from functools import partial

import pyarrow as pa

from pulsar_spark.client.sending.deduplication import Deduplication, Judged, ids_of
from pulsar_spark.client.sending.publish_rows import Entry, Outgoing, publish_rows, unwritable_text
from pulsar_spark.client.sending.send_outcomes import Answered, Done, answer
from pulsar_spark.errors import (
    AlreadyClosed,
    InvalidMessage,
    PulsarSparkError,
    RootAway,
    Timeout,
    TopicNotFound,
    UnknownError,
)
from pulsar_spark.link.worker import Worker
from pulsar_spark.protocol.topics.message_id import MessageId, SentMessageId
from pulsar_spark.protocol.topics.numbering import publish_id
from pulsar_spark.storage.delta.sure_append import SureAppend
from pulsar_spark.storage.store.away import is_away, root_away
from pulsar_spark.storage.topics.topics import Topic

MAX_COMMIT_MESSAGES = 100_000
MAX_COMMIT_BYTES = 64 * 1024 * 1024
_RETRY_SECONDS = 0.2
_GATHERING_SHARE = 0.5
Answer = tuple[Done | None, PulsarSparkError | None, MessageId | None]
"""A message's receiver, with its error or id."""


class Publisher(Worker):
    """``check()`` raises if the producer may publish no more. ``due(now)`` gives the batches to close and the time of
    the next. ``settled(messages, is_published)`` is called before the callbacks, ``answered(count)`` after them."""

    def __init__(
        self,
        topic: Topic,
        producer_name: str,
        deduplication: Deduplication,
        schema_version: int | None,
        condition: threading.Condition,
        *,
        check: Callable[[], None],
        due: Callable[[float], tuple[list[Entry], float | None]],
        settled: Callable[[list[Outgoing], bool], None],
        answered: Callable[[int], None],
        logger: logging.Logger,
    ):
        super().__init__(f"publisher-{producer_name}", condition)
        self._topic, self._producer_name = topic, producer_name
        self._due, self._settled, self._answered = due, settled, answered
        self._deduplication, self._schema_version = deduplication, schema_version
        self._queue: deque[Entry] = deque()
        self._callbacks: deque[Iterator[Answer]] = deque()
        self._table = SureAppend(topic.path, "publish_id", check)
        self.grow(topic)
        self._under_way: list[Entry] = []
        self._expected, self._expected_until = 0, float("-inf")
        """How many entries probably come until then."""
        self._logger, self._is_logged = logger, False
        """Whether the absence of the root was logged."""
        self._start()

    def grow(self, topic: Topic) -> None:
        """Use the topic's present partitions."""
        self._topic_names = {index: str(topic.name.partition(index)) for index in topic.partition_indexes}

    def put(self, entries: list[Entry]) -> bool:
        """Queue entries; the caller holds the condition, and notifies if this returns True."""
        is_first = not self._queue
        self._queue.extend(entries)
        return is_first or len(self._queue) >= self._expected

    def abandon(self) -> None:
        """Fail the entries that are not being written, and end."""
        with self._condition:
            self._is_stopping = True
            left = list(self._queue)
            self._queue.clear()
            self._condition.notify_all()
        error = AlreadyClosed(f"producer {self._producer_name!r} was closed before the message was published")
        for entry in left:
            self._settled(entry.messages, False)
            for message in entry.messages:
                answer(message.done, error, None)
            self._answered(len(entry.messages))

    def _run(self) -> None:
        is_done = False
        try:
            self._call_back()
            while (entries := self._wait_for_entries()) is not None:
                self._under_way, began = entries, time.monotonic()
                self._publish(entries)
                self._under_way, took = [], time.monotonic() - began
                queued = len(self._queue)
                self._expected = queued + self._call_back()
                self._expected_until = time.monotonic() + took * _GATHERING_SHARE
            is_done = True
        finally:
            if not is_done:
                self._fail(
                    self._under_way,
                    UnknownError(
                        "the message could not be converted to a row: see the traceback of the publisher's thread"
                    ),
                )
                self._under_way = []
                self._start()

    def _wait_for_entries(self) -> list[Entry] | None:
        with self._condition:
            while True:
                now = time.monotonic()
                ready, wake_at = self._due(now)
                self._queue.extend(ready)
                is_gathering = len(self._queue) < self._expected and now < self._expected_until
                if self._queue and (self._is_stopping or not is_gathering):
                    return self._take()
                if self._is_stopping:
                    return None
                if self._queue:
                    wake_at = min(wake_at or self._expected_until, self._expected_until)
                self._condition.wait(None if wake_at is None else max(0.0, wake_at - now))

    def _take(self) -> list[Entry]:
        taken: list[Entry] = []
        messages = size = 0
        while self._queue:
            is_full = messages >= MAX_COMMIT_MESSAGES or size >= MAX_COMMIT_BYTES
            if is_full and not self._deduplication.must_share(taken, self._queue[0]):
                break
            entry = self._queue.popleft()
            taken.append(entry)
            messages += len(entry.messages)
            size += sum(map(_size, entry.messages))
        return taken

    def _publish(self, entries: list[Entry]) -> None:
        entries = self._without_failed(entries)
        if not entries:
            return
        try:
            try:
                answers = self._store(entries)
            except UnicodeEncodeError:
                entries = self._refuse_unwritable(entries)
                if not entries:
                    return
                answers = self._store(entries)
        except PulsarSparkError as error:
            self._fail(entries, error)
            return
        self._callbacks.append(answers)
        self._settled([message for entry in entries for message in entry.messages], True)

    def _without_failed(self, entries: list[Entry]) -> list[Entry]:
        now, left = time.monotonic(), []
        late = Timeout("the send timeout passed before the message could be written: give a longer send_timeout_millis")
        for entry in entries:
            error = entry.error or (late if entry.messages[0].deadline <= now else None)
            if error is None:
                left.append(entry)
            else:
                self._fail([entry], error)
        return left

    def _store(self, entries: list[Entry]) -> Iterator[Answer]:
        """Commit the entries without duplicates; return the callbacks' arguments lazily."""
        identity = publish_id(time.time_ns() // 1_000_000, secrets.randbits(74))
        deadline, judged = max(entry.messages[-1].deadline for entry in entries), None
        while True:
            if (judged := self._judge(entries, deadline)) is not None and not judged.entries:
                return ((message.done, None, each) for message, each in ids_of(entries, judged.are_new, iter(())))
            stored = entries if judged is None else judged.entries
            rows, places = publish_rows(stored, identity, self._producer_name, self._schema_version)
            version = self._commit(rows, deadline, judged)
            if version is not None:
                break
        names = self._topic_names
        if judged is None or judged.are_new is None:
            messages = [message for entry in entries for message in entry.messages]
            return (
                (message.done, None, None if message.done is None else SentMessageId(place, names[place[-1]]))
                for message, place in zip(messages, places.of_commit(version), strict=True)
            )
        ids = (SentMessageId(place, names[place[-1]]) for place in places.of_commit(version))
        return ((message.done, None, each) for message, each in ids_of(entries, judged.are_new, ids))

    def _judge(self, entries: list[Entry], deadline: float) -> Judged | None:
        while True:
            try:
                return self._deduplication.judge(entries)
            except FileNotFoundError as gone:
                if not is_away(self._topic.path):
                    raise self._is_gone() from gone
                self._wait(root_away(self._topic.path), deadline)
            except OSError as unclear:
                self._wait(unclear, deadline)

    def _refuse_unwritable(self, entries: list[Entry]) -> list[Entry]:
        """Fail the messages with a text that cannot be encoded; return the rest."""
        left = []
        for entry in entries:
            written = []
            for message in entry.messages:
                unwritable = unwritable_text(message)
                if unwritable is None:
                    written.append(message)
                    continue
                name, text = unwritable
                error = InvalidMessage(
                    f"{name} {text!r:.80} cannot be encoded as UTF-8: it contains half of a surrogate pair; send it as "
                    "bytes in the payload"
                )
                self._fail([entry._replace(messages=[message])], error)
            if written:
                left.append(entry._replace(messages=written))
        return left

    def _commit(self, rows: pa.Table, deadline: float, judged: Judged | None) -> int | None:
        """The version that has *rows*; None if they must be judged again."""
        wait, version = partial(self._wait, deadline=deadline), None
        try:
            if judged is None:
                version = self._table.append(rows, wait)
            else:
                version = self._table.append_after(judged.known, rows, judged.transactions, wait)
        except FileNotFoundError as gone:
            raise self._is_gone() from gone
        self._is_logged = False
        if version is not None and judged is not None:
            self._deduplication.stored(judged, version)
        return version

    def _wait(self, unclear: Exception, deadline: float) -> None:
        """Wait before another try; :class:`Timeout` if that would pass the deadline."""
        if time.monotonic() + _RETRY_SECONDS > deadline:
            raise Timeout(
                f"topic {str(self._topic.name)!r} could not be written before the send timeout: {unclear}"
            ) from unclear
        if isinstance(unclear, RootAway) and not self._is_logged:
            self._is_logged = True
            self._logger.warning("producer %r waits, until the send timeout: %s", self._producer_name, unclear)
        with self._condition:
            self._condition.wait(_RETRY_SECONDS)

    def _is_gone(self) -> TopicNotFound:
        return TopicNotFound(f"topic {str(self._topic.name)!r} was deleted: create it and its producers again")

    def _fail(self, entries: list[Entry], error: PulsarSparkError) -> None:
        messages = [message for entry in entries for message in entry.messages]
        self._callbacks.append((message.done, error, None) for message in messages)
        self._settled(messages, False)

    def _call_back(self) -> int:
        """Pass on all outcomes; the number of those that somebody waited for."""
        callbacks, called, waited = self._callbacks, 0, 0
        try:
            while callbacks:
                for done, error, message_id in callbacks[0]:
                    called += 1
                    if done is not None:
                        answer(done, error, message_id)
                        waited += isinstance(done, Answered)
                callbacks.popleft()
        finally:
            self._answered(called)
        return waited


def _size(message: Outgoing) -> int:
    """Approximately, in a commit."""
    return len(message.payload or b"") + len(message.partition_key or "") + len(message.ordering_key or "")
