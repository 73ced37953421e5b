"""Growing columns in packed form: a partition may have millions of runs, too many for Python objects."""

from array import array
from collections.abc import Callable
from functools import cache
from typing import Any, Protocol, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

_NULLS = 1 << 16


class Column(Protocol):
    """Values are appended, and found by index, the last at -1."""

    def append(self, value: Any) -> None: ...

    def extend(self, values: pa.Array) -> None: ...

    def __getitem__(self, index: int) -> Any: ...

    def drop_first(self, count: int) -> None: ...

    def put_before(self, other: Self) -> None:
        """Insert *other* in front."""


class Texts:
    """Texts, 8 bytes each beside their UTF-8; None becomes empty."""

    def __init__(self):
        self._bytes, self._ends = bytearray(), array("q", [0])

    def append(self, text: str | None) -> None:
        self._bytes += (text or "").encode()
        self._ends.append(len(self._bytes))

    def extend(self, values: pa.Array) -> None:
        values = pc.fill_null(values.cast(pa.string()), "")
        ends = np.frombuffer(values.buffers()[1], np.int32)[values.offset : values.offset + len(values) + 1]
        shift = len(self._bytes) - int(ends[0])
        self._bytes += memoryview(values.buffers()[2] or b"")[ends[0] : ends[-1]]
        self._ends.frombytes((ends[1:].astype(np.int64) + shift).tobytes())

    def drop_first(self, count: int) -> None:
        gone = self._ends[count]
        del self._bytes[:gone], self._ends[:count]
        self._ends = array("q", (np.frombuffer(self._ends, np.int64) - gone).tobytes())

    def put_before(self, other: Self) -> None:
        ends = np.frombuffer(self._ends, np.int64)[1:] + len(other._bytes)
        self._ends = other._ends + array("q", ends.tobytes())
        self._bytes[:0] = other._bytes

    def __getitem__(self, index: int) -> str:
        at = index if index < 0 else index + 1
        return self._bytes[self._ends[at - 1] : self._ends[at]].decode()


class Flags:
    """Booleans, a byte each."""

    def __init__(self):
        self._bytes = bytearray()

    def append(self, flag: bool) -> None:
        self._bytes.append(bool(flag))

    def extend(self, values: pa.Array) -> None:
        self._bytes += pc.fill_null(values, False).cast(pa.uint8()).to_numpy().tobytes()

    def drop_first(self, count: int) -> None:
        del self._bytes[:count]

    def put_before(self, other: Self) -> None:
        self._bytes[:0] = other._bytes

    def __getitem__(self, index: int) -> bool:
        return bool(self._bytes[index])

    def part(self, begin: int, end: int) -> np.ndarray:
        return np.frombuffer(self._bytes[begin:end], bool)


class Optional:
    """Values packed as 64-bit numbers, or None; 9 bytes each."""

    def __init__(self, pack: Callable[[Any], int] = int, unpack: Callable[[int], Any] = int):
        self._numbers, self._is_there, self._pack, self._unpack = array("q"), Flags(), pack, unpack

    def append(self, value: object | None) -> None:
        self._numbers.append(0 if value is None else self._pack(value))
        self._is_there.append(value is not None)

    def extend(self, values: pa.Array) -> None:
        self._numbers.frombytes(numbers(values).tobytes())
        self._is_there.extend(values.is_valid())

    def drop_first(self, count: int) -> None:
        del self._numbers[:count]
        self._is_there.drop_first(count)

    def put_before(self, other: Self) -> None:
        self._numbers[:0] = other._numbers
        self._is_there.put_before(other._is_there)

    def __getitem__(self, index: int) -> Any:
        return self._unpack(self._numbers[index]) if self._is_there[index] else None

    def part(self, begin: int, end: int, missing: int) -> np.ndarray:
        """Numbers *begin* to before *end*, None as *missing*."""
        found = np.frombuffer(self._numbers[begin:end], np.int64)
        return np.where(self._is_there.part(begin, end), found, missing)


def numbers(values: pa.Array) -> np.ndarray:
    """Numbers, or instants as microseconds; 0 for null."""
    if pa.types.is_timestamp(values.type):
        values = values.cast(pa.timestamp("us", values.type.tz))
    return pc.fill_null(values.cast(pa.int64()), 0).to_numpy(zero_copy_only=False)


def null_column(rows: int, kind: pa.DataType) -> pa.ChunkedArray:
    block = _nulls(kind)
    whole, rest = divmod(rows, len(block))
    return pa.chunked_array([block] * whole + ([block.slice(0, rest)] if rest else []), kind)


@cache
def _nulls(kind: pa.DataType) -> pa.Array:
    return pa.nulls(_NULLS, kind)


class Columns:
    """Columns of equal length, by name.

    >>> columns = Columns(first=np.int64, count=np.int32)
    >>> columns.append(first=np.array([3, 5]), count=np.array([1, 2]))
    >>> columns.keep(columns["count"] > 1)
    >>> len(columns), columns["first"].tolist()
    (1, [5])
    """

    def __init__(self, **types: type):
        self._columns: dict[str, np.ndarray] = {name: np.empty(0, kind) for name, kind in types.items()}
        self._length = 0

    def __len__(self) -> int:
        return self._length

    def __getitem__(self, name: str) -> np.ndarray:
        """A writable view of the column."""
        return self._columns[name][: self._length]

    def append(self, **columns: np.ndarray) -> None:
        end = self._length + len(next(iter(columns.values())))
        for name, column in self._columns.items():
            if end > len(column):
                grown = np.empty(max(end, 2 * len(column), 16), column.dtype)
                grown[: self._length] = column[: self._length]
                self._columns[name] = column = grown
            column[self._length : end] = columns[name]
        self._length = end

    def keep(self, which: np.ndarray) -> None:
        self._columns = {name: column[: self._length][which] for name, column in self._columns.items()}
        self._length = int(np.count_nonzero(which))
