"""Messages that are handed out one behind the other without looking at anything else.

Whether a message is shown depends on what changes all the time: the generation of its subscription, what came again
since, what is acknowledged. That is looked at for some hundred messages at once; whoever changes any of it takes back
those that are left, so that they are looked at once more. To hand one out is then a step of a list's iterator: one
thread or many, each message is taken by one of them or taken back.
"""

import sys
from collections.abc import Iterator
from operator import length_hint

from pulsar_spark.client.message import Message


class Ready:
    """Some messages of one subscription, in order, of entries *first*..*last*; whoever takes some goes on in
    :attr:`messages`. The other methods are for callers that hold the subscription's lock."""

    __slots__ = ("messages", "_first", "_last", "_size", "_told")

    def __init__(self, messages: list[Message], first: int = 0, last: int = sys.maxsize):
        self.messages: Iterator[Message] = iter(messages)
        self._first, self._last = first, last
        self._size = len(messages)
        self._told = 0

    def newly_taken(self) -> int:
        """How many were taken since it was asked last."""
        told, self._told = self._told, self._size - length_hint(self.messages)
        return self._told - told

    def may_hold(self, first: int, last: int) -> bool:
        """May a message of an entry *first*..*last* be among them?"""
        return self._first <= last and first <= self._last

    def take_back(self) -> list[Message]:
        """Those that are left, which nobody can take from here any more."""
        left = list(self.messages)
        self._size -= len(left)
        return left
