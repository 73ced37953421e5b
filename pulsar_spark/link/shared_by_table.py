"""Objects that all clients of a process share for one of the broker's tables."""

from collections.abc import Callable
from typing import Generic, TypeVar
from weakref import WeakValueDictionary

from pulsar_spark.storage.delta.log import TableLog
from pulsar_spark.storage.processes import forks
from pulsar_spark.storage.store.store import AnyPath

Kept = TypeVar("Kept")


class SharedByTable(Generic[Kept]):
    """Calls *make* once per table and keeps the result while it is used. Thread-safe.

    A table that was created again, or a forked process, gets a new object.
    """

    def __init__(self, make: Callable[[AnyPath], Kept]):
        self._make, self._lock = make, forks.module_lock()
        self._kept: WeakValueDictionary[tuple, Kept] = WeakValueDictionary()

    def of(self, path: AnyPath) -> Kept:
        """The object of the table at *path*; FileNotFoundError without a table."""
        with self._lock:
            key = forks.generation, str(path), TableLog(path).life()
            found = self._kept.get(key)
            if found is None:
                found = self._kept[key] = self._make(path)
            return found
