"""Columns that only grow, packed: of the runs of a topic partition there may be millions (see ledgers), and an object
of Python for each of their fields takes several times what it says."""

from array import array
from collections.abc import Callable
from datetime import datetime
from typing import Protocol

from pulsar_spark.protocol.instants import from_micros, to_micros

_NOTHING = -(1 << 63)


class Column(Protocol):
    """What is appended is found at its index, the last at -1."""

    def append(self, value: object) -> None: ...

    def __getitem__(self, index: int) -> object: ...


class Texts:
    """Texts, 8 bytes each beside their UTF-8; none is an empty one."""

    def __init__(self):
        self._bytes, self._ends = bytearray(), array("q", [0])

    def append(self, text: str | None) -> None:
        self._bytes += (text or "").encode()
        self._ends.append(len(self._bytes))

    def __getitem__(self, index: int) -> str:
        at = index if index < 0 else index + 1
        return self._bytes[self._ends[at - 1] : self._ends[at]].decode()


class Flags:
    """Whether, in a byte each."""

    def __init__(self):
        self._bytes = bytearray()

    def append(self, flag: bool) -> None:
        self._bytes.append(bool(flag))

    def __getitem__(self, index: int) -> bool:
        return bool(self._bytes[index])


class Optional:
    """Numbers of 64 bits, or what becomes one, or None."""

    def __init__(self, pack: Callable[[object], int] = int, unpack: Callable[[int], object] = int):
        self._numbers, self._pack, self._unpack = array("q"), pack, unpack

    def append(self, value: object | None) -> None:
        self._numbers.append(_NOTHING if value is None else self._pack(value))

    def __getitem__(self, index: int) -> object | None:
        number = self._numbers[index]
        return None if number == _NOTHING else self._unpack(number)


class Instants(Optional):
    """Aware datetimes, which come back in UTC, or None."""

    def __init__(self):
        super().__init__(to_micros, from_micros)

    def __getitem__(self, index: int) -> datetime | None:
        return super().__getitem__(index)
