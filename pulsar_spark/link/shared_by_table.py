"""What the clients of a process have in common of a table of the broker's: one of a kind, for as long as any has it."""

from collections.abc import Callable
from typing import Generic, TypeVar
from weakref import WeakValueDictionary

from pulsar_spark.storage import forks
from pulsar_spark.storage.log import TableLog
from pulsar_spark.storage.store import AnyPath

Kept = TypeVar("Kept")


class SharedByTable(Generic[Kept]):
    """What *make* makes of a table's path, once for the table as it is now: another one where it was made again, and in
    a process that was forked. Safe for threads."""

    def __init__(self, make: Callable[[AnyPath], Kept]):
        self._make, self._lock = make, forks.module_lock()
        self._kept: WeakValueDictionary[tuple, Kept] = WeakValueDictionary()

    def of(self, path: AnyPath) -> Kept:
        """That of the table at *path*; FileNotFoundError without one."""
        with self._lock:
            key = forks.generation, str(path), TableLog(path).life()
            found = self._kept.get(key)
            if found is None:
                found = self._kept[key] = self._make(path)
            return found
