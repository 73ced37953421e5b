"""Numeric columns that grow at their end."""

import numpy as np


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
