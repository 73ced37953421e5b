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

    @property
    def is_alive(self) -> bool:
        thread = getattr(self, "_thread", None)
        return thread is not None and thread.is_alive()

    def wake(self) -> None:
        """Let it look again at what is due, because the clock was moved."""
        with self._condition:
            self._condition.notify_all()

    def stop(self, timeout: float) -> None:
        """Finish the work and end the thread; wait at most *timeout* seconds, unless called by the thread itself."""
        with self._condition:
            self._is_stopping = True
            self._condition.notify_all()
        if threading.current_thread() is not self._thread:
            interrupts.join(self._thread, timeout)


def live_workers() -> "list[Worker]":
    """The workers of this process that run."""
    with _lock:
        return [worker for worker in _workers if worker.is_alive]
