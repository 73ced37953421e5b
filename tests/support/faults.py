"""A disk that refuses: the n-th write of a thread, and so many after it, fail with an error of the system's."""

import errno
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from pulsar_spark.storage.processes.threads import Threads

FULL, READ_ONLY = errno.ENOSPC, errno.EROFS


class Faults:
    """Counts the writes; :attr:`writes` says how many there were, :attr:`raised` how many of them failed."""

    def __init__(self, number: int, first: int, count: int, after: bool, threads: set[str] | None):
        self.number, self.first, self.last, self.after, self.threads = number, first, first + count - 1, after, threads
        self.writes = self.raised = 0
        self._counting, self._works_for = threading.Lock(), threading.local()

    def wrap(self, function):
        def write(*args, **kwargs):
            if self.threads is not None and self._thread() not in self.threads:
                return function(*args, **kwargs)
            with self._counting:
                self.writes += 1
                is_refused = self.first <= self.writes <= self.last
                self.raised += is_refused
            if self.after or not is_refused:
                result = function(*args, **kwargs)
            if is_refused:
                raise OSError(self.number, os.strerror(self.number))
            return result

        return write

    def _thread(self) -> str:
        return getattr(self._works_for, "name", None) or threading.current_thread().name

    def wrap_submit(self, submit):
        """A pool's thread works for whoever submitted the work."""

        def submit_for(pool, function, *args, **kwargs):
            name = self._thread()

            def work(*args, **kwargs):
                self._works_for.name = name
                return function(*args, **kwargs)

            return submit(pool, work, *args, **kwargs)

        return submit_for


@contextmanager
def faults(
    number: int = FULL, *, first: int, count: int = 1, after: bool = False, threads: set[str] | None = None
) -> Iterator[Faults]:
    """Let writes *first* to *first* + *count* - 1 fail (of *threads*, by name, and of pools that work for them), before
    they are done or *after*: data files, whole texts, links, renames, syncs."""
    found = Faults(number, first, count, after, threads)
    with pytest.MonkeyPatch.context() as patch:
        wrap_writes(patch, found.wrap)
        patch.setattr(Threads, "submit", found.wrap_submit(Threads.submit))
        yield found


def wrap_writes(patch: pytest.MonkeyPatch, wrap: Callable) -> None:
    """Put what *wrap* makes of it in the place of each function that writes."""
    patch.setattr(pq, "write_table", wrap(pq.write_table))
    patch.setattr(Path, "write_text", wrap(Path.write_text))
    for name in ("link", "rename", "replace", "fsync"):
        patch.setattr(os, name, wrap(getattr(os, name)))
