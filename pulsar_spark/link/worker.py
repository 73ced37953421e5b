"""A background thread that ends through a condition."""

import threading
from abc import ABC, abstractmethod
from weakref import WeakSet

from pulsar_spark.link import interrupts
from pulsar_spark.storage.processes import forks

_workers: "WeakSet[Worker]" = WeakSet()
_lock = forks.module_lock()


class Worker(ABC):
    """Runs :meth:`_run` on its own thread, which must return once ``_is_stopping`` is set; the condition is notified
    then."""

    def __init__(self, name: str, condition: threading.Condition):
        self._condition, self._is_stopping = condition, False
        self._worker_name = f"pulsar-spark-{name}"
        with _lock:
            _workers.add(self)

    @abstractmethod
    def _run(self) -> None: ...

    def _work(self) -> None:
        interrupts.ignore_here()
        self._run()

    def _start(self) -> None:
        self._thread = threading.Thread(target=self._work, name=self._worker_name, daemon=True)
        self._thread.start()

    def stop(self, timeout: float) -> None:
        """Finish the work and end the thread; wait at most *timeout* seconds, unless called by the thread itself."""
        with self._condition:
            self._is_stopping = True
            self._condition.notify_all()
        if threading.current_thread() is not self._thread:
            interrupts.join(self._thread, timeout)


def wake_workers() -> "list[Worker]":
    """Wake all workers of the process, because the clock was moved; return them."""
    with _lock:
        workers = list(_workers)
    for worker in workers:
        with worker._condition:
            worker._condition.notify_all()
    return workers
