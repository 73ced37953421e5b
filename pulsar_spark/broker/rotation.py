"""Some of many things in turn, for who looks at things that cost a call each."""

from collections.abc import Sequence
from typing import TypeVar

T = TypeVar("T")


class Rotation:
    """At most so many at a time; all where that is None."""

    def __init__(self, most: int | None):
        self._most, self._next = most, 0

    def some(self, things: Sequence[T]) -> Sequence[T]:
        """Those whose turn it is, of *things*, which may be others than the last time.

        >>> rotation = Rotation(2)
        >>> rotation.some("abc"), rotation.some("abc"), rotation.some("abcd")
        ('ab', 'ca', 'bc')
        """
        if self._most is None or len(things) <= self._most:
            return things
        begin = self._next % len(things)
        self._next = (begin + self._most) % len(things)
        behind = things[begin : begin + self._most]
        return behind + things[: self._most - len(behind)]
