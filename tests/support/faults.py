"""A disk that refuses: the n-th write of a thread, and so many after it, fail with an error of the system's."""

import errno
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow.parquet as pq
import pytest

FULL, READ_ONLY = errno.ENOSPC, errno.EROFS


class Faults:
    """Counts the writes; :attr:`writes` says how many there were, :attr:`raised` how many of them failed."""

    def __init__(self, number: int, first: int, count: int, after: bool, threads: set[str] | None):
        self.number, self.first, self.last, self.after, self.threads = number, first, first + count - 1, after, threads
        self.writes = self.raised = 0

    def wrap(self, function):
        def write(*args, **kwargs):
            if self.threads is not None and threading.current_thread().name not in self.threads:
                return function(*args, **kwargs)
            self.writes += 1
            if not self.first <= self.writes <= self.last:
                return function(*args, **kwargs)
            if self.after:
                function(*args, **kwargs)
            self.raised += 1
            raise OSError(self.number, os.strerror(self.number))

        return write


@contextmanager
def faults(
    number: int = FULL, *, first: int, count: int = 1, after: bool = False, threads: set[str] | None = None
) -> Iterator[Faults]:
    """Let writes *first* to *first* + *count* - 1 fail (of *threads*, by name), before they are done or *after*: data
    files, whole texts, links, renames, syncs."""
    found = Faults(number, first, count, after, threads)
    with pytest.MonkeyPatch.context() as patch:
        wrap_writes(patch, found.wrap)
        yield found


def wrap_writes(patch: pytest.MonkeyPatch, wrap: Callable) -> None:
    """Put what *wrap* makes of it in the place of each function that writes."""
    patch.setattr(pq, "write_table", wrap(pq.write_table))
    patch.setattr(Path, "write_text", wrap(Path.write_text))
    for name in ("link", "rename", "replace", "fsync"):
        patch.setattr(os, name, wrap(getattr(os, name)))
