"""Messages that are ready to be handed out one by one, by an atomic step of a list iterator."""

import sys
from collections.abc import Iterator
from operator import length_hint

from pulsar_spark.client.model.message import Message


class Ready:
    """Messages of one subscription, of entries *first*..*last*. Takers iterate :attr:`messages`; other methods require
    the subscription's lock."""

    __slots__ = ("messages", "_first", "_last", "_size", "_counted")

    def __init__(self, messages: list[Message], first: int = 0, last: int = sys.maxsize):
        self.messages: Iterator[Message] = iter(messages)
        self._first, self._last = first, last
        self._size = len(messages)
        self._counted = 0

    def newly_taken(self) -> int:
        counted, self._counted = self._counted, self._size - length_hint(self.messages)
        return self._counted - counted

    def may_hold(self, first: int, last: int) -> bool:
        """Whether a message of an entry *first*..*last* may be among them."""
        return self._first <= last and first <= self._last

    def take_back(self) -> list[Message]:
        left = list(self.messages)
        self._size -= len(left)
        return left
