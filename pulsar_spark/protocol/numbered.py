"""Enumerations of the ``pulsar`` package."""

from enum import Enum


class Numbered(Enum):
    """A member equals its number, has its hash and works as an index; members have no order.

    >>> Scheme = Numbered("Scheme", ["First", "Second"])
    >>> Scheme.Second == 2, Scheme.Second == Scheme.First, "abc"[Scheme.Second], int(Scheme.Second)
    (True, False, 'c', 2)
    """

    def __eq__(self, other: object) -> bool:
        return self is other or bool(self.value == other)

    def __hash__(self) -> int:
        return hash(self.value)

    def __index__(self) -> int:
        number: int = self.value
        return number

    def __int__(self) -> int:
        return self.__index__()
