"""Batching: which messages of a producer share an entry.

Rule: BatchMessageContainer and BatchMessageKeyBasedContainer of Pulsar's clients. A delayed message closes the open
batches and goes alone. A batch of one message is stored as a plain message."""

from typing import Generic, TypeVar

M = TypeVar("M")


class BatchContainer(Generic[M]):
    """The open batches of one partition. ``opened_at`` is the time of their oldest message, None without one.

    >>> container = BatchContainer(max_messages=2, max_bytes=100)
    >>> [container.add(message, 1, None, now=0) for message in "abc"], container.close()
    ([[], [['a', 'b']], []], [['c']])
    """

    def __init__(self, *, max_messages: int, max_bytes: int, is_key_based: bool = False):
        self._max_messages = max_messages
        self._max_bytes = max_bytes
        self._is_key_based = is_key_based
        self._batches: dict[str | None, list[M]] = {}
        self._messages = self._bytes = 0
        self.opened_at: float | None = None

    def add(self, message: M, size: int, key: str | None, now: float) -> list[list[M]]:
        """Put *message* of *size* bytes into its batch, or into a new one if it exceeds the size limit; return the
        batches that this closed, oldest first."""
        closed = self.close() if self._messages and self._bytes + size > self._max_bytes else []
        key = key if self._is_key_based else None
        batch = self._batches.get(key)
        if batch is None:
            batch = self._batches[key] = []
        batch.append(message)
        self._messages += 1
        self._bytes += size
        if self.opened_at is None:
            self.opened_at = now
        if (self._max_messages > 0 and self._messages >= self._max_messages) or self._bytes >= self._max_bytes:
            closed += self.close()
        return closed

    def close(self) -> list[list[M]]:
        """Close every open batch; return their messages, oldest first."""
        closed = list(self._batches.values())
        self._batches = {}
        self._messages = self._bytes = 0
        self.opened_at = None
        return closed
